/* What a test sets and reads while the library of nvml.c runs in other processes: a file that all of them map.

   nvml.py has the same layout; the sizes that it knows are compared when it compiles the library. Behind it: what every call
   begins and ends with. */

#pragma once

#include <dlfcn.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { GPUS = 64, FIELDS = 308, PROCESSES = 1024, GPM = 64, EVENTS = 4096, CLOCKS = 4, CALLS = 64, LINKS = 18 };

/* Whom `calls`, `refuse` and the log speak of; a value of nvmlDeviceGetFieldValues is in the log as FIELD_BASE + its id. */
enum call {
    C_INIT, C_COUNT, C_HANDLE, C_NAME, C_UUID, C_INDEX, C_MINOR, C_PCI, C_UTILIZATION, C_MEMORY, C_TEMPERATURE,
    C_POWER, C_POWER_LIMIT, C_ENERGY, C_CLOCK, C_MAX_CLOCK, C_FIELDS, C_PCIE_THROUGHPUT, C_NVLINK_STATE, C_ECC, C_REMAPPED,
    C_PROCESSES, C_PROCESS_UTILIZATION, C_MIG, C_CAPABILITY, C_EVENTS, C_GPM_SUPPORT, C_GPM_SAMPLE, C_GPM_METRICS,
    C_VIOLATION, C_REASONS, C_PERFORMANCE,
    FIELD_BASE = 1000, GPM_BASE = 2000, CLOCK_BASE = 3000, PROCESS_BASE = 4000
};

struct process {
    uint32_t pid, sm, memory, instance;
    uint64_t used;
};

/* What a GPU draws: `high` for the first half of each period, `low` for the second; its energy is the exact integral. */
struct wave {
    uint64_t period_ns, start_ns;
    uint32_t high_mw, low_mw;
    uint64_t base_mj;
};

struct gpu {
    char name[96], uuid[96], bus[32];
    uint32_t result, hang_ms;           /* of every call that names it; UINT32_MAX ms: for ever */
    uint32_t utilization, memory_utilization, temperature, limit_mw, default_mw, performance;
    uint64_t total, used, reserved;
    uint32_t clock[CLOCKS], max_clock[CLOCKS]; /* graphics, SM, memory, video */
    uint64_t reasons;
    uint32_t mig, mig_devices, gpm, processes;
    uint32_t major, minor, seed, links;
    struct wave wave;
    uint8_t refuse[CALLS];              /* by call: what it returns instead */
    uint8_t type[FIELDS], code[FIELDS]; /* by field: type of its value, and what comes in its place; 0: the value */
    uint8_t pad[8 - (CALLS + 2 * FIELDS) % 8];
    uint64_t field[FIELDS];
    double metric[GPM];
    struct process process[PROCESSES];
};

struct event {
    uint32_t gpu, pad;
    uint64_t type, data;
};

/* One value that was handed out. */
struct handed {
    int64_t at_ns;                      /* CLOCK_MONOTONIC */
    uint64_t call;                      /* the same for all values of one call */
    uint64_t value;                     /* bits; the bytes that its type has not are 0 */
    uint16_t gpu, what;
    uint32_t result;
};

struct machine {
    uint32_t count, init_result, init_hang_ms, wait_result;
    uint64_t call_ns, pcie_block_ns, number, handed, room, lost;
    uint64_t calls[CALLS];
    uint64_t events;
    char driver[80], nvml[80];
    uint32_t cuda, pad;
    struct event event[EVENTS];
    struct gpu gpu[GPUS];
};

_Static_assert(sizeof(struct machine) == MACHINE_SIZE, "nvml.py has another machine");
_Static_assert(sizeof(struct gpu) == GPU_SIZE, "nvml.py has another GPU");
_Static_assert(sizeof(struct handed) == HANDED_SIZE, "nvml.py has another log");

enum {
    OK = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7, NO_DRIVER = 9, TIMEOUT = 10,
    LOST = 15, UNKNOWN_SYMBOL = 13, WRONG_VERSION = 25
};
enum { DOUBLE, UINT, ULONG, ULL, SLL, SINT, USHORT };
static const size_t width[] = {8, 4, 8, 8, 8, 4, 2};

typedef struct handle { uint32_t gpu, mig; } *device;
static struct handle handles[GPUS], parts[GPUS][8];
static struct machine *machine;
static struct handed *handed;
static int opened;

static int64_t now_ns(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1000000000LL + at.tv_nsec;
}

static int64_t wall_us(void)
{
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    return at.tv_sec * 1000000LL + at.tv_nsec / 1000;
}

static void rest(int64_t ns)
{
    struct timespec some = {ns / 1000000000, ns % 1000000000};
    nanosleep(&some, NULL);
}

/* The file that a variable names, else the one of that name beside the library as it was found. */
static const char *place_of(const char *variable, const char *name, char *into, size_t room)
{
    Dl_info about;
    const char *path = getenv(variable);
    if (path != NULL || dladdr(&machine, &about) == 0 || strrchr(about.dli_fname, '/') == NULL)
        return path;
    snprintf(into, room, "%.*s/%s", (int)(strrchr(about.dli_fname, '/') - about.dli_fname), about.dli_fname, name);
    return into;
}

static void *map(const char *variable, const char *name, size_t *size)
{
    char beside[4096];
    const char *path = place_of(variable, name, beside, sizeof beside);
    int file = path == NULL ? -1 : open(path, O_RDWR | O_CLOEXEC);
    struct stat about;
    if (file < 0)
        return NULL;
    void *at = fstat(file, &about) < 0 ? MAP_FAILED : mmap(NULL, (size_t)about.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    *size = at == MAP_FAILED ? 0 : (size_t)about.st_size;
    return at == MAP_FAILED ? NULL : at;
}

static bool is_open(void)
{
    size_t size = 0;
    if (machine == NULL) {
        void *at = map("FAKE_NVML_STATE", "nvml.state", &size);
        if (size < sizeof *machine)
            return false;
        handed = map("FAKE_NVML_LOG", "nvml.log", &size);
        machine = at;
    }
    return true;
}

/* Keep the caller for as long as the knob says, or until the test turns it back. */
static void hang(volatile uint32_t *knob)
{
    int64_t from = now_ns();
    while (*knob != 0 && (*knob == UINT32_MAX || now_ns() - from < *knob * 1000000LL))
        rest(5000000);
}

static void spend(int64_t ns)
{
    int64_t from = ns > 0 ? now_ns() : 0;
    while (ns > 0 && now_ns() - from < ns) {}
}

static void record(uint64_t call, uint32_t gpu, unsigned what, int result, uint64_t value)
{
    if (handed == NULL)
        return;
    uint64_t at = __atomic_fetch_add(&machine->handed, 1, __ATOMIC_RELAXED);
    if (at < machine->room)
        handed[at] = (struct handed){now_ns(), call, value, (uint16_t)gpu, (uint16_t)what, (uint32_t)result};
    else
        __atomic_fetch_add(&machine->lost, 1, __ATOMIC_RELAXED);
}

/* What every call that names a GPU begins with. */
static int enter(device of, enum call what, struct gpu **gpu, uint64_t *call)
{
    if (machine == NULL || opened <= 0)
        return UNINITIALIZED;
    __atomic_fetch_add(&machine->calls[what], 1, __ATOMIC_RELAXED);
    *call = __atomic_add_fetch(&machine->number, 1, __ATOMIC_RELAXED);
    if (of == NULL || of->gpu >= machine->count)
        return INVALID;
    *gpu = &machine->gpu[of->gpu];
    spend((int64_t)machine->call_ns);
    hang(&(*gpu)->hang_ms);
    int result = (*gpu)->result != OK ? (int)(*gpu)->result : (*gpu)->refuse[what];
    if (result != OK)
        record(*call, of->gpu, what, result, 0);
    return result;
}

#define ENTER(what) struct gpu *gpu = NULL; uint64_t call = 0; int result = enter(of, what, &gpu, &call); if (result != OK) return result

static int give(device of, uint64_t call, unsigned what, uint64_t value, unsigned *into)
{
    if (into == NULL)
        return INVALID;
    *into = (unsigned)value;
    record(call, of->gpu, what, OK, (unsigned)value);
    return OK;
}

/* Power of a wave, and the energy since it began; nvml.py has the same formula. */
static void follow_wave(struct gpu *gpu)
{
    const struct wave *wave = &gpu->wave;
    uint64_t period = __atomic_load_n(&wave->period_ns, __ATOMIC_ACQUIRE);
    if (period == 0)
        return;
    uint64_t since = (uint64_t)now_ns() - wave->start_ns, half = period / 2, in = since % period;
    uint64_t whole = since / period * half, high = whole + (in < half ? in : half), low = whole + (in < half ? 0 : in - half);
    gpu->field[185] = gpu->field[186] = in < half ? wave->high_mw : wave->low_mw;
    gpu->field[83] = wave->base_mj + (uint64_t)(((double)high * wave->high_mw + (double)low * wave->low_mw) / 1e9);
}

static uint32_t draw(struct gpu *gpu, uint32_t below)
{
    gpu->seed ^= gpu->seed << 13;
    gpu->seed ^= gpu->seed >> 17;
    gpu->seed ^= gpu->seed << 5;
    return gpu->seed % below;
}

/* A load whose power, energy, clocks, traffic and share of time change with every sample. */
static void walk(struct gpu *gpu)
{
    gpu->field[185] = gpu->field[186] = 280000 + draw(gpu, 40000);
    gpu->field[83] += 28000 + draw(gpu, 4000);
    gpu->field[197] += 50000000 + draw(gpu, 20000000);
    gpu->field[198] += 90000000 + draw(gpu, 20000000);
    gpu->clock[0] = gpu->clock[1] = 1700 + 15 * draw(gpu, 20);
    gpu->utilization = 90 + draw(gpu, 11);
    gpu->memory_utilization = 40 + draw(gpu, 20);
}
