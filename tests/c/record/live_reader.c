// live_reader FILE COUNT: requests the statistics of a running process COUNT times, and prints each
// answer on a separate line. Its knowledge of the file comes from src/statistics/page.rs.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct head {
    char magic[8];
    uint32_t layout, process;
    uint64_t start, namespace;
    _Atomic uint32_t bell, requests, answered, sequence;
    uint64_t text_bytes, time_ns;
    _Atomic uint32_t site_requests;
    uint32_t nothing[143];
};
_Static_assert(sizeof(struct head) == 640, "the text begins at 640");

static long futex(_Atomic uint32_t *word, int what, uint32_t value, const struct timespec *time) {
    return syscall(SYS_futex, word, what, value, time, NULL, 0);
}

int main(int argc, char **argv) {
    if (argc != 3)
        return 2;
    int file = open(argv[1], O_RDWR | O_CLOEXEC);
    struct head *head = file < 0 ? MAP_FAILED : mmap(NULL, sizeof *head, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (head == MAP_FAILED || memcmp(head->magic, "cachLIVE", 8) || head->layout != 5) {
        fprintf(stderr, "%s is no file of a running process\n", argv[1]);
        return 3;
    }
    for (int i = 0, count = atoi(argv[2]); i < count; i++) {
        uint32_t number = atomic_fetch_add(&head->requests, 1) + 1;
        atomic_fetch_add(&head->bell, 1);
        futex(&head->bell, FUTEX_WAKE, 1, NULL);
        struct timespec ten_seconds = {10, 0};
        for (uint32_t seen; (int32_t)((seen = head->answered) - number) < 0;)
            if (futex(&head->answered, FUTEX_WAIT, seen, &ten_seconds) && errno == ETIMEDOUT) {
                fprintf(stderr, "no answer\n");
                return 4;
            }
        char *text = NULL;
        uint32_t before;
        uint64_t bytes;
        do {
            before = head->sequence;
            bytes = head->text_bytes;
            text = realloc(text, bytes + 1);
            if (pread(file, text, bytes, sizeof *head) != (ssize_t)bytes)
                bytes = 0;
        } while (before % 2 || before != head->sequence || !bytes);
        for (uint64_t j = 0; j < bytes; j++)
            putchar(text[j] == '\n' ? ' ' : text[j]);
        putchar('\n');
        free(text);
    }
    return 0;
}
