"""Samples that torch itself transforms, with operations that it splits over threads, as the training does."""

import torch
from torch.utils.data import DataLoader, Dataset

BATCH = 8


class Spectra(Dataset):
    def __len__(self):
        return 800

    def __getitem__(self, index):
        picture = torch.rand(3, 96, 96, generator=torch.Generator().manual_seed(index))
        return torch.fft.fft2(picture).abs(), index % 10


def main():
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 96 * 96, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    for _ in range(100):
        for spectra, labels in DataLoader(Spectra(), BATCH, num_workers=2):
            # The trainer's threads are started here; a process that is forked from it later has none of them.
            loss = torch.nn.functional.cross_entropy(model(torch.fft.fft2(spectra).abs().sqrt()), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
