//! What happened, as data: entries, stacks, the snapshot in PyTorch's format; no CUDA, no unsafe.
