"""An IterableDataset whose workers share the samples among them by their number."""

import itertools

import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info
from work import BATCH, Net, sample


class Stream(IterableDataset):
    def __iter__(self):
        worker = get_worker_info()
        first, stride = (worker.id, worker.num_workers) if worker else (0, 1)
        return map(sample, itertools.count(first, stride))


def main():
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for images, labels in DataLoader(Stream(), BATCH, num_workers=2):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()


if __name__ == "__main__":
    main()
