/* A libnvidia-ml.so.1 without a GPU: what it answers lies in a file that a test changes while others ask, see nvml.h.

   FAKE_NVML_STATE names that file, FAKE_NVML_LOG the one that each value handed out is written into; else they are nvml.state
   and nvml.log beside the library, so that LD_LIBRARY_PATH alone is enough. As the driver does, it
   writes only the bytes of a value's type and leaves the rest of the union as it was, or worse. A GPU that hangs keeps its
   caller until the test lets go of it, or until the caller is killed. */

#define _GNU_SOURCE
#include <stdio.h>
#include <strings.h>

#include "nvml.h"

int nvmlInitWithFlags(unsigned flags)
{
    (void)flags;
    if (!is_open())
        return NO_DRIVER;
    __atomic_fetch_add(&machine->calls[C_INIT], 1, __ATOMIC_RELAXED);
    hang(&machine->init_hang_ms);
    if (machine->init_result != OK)
        return (int)machine->init_result;
    for (uint32_t n = 0; n < GPUS; n++) {
        handles[n] = (struct handle){n, 0};
        for (uint32_t m = 0; m < 8; m++)
            parts[n][m] = (struct handle){n, m + 1};
    }
    opened++;
    return OK;
}

int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlInit(void) { return nvmlInitWithFlags(0); }

int nvmlShutdown(void)
{
    if (opened <= 0)
        return UNINITIALIZED;
    opened--;
    return OK;
}

const char *nvmlErrorString(int result)
{
    switch (result) {
    case OK: return "Success";
    case UNINITIALIZED: return "Uninitialized";
    case INVALID: return "Invalid Argument";
    case NOT_SUPPORTED: return "Not Supported";
    case NOT_FOUND: return "Not Found";
    case TOO_SMALL: return "Insufficient Size";
    case NO_DRIVER: return "Driver Not Loaded";
    case TIMEOUT: return "Timeout";
    case LOST: return "GPU is lost";
    case 16: return "GPU requires reset";
    case 18: return "Driver/library version mismatch";
    default: return "Unknown Error";
    }
}

static int put(char *into, unsigned room, const char *text)
{
    if (into == NULL || strlen(text) + 1 > room)
        return TOO_SMALL;
    strcpy(into, text);
    return OK;
}

int nvmlSystemGetDriverVersion(char *into, unsigned room) { return machine == NULL ? UNINITIALIZED : put(into, room, machine->driver); }
int nvmlSystemGetNVMLVersion(char *into, unsigned room) { return machine == NULL ? UNINITIALIZED : put(into, room, machine->nvml); }

int nvmlSystemGetCudaDriverVersion_v2(int *into)
{
    if (machine == NULL)
        return UNINITIALIZED;
    *into = (int)machine->cuda;
    return OK;
}
int nvmlSystemGetCudaDriverVersion(int *into) { return nvmlSystemGetCudaDriverVersion_v2(into); }

int nvmlDeviceGetCount_v2(unsigned *into)
{
    if (machine == NULL || opened <= 0)
        return UNINITIALIZED;
    machine->calls[C_COUNT]++;
    *into = machine->count;
    return OK;
}
int nvmlDeviceGetCount(unsigned *into) { return nvmlDeviceGetCount_v2(into); }

static int look_up(unsigned index, device *into)
{
    device of = index < GPUS ? &handles[index] : NULL;
    ENTER(C_HANDLE);
    *into = of;
    return OK;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, device *into) { return look_up(index, into); }
int nvmlDeviceGetHandleByIndex(unsigned index, device *into) { return look_up(index, into); }

static int find(const char *text, bool by_bus, device *into)
{
    for (unsigned n = 0; machine != NULL && n < machine->count; n++)
        if (strcasecmp(by_bus ? machine->gpu[n].bus : machine->gpu[n].uuid, text) == 0)
            return look_up(n, into);
    return machine == NULL ? UNINITIALIZED : NOT_FOUND;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, device *into) { return find(uuid, false, into); }
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, device *into) { return find(bus, true, into); }

int nvmlDeviceGetName(device of, char *into, unsigned room) { ENTER(C_NAME); return put(into, room, gpu->name); }

int nvmlDeviceGetUUID(device of, char *into, unsigned room)
{
    ENTER(C_UUID);
    char part[128];
    snprintf(part, sizeof part, "MIG-%.80s-%u", gpu->uuid + 4, of->mig);
    return put(into, room, of->mig ? part : gpu->uuid);
}

int nvmlDeviceGetIndex(device of, unsigned *into) { ENTER(C_INDEX); *into = of->gpu; return OK; }
int nvmlDeviceGetMinorNumber(device of, unsigned *into) { ENTER(C_MINOR); *into = of->gpu; return OK; }

struct pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; };

int nvmlDeviceGetPciInfo_v3(device of, struct pci *into)
{
    ENTER(C_PCI);
    *into = (struct pci){.bus = of->gpu + 1, .id = 0x233010DE};
    snprintf(into->legacy, sizeof into->legacy, "%.15s", gpu->bus + 4);
    return put(into->bus_id, sizeof into->bus_id, gpu->bus);
}

int nvmlDeviceGetUtilizationRates(device of, unsigned into[2])
{
    ENTER(C_UTILIZATION);
    if (gpu->mig)
        return NOT_SUPPORTED;
    into[0] = gpu->utilization;
    into[1] = gpu->memory_utilization;
    record(call, of->gpu, C_UTILIZATION, OK, into[0] | (uint64_t)into[1] << 32);
    return OK;
}

int nvmlDeviceGetMemoryInfo(device of, uint64_t into[3])
{
    ENTER(C_MEMORY);
    into[0] = gpu->total;
    into[2] = gpu->used + gpu->reserved;
    into[1] = into[0] - into[2];
    record(call, of->gpu, C_MEMORY, OK, into[2]);
    return OK;
}

struct memory { unsigned version; uint64_t total, reserved, free, used; };

int nvmlDeviceGetMemoryInfo_v2(device of, struct memory *into)
{
    ENTER(C_MEMORY);
    if (into->version != (sizeof *into | 2u << 24))
        return WRONG_VERSION;
    into->total = gpu->total;
    into->reserved = gpu->reserved;
    into->used = gpu->used;
    into->free = gpu->total - gpu->reserved - into->used;
    record(call, of->gpu, C_MEMORY, OK, into->used);
    return OK;
}

int nvmlDeviceGetTemperature(device of, unsigned sensor, unsigned *into)
{
    ENTER(C_TEMPERATURE);
    return sensor == 0 ? give(of, call, C_TEMPERATURE, gpu->temperature, into) : INVALID;
}

int nvmlDeviceGetPowerUsage(device of, unsigned *into) { ENTER(C_POWER); follow_wave(gpu); return give(of, call, C_POWER, gpu->field[185], into); }
int nvmlDeviceGetEnforcedPowerLimit(device of, unsigned *into) { ENTER(C_POWER_LIMIT); return give(of, call, C_POWER_LIMIT, gpu->limit_mw, into); }
int nvmlDeviceGetPowerManagementLimit(device of, unsigned *into) { return nvmlDeviceGetEnforcedPowerLimit(of, into); }
int nvmlDeviceGetPowerManagementDefaultLimit(device of, unsigned *into) { ENTER(C_POWER_LIMIT); *into = gpu->default_mw; return OK; }

int nvmlDeviceGetTotalEnergyConsumption(device of, uint64_t *into)
{
    ENTER(C_ENERGY);
    follow_wave(gpu);
    *into = gpu->field[83];
    record(call, of->gpu, C_ENERGY, OK, *into);
    return OK;
}

int nvmlDeviceGetClockInfo(device of, unsigned type, unsigned *into)
{
    ENTER(C_CLOCK);
    return type < CLOCKS ? give(of, call, CLOCK_BASE + type, gpu->clock[type], into) : INVALID;
}

int nvmlDeviceGetMaxClockInfo(device of, unsigned type, unsigned *into)
{
    ENTER(C_MAX_CLOCK);
    if (type >= CLOCKS)
        return INVALID;
    *into = gpu->max_clock[type];
    return OK;
}

int nvmlDeviceGetPerformanceState(device of, unsigned *into) { ENTER(C_PERFORMANCE); return give(of, call, C_PERFORMANCE, gpu->performance, into); }

struct field { unsigned id, scope; int64_t at, latency; unsigned type, result; union { uint64_t bits; unsigned char bytes[8]; } value; };

static int one_field(const struct gpu *gpu, struct field *one)
{
    memset(&one->value, 0xA5, sizeof one->value);
    if (one->id >= FIELDS || gpu->code[one->id] != OK)
        return one->id >= FIELDS ? INVALID : gpu->code[one->id];
    uint64_t value = gpu->field[one->id];
    if (one->id >= 138 && one->id <= 141 && one->scope != UINT32_MAX) {
        if (one->scope >= gpu->links)
            return INVALID;
        value /= gpu->links;
    }
    one->type = gpu->type[one->id];
    memcpy(one->value.bytes, &value, width[one->type]);
    return OK;
}

int nvmlDeviceGetFieldValues(device of, int count, struct field *values)
{
    ENTER(C_FIELDS);
    if (gpu->seed != 0)
        walk(gpu);
    follow_wave(gpu);
    for (int n = 0; n < count; n++) {
        uint64_t value = 0;
        values[n].at = wall_us();
        values[n].latency = 1;
        values[n].result = (unsigned)one_field(gpu, &values[n]);
        if (values[n].result == OK)
            memcpy(&value, values[n].value.bytes, width[values[n].type]);
        record(call, of->gpu, FIELD_BASE + values[n].id, (int)values[n].result, value);
    }
    return OK;
}

int nvmlDeviceGetPcieThroughput(device of, unsigned counter, unsigned *into)
{
    ENTER(C_PCIE_THROUGHPUT);
    rest((int64_t)machine->pcie_block_ns);
    return give(of, call, C_PCIE_THROUGHPUT, gpu->field[counter == 0 ? 197 : 198] >> 10, into);
}

int nvmlDeviceGetNvLinkState(device of, unsigned link, unsigned *into)
{
    ENTER(C_NVLINK_STATE);
    if (link >= LINKS)
        return INVALID;
    *into = link < gpu->links;
    return OK;
}

int nvmlDeviceGetTotalEccErrors(device of, unsigned type, unsigned counter, uint64_t *into)
{
    ENTER(C_ECC);
    *into = gpu->field[counter == 0 ? 3 + type : 5 + type];
    record(call, of->gpu, C_ECC, OK, *into);
    return OK;
}

int nvmlDeviceGetRemappedRows(device of, unsigned *correctable, unsigned *uncorrectable, unsigned *pending, unsigned *failed)
{
    ENTER(C_REMAPPED);
    *correctable = (unsigned)gpu->field[142];
    *uncorrectable = (unsigned)gpu->field[143];
    *pending = (unsigned)gpu->field[144];
    *failed = (unsigned)gpu->field[145];
    return OK;
}

int nvmlDeviceGetViolationStatus(device of, unsigned policy, uint64_t into[2])
{
    ENTER(C_VIOLATION);
    if (policy > 5)
        return INVALID;
    into[0] = (uint64_t)wall_us();
    into[1] = gpu->field[74 + policy];
    return OK;
}

int nvmlDeviceGetCurrentClocksEventReasons(device of, uint64_t *into)
{
    ENTER(C_REASONS);
    *into = gpu->reasons;
    record(call, of->gpu, C_REASONS, OK, *into);
    return OK;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(device of, uint64_t *into) { return nvmlDeviceGetCurrentClocksEventReasons(of, into); }

struct running { unsigned pid; uint64_t used; unsigned instance, compute; };

int nvmlDeviceGetComputeRunningProcesses_v3(device of, unsigned *count, struct running *into)
{
    ENTER(C_PROCESSES);
    unsigned room = *count;
    *count = gpu->processes;
    if (gpu->processes > 0 && (into == NULL || room < gpu->processes))
        return TOO_SMALL;
    for (unsigned n = 0; n < gpu->processes; n++) {
        const struct process *one = &gpu->process[n];
        into[n] = (struct running){one->pid, one->used, one->instance ? one->instance : UINT32_MAX, UINT32_MAX};
        record(call, of->gpu, PROCESS_BASE, OK, one->used);
    }
    return OK;
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(device of, unsigned *count, struct running *into)
{
    (void)into;
    ENTER(C_PROCESSES);
    *count = 0;
    return OK;
}

struct used { unsigned pid; uint64_t at; unsigned sm, memory, encoder, decoder; };

/* The driver renews these six times a second; what the caller has seen is not told again. */
int nvmlDeviceGetProcessUtilization(device of, struct used *into, unsigned *count, uint64_t seen)
{
    ENTER(C_PROCESS_UTILIZATION);
    uint64_t at = (uint64_t)wall_us() / 166667 * 166667;
    unsigned room = *count, found = 0;
    *count = at > seen ? gpu->processes : 0;
    if (*count == 0)
        return NOT_FOUND;
    if (into == NULL || room < *count)
        return TOO_SMALL;
    for (unsigned n = 0; n < gpu->processes; n++) {
        const struct process *one = &gpu->process[n];
        into[found++] = (struct used){one->pid, at, one->sm, one->memory, 0, 0};
        record(call, of->gpu, PROCESS_BASE + 1, OK, (uint64_t)one->pid << 32 | one->sm);
    }
    return OK;
}

int nvmlDeviceGetMigMode(device of, unsigned *current, unsigned *pending)
{
    ENTER(C_MIG);
    *current = *pending = gpu->mig;
    return OK;
}

int nvmlDeviceGetMaxMigDeviceCount(device of, unsigned *into) { ENTER(C_MIG); *into = gpu->mig ? 7 : 0; return OK; }

int nvmlDeviceGetMigDeviceHandleByIndex(device of, unsigned index, device *into)
{
    ENTER(C_MIG);
    if (!gpu->mig || index >= gpu->mig_devices || index >= 8)
        return NOT_FOUND;
    *into = &parts[of->gpu][index];
    return OK;
}

int nvmlDeviceIsMigDeviceHandle(device of, unsigned *into) { ENTER(C_MIG); *into = of->mig != 0; return OK; }

int nvmlDeviceGetCudaComputeCapability(device of, int *major, int *minor)
{
    ENTER(C_CAPABILITY);
    *major = (int)gpu->major;
    *minor = (int)gpu->minor;
    return OK;
}

struct events { uint64_t seen, types[GPUS]; };

int nvmlEventSetCreate(struct events **into)
{
    if (machine == NULL)
        return UNINITIALIZED;
    *into = calloc(1, sizeof **into);
    (*into)->seen = machine->events;
    return OK;
}

int nvmlEventSetFree(struct events *set) { free(set); return OK; }
int nvmlDeviceGetSupportedEventTypes(device of, uint64_t *into) { ENTER(C_EVENTS); *into = 0xF; return OK; }
int nvmlDeviceRegisterEvents(device of, uint64_t types, struct events *set) { ENTER(C_EVENTS); set->types[of->gpu] |= types; return OK; }

struct data { device of; uint64_t type, data; unsigned instance, compute; };

int nvmlEventSetWait_v2(struct events *set, struct data *into, unsigned timeout_ms)
{
    int64_t until = now_ns() + timeout_ms * 1000000LL;
    for (;;) {
        uint64_t upto = __atomic_load_n(&machine->events, __ATOMIC_ACQUIRE);
        if (machine->wait_result != OK)
            return (int)machine->wait_result;
        if (upto > EVENTS && set->seen < upto - EVENTS)
            set->seen = upto - EVENTS;
        while (set->seen < upto) {
            const struct event *one = &machine->event[set->seen++ % EVENTS];
            if (!(set->types[one->gpu] & one->type))
                continue;
            *into = (struct data){&handles[one->gpu], one->type, one->data, UINT32_MAX, UINT32_MAX};
            record(__atomic_add_fetch(&machine->number, 1, __ATOMIC_RELAXED), one->gpu, C_EVENTS, OK, one->data);
            return OK;
        }
        if (now_ns() >= until)
            return TIMEOUT;
        rest(until - now_ns() < 50000000 ? 5000000 : 50000000);
    }
}

struct support { unsigned version, is_supported; };
struct sample { int64_t at; uint32_t gpu; };
struct metric { unsigned id, result; double value; const char *names[3]; };
struct metrics { unsigned version, count; struct sample *from, *upto; struct metric metric[]; };

int nvmlGpmQueryDeviceSupport(device of, struct support *into)
{
    ENTER(C_GPM_SUPPORT);
    if (into->version != 1)
        return WRONG_VERSION;
    into->is_supported = gpu->gpm;
    return OK;
}

int nvmlGpmSampleAlloc(struct sample **into) { *into = calloc(1, sizeof **into); return OK; }
int nvmlGpmSampleFree(struct sample *one) { free(one); return OK; }

int nvmlGpmSampleGet(device of, struct sample *into)
{
    ENTER(C_GPM_SAMPLE);
    if (!gpu->gpm)
        return NOT_SUPPORTED;
    *into = (struct sample){now_ns(), of->gpu};
    return OK;
}

int nvmlGpmMetricsGet(struct metrics *into)
{
    if (into->version != 1)
        return WRONG_VERSION;
    if (into->from->at == 0 || into->upto->at <= into->from->at || into->from->gpu != into->upto->gpu)
        return INVALID;
    device of = &handles[into->upto->gpu];
    ENTER(C_GPM_METRICS);
    for (unsigned n = 0; n < into->count; n++) {
        struct metric *one = &into->metric[n];
        uint64_t bits = 0;
        one->result = one->id < GPM ? OK : NOT_SUPPORTED;
        if (one->result == OK) {
            one->value = gpu->metric[one->id];
            memcpy(&bits, &one->value, sizeof bits);
        }
        record(call, of->gpu, GPM_BASE + one->id, (int)one->result, bits);
    }
    return OK;
}
