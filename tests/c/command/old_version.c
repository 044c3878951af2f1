// An old version of the library, which only reports its version.
const char *cachealloc_version(void) { return "0.0.1"; }
