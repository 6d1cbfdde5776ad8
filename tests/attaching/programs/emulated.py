"""Trains on coresim's emulated device in the place of CUDA: it works in its own time, and only events tell which.

``waits``: the loop waits for every step. ``ahead``: it waits for the step before, so that the device always has one.
"""

import sys

import torch
from torch.utils.data import DataLoader
from work import BATCH, Data

from coresim.attaching import device as attached
from coresim.device.emulated import open_device

#: A copy of a batch of 24832 bytes takes 5 ms.
LIKE = "emulated:step=25ms,launch=2ms,bus=4966400,sync=block"


def main():
    waits = sys.argv[1] == "waits"
    device = open_device(LIKE)
    attached.device_of_program = lambda: device
    step, before = device.step("tiny", "fp32"), None
    model = torch.nn.Linear(192, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for _ in range(100):
        for batch in DataLoader(Data(), BATCH, num_workers=1):
            images, labels = batch
            for part in batch:  # from pinned memory a copy is not waited for
                device.copy(part if waits else device.pin(part))
            step(batch)
            torch.nn.functional.cross_entropy(model(images.flatten(1)), labels).backward()
            optimizer.step()
            optimizer.zero_grad()
            done = device.record()
            device.synchronise(done if waits or before is None else before)
            before = done


if __name__ == "__main__":
    main()
