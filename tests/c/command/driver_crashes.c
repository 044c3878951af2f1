/* A driver that crashes as soon as it is loaded. */
__attribute__((constructor)) static void crash(void) { *(volatile int *)8 = 1; }
