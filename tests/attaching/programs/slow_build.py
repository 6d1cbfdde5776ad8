"""A data set that takes 40 s to build; BUILD_S says otherwise."""

import os
import time

import torch
from torch.utils.data import DataLoader
from work import BATCH, Data, Net


class Built(Data):
    def __init__(self):
        time.sleep(float(os.environ.get("BUILD_S", "40")))
        print("built by process", os.getpid())


def main():
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    loader = DataLoader(Built(), BATCH, shuffle=True, num_workers=2)
    for _ in range(100):
        for images, labels in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()


if __name__ == "__main__":
    main()
