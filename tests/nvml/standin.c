/* A stand-in of libnvidia-ml.so.1 for machines without a GPU: the calls that ollamactl makes, answered from a file.
 *
 *   cc -shared -fPIC -O1 -Wall -Werror -o libnvidia-ml.so.1 standin.c        (-DOLD: as a driver before 510)
 *
 * The file is named by NVML_STANDIN, else /etc/nvml-standin.conf; it is read anew at each nvmlInit. No file, no GPU.
 * One statement a line, sizes in MiB, `-` for "not supported":
 *   init CODE                                 nvmlInit fails with this code
 *   driver VERSION        cuda NUMBER         as NVML gives them: 550.54.15, 12040
 *   gpu TOTAL USED RESERVED MAJOR.MINOR NAME  the next GPU; TOTAL `-`: memory not supported
 *   lost                                      the last GPU has fallen off the bus
 *   process PID USED compute|graphics [NAME]  on the last GPU or slice; USED `-`: not told
 *   mig                                       the last GPU is in MIG mode
 *   slice TOTAL USED NAME                     a MIG slice of the last GPU
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6,
       INSUFFICIENT_SIZE = 7, GPU_IS_LOST = 15, VERSION_MISMATCH = 25 };
enum { GPUS = 16, SLICES = 8, PROCESSES = 64 };
#define MIB (1024ULL * 1024ULL)
#define UNTOLD (~0ULL)

typedef struct { unsigned pid; unsigned long long used; int graphics; char name[128]; } process_t;
typedef struct device {
    unsigned long long total, used, reserved;
    int memory, major, minor, mig, slices, lost, is_slice, index, parent, processes;
    char name[96];
    process_t process[PROCESSES];
    struct device *slice[SLICES];
} device_t;

static device_t gpus[GPUS], slices[GPUS * SLICES];
static int gpu_count, slice_count, started, cuda = 12040;
static char driver[80] = "550.54.15";

static unsigned long long size_of(const char *word) { return strtoull(word, NULL, 10) * MIB; }

static int load(void) {
    const char *path = getenv("NVML_STANDIN");
    FILE *file = fopen(path ? path : "/etc/nvml-standin.conf", "r");
    char line[512], a[128], b[128], c[128], name[128];
    device_t *last = NULL, *gpu = NULL;
    int code = SUCCESS, number, major, minor;
    memset(gpus, 0, sizeof gpus);
    memset(slices, 0, sizeof slices);
    gpu_count = slice_count = 0;
    if (!file) return SUCCESS;
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        if (sscanf(line, "init %d", &number) == 1) code = number;
        else if (sscanf(line, "driver %79s", driver) == 1) continue;
        else if (sscanf(line, "cuda %d", &number) == 1) cuda = number;
        else if (sscanf(line, "gpu %127s %127s %127s %d.%d %95[^\n]", a, b, c, &major, &minor, name) == 6
                 && gpu_count < GPUS) {
            last = gpu = &gpus[gpu_count];
            gpu->index = gpu_count++;
            gpu->memory = a[0] != '-';
            gpu->total = size_of(a); gpu->used = size_of(b); gpu->reserved = size_of(c);
            gpu->major = major; gpu->minor = minor;
            strcpy(gpu->name, name);
        } else if (!strcmp(line, "lost") && gpu) gpu->lost = 1;
        else if (!strcmp(line, "mig") && gpu) gpu->mig = 1;
        else if (sscanf(line, "slice %127s %127s %95[^\n]", a, b, name) == 3 && gpu && gpu->slices < SLICES) {
            last = &slices[slice_count++];
            last->is_slice = last->memory = 1;
            last->index = gpu->slices; last->parent = gpu->index;
            last->total = size_of(a); last->used = size_of(b);
            strcpy(last->name, name);
            gpu->slice[gpu->slices++] = last;
        } else if ((number = sscanf(line, "process %127s %127s %127s %127[^\n]", a, b, c, name)) >= 3 && last
                   && last->processes < PROCESSES) {
            process_t *p = &last->process[last->processes++];
            p->pid = (unsigned)atoi(a);
            p->used = b[0] == '-' ? UNTOLD : size_of(b);
            p->graphics = c[0] == 'g';
            if (number == 4) strcpy(p->name, name);
        }
    }
    fclose(file);
    return code;
}

int nvmlInitWithFlags(unsigned flags) { (void)flags; int code = load(); started = code == SUCCESS; return code; }
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { if (!started) return UNINITIALIZED; started = 0; return SUCCESS; }

const char *nvmlErrorString(int code) {
    switch (code) { /* NVML's own words */
        case SUCCESS: return "Success";
        case UNINITIALIZED: return "Uninitialized";
        case INVALID_ARGUMENT: return "Invalid Argument";
        case NOT_SUPPORTED: return "Not Supported";
        case 4: return "Insufficient Permissions";
        case NOT_FOUND: return "Not Found";
        case INSUFFICIENT_SIZE: return "Insufficient Size";
        case 9: return "Driver Not Loaded";
        case GPU_IS_LOST: return "GPU is lost";
        case 18: return "Driver/library version mismatch";
        default: return "Unknown Error";
    }
}

static int copy(char *to, unsigned length, const char *from) {
    if (strlen(from) + 1 > length) return INSUFFICIENT_SIZE;
    strcpy(to, from);
    return SUCCESS;
}

#define USABLE(d) do { if (!started) return UNINITIALIZED; if (!(d)) return INVALID_ARGUMENT; \
                       if ((d)->lost) return GPU_IS_LOST; } while (0)

int nvmlSystemGetDriverVersion(char *to, unsigned length) { return copy(to, length, driver); }
int nvmlSystemGetNVMLVersion(char *to, unsigned length) { return copy(to, length, driver); }
int nvmlSystemGetCudaDriverVersion(int *to) { *to = cuda; return SUCCESS; }
int nvmlDeviceGetCount_v2(unsigned *to) { *to = (unsigned)gpu_count; return SUCCESS; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, device_t **to) {
    if (index >= (unsigned)gpu_count) return INVALID_ARGUMENT;
    if (gpus[index].lost) return GPU_IS_LOST;
    *to = &gpus[index];
    return SUCCESS;
}

int nvmlDeviceGetName(device_t *d, char *to, unsigned length) { USABLE(d); return copy(to, length, d->name); }

int nvmlDeviceGetUUID(device_t *d, char *to, unsigned length) {
    char uuid[96];
    USABLE(d);
    snprintf(uuid, sizeof uuid, "%s-%08x-0000-4000-8000-%012x", d->is_slice ? "MIG" : "GPU",
             d->is_slice ? d->parent : d->index, d->is_slice ? d->index + 1 : 0);
    return copy(to, length, uuid);
}

typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; } pci_t;

int nvmlDeviceGetPciInfo_v3(device_t *d, pci_t *to) {
    USABLE(d);
    memset(to, 0, sizeof *to);
    to->bus = (unsigned)d->index + 1;
    snprintf(to->bus_id, sizeof to->bus_id, "00000000:%02X:00.0", to->bus);
    snprintf(to->legacy, sizeof to->legacy, "0000:%02X:00.0", to->bus);
    return SUCCESS;
}

typedef struct { unsigned long long total, free, used; } memory_t;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory_v2_t;

int nvmlDeviceGetMemoryInfo(device_t *d, memory_t *to) {
    USABLE(d);
    if (!d->memory) return NOT_SUPPORTED;
    to->total = d->total;
    to->used = d->used + d->reserved; /* the first version counts the reserved as used */
    to->free = d->total - to->used;
    return SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v3(device_t *d, unsigned *count, void *to);

#ifndef OLD
int nvmlDeviceGetMemoryInfo_v2(device_t *d, memory_v2_t *to) {
    USABLE(d);
    if (to->version != (sizeof *to | 2U << 24)) return VERSION_MISMATCH;
    if (!d->memory) return NOT_SUPPORTED;
    to->total = d->total; to->used = d->used; to->reserved = d->reserved;
    to->free = d->total - d->used - d->reserved;
    return SUCCESS;
}
#endif

typedef struct { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; } info_t;

static int list(device_t *d, unsigned *count, info_t *to, int graphics) {
    unsigned room = *count, found = 0;
    USABLE(d);
    for (int i = 0; i < d->processes; i++) {
        if (d->process[i].graphics != graphics) continue;
        if (to && found < room) {
            to[found].pid = d->process[i].pid;
            to[found].used = d->process[i].used;
            to[found].gpu_instance = to[found].compute_instance = 0xFFFFFFFFU;
        }
        found++;
    }
    *count = found;
    return found > (to ? room : 0) ? INSUFFICIENT_SIZE : SUCCESS;
}

#ifndef OLD
int nvmlDeviceGetComputeRunningProcesses_v3(device_t *d, unsigned *n, void *to) { return list(d, n, to, 0); }
int nvmlDeviceGetGraphicsRunningProcesses_v3(device_t *d, unsigned *n, void *to) { return list(d, n, to, 1); }
#else
int nvmlDeviceGetComputeRunningProcesses_v2(device_t *d, unsigned *n, void *to) { return list(d, n, to, 0); }
int nvmlDeviceGetGraphicsRunningProcesses_v2(device_t *d, unsigned *n, void *to) { return list(d, n, to, 1); }
#endif

int nvmlSystemGetProcessName(unsigned pid, char *to, unsigned length) {
    device_t *all[2] = { gpus, slices };
    int counts[2] = { gpu_count, slice_count };
    for (int kind = 0; kind < 2; kind++)
        for (int i = 0; i < counts[kind]; i++)
            for (int j = 0; j < all[kind][i].processes; j++)
                if (all[kind][i].process[j].pid == pid && all[kind][i].process[j].name[0])
                    return copy(to, length, all[kind][i].process[j].name);
    return NOT_FOUND;
}

int nvmlDeviceGetMigMode(device_t *d, unsigned *current, unsigned *pending) {
    USABLE(d);
    if (d->is_slice || d->major < 8) return NOT_SUPPORTED;
    *current = *pending = (unsigned)d->mig;
    return SUCCESS;
}

int nvmlDeviceGetMaxMigDeviceCount(device_t *d, unsigned *to) { USABLE(d); *to = d->mig ? 7 : 0; return SUCCESS; }

int nvmlDeviceGetMigDeviceHandleByIndex(device_t *d, unsigned index, device_t **to) {
    USABLE(d);
    if (index >= (unsigned)d->slices) return NOT_FOUND;
    *to = d->slice[index];
    return SUCCESS;
}

int nvmlDeviceGetCudaComputeCapability(device_t *d, int *major, int *minor) {
    USABLE(d);
    *major = d->major; *minor = d->minor;
    return SUCCESS;
}
