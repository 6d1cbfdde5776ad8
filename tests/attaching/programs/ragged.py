"""Batches of different sizes, of which some are empty and some raise an error that the loop catches."""

import torch
from torch.utils.data import DataLoader, default_collate
from work import Data, Net

#: Samples of the batches, over and over; the data set is read in order. The third batch is empty.
SIZES = (1, 40, 8, 15)
SAMPLES = 6400
#: One sample of so many is broken.
BROKEN = 400


class Holes(Data):
    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        if index % BROKEN == 0:
            raise ValueError(f"broken sample {index}")
        return super().__getitem__(index)


class Ragged:
    def __iter__(self):
        first = 0
        for number in range(SAMPLES // sum(SIZES) * len(SIZES)):
            size = SIZES[number % len(SIZES)]
            yield range(first, first + size)
            first += size


def without_empty(samples):
    return None if len(samples) == SIZES[2] else default_collate(samples)


def main():
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    while True:
        batches = iter(DataLoader(Holes(), batch_sampler=Ragged(), collate_fn=without_empty, num_workers=2))
        while True:
            try:
                batch = next(batches)
            except StopIteration:
                break
            except ValueError:
                continue
            if batch is None:
                continue
            images, labels = batch
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(net(images), labels).backward()
            optimizer.step()


if __name__ == "__main__":
    main()
