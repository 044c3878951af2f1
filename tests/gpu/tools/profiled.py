"""A few training steps under torch.profiler, which uses CUPTI: prints how often each kernel ran."""
import collections
import os
import sys

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
import torch
from torch.profiler import ProfilerActivity, profile

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 64)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def step(i):
    x = torch.randn(128 + 16 * (i % 3), 256, device="cuda")
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss


step(0)
torch.cuda.synchronize()
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], profile_memory=True) as profiler:
    for i in range(10):
        loss = step(i)
    torch.cuda.synchronize()
counts = collections.Counter()
for event in profiler.events():
    if event.device_type == torch.autograd.DeviceType.CUDA:
        counts[event.name] += 1
if not counts:
    print("skipped: the profiler saw no kernel")
    sys.exit(0)
for name, count in sorted(counts.items()):
    print(count, name[:100])
print(f"loss {loss.item():.6f}")
