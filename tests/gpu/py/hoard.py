"""Three programs whose sizes change from step to step, and what the cache under them holds: at the peak, and when
a smaller load has followed the peak for ten seconds. Run by `scripts/gpu run hoard`.

usage: hoard.py gp|lora|graphs native|torch|ours

`native`: no cache (PYTORCH_NO_CUDA_MEMORY_CACHING=1); `torch`: PyTorch's; `ours`: the library is loaded, and
PyTorch has none. needs: torch
"""

import ctypes
import math
import statistics
import sys
import threading
import time

import torch
import torch.nn.functional as F

GIB = 1 << 30
AFTERWARDS_S, LAST_S = 10, 2
PROGRAM, CACHE = sys.argv[1:]
torch.manual_seed(0)
device = torch.device("cuda")


class GaussianProcess:
    """Exact regression, with gradients for the kernel. The training set grows by 200 points a step."""

    steps = 60
    # With less noise, or a smoother kernel, the matrix of 13,000 points is not positive-definite in 32 bits.
    scales, noises = (-2, 2), (-2, 1)

    def __init__(self):
        self.log_scale = torch.zeros((), device=device, requires_grad=True)
        self.log_noise = torch.full((), -1.0, device=device, requires_grad=True)

    def fit(self, points):
        x = torch.randn(points, 4, device=device)
        y = x.sin().sum(1, keepdim=True)
        squared = torch.cdist(x, x).square()
        noise = self.log_noise.exp() * torch.eye(points, device=device)
        lower = torch.linalg.cholesky(torch.exp(-squared * self.log_scale.exp()) + noise)
        loss = (y * torch.cholesky_solve(y, lower)).sum() / 2 + lower.diagonal().log().sum()
        loss.backward()
        with torch.no_grad():
            for parameter, bounds in (self.log_scale, self.scales), (self.log_noise, self.noises):
                parameter -= 0.01 * parameter.grad.sign()
                parameter.clamp_(*bounds)
                parameter.grad = None

    def step(self, number):
        self.fit(1000 + 200 * number)

    def small_step(self):
        self.fit(1500)


class Low(torch.nn.Module):
    """A frozen matrix and an update of low rank beside it."""

    def __init__(self, width, out):
        super().__init__()
        self.frozen = torch.nn.Linear(width, out, bias=False)
        self.frozen.weight.requires_grad_(False)
        self.down = torch.nn.Linear(width, 8, bias=False)
        self.up = torch.nn.Linear(8, out, bias=False)

    def forward(self, x):
        return self.frozen(x) + self.up(self.down(x))


class Layer(torch.nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.before, self.between = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.queries, self.values = Low(width, width), Low(width, width)
        self.keys, self.out = torch.nn.Linear(width, width), torch.nn.Linear(width, width)
        self.gate, self.wide = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, 3 * width)
        self.narrow = torch.nn.Linear(3 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        normal = self.before(x)
        split = (batch, length, self.heads, width // self.heads)
        q, k, v = (f(normal).view(split).transpose(1, 2) for f in (self.queries, self.keys, self.values))
        scores = (q @ k.transpose(2, 3)) / math.sqrt(split[3])
        mask = torch.ones(length, length, dtype=torch.bool, device=device).triu(1)
        seen = scores.masked_fill(mask, -math.inf).softmax(3) @ v
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, width))
        normal = self.between(x)
        return x + self.narrow(F.silu(self.gate(normal)) * self.wide(normal))


class Lora:
    """A small language model, of which only updates of low rank are trained; gradients of eight batches, each as
    long as its longest sentence, add up to a step."""

    steps, words, width = 8, 16000, 768

    def __init__(self):
        self.words_in = torch.nn.Embedding(self.words, self.width, device=device)
        self.layers = torch.nn.Sequential(*(Layer(self.width, 12) for _ in range(8))).to(device)
        trained = []
        for name, parameter in self.layers.named_parameters():
            parameter.requires_grad_(".up." in name or ".down." in name)
            trained += [parameter] * parameter.requires_grad
        self.words_in.requires_grad_(False)
        self.optimizer = torch.optim.AdamW(trained)
        self.lengths = torch.Generator().manual_seed(1)

    def batch(self, sentences, length):
        text = torch.randint(self.words, (sentences, length + 1), device=device)
        hidden = self.layers(self.words_in(text[:, :-1]))
        guesses = hidden @ self.words_in.weight.T
        F.cross_entropy(guesses.flatten(0, 1), text[:, 1:].flatten()).div(8).backward()

    def end_step(self):
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def step(self, _):
        for _ in range(8):
            self.batch(4, int(torch.randint(64, 640, (4,), generator=self.lengths).max()))
        self.end_step()

    def small_step(self):
        self.batch(1, 64)
        self.end_step()


class Graphs:
    """A graph convolution and graph attention, each step on another random graph."""

    steps, width, heads = 60, 64, 4

    def __init__(self):
        def matrix(*shape):
            return torch.nn.Parameter(torch.randn(*shape, device=device) / math.sqrt(shape[0]))

        inner = self.heads * self.width
        self.mix, self.spread, self.last = matrix(128, self.width), matrix(self.width, inner), matrix(inner, 16)
        self.to, self.origin = matrix(self.heads, self.width), matrix(self.heads, self.width)
        self.optimizer = torch.optim.Adam([self.mix, self.spread, self.last, self.to, self.origin])
        self.sizes = torch.Generator().manual_seed(2)

    def train(self, nodes, edges):
        x = torch.randn(nodes, 128, device=device)
        begin, end = torch.randint(nodes, (2, edges), device=device)
        degree = torch.bincount(end, minlength=nodes).clamp(min=1).rsqrt()
        messages = (x @ self.mix)[begin] * (degree[begin] * degree[end])[:, None]
        x = torch.zeros(nodes, self.width, device=device).index_add(0, end, messages).relu()
        heads = (x @ self.spread).view(nodes, self.heads, self.width)
        score = (heads * self.origin).sum(2)[begin] + (heads * self.to).sum(2)[end]
        weight = F.leaky_relu(score, 0.2).clamp(max=10).exp()
        total = torch.zeros(nodes, self.heads, device=device).index_add(0, end, weight)
        messages = heads[begin] * (weight / (total[end] + 1e-9))[:, :, None]
        x = torch.zeros_like(heads).index_add(0, end, messages).flatten(1).relu() @ self.last
        F.cross_entropy(x, torch.randint(16, (nodes,), device=device)).backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def step(self, _):
        nodes, degree = (int(torch.randint(low, high, (), generator=self.sizes)) for low, high in ((5000, 40000), (5, 20)))
        self.train(nodes, nodes * degree)

    def small_step(self):
        self.train(2000, 20000)


class Device:
    """Peak of the device memory in use by all processes, as NVIDIA's tool reports it, above the use at the start."""

    class Memory(ctypes.Structure):
        _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]

    def __init__(self):
        self.tool, self.handle, self.memory = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_void_p(), self.Memory()
        assert self.tool.nvmlInit_v2() == 0
        assert self.tool.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self.handle)) == 0
        self.at_first = self.peak = self.now()
        threading.Thread(target=self.watch, daemon=True).start()

    def now(self):
        assert self.tool.nvmlDeviceGetMemoryInfo(self.handle, ctypes.byref(self.memory)) == 0
        return self.memory.used

    def watch(self):
        while True:
            self.peak = max(self.peak, self.now())
            time.sleep(0.005)


def ours(key):
    value = ctypes.c_int64()
    assert ctypes.CDLL(None).cachealloc_stat(0, key.encode(), ctypes.byref(value)) == 0, key
    return value.value


def of_cache(key):
    """Returns a statistic of the cache, by PyTorch's name; 0 without a cache."""
    return {"native": lambda _: 0, "torch": lambda key: torch.cuda.memory_stats()[key], "ours": ours}[CACHE](key)


def reset_peaks():
    if CACHE == "torch":
        torch.cuda.reset_peak_memory_stats()
    elif CACHE == "ours":
        assert ctypes.CDLL(None).cachealloc_reset_peak_stats(-1) == 0


def timed(step, *arguments):
    began = time.perf_counter()
    step(*arguments)
    torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - began)


def main():
    program = {"gp": GaussianProcess, "lora": Lora, "graphs": Graphs}[PROGRAM]()
    timed(program.small_step)
    memory = Device()
    times = [timed(program.step, number) for number in range(program.steps)]
    device_peak = memory.peak - memory.at_first
    peak = of_cache("reserved_bytes.all.peak"), of_cache("allocated_bytes.all.peak")
    at_peak_calls = of_cache("num_device_alloc")
    small_times, is_last, last_calls = [], False, 0
    began = time.perf_counter()
    while (since := time.perf_counter() - began) < AFTERWARDS_S:
        if since > AFTERWARDS_S - LAST_S and not is_last:
            is_last, last_calls = True, of_cache("num_device_alloc")
            reset_peaks()
        small_times.append(timed(program.small_step))
        time.sleep(0.002)
    after = of_cache("reserved_bytes.all.current"), of_cache("allocated_bytes.all.peak")
    gib = [f"{number / GIB:7.3f}" for number in (device_peak, *peak, memory.now() - memory.at_first, *after)]
    print(
        f"{PROGRAM:7}{CACHE:7}",
        *gib,
        f"{sum(times) / len(times):9.2f} {statistics.median(small_times):9.3f}",
        f"{at_peak_calls:7} {of_cache('num_device_alloc') - last_calls:5}",
    )


main()
