# PyTorch alone, and a snapshot in the middle of the run by the wheel's module.
#
# needs: torch
import os
import sys
import time

import cachealloc
import torch

torch.manual_seed(0)
model = torch.nn.Linear(1024, 1024).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
kept = []
for step in range(10):
    kept.append(torch.ones(1 << 20, device="cuda"))  # tensor: 4194304 x 10
    batch = torch.full((64, 1024), 0.1 * step, device="cuda")  # tensor: 262144 x 10
    loss = model(batch).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if step == 4 and cachealloc.is_loaded():
        cachealloc.snapshot("step-4.pickle")
print(f"loss {loss.item():.9f}, kept {sum(tensor.sum().item() for tensor in kept):.0f}")
print("PyTorch counts", torch.cuda.memory_stats().get("allocation.all.allocated", 0), file=sys.stderr)

# The command queries the running program; then this file lets it end.
go_on = os.environ.get("RECIPE_GO_ON")
end = time.time() + 60
while go_on and not os.path.exists(go_on) and time.time() < end:
    time.sleep(0.05)
