"""A training program as people write it: flags, everything in main(), nothing that another module could name."""

import argparse
import time

import torch
from torch.utils.data import DataLoader, Dataset


def burn(seconds):
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--sample", type=float, default=0.005)
    parser.add_argument("--step", type=float, default=0.05)
    parser.add_argument("--epochs", type=int, default=100)
    args = parser.parse_args()
    sample = args.sample

    class Data(Dataset):
        def __len__(self):
            return 3200

        def __getitem__(self, index):
            burn(sample)
            return torch.full((3, 8, 8), float(index)), index % 10

    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    loader = DataLoader(
        Data(),
        args.batch_size,
        shuffle=True,
        num_workers=args.workers,
        collate_fn=lambda samples: (torch.stack([x for x, _ in samples]), torch.tensor([y for _, y in samples])),
    )
    for epoch in range(args.epochs):
        for number, (images, labels) in enumerate(loader):
            loss = torch.nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(args.step)
            if number % 20 == 0:
                print(f"epoch {epoch} batch {number} loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
