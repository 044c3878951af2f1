# A DataLoader with workers that are forked, after CUDA has begun, and with workers that are spawned.
#
# needs: torch
import torch
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, number):
        return torch.full((4096,), float(number))


def main():
    torch.manual_seed(0)
    model = torch.nn.Linear(4096, 16).cuda()
    for context in "fork", "spawn":
        total = 0
        for rows in DataLoader(Rows(), batch_size=8, num_workers=2, pin_memory=True, multiprocessing_context=context):
            batch = rows.to("cuda", non_blocking=True)  # tensor: 131072 x 16
            total += model(batch).sum().item()
        print(f"{context} {total:.6f}")


if __name__ == "__main__":
    main()
