/* What a program may ask of cachealloc, if it wants to. Nothing has to: every function here is weak, so a program that
 * calls them runs without the library as well, and links against nothing.
 *
 *     if (cachealloc_snapshot) cachealloc_snapshot("after-warm-up.pickle");
 *
 * A program that is built without this header finds them by dlsym(RTLD_DEFAULT, "cachealloc_snapshot").
 *
 * Everywhere: sizes are in bytes; the functions may be called from any thread, also at the same time, but not from a
 * signal handler; an error is a number of errno.h: ENOTSUP means that the library is off in this process (CACHEALLOC=0,
 * caching ended because of a fault, or a child forked after CUDA was started). */
#ifndef CACHEALLOC_H
#define CACHEALLOC_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CACHEALLOC_WEAK __attribute__((weak))

/* The version of this header. */
#define CACHEALLOC_VERSION "0.1.0"

/* The version of the library, such as "0.1.0". Never NULL; constant. */
const char *cachealloc_version(void) CACHEALLOC_WEAK;

/* Writes a snapshot of all GPU memory that the library manages in this process, in PyTorch's format, to a file. With
 * CACHEALLOC_CONF=record:all it holds the history as well.
 *
 * path: the name of the file; an existing one is replaced, whole or not at all. NULL: a name is made from the option
 *       `snapshot`, as for a signal.
 * Returns 0, or an errno value (ENOSPC, EACCES, ENOENT, ...); EIO where the system gave no number; ENOTSUP where the
 * library is off, as in a child forked after CUDA was started.
 *
 * Not for signal handlers. Other threads may allocate meanwhile: the snapshot is one moment all the same. */
int cachealloc_snapshot(const char *path) CACHEALLOC_WEAK;

/* Switches the recording on or off, as the option `record` does for the whole process. Whatever was recorded before is
 * forgotten. Memory that is there when it is switched on is in the snapshots all the same, as allocated before: without a
 * stack, and its free without an allocation.
 *
 * what: "off", "state" (where live blocks came from) or "all" (every allocation and free). The options `context`,
 *       `stacks` and `max_entries` say what is kept, or what has changed them since. A snapshot is written when the
 *       process ends, in whatever way, as with the option.
 * Returns 0; EINVAL: another word; ENOTSUP. */
int cachealloc_record(const char *what) CACHEALLOC_WEAK;

/* The same with the parameters of PyTorch's torch.cuda.memory._record_memory_history, in its order and with its words.
 *
 * enabled:     NULL or "off" (forgets all), "state" or "all".
 * context:     which entries have a stack: NULL or "none", "state" (live blocks), "alloc" (allocations too), "all" (frees
 *              as well).
 * stacks:      "python", "all" (NULL), or "native".
 * max_entries: how many entries are kept of each context, the oldest go first; more than 100,000,000 is as that, 0 as 1.
 * device:      the only CUDA device whose memory is recorded, or -1 for all.
 * clear:       not 0: what was recorded so far is forgotten. 0, while something is recorded: what is known of live blocks
 *              stays, and the entries stay if `enabled` and `max_entries` are as before.
 * Returns 0; EINVAL: another word; ENODEV: no such device, or CUDA has not started; ENOTSUP.
 *
 * PyTorch's defaults are ("all", "all", "all", UINT64_MAX, -1, 0). */
int cachealloc_record_memory_history(const char *enabled, const char *context, const char *stacks, uint64_t max_entries,
                                     int device, int clear) CACHEALLOC_WEAK;

/* Says which phase of the program the calling thread is in: from here to its cachealloc_range_pop. Ranges nest, each thread
 * has its own, and what a thread allocates or frees meanwhile says so in the history ("step/forward"): in the
 * `user_metadata` of a snapshot's entries, which PyTorch's viewer shows, and in `cachealloc top-sites --group range`.
 *
 *     cachealloc_range_push("forward");
 *     ...
 *     cachealloc_range_pop();
 *
 * name: a short text (256 bytes are kept, in UTF-8), which is the program's again afterwards. There is room for 16,384
 *       different ranges: what has a name of its own each time ("step 1234") counts as what is around it once they are
 *       used up, and so does what lies deeper than 64 ranges.
 * Returns 0, also where nothing is recorded, or the library is off; EINVAL: NULL. */
int cachealloc_range_push(const char *name) CACHEALLOC_WEAK;

/* Ends the range that the calling thread entered last. Where there is none, nothing happens. */
void cachealloc_range_pop(void) CACHEALLOC_WEAK;

/* Releases all free memory of the cache to the driver, as torch.cuda.empty_cache does, and waits until
 * the driver has it. Blocks that the program holds stay, and so do their segments. Cached pinned memory
 * is released as well if nothing runs; its bytes do not count.
 *
 * device: the number of a CUDA device, or -1 for all.
 * Returns the number of released bytes, which may be 0, or a negative errno value: -EBUSY while a stream of the
 * process captures, -EIO where the driver reported an error on the way, -ENOTSUP. */
int64_t cachealloc_trim(int device) CACHEALLOC_WEAK;

/* Limits what the process may hold of a device from now on, as the option `gpu_memory_limit_mb` does, whose place it
 * takes. What is held above the limit stays until it is freed. What the driver serves itself (pools, virtual memory,
 * arrays, ...) counts as well.
 *
 * device: the number of a CUDA device. bytes: 0 for no limit.
 * Returns 0; ENODEV: no such device, or CUDA has not started; ENOTSUP. */
int cachealloc_set_limit(int device, uint64_t bytes) CACHEALLOC_WEAK;

/* Says that a block is used on a stream besides the one that it is freed on, as torch.Tensor.record_stream does: after
 * its cuMemFreeAsync (cudaFreeAsync) on any stream the block is not reused before all work is over that its context had
 * been given by then. Without it, cuMemFreeAsync orders its own stream only, with this library as without. It may be
 * called before the work is submitted or after. For a block that is freed by cuMemFree (cudaFree) it changes nothing: that waits for everything.
 *
 * address: where a block of this library begins. For memory that the driver serves itself nothing needs to be said, and
 *          nothing can be: 0 is returned.
 * stream:  a CUstream (cudaStream_t) of the block's context that does not capture. (A block that is then freed on a stream
 *          of another context is ordered there only.)
 * Returns 0; EINVAL: no block that the program holds begins there, or no such stream; ENOTSUP: a stream of another
 * context or one that captures, or the library is off. */
int cachealloc_record_stream(uint64_t address, void *stream) CACHEALLOC_WEAK;

/* What memory is that is not linear memory of a device, in the callbacks other_allocated and other_freed. */
enum cachealloc_kind {
    CACHEALLOC_MANAGED = 1,  /* cuMemAllocManaged */
    CACHEALLOC_PINNED = 2,   /* cuMemHostAlloc, cuMemAllocHost, cuMemHostRegister */
    CACHEALLOC_ARRAY = 3,    /* cuArrayCreate, cuArray3DCreate, cuMipmappedArrayCreate: mem_ptr is the handle */
    CACHEALLOC_PHYSICAL = 4, /* cuMemCreate: mem_ptr is the handle; until it is neither referenced nor mapped */
    CACHEALLOC_MAPPED = 5,   /* cuMemMap, until cuMemUnmap: addresses of physical memory */
    CACHEALLOC_GRAPH = 6     /* a memory node: cuGraphAddMemAllocNode, cuGraphAddNode, cuMemAllocAsync in a capture */
};

/* A memory hook: six functions that are called before and after what happens to device memory, with the order, the names
 * and the arguments of CuPy's MemoryHook, and two for memory of other kinds.
 *
 *     cuMemAlloc, cuMemAllocPitch, cuMemAllocAsync, cuMemAllocFromPoolAsync (and what ends in them: cudaMalloc, ...):
 *         malloc_preprocess of every hook
 *         look for a free block in the cache
 *         if there is none, each time the driver is asked:
 *             alloc_preprocess of every hook
 *             ask the driver
 *             alloc_postprocess of every hook
 *         malloc_postprocess of every hook
 *     cuMemFree, cuMemFreeAsync (and cudaFree, ...):
 *         free_preprocess of every hook
 *         give the block back to the cache
 *         free_postprocess of every hook
 *     a call that makes or ends memory of another kind, and succeeds:
 *         other_allocated, other_freed of every hook
 *
 * `size` is what the program asked for; `mem_size` what it is rounded to: in malloc_preprocess the least that it takes,
 * in malloc_postprocess and of its free the bytes of the block, in alloc_* the bytes that the driver is asked for. What
 * the driver serves itself (a pool of the program's own, requests larger than the device) is told as well: the driver is
 * asked, `mem_size` is `size`. `pmem_id` is different for all blocks that are alive, and the same at the free of a block
 * as at its allocation. Where a call fails, mem_ptr and pmem_id are 0, and the _postprocess is called all the same.
 *
 * For pitched memory `size` is the width times the rows, and `mem_size` after the call the pitch times the rows. In a
 * capture malloc_* and free_* are called for what cuMemAlloc serves from the capture's own memory, but not alloc_*.
 *
 * Of other memory `device_id` is -1 where it is the host's. A memory node is allocated when it is added to a graph, not at
 * each launch, and freed when a node that frees it is added, or by cuMemFreeAsync or cuMemFree; not by the end of its graph.
 *
 * Not told: wrong calls (a null pointer, a size of 0, an address that is no block), calls without a current context, what
 * ends with its context, memory that comes from another process or another library (cuIpcOpenMemHandle,
 * cuMemImportFromShareableHandle, cuImportExternalMemory), and what modules bring with them (cuLibraryGetManaged). While
 * there are hooks, pinned memory that is freed is not kept, and pitched memory is the driver's.
 *
 * A callback runs in the thread of the call, with no lock of the library held. It may call CUDA, allocate and free: that
 * works as usual, and calls no hook. It may push and pop hooks: a pushed hook is called from the next call on. It must
 * return. If a C++ exception leaves it, or it calls pthread_exit, the hook is removed, with one line on stderr, and the
 * program goes on as if it had returned; after a longjmp out of it the thread's hooks hear no more. A thread is not
 * cancelled inside of one. */
typedef struct cachealloc_hook {
    size_t size;      /* sizeof(struct cachealloc_hook): the version of this table */
    const char *name; /* for messages; may be NULL */
    void *data;       /* handed to each callback */
    /* Each may be NULL. */
    void (*alloc_preprocess)(void *data, int device_id, size_t mem_size);
    void (*alloc_postprocess)(void *data, int device_id, size_t mem_size, uint64_t mem_ptr);
    void (*malloc_preprocess)(void *data, int device_id, size_t size, size_t mem_size);
    void (*malloc_postprocess)(void *data, int device_id, size_t size, size_t mem_size, uint64_t mem_ptr,
                               uint64_t pmem_id);
    void (*free_preprocess)(void *data, int device_id, size_t mem_size, uint64_t mem_ptr, uint64_t pmem_id);
    void (*free_postprocess)(void *data, int device_id, size_t mem_size, uint64_t mem_ptr, uint64_t pmem_id);
    /* `kind` is an enum cachealloc_kind. A table that ends before these is as one in which they are NULL. */
    void (*other_allocated)(void *data, int device_id, int kind, size_t size, uint64_t mem_ptr, uint64_t pmem_id);
    void (*other_freed)(void *data, int device_id, int kind, size_t size, uint64_t mem_ptr, uint64_t pmem_id);
} cachealloc_hook;

/* The calling thread's hooks hear of its calls from here on, in the order in which they were pushed. The table is copied;
 * its address is what cachealloc_hook_pop knows it by. A hook that is there when its thread ends goes with it. Before a
 * library with callbacks is unloaded (dlclose), its hooks must be popped, in the threads that pushed them.
 *
 * Returns 0; EINVAL: NULL, or `size` is too small; EEXIST: this table is pushed already; ENOMEM: sixteen are; ENOTSUP. */
int cachealloc_hook_push(const cachealloc_hook *hook) CACHEALLOC_WEAK;

/* Takes a hook of the calling thread out, not only the last one. Once this has returned it is not called any more.
 * Returns 0, or ENOENT: this thread has not pushed it, or it was removed. */
int cachealloc_hook_pop(const cachealloc_hook *hook) CACHEALLOC_WEAK;

/* For a hook that hears of all threads, without a word in the program: CACHEALLOC_CONF=hook:/path/plugin.so names a
 * shared library that exports a table under this name. The library is loaded by the first call that it hears of, and
 * stays. Its callbacks are called before those of the thread, and by many threads at the same time.
 *
 *     const cachealloc_hook cachealloc_hook_table = {sizeof(cachealloc_hook), "mine", NULL, ...}; */
extern const cachealloc_hook cachealloc_hook_table;

/* One number of a device, as torch.cuda.memory_stats has it: all contexts of the device together.
 *
 *     int64_t bytes;
 *     if (cachealloc_stat && !cachealloc_stat(0, "allocated_bytes.all.current", &bytes)) ...
 *
 * device: its number in this process.
 * key:    any of PyTorch's 123: "reserved_bytes.large_pool.peak", "num_ooms", ...
 * Returns 0, or an errno value: ENOENT for an unknown key, ENODEV for a device without a context, EINVAL for NULL,
 * ENOTSUP where the library is off. */
int cachealloc_stat(int device, const char *key, int64_t *value) CACHEALLOC_WEAK;

/* All statistics as JSON (UTF-8), with a zero byte at the end: all keys for each device and each context, hit rate, driver
 * calls and waits with the time spent in them, and, with record:state or record:all, which library and which call site holds
 * how many bytes, and held how many at the peak. What stats_on_exit writes into a file that ends in .json.
 *
 * text:  where to write it, cut where it does not fit; NULL if only the size is wanted.
 * bytes: how many bytes there are.
 * Returns how many bytes it takes, the zero included; 0 where the library is off, or busy for too long. */
size_t cachealloc_stats(char *text, size_t bytes) CACHEALLOC_WEAK;

/* As torch.cuda.reset_peak_memory_stats: every peak of the device becomes the present value. device: -1 for all.
 * Returns as cachealloc_stat. */
int cachealloc_reset_peak_stats(int device) CACHEALLOC_WEAK;

/* As torch.cuda.reset_accumulated_memory_stats: what was allocated and freed so far, and the counters, begin at 0. */
int cachealloc_reset_accumulated_stats(int device) CACHEALLOC_WEAK;

#ifdef __cplusplus
}
#endif

#endif
