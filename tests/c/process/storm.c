// storm WAY PROCESSES SIGNALS LOAD: recording processes that get signals at random moments, beside
// processes that only use the processor. Prints what was sent and what arrived.
#include "../check.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

#define PROCESSES_MAX 400

static struct child {
    pid_t process;
    volatile int ready, ends, handled[2];
} *children;
static struct child *own;
static unsigned long random_state = 12345;

static unsigned chance(unsigned below) {
    random_state = random_state * 6364136223846793005 + 1442695040888963407;
    return (random_state >> 33) % below;
}

static void rest(unsigned us) {
    struct timespec time = {us / 1000000, us % 1000000 * 1000};
    while (nanosleep(&time, &time) == -1 && errno == EINTR)
        ;
}

static void count_signal(int signal) { __sync_fetch_and_add(&own->handled[signal == SIGTERM], 1); }

static void handle_both(void) {
    struct sigaction action = {.sa_handler = count_signal, .sa_flags = SA_RESTART};
    OK(sigaction(SIGUSR1, &action, NULL));
    OK(sigaction(SIGTERM, &action, NULL));
}

static __attribute__((noinline)) void allocate(int depth) {
    Pointer a[4];
    if (depth) {
        allocate(depth - 1);
    } else {
        for (int i = 0; i < 4; i++)
            OK(cuMemAlloc(&a[i], 600 << i));
        for (int i = 0; i < 4; i++)
            OK(cuMemFree(a[i]));
    }
    __asm__ volatile("");
}

static void *work(void *unused) {
    void *context;
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    while (!own->ends) {
        for (int i = 0; i < 12 && !own->ends; i++) {
            allocate(i);
            free(malloc(100 + 5000 * i));
        }
        rest(500);
    }
    return unused;
}

// Half of the processes with handlers install them before CUDA, the others afterwards.
static int child(int number, int handles) {
    pthread_t threads[2];
    own = &children[number];
    if (handles && number % 2)
        handle_both();
    start_cuda();
    loop(1);
    if (handles && number % 2 == 0)
        handle_both();
    for (int i = 0; i < 2; i++)
        OK(pthread_create(&threads[i], NULL, work, NULL));
    own->ready = 1;
    for (int i = 0; i < 2; i++)
        OK(pthread_join(threads[i], NULL));
    exit(3);
}

// A process that does not outlive this one.
static pid_t fork_one(void) {
    pid_t process = fork();
    if (!process)
        OK(prctl(PR_SET_PDEATHSIG, SIGKILL));
    return process;
}

static void begin(int count, int handles) {
    for (int i = 0; i < count; i++) {
        pid_t process = fork_one();
        if (!process)
            child(i, handles);
        children[i].process = process;
    }
    for (int i = 0; i < count; i++)
        while (!children[i].ready)
            rest(1000);
}

static int wait_for(struct child *child) {
    int status;
    CHECK(waitpid(child->process, &status, 0) == child->process);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// Each signal is sent when the previous one of its process was handled: signals pending twice
// arrive once.
static void handled(int count, int signals) {
    int sent[2] = {0}, arrived[2] = {0}, codes[256] = {0};
    begin(count, 1);
    for (int i = 0; i < signals; i++) {
        struct child *child = &children[chance(count)];
        int which = chance(2), before = child->handled[which];
        OK(kill(child->process, which ? SIGTERM : SIGUSR1));
        sent[which]++;
        rest(chance(3000));
        while (child->handled[which] == before)
            rest(200);
    }
    for (int i = 0; i < count; i++) {
        children[i].ends = 1;
        codes[wait_for(&children[i])]++;
        for (int which = 0; which < 2; which++)
            arrived[which] += children[i].handled[which];
    }
    printf("USR1 %d of %d, TERM %d of %d, exited %d of %d\n", arrived[0], sent[0], arrived[1], sent[1], codes[3], count);
}

// Ends processes by the last of several signals, at a random moment, which the program does not
// handle.
static void ended(int count, int signals, int last) {
    int codes[256] = {0};
    begin(count, 0);
    for (int i = 0; i < signals; i++) {
        OK(kill(children[chance(count)].process, SIGUSR1));
        rest(chance(3000));
    }
    for (int i = 0; i < count; i++) {
        rest(chance(5000));
        if (chance(2))
            OK(kill(children[i].process, SIGUSR1));
        rest(chance(last == SIGKILL ? 100000 : 20000));
        OK(kill(children[i].process, last));
        if (chance(2))
            kill(children[i].process, last); // it may have ended
    }
    for (int i = 0; i < count; i++)
        codes[wait_for(&children[i])]++;
    printf("ended %d of %d:", codes[128 + last], count);
    for (int i = 0; i < count; i++)
        printf(" %d", children[i].process);
    puts("");
}

int main(int argc, char **argv) {
    CHECK(argc == 5);
    int count = atoi(argv[2]), signals = atoi(argv[3]), load = atoi(argv[4]);
    pid_t loads[64];
    random_state += getenv("STORM_SEED") ? atol(getenv("STORM_SEED")) : 0;
    CHECK(count <= PROCESSES_MAX && load <= 64);
    children = mmap(NULL, PROCESSES_MAX * sizeof *children, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(children != MAP_FAILED);
    for (int i = 0; i < load; i++)
        if (!(loads[i] = fork_one()))
            for (;;)
                ;
    if (!strcmp(argv[1], "handled"))
        handled(count, signals);
    else
        ended(count, signals, !strcmp(argv[1], "KILL") ? SIGKILL : SIGTERM);
    for (int i = 0; i < load; i++) {
        OK(kill(loads[i], SIGKILL));
        waitpid(loads[i], NULL, 0);
    }
    return 0;
}
