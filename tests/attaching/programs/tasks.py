"""An outer loader gives tasks, and each has a training loop with a loader of its own."""

from torch.utils.data import DataLoader, Subset
from work import BATCH, Data, Net, train

#: Batches of a task.
TASK = 12


def main():
    net = Net()
    for _ in DataLoader(list(range(1000)), 1):
        part = Subset(Data(), range(TASK * BATCH))
        train(net, DataLoader(part, BATCH, shuffle=True, num_workers=1))


if __name__ == "__main__":
    main()
