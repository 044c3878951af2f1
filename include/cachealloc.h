/* What a program may ask of cachealloc, if it wants to. Nothing has to: every function here is weak, so a program that
 * calls them runs without the library as well, and links against nothing.
 *
 *     if (cachealloc_snapshot) cachealloc_snapshot("after-warm-up.pickle");
 */
#ifndef CACHEALLOC_H
#define CACHEALLOC_H

#ifdef __cplusplus
extern "C" {
#endif

/* Writes a snapshot of all GPU memory that the library manages in this process, in PyTorch's format, to a file. With
 * CACHEALLOC_CONF=record:all it holds the history as well.
 *
 * path: the name of the file; an existing one is replaced, whole or not at all. NULL: a name is made from the option
 *       `snapshot`, as for a signal.
 * Returns 0, or an errno value (ENOSPC, EACCES, ENOENT, ...); EIO where the system gave no number; ENOTSUP where the
 * library is off, as in a child forked after CUDA was started.
 *
 * Not for signal handlers. Other threads may allocate meanwhile: the snapshot is one moment all the same. */
int cachealloc_snapshot(const char *path) __attribute__((weak));

#ifdef __cplusplus
}
#endif

#endif
