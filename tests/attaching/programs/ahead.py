"""A thread reads the loader ahead of the loop that trains, as DataLoaderX does."""

import queue
import threading

import torch
from torch.utils.data import DataLoader
from work import BATCH, Data, Net


def train(net, batches):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for images, labels in batches:
        loss = torch.nn.functional.cross_entropy(net(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def read(loader, ahead):
    while True:
        for batch in loader:
            ahead.put(batch)


def main():
    ahead = queue.Queue(2)
    loader = DataLoader(Data(), BATCH, shuffle=True, num_workers=2)
    threading.Thread(target=read, args=(loader, ahead), daemon=True).start()
    train(Net(), iter(ahead.get, None))


if __name__ == "__main__":
    main()
