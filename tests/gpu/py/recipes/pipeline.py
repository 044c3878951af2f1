# A model on two devices of one process, in microbatches.
#
# needs: torch
import torch

torch.manual_seed(0)
first, second = torch.nn.Linear(1024, 1024).to("cuda:0"), torch.nn.Linear(1024, 1024).to("cuda:1")
optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.01)
for step in range(20):
    losses = []
    for micro in range(4):
        batch = torch.full((64, 1024), 0.1 * (step + micro), device="cuda:0")  # tensor: 262144 x 80
        losses.append(second(first(batch).relu().to("cuda:1", non_blocking=True)).square().mean())
    loss = sum(losses)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if step % 5 == 4:
        print(f"loss {loss.item():.9f}")
