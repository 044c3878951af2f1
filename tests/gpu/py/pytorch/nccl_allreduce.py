# NCCL through torch.distributed: one process per GPU, on all GPUs or as many as the first argument says.
#
# needs: torch
import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def worker(rank, world, rendezvous):
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method=f"file://{rendezvous}", rank=rank, world_size=world)
    ok = True
    for i in range(20):
        x = torch.full((1000 + 4096 * i,), rank + 1 + i, dtype=torch.int64, device="cuda")
        dist.all_reduce(x)
        ok &= bool((x == world * i + world * (world + 1) // 2).all())
        pieces = [torch.empty(512, device="cuda") for _ in range(world)]
        dist.all_gather(pieces, torch.full((512,), float(rank), device="cuda"))
        ok &= all(bool((piece == r).all()) for r, piece in enumerate(pieces))
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(256, 256).cuda(), device_ids=[rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for i in range(5):
        torch.manual_seed(100 * rank + i)
        model(torch.randn(64, 256, device="cuda")).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    total = sum(p.double().sum() for p in model.parameters())
    sums = [torch.empty_like(total) for _ in range(world)]
    dist.all_gather(sums, total)
    ok &= all(bool(s == sums[0]) for s in sums)
    torch.cuda.synchronize()
    if rank == 0:
        print("all-reduce, all-gather, data-parallel steps:", "ok" if ok else "FAIL")
    dist.destroy_process_group()
    if not ok:
        sys.exit(1)


if __name__ == "__main__":
    gpus = torch.cuda.device_count()
    worlds = sorted({1, int(sys.argv[1]) if len(sys.argv) > 1 else gpus})
    for world in worlds:
        with tempfile.TemporaryDirectory() as directory:
            rendezvous = os.path.join(directory, "rendezvous")
            torch.manual_seed(0)
            mp.spawn(worker, args=(world, rendezvous), nprocs=world)
        print(f"world of {world} done", flush=True)
