"""Ten programs that each ask for many sizes, the same ones in every run. Run by `scripts/gpu run fit`.

usage: sizes.py NAME [LEFT_MIB]

LEFT_MIB: the device memory that the program finds; the rest is allocated first. needs: torch, cupy
"""

import random
import sys

import torch
import torch.nn.functional as F

NAME = sys.argv[1]
MIB = 1 << 20
device = torch.device("cuda")
torch.manual_seed(0)
chance = random.Random(0)


def trained(model, loss, steps):
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(steps):
        loss(model).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def encoder(width, layers):
    layer = torch.nn.TransformerEncoderLayer(width, 12, 4 * width, batch_first=True, device=device)
    return torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)


class Bert(torch.nn.Module):
    """Sentences of many lengths, one batch padded to its longest."""

    def __init__(self):
        super().__init__()
        self.words = torch.nn.Embedding(30000, 768, device=device)
        self.body, self.out = encoder(768, 6), torch.nn.Linear(768, 30000, device=device)

    def forward(self):
        text = torch.randint(30000, (16, chance.randrange(32, 384)), device=device)
        return F.cross_entropy(self.out(self.body(self.words(text))).flatten(0, 1), text.flatten())


def bert():
    trained(Bert(), lambda model: model(), 16)


def gpt():
    """Answers of several lengths, with keys and values that grow by concatenation."""
    heads, width, layers = 16, 64, 24
    for _ in range(6):
        batch = chance.randrange(4, 24)
        cache = [torch.randn(2, batch, heads, 64, width, device=device) for _ in range(layers)]
        for _ in range(chance.randrange(30, 90)):
            for layer in range(layers):
                new = torch.randn(2, batch, heads, 1, width, device=device)
                cache[layer] = torch.cat([cache[layer], new], 3)
                keys, values = cache[layer]
                F.scaled_dot_product_attention(new[0], keys, values)


def images():
    """Pictures of many sizes through convolutions."""
    layers = []
    for before, after in [(3, 64), (64, 128), (128, 256)]:
        layers += [torch.nn.Conv2d(before, after, 3, padding=1), torch.nn.BatchNorm2d(after), torch.nn.ReLU()]
    model = torch.nn.Sequential(*layers).to(device)

    def loss(model):
        side = chance.randrange(64, 200)
        return model(torch.randn(chance.randrange(4, 12), 3, side, side, device=device)).square().mean()

    trained(model, loss, 20)


def lstm():
    model = torch.nn.LSTM(512, 1024, 2, device=device)
    trained(model, lambda model: model(torch.randn(chance.randrange(50, 400), 64, 512, device=device))[0].sum(), 12)


def unet():
    down = [torch.nn.Conv2d(3 if n == 0 else 32 << (n - 1), 32 << n, 3, stride=1 + (n > 0), padding=1) for n in range(4)]
    up = [torch.nn.ConvTranspose2d(64 << n, 32 << n, 2, stride=2) for n in range(3)]
    model = torch.nn.ModuleList(down + up).to(device)

    def loss(model):
        side = 8 * chance.randrange(16, 48)
        x, kept = torch.randn(8, 3, side, side, device=device), []
        for layer in model[:4]:
            x = layer(x).relu()
            kept.append(x)
        for level in (2, 1, 0):
            x = model[4 + level](x).relu() + kept[level]
        return x.square().mean()

    trained(model, loss, 16)


def experts():
    """A mixture of experts: the number of rows for each changes with every batch."""
    model = torch.nn.ModuleList(torch.nn.Linear(1024, 1024) for _ in range(16)).to(device)

    def loss(model):
        x = torch.randn(chance.randrange(8000, 40000), 1024, device=device)
        places = torch.randint(16, (len(x),), device=device)
        return sum(expert(x[places == number]).relu().sum() for number, expert in enumerate(model))

    trained(model, loss, 15)


def graph():
    weight = torch.randn(128, 128, device=device, requires_grad=True)
    for _ in range(30):
        nodes = chance.randrange(5000, 60000)
        begin, end = torch.randint(nodes, (2, 10 * nodes), device=device)
        x = torch.randn(nodes, 128, device=device) @ weight
        torch.zeros_like(x).index_add(0, end, x[begin]).relu().sum().backward()
        weight.grad = None


def process():
    """A Gaussian process whose training set grows."""
    for points in range(2000, 9000, 500):
        x = torch.randn(points, 4, device=device)
        lower = torch.linalg.cholesky(torch.exp(-torch.cdist(x, x)) + torch.eye(points, device=device))
        torch.cholesky_solve(x, lower)


def transforms():
    import cupy

    cupy.cuda.set_allocator(None)
    for _ in range(40):
        x = cupy.random.rand(chance.randrange(1, 40) << 18).astype(cupy.float32)
        y = cupy.fft.rfft(x)
        cupy.fft.irfft(y * y.conj())
    cupy.cuda.Device().synchronize()


def tables():
    """Columns that are sorted, joined and dropped."""
    import cupy

    cupy.cuda.set_allocator(None)
    columns = {}
    for number in range(150):
        columns[chance.randrange(12)] = cupy.random.rand(chance.randrange(100_000, 6_000_000))
        column = columns[chance.choice(list(columns))]
        columns[chance.randrange(12)] = cupy.unique(column[column > 0.3])
        cupy.searchsorted(columns[chance.choice(list(columns))], column[:100_000])
        if number % 5 == 0:
            columns.pop(chance.choice(list(columns)))
    cupy.cuda.Device().synchronize()


PROGRAMS = [bert, gpt, images, lstm, unet, experts, graph, process, transforms, tables]


def main():
    if len(sys.argv) > 2:
        # The libraries allocate their own memory first.
        square = torch.randn(64, 64, device=device)
        (square @ square).sum().item()
        free, _ = torch.cuda.mem_get_info()
        rest = torch.empty(free - int(sys.argv[2]) * MIB, dtype=torch.uint8, device=device)
    {program.__name__: program for program in PROGRAMS}[NAME]()
    torch.cuda.synchronize()


main()
