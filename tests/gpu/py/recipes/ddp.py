# One rank of DistributedDataParallel, as torchrun starts it.
#
# needs: torch
import os

import torch
import torch.distributed as dist

rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1024, 1024).cuda(), device_ids=[rank])
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
kept = []
for step in range(10):
    kept.append(torch.ones(1 << 20, device="cuda"))  # tensor: 4194304 x 10
    batch = torch.full((64, 1024), 0.1 * (step + rank), device="cuda")  # tensor: 262144 x 10
    loss = model(batch).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
if rank == 0:
    print(f"loss {loss.item():.9f}, kept {sum(tensor.sum().item() for tensor in kept):.0f}")
dist.destroy_process_group()
