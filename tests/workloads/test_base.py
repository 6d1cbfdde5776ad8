"""What all workloads share: collating, padding, and touching every page of a sample."""

from __future__ import annotations

import numpy as np
import pytest
from kit import needs_torch

from coresim.workloads.base import PAGE, DatasetWorkload, batch_facts, default_collate, padded, touch


def test_padding_keeps_values_and_adds_zeros() -> None:
    joined = padded([np.ones((2, 3)), np.full((3, 1), 2.0)])
    assert joined.tolist() == [[[1, 1, 1], [1, 1, 1], [0, 0, 0]], [[2, 0, 0], [2, 0, 0], [2, 0, 0]]]


def test_collate_stacks_recursively_into_new_memory() -> None:
    image = np.zeros((2, 2), dtype=np.float32)
    batch = default_collate([{"x": image, "y": (1, "a")}, {"x": image + 1, "y": (2, "b")}])
    assert batch["x"].shape == (2, 2, 2) and batch["x"][1, 0, 0] == 1
    assert batch["y"][0].tolist() == [1, 2] and batch["y"][1] == ["a", "b"]
    assert batch_facts(batch) == (2 * 2 * 2 * 4 + 2 * 8 + 2, 2)


@pytest.mark.torch
def test_torch_datasets_are_collated_by_torch() -> None:
    torch = pytest.importorskip("torch")
    data = torch.utils.data.TensorDataset(torch.zeros(5, 3), torch.arange(5))
    workload = DatasetWorkload(data, "tensors")
    batch = workload.collate([data[i] for i in range(4)])
    assert batch[0].shape == (4, 3) and batch[1].tolist() == [0, 1, 2, 3]
    assert batch_facts(batch) == (4 * 3 * 4 + 4 * 8, 2)
    assert default_collate([torch.zeros(2), torch.ones(2)]).tolist() == [[0, 0], [1, 1]]


def test_touching_reads_every_page_of_an_array_where_it_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = np.zeros(3 * PAGE, dtype=np.uint8)
    assert touch({"images": [whole, "a text"], "labels": (np.zeros((0, 2)), 3)}) == 3
    assert touch(np.zeros((PAGE, 2), dtype=np.float32).T) == 8  # in another order, and in one piece
    assert touch(np.zeros((2, 2 * PAGE), dtype=np.uint8)[:, ::2]) == 0  # in pieces: reading it would copy it
    assert touch(np.array([None, "objects"], dtype=object)) == 0


@needs_torch
def test_touching_reads_every_page_of_a_tensor_whatever_it_is() -> None:
    import torch

    images = torch.zeros(2, 3, 64, 64)
    pages = 2 * 3 * 64 * 64 * 4 // PAGE
    assert touch([images, torch.tensor([1, 2])]) == pages + 1
    assert touch(images.to(memory_format=torch.channels_last)) == pages
    assert touch(images.to(torch.bfloat16)) == pages // 2
    assert touch(images.requires_grad_()) == touch(images[:, :1]) == pages
    assert touch(torch.eye(3).to_sparse()) == touch(torch.zeros(0)) == 0
