// A library of ours from the past, which had nothing but its version.
const char *cachealloc_version(void) { return "0.0.1"; }
