// Resident memory of the process, in KiB.
#pragma once
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static long resident_kb(void) {
    long pages = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%ld %ld", &pages, &resident) != 2)
        exit(2);
    fclose(file);
    return resident * (sysconf(_SC_PAGESIZE) / 1024);
}
