// Runs the cases of a test program, each in a separate process, four at a time, under a watchdog: a
// hang prints a FAIL line. A case returns its verdict, which must be the same with and without the
// library.
//
//   program                 all of them
//   program NAME|GROUP...   only these
//   program --list
#pragma once
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>

#include <string>

#include "check.h"

extern char **environ;
using Verdict = std::string;  // "ok", an error's name where that is the point, or "FAIL ..."

inline Verdict ok_if(bool good, const char *otherwise) { return good ? "ok" : std::string("FAIL ") + otherwise; }
inline Verdict name(cudaError_t error) { return cudaGetErrorName(error); }
inline Verdict code(CUresult result) {
    const char *text = nullptr;
    cuGetErrorName(result, &text);
    return text ? text : "?";
}
// Returns the verdict of a call that is expected to fail, and clears the error for the next call.
inline Verdict failing(cudaError_t error) {
    cudaGetLastError();
    return name(error);
}

struct Case {
    const char *group, *name;
    Verdict (*run)();
    bool bare = false;  // wants a process without CUDA in it
};

inline int run_one(const Case &test) {
    watchdog(test.name, 100);  // making contexts is slow on a busy machine
    if (!test.bare) load_kernels();
    Verdict verdict = test.run();
    printf("%s: %s\n", test.name, verdict.c_str());
    fflush(stdout);
    _exit(verdict.find("FAIL") != std::string::npos);  // work may still be in flight, and a fault sticks
}

struct Child {
    pid_t pid;
    std::string output;  // a file
};
inline Child start(const Case &test) {
    Child child;
    char path[] = "/tmp/case-XXXXXX";
    close(mkstemp(path));
    child.output = path;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, path, O_WRONLY | O_TRUNC, 0600);
    char program[] = "case", one[] = "--one", *arguments[] = {program, one, (char *)test.name, nullptr};
    if (posix_spawn(&child.pid, "/proc/self/exe", &actions, nullptr, arguments, environ)) child.pid = -1;
    posix_spawn_file_actions_destroy(&actions);
    return child;
}
inline bool finish(const Case &test, const Child &child) {
    int status = -1;
    if (child.pid > 0) waitpid(child.pid, &status, 0);
    FILE *file = fopen(child.output.c_str(), "r");
    char line[400];
    while (file && fgets(line, sizeof line, file)) fputs(line, stdout);
    if (file) fclose(file);
    unlink(child.output.c_str());
    if (WIFSIGNALED(status)) printf("%s: FAIL, killed by signal %d\n", test.name, WTERMSIG(status));
    fflush(stdout);
    return status == 0;
}

// The whole main function of a program.
template <size_t COUNT>
int run_cases(const Case (&cases)[COUNT], const char *what, int argc, char **argv) {
    if (argc == 3 && !strcmp(argv[1], "--one"))
        for (auto &test : cases)
            if (!strcmp(argv[2], test.name)) return run_one(test);
    std::vector<const Case *> chosen;
    for (auto &test : cases) {
        bool wanted = argc == 1;
        for (int i = 1; i < argc; i++) wanted |= !strcmp(argv[i], test.name) || !strcmp(argv[i], test.group);
        if (argc == 2 && !strcmp(argv[1], "--list")) printf("%s %s\n", test.group, test.name);
        if (wanted) chosen.push_back(&test);
    }
    const size_t at_once = 4;
    std::vector<Child> children;
    int failed = 0;
    for (size_t i = 0; i < chosen.size(); i++) {
        while (children.size() < chosen.size() && children.size() < i + at_once) children.push_back(start(*chosen[children.size()]));
        failed += !finish(*chosen[i], children[i]);
    }
    printf("%zu %s, %d failed\n", chosen.size(), what, failed);
    return failed != 0;
}
