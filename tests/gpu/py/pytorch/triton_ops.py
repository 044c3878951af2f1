# Triton kernels over PyTorch's tensors.
#
# needs: torch triton
import torch
import triton
import triton.language as tl


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    tl.store(out + at, tl.load(x + at, mask=mask) + tl.load(y + at, mask=mask), mask=mask)


@triton.jit
def softmax(x, out, columns, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    row = tl.load(x + tl.program_id(0) * columns + at, mask=at < columns, other=-float("inf"))
    row = tl.exp(row - tl.max(row, axis=0))
    tl.store(out + tl.program_id(0) * columns + at, row / tl.sum(row, axis=0), mask=at < columns)


@triton.jit
def product(a, b, c, n, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for k in range(0, n, BLOCK):
        inner = k + tl.arange(0, BLOCK)
        left = tl.load(a + rows[:, None] * n + inner[None, :])
        right = tl.load(b + inner[:, None] * n + columns[None, :])
        total += tl.dot(left, right, input_precision="ieee")
    tl.store(c + rows[:, None] * n + columns[None, :], total)


wrong = 0
streams = [torch.cuda.Stream() for _ in range(3)]
for i in range(60):
    n = 1000 + 777 * i
    with torch.cuda.stream(streams[i % 3]):
        x = torch.arange(n, device="cuda")
        y = torch.full((n,), i, device="cuda")
        out = torch.empty_like(x)
        add[(triton.cdiv(n, 1024),)](x, y, out, n, BLOCK=1024)
        del y
        wrong += not bool((out == x + i).all())
print(f"sums: {wrong} wrong")

torch.manual_seed(0)
x = torch.randn(500, 300, device="cuda")
out = torch.empty_like(x)
softmax[(500,)](x, out, 300, BLOCK=512)
print("softmax:", torch.allclose(out, torch.softmax(x, 1), atol=1e-6))

a = torch.randint(-4, 5, (256, 256), device="cuda").float()
b = torch.randint(-4, 5, (256, 256), device="cuda").float()
c = torch.empty_like(a)
for _ in range(10):
    product[(8, 8)](a, b, c, 256, BLOCK=32)
print("products exact:", torch.equal(c.double(), a.double() @ b.double()))
