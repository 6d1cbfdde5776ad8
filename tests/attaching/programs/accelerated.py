"""accelerate: it wraps the loader, asks it for a batch ahead, and accumulates gradients over two batches."""

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader
from work import BATCH, Data, Net


def main():
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters())
    loader = DataLoader(Data(), BATCH, shuffle=True, num_workers=2)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for _ in range(100):
        for images, labels in loader:
            with accelerator.accumulate(model):
                accelerator.backward(torch.nn.functional.cross_entropy(model(images), labels))
                optimizer.step()
                optimizer.zero_grad()


if __name__ == "__main__":
    main()
