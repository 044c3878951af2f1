# Two processes under `strategy:pre_allocate,fraction_of_gpu_memory_to_use:0.2`: each allocates its share of the free
# memory at its first request, and works in that chunk. A request that does not fit goes to the driver, and its memory
# is returned at once when freed. `scripts/gpu run limits` runs it under the library.
#
# needs: torch
import subprocess
import sys

import torch

MIB = 1 << 20
FRACTION = 0.2
child = sys.argv[1:] == ["child"]
name = "second process" if child else "first process"


def free_bytes():
    torch.cuda.synchronize()
    return torch.cuda.mem_get_info()[0]


torch.cuda.init()
at_first = free_bytes()
first = torch.ones(1000, device="cuda")
chunk = at_first - free_bytes()
assert 0.9 * FRACTION < chunk / at_first < 1.1 * FRACTION, f"{chunk} bytes of {at_first}"
print(f"{name}: a chunk of its share", flush=True)
if not child:
    other = subprocess.Popen([sys.executable, __file__, "child"], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, text=True)
    assert other.stdout.readline().startswith("second process"), "no chunk beside ours"

# All sizes come from the chunk: free memory on the device does not change.
before = free_bytes()
for step in range(50):
    sizes = [1 << (10 + (step + part) % 16) for part in range(8)]
    tensors = [torch.full((size,), step, dtype=torch.float32, device="cuda") for size in sizes]
    assert all(float(tensor.sum()) == step * size for tensor, size in zip(tensors, sizes))
del tensors
assert free_bytes() == before, "free memory of the device changed"
assert float(first.sum()) == 1000.0
print(f"{name}: works in it")

if not child:
    # Larger than the chunk: served by the driver, and returned at once.
    large = torch.empty(int(1.2 * chunk), dtype=torch.uint8, device="cuda")
    assert before - free_bytes() >= int(1.2 * chunk)
    del large
    assert free_bytes() == before, "a request larger than the chunk was kept"
    rest, _ = other.communicate("", timeout=120)
    assert other.returncode == 0, rest
    print("".join(line + "\n" for line in sorted(rest.splitlines())), end="")
    print("chunks: ok")
else:
    sys.stdout.flush()
    sys.stdin.read()
