// A program without CUDA: prints its threads and open files, so that a library that starts a
// thread or keeps a file open is detected.
#include "../check.h"
#include <dirent.h>

static void list(const char *folder, int names) {
    DIR *entries = opendir(folder);
    CHECK(entries);
    int count = 0;
    for (struct dirent *entry; (entry = readdir(entries));) {
        count++;
        char path[512], target[512] = "";
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (names && readlink(path, target, sizeof target - 1) > 0 && !strstr(target, "pipe:"))
            printf("%s %s\n", entry->d_name, strstr(target, "/proc/") ? "this folder" : target);
    }
    printf("%s has %d\n", folder, count);
    closedir(entries);
}

int main(void) {
    list("/proc/self/task", 0);
    list("/proc/self/fd", 1);
    return 0;
}
