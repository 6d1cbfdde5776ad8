"""A stream in as many parts as the program has workers, which no other number of them can read."""

import itertools
import os

import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info
from work import BATCH, Net, sample

WORKERS = int(os.environ["WORKERS"])


class Parts(IterableDataset):
    def __iter__(self):
        worker = get_worker_info()
        assert worker.num_workers == WORKERS, f"{WORKERS} parts, and {worker.num_workers} workers"
        return map(sample, itertools.count(worker.id, WORKERS))


def main():
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for images, labels in DataLoader(Parts(), BATCH, num_workers=WORKERS):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()


if __name__ == "__main__":
    main()
