"""A script whose function trains when it is called, though it might be taken for what gives data."""

import torch
from torch.utils.data import DataLoader
from work import BATCH, Data, Net


def train():
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for _ in range(100):
        for images, labels in DataLoader(Data(), BATCH, shuffle=True, num_workers=1):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()


if __name__ == "__main__":
    train()
