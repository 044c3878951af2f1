# Data-parallel training by DistributedDataParallel, and sharded by FSDP: one process a GPU, all of them (or as many as
# the first argument says). Prints every loss to the last digit; says how long a step took where nobody compares.
#
# needs: torch
import os
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.fsdp import FullyShardedDataParallel

STEPS = 40


def model():
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(512, 8, 2048, dropout=0.0, batch_first=True)
    return torch.nn.TransformerEncoder(layer, 6).cuda()


def train(name, wrapped, rank):
    optimizer = torch.optim.AdamW(wrapped.parameters(), lr=1e-4)
    losses = []
    torch.manual_seed(1 + rank)
    batches = [torch.randn(8, 96 + 8 * (step % 8), 512, device="cuda") for step in range(8)]
    for step in range(STEPS):
        if step == STEPS // 4:
            torch.cuda.synchronize()
            begun = time.time()
        loss = wrapped(batches[step % 8]).square().mean()
        loss.backward()
        # A free behind a collective: natively it says that the collective is complete.
        total = loss.detach().clone()
        dist.all_reduce(total)
        losses.append(total.item() if step % 10 == 9 else None)
        del total, loss
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    torch.cuda.synchronize()
    step_ms = 1e3 * (time.time() - begun) / (STEPS - STEPS // 4)
    if rank == 0:
        print(name, *(f"{loss:.9e}" for loss in losses if loss is not None), flush=True)
        print(f"{name}: {step_ms:.2f} ms a step", file=sys.stderr, flush=True)


def worker(rank, world, rendezvous):
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method=f"file://{rendezvous}", rank=rank, world_size=world)
    train("ddp", torch.nn.parallel.DistributedDataParallel(model(), device_ids=[rank]), rank)
    train("fsdp", FullyShardedDataParallel(model(), device_id=rank), rank)
    dist.destroy_process_group()


if __name__ == "__main__":
    world = int(sys.argv[1]) if len(sys.argv) > 1 else torch.cuda.device_count()
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(worker, args=(world, os.path.join(folder, "rendezvous")), nprocs=world)
