// A dependency of the plugin of scope.c: it has the next definition of its names.
int who(void) { return 2; }
int cuWho(void) { return 22; }
