"""An outer loader gives tasks, and each has a training loop with a loader of its own."""

import torch
from torch.utils.data import DataLoader
from work import BATCH, Data, Net

#: Batches of a task.
TASK = 12


def train(net, batches):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for images, labels in batches:
        loss = torch.nn.functional.cross_entropy(net(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def main():
    net = Net()
    for _ in DataLoader(list(range(1000)), 1):
        part = torch.utils.data.Subset(Data(), range(TASK * BATCH))
        train(net, DataLoader(part, BATCH, shuffle=True, num_workers=1))


if __name__ == "__main__":
    main()
