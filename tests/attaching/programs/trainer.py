"""transformers.Trainer with a collator of its own; nothing in the script names a loader."""

import tempfile
import time

import torch
from torch.utils.data import Dataset
from transformers import Trainer, TrainingArguments
from work import BATCH, SAMPLES, STEP_S, sample


class Texts(Dataset):
    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        image, label = sample(index)
        return {"pixels": image, "labels": label}


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(192, 10)

    def forward(self, pixels, labels):
        time.sleep(STEP_S)
        return {"loss": torch.nn.functional.cross_entropy(self.layer(pixels.flatten(1)), labels)}


def main():
    def collate(samples):
        return {
            "pixels": torch.stack([item["pixels"] for item in samples]),
            "labels": torch.tensor([item["labels"] for item in samples]),
        }

    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, num_train_epochs=100, per_device_train_batch_size=BATCH, dataloader_num_workers=2, use_cpu=True,
            save_strategy="no", report_to=[], logging_steps=20, disable_tqdm=True, dataloader_pin_memory=False,
        )  # fmt: skip
        Trainer(Model(), arguments, data_collator=collate, train_dataset=Texts()).train()


if __name__ == "__main__":
    main()
