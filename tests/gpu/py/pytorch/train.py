# A small transformer trained for a few steps: the loss is the same to the last digit on every allocator. With
# TRAIN_TURNS it trains this many steps for each line that it reads, and prints their time.
#
# needs: torch
import os
import sys
import time

import torch

torch.manual_seed(0)
STEPS = int(os.environ.get("TRAIN_STEPS", "40"))
model = torch.nn.TransformerEncoder(
    torch.nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True), 6
).to("cuda")
optimizer = torch.optim.AdamW(model.parameters())


def step(batch, length):
    x = torch.randn(batch, length, 512, device="cuda")
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss


def steps(count):
    """Trains, and returns the last loss, the seconds that it took, and the processor time of each thread."""
    begun, cpu = time.perf_counter(), time.process_time()
    for i in range(count):
        loss = step(8, 96 + 8 * (i % 8))
    torch.cuda.synchronize()
    return loss.item(), time.perf_counter() - begun, time.process_time() - cpu


for _ in range(5):
    step(8, 128)
torch.cuda.synchronize()
if "TRAIN_TURNS" in os.environ:
    count = int(os.environ["TRAIN_TURNS"])
    for _ in sys.stdin:
        loss, elapsed, cpu = steps(count)
        print(f"{1e3 * elapsed / count:.6f} {1e3 * cpu / count:.6f} {loss:.9f}", flush=True)
    print(f"reserves {torch.cuda.max_memory_reserved() >> 20} MiB")
else:
    loss, elapsed, _ = steps(STEPS)
    print(f"loss {loss:.9f}")
    print(f"time: {1e3 * elapsed / STEPS:.3f} ms a step, torch reserves {torch.cuda.max_memory_reserved() >> 20} MiB")
