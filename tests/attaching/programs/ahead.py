"""A thread reads the loader ahead of the loop that trains, as DataLoaderX does."""

import queue
import threading

from torch.utils.data import DataLoader
from work import BATCH, Data, Net, train


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
