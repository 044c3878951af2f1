//! Python stacks, read from the interpreter's own frames without its lock.
