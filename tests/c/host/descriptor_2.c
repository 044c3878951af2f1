// descriptor_2 WAY: another file gets descriptor 2, by chance or on purpose. Prints how much the file
// contains besides the program's four bytes, and what happened to a message of the
// library.
#include "../check.h"
#include <fcntl.h>
#include <sys/wait.h>

static int data_file(void) {
    char name[] = "/tmp/descriptor_2_XXXXXX";
    int file = mkstemp(name);
    unlink(name);
    return file;
}

// By chance: the file gets the lowest free number.
static int chance(void) {
    close(2);
    int file = data_file();
    CHECK(file == 2);
    return file;
}

// Like a program that redirects its messages to a file, which had another number.
static int choose(const char *how) {
    if (!strcmp(how, "freopen")) {
        char name[] = "/tmp/descriptor_2_XXXXXX";
        CHECK(mkstemp(name) > 2 && freopen(name, "w+", stderr));
        unlink(name);
        return dup(2);
    }
    int file = data_file();
    CHECK(file > 2 && (!strcmp(how, "dup3") ? dup3(file, 2, 0) : dup2(file, 2)) == 2);
    return file;
}

// Like a process that starts another one: the child has a separate stderr, and shares its parent's
// memory.
static int start_child(void) {
    int ends[2];
    OK(pipe(ends));
    pid_t child = vfork();
    if (!child) {
        dup2(ends[1], 2);
        _exit(0);
    }
    CHECK(waitpid(child, NULL, 0) == child);
    return 0;
}

static int put(const char *how) {
    return !strcmp(how, "chance") ? chance() : choose(how);
}

int main(int count, char **arguments) {
    CHECK(count == 3);
    int early = !strcmp(arguments[1], "early"), file = -1;
    const char *how = arguments[2];
    if (!strcmp(how, "daemon") && fork())
        return wait(NULL) < 0;
    if (!strcmp(how, "daemon"))
        how = "dup2";
    if (early && strcmp(how, "vfork"))
        file = put(how);
    if (!strcmp(how, "vfork") && early)
        start_child();
    start_cuda();
    loop(3);
    if (!early && strcmp(how, "vfork"))
        file = put(how);
    if (!strcmp(how, "vfork") && !early)
        start_child();
    Pointer none;
    CHECK(cuMemAlloc(&none, (size_t)1 << 45) == 2);
    if (file < 0)
        return 0;
    CHECK(write(file, "data", 4) == 4);
    long bytes = lseek(file, 0, SEEK_END);
    puts(bytes == 4 ? "its own data" : "and messages");
    return 0;
}
