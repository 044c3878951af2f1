// Simulates NVML on a machine with four GPUs of the simulated driver, the last of which is
// partitioned: the part that `cachealloc top` and `explain` use. The partition is the one on which a
// process with SIM_FIRST_DEVICE=3 and SIM_MIG=1 runs.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GPUS = 4, PARTS = 2, NOT_FOUND = 6 };

// 1 to 4: a whole GPU; 5 and 6: a partition of the last one.
typedef size_t Device;

int nvmlInit_v2(void) {
    return 0;
}

int nvmlDeviceGetCount_v2(unsigned *count) {
    *count = GPUS;
    return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device *device) {
    *device = index + 1;
    return 0;
}

int nvmlDeviceGetMaxMigDeviceCount(Device device, unsigned *count) {
    *count = device == GPUS ? PARTS : 0;
    return 0;
}

int nvmlDeviceGetMigDeviceHandleByIndex(Device device, unsigned index, Device *part) {
    // The first partition was destroyed.
    if (device != GPUS || index == 0) return NOT_FOUND;
    *part = GPUS + 1 + index;
    return 0;
}

int nvmlDeviceGetUUID(Device device, char *uuid, unsigned bytes) {
    const char *begin = device > GPUS ? "MIG-73696d75-6c61-7465-6420-6120706172" : "GPU-73696d75-6c61-7465-6420-6465766963";
    snprintf(uuid, bytes, "%s%02x", begin, (unsigned)(device > GPUS ? GPUS - 1 : device - 1));
    return 0;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, Device *device) {
    char known[80];
    for (*device = 1; *device <= GPUS + PARTS; ++*device) {
        nvmlDeviceGetUUID(*device, known, sizeof known);
        if (!strcmp(known, uuid)) return 0;
    }
    return NOT_FOUND;
}

typedef struct {
    unsigned process;
    unsigned long long bytes;
    unsigned instance, part;
} Use;

// Reads the processes from a variable, "NUMBER=BYTES NUMBER=BYTES ..", for every GPU; -1: the bytes
// are not available.
static int processes(const char *variable, unsigned *count, Use *uses) {
    const char *text = getenv(variable);
    unsigned room = *count;
    int read;
    long long bytes;
    *count = 0;
    while (text && *count < room && sscanf(text, "%u=%lld%n", &uses[*count].process, &bytes, &read) == 2) {
        uses[(*count)++].bytes = (unsigned long long)bytes;
        text += read;
    }
    return 0;
}

int nvmlDeviceGetComputeRunningProcesses_v3(Device device, unsigned *count, Use *uses) {
    (void)device;
    return processes("WATCHER_PROCESSES", count, uses);
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(Device device, unsigned *count, Use *uses) {
    (void)device;
    return processes("WATCHER_DRAWING", count, uses);
}

int nvmlDeviceGetMemoryInfo(Device device, unsigned long long memory[3]) {
    memory[0] = 80ull << 30;
    memory[1] = (unsigned long long)device << 30;
    memory[2] = memory[0] - memory[1];
    return 0;
}
