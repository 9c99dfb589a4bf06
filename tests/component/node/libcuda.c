/* Stands for NVIDIA's driver library: the functions that the test of the GPUs calls, with their real signatures.
 * FAKE_CUDA_COUNT   number of GPUs (1)
 * FAKE_CUDA_INIT    what cuInit returns, or "crash", "hang"
 * FAKE_CUDA_GPU     the GPU that is ill (0)
 * FAKE_CUDA_ILL     how: an error code of cuCtxCreate, or "crash", "hang", "wrong"
 */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int current;

static int number(const char *name, int fallback) {
    const char *text = getenv(name);
    return text && *text ? atoi(text) : fallback;
}

static int is(const char *name, const char *wanted) {
    const char *text = getenv(name);
    return text && strcmp(text, wanted) == 0;
}

static void misbehave(const char *name) {
    if (is(name, "crash")) abort();
    while (is(name, "hang")) sleep(1000);
}

int cuInit(unsigned flags) {
    misbehave("FAKE_CUDA_INIT");
    return flags ? 1 : number("FAKE_CUDA_INIT", 0);
}

int cuDriverGetVersion(int *version) { *version = 12040; return 0; }
int cuDeviceGetCount(int *count) { *count = number("FAKE_CUDA_COUNT", 1); return 0; }
int cuDeviceGet(int *device, int index) { *device = index; return 0; }

int cuDeviceGetName(char *name, int size, int device) {
    snprintf(name, size, "Fake %d", device);
    return 0;
}

int cuDeviceGetPCIBusId(char *id, int size, int device) {
    snprintf(id, size, "0000:%02X:00.0", 0x3a + device);
    return 0;
}

int cuCtxCreate_v2(void **context, unsigned flags, int device) {
    current = device;
    *context = &current;
    if (device != number("FAKE_CUDA_GPU", 0)) return 0;
    misbehave("FAKE_CUDA_ILL");
    return is("FAKE_CUDA_ILL", "wrong") ? 0 : number("FAKE_CUDA_ILL", 0);
}

int cuMemAlloc_v2(unsigned long long *block, size_t size) {
    *block = (unsigned long long)(size_t)malloc(size);
    return *block ? 0 : 2;
}

int cuMemsetD8_v2(unsigned long long block, unsigned char value, size_t size) {
    memset((void *)(size_t)block, value, size);
    if (current == number("FAKE_CUDA_GPU", 0) && is("FAKE_CUDA_ILL", "wrong")) ((char *)(size_t)block)[7] ^= 1;
    return 0;
}

int cuMemcpyDtoH_v2(void *to, unsigned long long from, size_t size) {
    memcpy(to, (void *)(size_t)from, size);
    return 0;
}

int cuMemFree_v2(unsigned long long block) { free((void *)(size_t)block); return 0; }
int cuCtxDestroy_v2(void *context) { return context != &current; }
