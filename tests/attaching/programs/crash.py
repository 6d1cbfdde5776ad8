"""A program with a fault that shows at its third step."""

import torch
from torch.utils.data import DataLoader
from work import BATCH, Data, Net


def main():
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for number, (images, labels) in enumerate(DataLoader(Data(), BATCH, num_workers=1)):
        if number == 3:
            raise ValueError("no such label: 11")
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()


if __name__ == "__main__":
    main()
