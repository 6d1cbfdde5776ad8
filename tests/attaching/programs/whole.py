"""A data set that gives whole batches, with ``batch_size=None``."""

import torch
from torch.utils.data import DataLoader, Dataset
from work import BATCH, SAMPLES, Net, sample


class Batches(Dataset):
    def __len__(self):
        return SAMPLES // BATCH

    def __getitem__(self, index):
        samples = [sample(number) for number in range(BATCH * index, BATCH * (index + 1))]
        return torch.stack([image for image, _ in samples]), torch.tensor([label for _, label in samples])


def main():
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for _ in range(50):
        for images, labels in DataLoader(Batches(), batch_size=None, shuffle=True, num_workers=2):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()


if __name__ == "__main__":
    main()
