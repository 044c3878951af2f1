# Data-parallel training by DistributedDataParallel, and sharded by FSDP: one process per GPU, on all GPUs or as many as
# the first argument says. Prints every loss to the last digit, and the time of a step on a line that is not compared.
# With TRAIN_TURNS it trains one of the two, as TRAIN_KIND says: a fixed number of steps for each line that it reads,
# and prints their time.
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
        # A free after a collective: without the library its return shows that the collective is complete.
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


def train_in_turns(wrapped, rank, turns):
    optimizer = torch.optim.AdamW(wrapped.parameters(), lr=1e-4)
    torch.manual_seed(1 + rank)
    batches = [torch.randn(8, 96 + 8 * (step % 8), 512, device="cuda") for step in range(8)]
    count = int(os.environ["TRAIN_TURNS"])
    while turns.recv():
        begun, cpu = time.perf_counter(), time.process_time()
        for step in range(count):
            loss = wrapped(batches[step % 8]).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        elapsed, cpu = time.perf_counter() - begun, time.process_time() - cpu
        turns.send((1e3 * elapsed / count, 1e3 * cpu / count, loss.item()))
    turns.send(torch.cuda.max_memory_reserved() >> 20)


def in_ddp(rank):
    return torch.nn.parallel.DistributedDataParallel(model(), device_ids=[rank])


def in_fsdp(rank):
    return FullyShardedDataParallel(model(), device_id=rank)


def worker(rank, world, rendezvous, turns):
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method=f"file://{rendezvous}", rank=rank, world_size=world)
    if turns:
        wrap = {"ddp": in_ddp, "fsdp": in_fsdp}[os.environ["TRAIN_KIND"]]
        train_in_turns(wrap(rank), rank, turns[rank])
    else:
        train("ddp", in_ddp(rank), rank)
        train("fsdp", in_fsdp(rank), rank)
    dist.destroy_process_group()


def take_turns(ours):
    def answers(question):
        for pipe in ours:
            pipe.send(question)
        return [pipe.recv() for pipe in ours]

    for _ in sys.stdin:
        elapsed, cpu, losses = zip(*answers(True))
        print(f"{max(elapsed):.6f} {sum(cpu):.6f} {losses[0]:.9f}", flush=True)
    print(f"reserves {max(answers(False))} MiB")


if __name__ == "__main__":
    world = int(sys.argv[1]) if len(sys.argv) > 1 else torch.cuda.device_count()
    pipes = [mp.get_context("spawn").Pipe() for _ in range(world)] if "TRAIN_TURNS" in os.environ else []
    with tempfile.TemporaryDirectory() as folder:
        theirs = [pipe for _, pipe in pipes]
        ranks = mp.spawn(
            worker, args=(world, os.path.join(folder, "rendezvous"), theirs), nprocs=world, join=False
        )
        if pipes:
            take_turns([pipe for pipe, _ in pipes])
        while not ranks.join():
            pass
