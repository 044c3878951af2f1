# A small transformer trained for a few steps: the loss is the same to the last digit on every allocator.
#
# needs: torch
import os
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


for _ in range(5):
    step(8, 128)
torch.cuda.synchronize()
start = time.perf_counter()
for i in range(STEPS):
    loss = step(8, 96 + 8 * (i % 8))
torch.cuda.synchronize()
elapsed = time.perf_counter() - start
print(f"loss {loss.item():.9f}")
print(f"time: {1e3 * elapsed / STEPS:.3f} ms a step, torch reserves {torch.cuda.max_memory_reserved() >> 20} MiB")
