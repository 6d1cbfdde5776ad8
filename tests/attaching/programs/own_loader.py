"""Trains from a loader that is not torch's: ``batch`` asks for each one, ``stream`` iterates."""

import sys

import torch
from feeder import Feeder
from work import Net


def main():
    model, feeder = Net(), Feeder()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    batches = feeder.stream() if sys.argv[1] == "stream" else iter(feeder.batch, None)
    for images, labels in batches:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()


if __name__ == "__main__":
    main()
