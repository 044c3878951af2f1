// Memory nodes of graphs, each added by a separate function: `graph_nodes` ends with three executable
// graphs, `graph_nodes anew` with two from before a restart of the recording, and one from after it.
#include "../check.h"

#define MIB (1ul << 20)
#define CALL(name, types, arguments) OK(((int(*) types)find(name))arguments)
#define NODE_ALLOC 10

// As in cuda.h: a location is a kind and a number; kind 1 is a device.
typedef struct {
    struct {
        int kind, handles, location, device;
        void *security;
        size_t most;
        unsigned short usage;
        unsigned char reserved[54];
    } pool;
    const void *access;
    size_t accesses, bytes;
    Pointer address;
} GraphMemory;

typedef struct {
    int kind, reserved[3];
    union {
        GraphMemory memory;
        uint64_t room[29];
    } body;
    uint64_t more;
} AnyNode;

static void *find(const char *name) {
    void *found = dlsym(dlopen("libcuda.so.1", RTLD_NOW), name);
    CHECK(found);
    return found;
}

static GraphMemory memory(size_t bytes) {
    return (GraphMemory){.pool = {.kind = 1, .location = 1}, .bytes = bytes};
}

__attribute__((noinline)) static void *capture(size_t bytes) {
    void *stream, *graph;
    Pointer address, other;
    CALL("cuStreamCreate", (void **, unsigned), (&stream, 1));
    CALL("cuStreamBeginCapture_v2", (void *, int), (stream, 2));
    CALL("cuMemAllocAsync", (Pointer *, size_t, void *), (&address, bytes, stream));
    CALL("cuMemFreeAsync", (Pointer, void *), (address, stream));
    // An allocation that no stream captures is not a node.
    OK(cuMemAlloc(&other, MIB));
    CALL("cuStreamEndCapture", (void *, void **), (stream, &graph));
    return graph;
}

__attribute__((noinline)) static void *by_hand(size_t bytes) {
    GraphMemory wanted = memory(bytes);
    void *graph, *node;
    CALL("cuGraphCreate", (void **, unsigned), (&graph, 0));
    CALL("cuGraphAddMemAllocNode", (void **, void *, void *, size_t, GraphMemory *), (&node, graph, 0, 0, &wanted));
    return graph;
}

__attribute__((noinline)) static void *of_any_kind(size_t bytes) {
    AnyNode wanted = {.kind = NODE_ALLOC, .body = {.memory = memory(bytes)}};
    AnyNode empty = {.kind = 5};
    void *graph, *node;
    CALL("cuGraphCreate", (void **, unsigned), (&graph, 0));
    CALL("cuGraphAddNode_v2", (void **, void *, void *, void *, size_t, AnyNode *), (&node, graph, 0, 0, 0, &wanted));
    CALL("cuGraphAddNode_v2", (void **, void *, void *, void *, size_t, AnyNode *), (&node, graph, 0, 0, 0, &empty));
    return graph;
}

// Destroys the graph itself, as most programs do.
static void *instantiate(void *graph) {
    void *executable;
    CALL("cuGraphInstantiateWithFlags", (void **, void *, unsigned long long), (&executable, graph, 0));
    CALL("cuGraphDestroy", (void *), (graph));
    return executable;
}

int main(int count, char **words) {
    start_cuda();
    if (count == 2 && !strcmp(words[1], "anew")) {
        int (*record)(const char *, const char *, const char *, uint64_t, int, int) =
            dlsym(RTLD_DEFAULT, "cachealloc_record_memory_history");
        void *graph = by_hand(8 * MIB);
        CHECK(record);
        instantiate(capture(16 * MIB));
        OK(record("state", "all", "all", 1000, -1, 1));
        instantiate(graph);
        instantiate(of_any_kind(4 * MIB));
        return 0;
    }
    instantiate(capture(16 * MIB));
    instantiate(by_hand(8 * MIB));
    instantiate(of_any_kind(4 * MIB));
    // Neither counts as memory: a graph without an executable, and one whose executable is
    // destroyed.
    by_hand(2 * MIB);
    CALL("cuGraphExecDestroy", (void *), (instantiate(capture(1 * MIB))));
    if (count == 2 && !strcmp(words[1], "raise")) {
        int (*snapshot)(const char *) = dlsym(RTLD_DEFAULT, "cachealloc_snapshot");
        OK(snapshot("b.pickle"));
    }
    return 0;
}
