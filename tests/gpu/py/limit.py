# A program under `gpu_memory_limit_mb`: it sees the limit, is refused at the right point, and continues afterwards.
# `scripts/gpu run limits` runs it under the library; LIMIT_MIB is the limit that was set.
#
# needs: torch
import os

import torch

MIB = 1 << 20
PIECE = 256 * MIB
limit = int(os.environ["LIMIT_MIB"]) * MIB
device = torch.device("cuda")


def is_shortage(error):
    """Returns whether memory ran out: without its cache PyTorch raises another class."""
    return isinstance(error, torch.cuda.OutOfMemoryError) or "out of memory" in str(error)


def free_bytes():
    torch.cuda.empty_cache()
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    assert total == limit, f"{total} bytes in all, the limit is {limit}"
    assert free <= limit, f"{free} bytes free of {limit}"
    return free


def fill():
    """Allocates pieces until no memory is left."""
    pieces = []
    try:
        while len(pieces) * PIECE <= limit:
            pieces.append(torch.full((PIECE,), len(pieces) % 251, dtype=torch.uint8, device=device))
    except RuntimeError as error:
        assert is_shortage(error), error
        return pieces
    raise AssertionError(f"{len(pieces)} pieces of {PIECE} bytes, the limit is {limit}")


shown = torch.cuda.get_device_properties(device).total_memory
assert shown == limit, f"the device shows {shown} bytes, the limit is {limit}"
at_first = free_bytes()
for turn in range(3):
    pieces = fill()
    most = limit // PIECE
    assert most - 1 <= len(pieces) <= most, f"{len(pieces)} pieces of at most {most}"
    assert all(int(piece[-1]) == number % 251 for number, piece in enumerate(pieces))
    left = free_bytes()
    assert left < 2 * PIECE, f"{left} bytes free with {len(pieces)} pieces"
    # With one piece less, other work has room: cuBLAS allocates its own memory.
    pieces.pop()
    torch.cuda.empty_cache()  # PyTorch keeps what cuBLAS needs
    a = torch.ones(1024, 1024, device=device)
    assert float((a @ a)[7, 7]) == 1024.0
    del a, pieces
    print(f"turn {turn}: ok")
# Workspaces of libraries are small, but they prevent the release of a chunk.
chunks = "strategy:pre_allocate" in os.environ.get("CACHEALLOC_CONF", "")
assert chunks or at_first - free_bytes() < 128 * MIB, "memory is lost"
try:
    torch.empty(limit + PIECE, dtype=torch.uint8, device=device)
    raise AssertionError("more than the limit was allocated")
except RuntimeError as error:
    assert is_shortage(error), error
print("limit: ok")
