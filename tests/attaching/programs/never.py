"""Programs that never train: ``evaluate`` asks for batches and steps no optimizer; ``sleep`` asks for none."""

import sys
import time

import torch
from torch.utils.data import DataLoader, Subset
from work import BATCH, Data, Net


def main():
    if sys.argv[1] == "sleep":
        time.sleep(600)
    model = Net().eval()
    while True:
        with torch.no_grad():
            for images, _ in DataLoader(Subset(Data(), range(8 * BATCH)), BATCH):
                model(images)
        print("evaluated", flush=True)


if __name__ == "__main__":
    main()
