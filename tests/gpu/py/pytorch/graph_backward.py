"""Training steps of three batch sizes as graphs: the backward pass allocates and frees in autograd's thread. Prints
every loss to the last digit; the same script with PyTorch's own cache gives the reference:

    python3 graph_backward.py > reference
    GRAPH_REFERENCE=reference PYTORCH_NO_CUDA_MEMORY_CACHING=1 LD_PRELOAD=... python3 graph_backward.py

GRAPH_MODE (thread_local, global) is the mode of the captures, GRAPH_MODEL (mlp, transformer) what is trained.
"""

import os
import struct

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # deterministic; read by the first matrix product

import torch

MODE = os.environ.get("GRAPH_MODE", "thread_local")
MODEL = os.environ.get("GRAPH_MODEL", "mlp")
BATCHES = (8, 24, 64)
ROUNDS = 30
WIDTH = 256
LENGTH = 16


def model():
    torch.manual_seed(0)
    if MODEL == "transformer":
        layer = torch.nn.TransformerEncoderLayer(WIDTH, 4, 512, dropout=0.0, batch_first=True)
        return torch.nn.TransformerEncoder(layer, 2).cuda()
    layers = []
    for _ in range(4):
        layers += [torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU(), torch.nn.LayerNorm(WIDTH)]
    return torch.nn.Sequential(*layers).cuda()


class Step:
    """One training step for one batch size, as a graph."""

    def __init__(self, net, optimizer, batch):
        self.net, self.optimizer = net, optimizer
        self.input = torch.zeros(batch, LENGTH, WIDTH, device="cuda")
        self.target = torch.zeros_like(self.input)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, capture_error_mode=MODE):
            self.loss = self.run()

    def run(self):
        self.optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.mse_loss(self.net(self.input), self.target)
        loss.backward()
        self.optimizer.step()
        return loss.detach()


def warm_up(net, optimizer):
    """Libraries create their workspaces, and the optimizer its state; the parameters do not change."""
    before = [parameter.detach().clone() for parameter in net.parameters()]
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for batch in BATCHES:
            optimizer.zero_grad(set_to_none=True)
            data = torch.ones(batch, LENGTH, WIDTH, device="cuda")
            torch.nn.functional.mse_loss(net(data), data).backward()
            optimizer.step()
    torch.cuda.current_stream().wait_stream(side)
    with torch.no_grad():
        for parameter, old in zip(net.parameters(), before):
            parameter.copy_(old)
        for state in optimizer.state.values():
            for value in state.values():
                value.zero_()
    optimizer.zero_grad(set_to_none=True)
    torch.cuda.synchronize()


def main():
    torch.use_deterministic_algorithms(True)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cuda.enable_flash_sdp(False)
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    net = model()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, capturable=True)
    warm_up(net, optimizer)
    steps = [Step(net, optimizer, batch) for batch in BATCHES]
    generator = torch.Generator().manual_seed(1)
    kept, losses = [], []
    for index in range(ROUNDS):
        step = steps[index % len(steps)]
        data = torch.randn(step.input.shape, generator=generator)
        # A launch must not write to these blocks, which have the sizes that a backward pass frees.
        noise = [torch.full((rows, WIDTH), float(index), device="cuda") for rows in (1, 128, 384, 1024, 8192)]
        step.input.copy_(data)
        step.target.copy_(data.flip(-1))
        step.graph.replay()
        loss = step.loss.item()
        wrong = [block for block in noise + [block for _, blocks in kept for block in blocks]
                 if not bool((block == block.flatten()[0]).all())]
        assert not wrong, f"round {index}: a launch wrote to another tensor"
        losses.append(f"{index} {step.input.shape[0]} {loss!r} {struct.pack('>f', loss).hex()}")
        print(losses[-1])
        if index % 3 == 0:
            kept.append((index, noise))
        del noise
        if len(kept) > 4:
            kept.pop(0)
    reference = os.environ.get("GRAPH_REFERENCE")
    if reference:
        with open(reference, encoding="utf-8") as file:
            right = [line for line in file.read().splitlines() if line[:1].isdigit()] == losses
        print("graph_backward: ok" if right else "graph_backward: FAIL, other losses")


main()
