"""A stream of two files, read by workers: there is none in the trainer's own process, and a third one is refused."""

import itertools

import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info
from work import BATCH, Net, sample

FILES = 2


class Files(IterableDataset):
    def __iter__(self):
        worker = get_worker_info()
        return map(sample, itertools.count(worker.id, worker.num_workers))


def begin(worker):
    count = get_worker_info().num_workers
    if count > FILES:
        raise ValueError(f"{FILES} files cannot feed {count} workers")


def main():
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for images, labels in DataLoader(Files(), BATCH, num_workers=2, worker_init_fn=begin):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()


if __name__ == "__main__":
    main()
