"""A loader of one's own: a class with a method that gives a batch, prepared by a thread."""

import queue
import threading

import torch
from work import BATCH, sample


class Feeder:
    def __init__(self):
        self.ready = queue.Queue(maxsize=2)
        threading.Thread(target=self._work, daemon=True).start()

    def _work(self):
        while True:
            samples = [sample(index) for index in range(BATCH)]
            self.ready.put((torch.stack([x for x, _ in samples]), torch.tensor([y for _, y in samples])))

    def batch(self):
        return self.ready.get()

    def stream(self):
        while True:
            yield self.ready.get()
