"""Two ranks by torchrun, data-parallel over gloo, each with a part of the data set; rank 0's may be dearer."""

import os

import torch
import work
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from work import BATCH, Data, Net


def main():
    torch.distributed.init_process_group("gloo")
    if torch.distributed.get_rank():
        work.SAMPLE_S *= float(os.environ.get("OTHER_RANKS", "1"))
    model = DistributedDataParallel(Net())
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    data = Data()
    sampler = DistributedSampler(data)
    loader = DataLoader(data, BATCH, sampler=sampler, num_workers=1)
    for epoch in range(int(os.environ.get("EPOCHS", "100"))):
        sampler.set_epoch(epoch)
        for images, labels in loader:
            loss = torch.nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
