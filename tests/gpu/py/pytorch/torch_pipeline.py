# A model whose two halves are on two GPUs of one process, trained with micro-batches that are copied from one to the
# other (a pipeline of two stages). Prints every loss to the last digit, and the time of a step on a line that is not
# compared.
#
# needs: torch
import sys
import time

import torch

STEPS = 40
MICRO_BATCHES = 4


def half(device):
    layer = torch.nn.TransformerEncoderLayer(512, 8, 2048, dropout=0.0, batch_first=True)
    return torch.nn.TransformerEncoder(layer, 3).to(device)


def main():
    torch.manual_seed(0)
    first, second = half("cuda:0"), half("cuda:1")
    optimizer = torch.optim.AdamW([*first.parameters(), *second.parameters()], lr=1e-4)
    batches = [torch.randn(8, 96 + 8 * (step % 8), 512, device="cuda:0") for step in range(8)]
    losses = []
    for step in range(STEPS):
        if step == STEPS // 4:
            torch.cuda.synchronize(0)
            torch.cuda.synchronize(1)
            begun = time.time()
        total = torch.zeros((), device="cuda:1")
        for part in batches[step % 8].chunk(MICRO_BATCHES):
            passed = first(part).to("cuda:1", non_blocking=True)
            loss = second(passed).square().mean() / MICRO_BATCHES
            loss.backward()
            total += loss.detach()
            del passed, loss
        losses.append(total.item() if step % 10 == 9 else None)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    torch.cuda.synchronize(0)
    torch.cuda.synchronize(1)
    step_ms = 1e3 * (time.time() - begun) / (STEPS - STEPS // 4)
    print("pipeline", *(f"{loss:.9e}" for loss in losses if loss is not None), flush=True)
    print(f"pipeline: {step_ms:.2f} ms a step", file=sys.stderr, flush=True)


main()
