"""The iterator's hooks see every kind of loader that is built on torch's, and change nothing that it gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from coresim.attaching.here import watch_here

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch
data = torch.utils.data

LENGTH, EPOCHS = 10, 2


class Squares(data.Dataset[int]):
    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> int:
        return index * index


class AtOnce(Squares):
    def __getitems__(self, indices: list[int]) -> list[int]:
        return [index * index for index in indices]


class Stream(data.IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        worker = data.get_worker_info()
        first, stride = (0, 1) if worker is None else (worker.id, worker.num_workers)
        return iter(range(first, LENGTH, stride))


def batches() -> Any:
    return data.BatchSampler(data.SequentialSampler(Squares()), 4, drop_last=False)


def stateful() -> Any:
    return pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader(Squares(), 4, num_workers=1)


def of_accelerate() -> Any:
    return pytest.importorskip("accelerate.data_loader").prepare_data_loader(data.DataLoader(Squares(), 4))


KINDS: dict[str, Callable[[], Any]] = {
    "map-style": lambda: data.DataLoader(Squares(), 4),
    "with workers": lambda: data.DataLoader(Squares(), 4, num_workers=2),
    "workers that live on": lambda: data.DataLoader(Squares(), 4, num_workers=1, persistent_workers=True),
    "__getitems__": lambda: data.DataLoader(AtOnce(), 4, num_workers=1),
    "a stream": lambda: data.DataLoader(Stream(), 4, num_workers=2),
    "a stream of batches": lambda: data.DataLoader(Stream(), batch_size=None),
    "a batch sampler": lambda: data.DataLoader(Squares(), batch_sampler=batches()),
    "batch_size=None": lambda: data.DataLoader(Squares(), batch_size=None),
    "torchdata": stateful,
    "accelerate": of_accelerate,
}


def epochs(loader: Any) -> list[list[Any]]:
    return [[torch.as_tensor(batch).tolist() for batch in loader] for _ in range(EPOCHS)]


@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS.keys())
def test_every_kind_of_loader_is_seen_and_gives_what_it_gave(make: Callable[[], Any]) -> None:
    expected, kind = epochs(make()), type(iter(make()))
    watched = watch_here()
    try:
        loader = make()
        assert type(iter(loader)) is kind
        before = watched._rank.batches
        assert epochs(loader) == expected
        asked = watched._rank.batches - before
    finally:
        watched.detach()
    # Each epoch asks once more than there are batches; accelerate asks one ahead and is told of the end once, too.
    assert asked == sum(map(len, expected)) + EPOCHS
    assert epochs(make()) == expected
