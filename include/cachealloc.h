/* Optional functions for programs that run under cachealloc. Every function is weak, so a program that calls them also
 * runs without the library, and links against nothing.
 *
 *     if (cachealloc_snapshot) cachealloc_snapshot("after-warm-up.pickle");
 *
 * A program that is built without this header finds them by dlsym(RTLD_DEFAULT, "cachealloc_snapshot").
 *
 * Sizes are in bytes. The functions may be called from any thread, also concurrently, but not from a signal handler.
 * Errors are values of errno.h; ENOTSUP means that the library is off in this process (CACHEALLOC=0, caching ended because
 * of a fault, or a child forked after CUDA was started). */
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
 * CACHEALLOC_CONF=record:all it contains the history as well.
 *
 * path: the name of the file; an existing file is replaced atomically. If NULL, the option `snapshot` determines the name,
 *       as for a signal.
 * Returns 0, or an errno value (ENOSPC, EACCES, ENOENT, ...); EIO if the system reported none; ENOTSUP.
 *
 * Must not be called from a signal handler. Other threads may allocate meanwhile: the snapshot still shows one moment. */
int cachealloc_snapshot(const char *path) CACHEALLOC_WEAK;

/* Starts or stops recording, as the option `record` does for the whole process. Everything recorded before is dropped.
 * Memory allocated before recording started is in the snapshots too, without a stack; its free has no allocation in the
 * history.
 *
 * what: "off", "state" (the stacks of live blocks) or "all" (every allocation and free). The options `context`, `stacks`
 *       and `max_entries` determine what is kept, unless they have been changed since. A snapshot is written when the
 *       process ends, in any way, as with the option.
 * Returns 0; EINVAL for another word; ENOTSUP. */
int cachealloc_record(const char *what) CACHEALLOC_WEAK;

/* Starts or stops recording with the parameters of PyTorch's torch.cuda.memory._record_memory_history, in the same order
 * and with the same words.
 *
 * enabled:     NULL or "off" (drops everything), "state" or "all".
 * context:     entries that get a stack: NULL or "none", "state" (live blocks), "alloc" (all allocations), "all" (frees as
 *              well).
 * stacks:      "python", "all" (NULL), or "native".
 * max_entries: maximum entries kept for each context; the oldest are dropped first. At least 1 and at most 100,000,000:
 *              other values are clamped.
 * device:      the only CUDA device whose memory is recorded, or -1 for all.
 * clear:       if not 0, everything recorded so far is dropped. If 0 while something is recorded, the stacks of live blocks
 *              are kept, and so are the entries if `enabled` and `max_entries` do not change.
 * Returns 0; EINVAL for another word; ENODEV if the device does not exist or CUDA has not started; ENOTSUP.
 *
 * PyTorch's defaults are ("all", "all", "all", UINT64_MAX, -1, 0). */
int cachealloc_record_memory_history(const char *enabled, const char *context, const char *stacks, uint64_t max_entries,
                                     int device, int clear) CACHEALLOC_WEAK;

/* Names the phase of the program that the calling thread is in, until cachealloc_range_pop. Each thread has its own ranges,
 * and they nest ("step/forward"). The name is recorded with each allocation and free: in the `user_metadata` of a
 * snapshot's entries, which PyTorch's viewer shows, and in `cachealloc top-sites --group range`.
 *
 *     cachealloc_range_push("forward");
 *     ...
 *     cachealloc_range_pop();
 *
 * name: a short UTF-8 text, of which 256 bytes are kept. It is copied. At most 16,384 different ranges are kept: further
 *       names, as with a different name each time ("step 1234"), count as the enclosing range, and so do ranges nested
 *       deeper than 64.
 * Returns 0, also if nothing is recorded or the library is off; EINVAL for NULL. */
int cachealloc_range_push(const char *name) CACHEALLOC_WEAK;

/* Ends the range that the calling thread entered last. Does nothing if there is none. */
void cachealloc_range_pop(void) CACHEALLOC_WEAK;

/* Releases all free memory of the cache to the driver, as torch.cuda.empty_cache does, and waits until
 * the driver has it. Blocks that the program holds stay, and so do their segments. Cached pinned memory
 * is released as well if nothing runs; its bytes do not count.
 *
 * device: the number of a CUDA device, or -1 for all.
 * Returns the number of released bytes, which may be 0, or a negative errno value: -EBUSY while a stream of the
 * process captures, -EIO if the driver reported an error, -ENOTSUP. */
int64_t cachealloc_trim(int device) CACHEALLOC_WEAK;

/* Limits the memory of a device that the process may hold. It replaces the option `gpu_memory_limit_mb`. Memory held above
 * the limit is kept until it is freed. Memory that the driver itself serves (pools, virtual memory, arrays, ...) counts as
 * well.
 *
 * device: the number of a CUDA device. bytes: 0 for no limit.
 * Returns 0; ENODEV if the device does not exist or CUDA has not started; ENOTSUP. */
int cachealloc_set_limit(int device, uint64_t bytes) CACHEALLOC_WEAK;

/* Records that a block is used on a stream other than the one it is freed on, as torch.Tensor.record_stream does. After
 * cuMemFreeAsync (cudaFreeAsync) on any stream, the block is then not reused before all work that its context has been
 * given by that time is complete. Without it, cuMemFreeAsync orders only its own stream, with this library as without. It
 * may be called before or after the work is submitted. It has no effect on a block that is freed by cuMemFree (cudaFree),
 * which waits for everything.
 *
 * address: the first address of a block of this library. For memory that the driver itself serves, the call has no effect
 *          and returns 0.
 * stream:  a CUstream (cudaStream_t) of the block's context that does not capture. (A block that is then freed on a stream
 *          of another context is ordered there only.)
 * Returns 0; EINVAL if no block of the program begins there, or the stream does not exist; ENOTSUP if the stream belongs to
 * another context or captures, or the library is off. */
int cachealloc_record_stream(uint64_t address, void *stream) CACHEALLOC_WEAK;

/* Kinds of memory other than linear device memory, in the callbacks other_allocated and other_freed. */
enum cachealloc_kind {
    CACHEALLOC_MANAGED = 1,  /* cuMemAllocManaged */
    CACHEALLOC_PINNED = 2,   /* cuMemHostAlloc, cuMemAllocHost, cuMemHostRegister */
    CACHEALLOC_ARRAY = 3,    /* cuArrayCreate, cuArray3DCreate, cuMipmappedArrayCreate: mem_ptr is the handle */
    CACHEALLOC_PHYSICAL = 4, /* cuMemCreate, until neither referenced nor mapped: mem_ptr is the handle */
    CACHEALLOC_MAPPED = 5,   /* cuMemMap, until cuMemUnmap: addresses of physical memory */
    CACHEALLOC_GRAPH = 6     /* a memory node: cuGraphAddMemAllocNode, cuGraphAddNode, cuMemAllocAsync in a capture */
};

/* A memory hook: six functions that are called before and after each operation on device memory, with the order, the names
 * and the arguments of CuPy's MemoryHook, and two for memory of other kinds.
 *
 *     cuMemAlloc, cuMemAllocPitch, cuMemAllocAsync, cuMemAllocFromPoolAsync (also through cudaMalloc, ...):
 *         malloc_preprocess of every hook
 *         look for a free block in the cache
 *         if there is none, each time the driver is asked:
 *             alloc_preprocess of every hook
 *             ask the driver
 *             alloc_postprocess of every hook
 *         malloc_postprocess of every hook
 *     cuMemFree, cuMemFreeAsync (also through cudaFree, ...):
 *         free_preprocess of every hook
 *         return the block to the cache
 *         free_postprocess of every hook
 *     a successful call that creates or destroys memory of another kind:
 *         other_allocated, other_freed of every hook
 *
 * `size` is the requested size; `mem_size` is the rounded size: the minimum that the request takes in malloc_preprocess,
 * the bytes of the block in malloc_postprocess and in its free, the bytes requested from the driver in alloc_*. Memory that
 * the driver itself serves (from a pool of the program, or for requests larger than the device) is reported as well, with
 * `mem_size` equal to `size`. `pmem_id` is unique among live blocks, and the same for an allocation and its free. If a call
 * fails, mem_ptr and pmem_id are 0, and the _postprocess function is still called.
 *
 * For pitched memory `size` is the width times the rows, and `mem_size` after the call the pitch times the rows. In a
 * capture malloc_* and free_* are called for what cuMemAlloc serves from the capture's own memory.
 *
 * For other kinds of memory `device_id` is -1 if it is host memory. A memory node is allocated when it is added to a graph,
 * not at each launch, and freed when a node that frees it is added, or by cuMemFreeAsync or cuMemFree; not by the end of
 * its graph.
 *
 * Not reported: invalid calls (a null pointer, a size of 0, an address without a block), calls without a current context,
 * memory that ends with its context, memory of another process or another library (cuIpcOpenMemHandle,
 * cuMemImportFromShareableHandle, cuImportExternalMemory), and memory of modules (cuLibraryGetManaged). While there are
 * hooks, freed pinned memory is not cached, and the driver serves pitched memory.
 *
 * A callback runs in the thread of the call, with no lock of the library held. It may call CUDA, allocate and free: that
 * works as usual, and calls no hook. It may push and pop hooks: a pushed hook is called from the next call on. It must
 * return. If a C++ exception leaves it, or it calls pthread_exit, the hook is removed, with one line on stderr, and the
 * program continues as if it had returned. After a longjmp out of it, the thread's hooks are no longer called. A thread is
 * not cancelled inside a callback. */
typedef struct cachealloc_hook {
    size_t size;      /* sizeof(struct cachealloc_hook): the version of this table */
    const char *name; /* for messages; may be NULL */
    void *data;       /* passed to each callback */
    /* Each may be NULL. */
    void (*alloc_preprocess)(void *data, int device_id, size_t mem_size);
    void (*alloc_postprocess)(void *data, int device_id, size_t mem_size, uint64_t mem_ptr);
    void (*malloc_preprocess)(void *data, int device_id, size_t size, size_t mem_size);
    void (*malloc_postprocess)(void *data, int device_id, size_t size, size_t mem_size, uint64_t mem_ptr,
                               uint64_t pmem_id);
    void (*free_preprocess)(void *data, int device_id, size_t mem_size, uint64_t mem_ptr, uint64_t pmem_id);
    void (*free_postprocess)(void *data, int device_id, size_t mem_size, uint64_t mem_ptr, uint64_t pmem_id);
    /* `kind` is an enum cachealloc_kind. In a table whose `size` ends before these, they count as NULL. */
    void (*other_allocated)(void *data, int device_id, int kind, size_t size, uint64_t mem_ptr, uint64_t pmem_id);
    void (*other_freed)(void *data, int device_id, int kind, size_t size, uint64_t mem_ptr, uint64_t pmem_id);
} cachealloc_hook;

/* Adds a hook for the calls of the calling thread. Hooks are called in the order in which they were pushed. The table is
 * copied; cachealloc_hook_pop identifies it by its address. The hooks of a thread are removed when it ends. Before a
 * library with callbacks is unloaded (dlclose), its hooks must be popped, in the threads that pushed them.
 *
 * Returns 0; EINVAL for NULL or a `size` that is too small; EEXIST if this table is pushed already; ENOMEM if the thread
 * has sixteen hooks; ENOTSUP. */
int cachealloc_hook_push(const cachealloc_hook *hook) CACHEALLOC_WEAK;

/* Removes any hook of the calling thread. After this has returned, the hook is not called any more.
 * Returns 0, or ENOENT if this thread has not pushed it, or it was removed. */
int cachealloc_hook_pop(const cachealloc_hook *hook) CACHEALLOC_WEAK;

/* Table of a plugin, which receives the calls of all threads without a change of the program:
 * CACHEALLOC_CONF=hook:/path/plugin.so names a shared library that exports a table under this name. The library is loaded
 * by the first call that it receives, and stays loaded. Its callbacks are called before those of the thread, and by many
 * threads concurrently.
 *
 *     const cachealloc_hook cachealloc_hook_table = {sizeof(cachealloc_hook), "mine", NULL, ...}; */
extern const cachealloc_hook cachealloc_hook_table;

/* Reads one number of a device, as in torch.cuda.memory_stats: the sum over all contexts of the device.
 *
 *     int64_t bytes;
 *     if (cachealloc_stat && !cachealloc_stat(0, "allocated_bytes.all.current", &bytes)) ...
 *
 * device: its number in this process.
 * key:    any of PyTorch's 123: "reserved_bytes.large_pool.peak", "num_ooms", ...
 * Returns 0, or an errno value: ENOENT for an unknown key, ENODEV for a device without a context, EINVAL for NULL,
 * ENOTSUP. */
int cachealloc_stat(int device, const char *key, int64_t *value) CACHEALLOC_WEAK;

/* Writes all statistics as null-terminated JSON (UTF-8): all keys for each device and each context, hit rate, driver calls
 * and waits with their times, and, with record:state or record:all, the bytes that each library and each call site holds,
 * and held at the peak. stats_on_exit writes the same to a file whose name ends in .json.
 *
 * text:  the buffer; the text is truncated if it does not fit. NULL to query only the size.
 * bytes: the size of the buffer.
 * Returns the size of the whole text, including the null byte; 0 if the library is off, or busy for too long. */
size_t cachealloc_stats(char *text, size_t bytes) CACHEALLOC_WEAK;

/* Resets every peak of the device to the current value, like torch.cuda.reset_peak_memory_stats. device: -1 for all.
 * Returns the same values as cachealloc_stat. */
int cachealloc_reset_peak_stats(int device) CACHEALLOC_WEAK;

/* Resets the totals of allocated and freed memory, and the counters, to 0, like
 * torch.cuda.reset_accumulated_memory_stats. */
int cachealloc_reset_accumulated_stats(int device) CACHEALLOC_WEAK;

#ifdef __cplusplus
}
#endif

#endif
