"""Lightning: the loaders live in a data module; a sanity check before, validation in the middle of an epoch."""

import lightning as L
import torch
from torch.utils.data import DataLoader, Subset
from work import BATCH, Data, Net


class Module(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = Net()

    def training_step(self, batch, number):
        images, labels = batch
        return torch.nn.functional.cross_entropy(self.net(images), labels)

    def validation_step(self, batch, number):
        images, labels = batch
        self.log("val", torch.nn.functional.cross_entropy(self.net(images), labels))

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())


class Images(L.LightningDataModule):
    def setup(self, stage):
        self.data = Data()

    def train_dataloader(self):
        return DataLoader(self.data, BATCH, shuffle=True, num_workers=2)

    def val_dataloader(self):
        return DataLoader(Subset(self.data, range(64)), BATCH, num_workers=1)


if __name__ == "__main__":
    trainer = L.Trainer(
        max_epochs=100, accelerator="cpu", logger=False, enable_checkpointing=False, enable_model_summary=False,
        val_check_interval=40,
    )  # fmt: skip
    trainer.fit(Module(), Images())
