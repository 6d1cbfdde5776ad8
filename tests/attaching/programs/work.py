"""What the programs share, as a project's own module: samples that cost a known CPU time, a net, a step that waits."""

import os
import time

import torch
from torch.utils.data import Dataset

#: A sample's CPU time and a step's wait, s: with batches of 32, 3.2 cores feed such a step beside the trainer.
SAMPLE_S = float(os.environ.get("SAMPLE_S", "0.005"))
STEP_S = float(os.environ.get("STEP_S", "0.050"))
SAMPLES, BATCH = 3200, 32


def burn(seconds):
    """Work for so many seconds of CPU time."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def sample(index):
    burn(SAMPLE_S)
    return torch.full((3, 8, 8), index / SAMPLES), index % 10


class Data(Dataset):
    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        return sample(index)


class Net(torch.nn.Module):
    """A device is emulated: the forward pass waits."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(192, 10)

    def forward(self, images):
        if self.training:
            time.sleep(STEP_S)
        return self.layer(images.flatten(1))


def train(net, batches):
    """Train on all of these batches."""
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for images, labels in batches:
        loss = torch.nn.functional.cross_entropy(net(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
