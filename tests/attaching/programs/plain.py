"""A plain loop, everything in main(): flags, a data set and a collate function that no other module could name."""

import argparse
import time

import torch
from torch.utils.data import DataLoader, Dataset


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--prefetch", type=int, default=None)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--sample", type=float, default=0.005)
    parser.add_argument("--step", type=float, default=0.05)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--in-place", action="store_true")
    args = parser.parse_args()

    class Data(Dataset):
        def __len__(self):
            return 3200

        def __getitem__(self, index):
            until = time.thread_time() + args.sample
            while time.thread_time() < until:
                pass
            return torch.full((3, 8, 8), index / 3200), index % 10

    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    loader = DataLoader(
        Data(), args.batch_size, shuffle=True, num_workers=args.workers, prefetch_factor=args.prefetch,
        collate_fn=lambda samples: (torch.stack([x for x, _ in samples]), torch.tensor([y for _, y in samples])),
    )  # fmt: skip
    for epoch in range(args.epochs):
        for number, (images, labels) in enumerate(loader):
            if args.in_place:
                images.sub_(0.5).div_(0.25)
            loss = torch.nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            time.sleep(args.step)
            if (number + 1) % args.accumulate == 0:
                optimizer.step()
                optimizer.zero_grad()
            if number % 20 == 0:
                print(f"epoch {epoch} batch {number} loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
