"""A script whose name no import statement could say; what a user may name in it as a data set."""

import torch
from torch.utils.data import DataLoader
from work import SAMPLES, Data  # noqa: F401 (a test names it)

try:
    from lightning import LightningDataModule
except ImportError:
    LightningDataModule = object

instance = Data()


def collate(samples):
    return torch.stack([image for image, _ in samples]), torch.tensor([label for _, label in samples])


def begin(worker):
    torch.manual_seed(worker)


loader = DataLoader(instance, 16, shuffle=True, collate_fn=collate, worker_init_fn=begin)
tuned = DataLoader(
    instance, 16, num_workers=3, prefetch_factor=4, persistent_workers=True, multiprocessing_context="spawn"
)
pinned = DataLoader(instance, 16, num_workers=1, pin_memory=True)


class Module(LightningDataModule):
    def __init__(self):
        super().__init__()
        self.data = None

    def prepare_data(self):
        assert self.data is None

    def setup(self, stage):
        assert stage == "fit"
        self.data = Data()

    def train_dataloader(self):
        return DataLoader(self.data, 8, shuffle=True)


class Several(Module):
    def train_dataloader(self):
        return [DataLoader(self.data, 8)]
