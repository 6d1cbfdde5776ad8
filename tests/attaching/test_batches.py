"""Batches that are kept in memory and given again: what a program does with one of them changes none of the others."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, NamedTuple

import pytest

from coresim.attaching import batches
from coresim.attaching.batches import MOST_BATCHES, WATCHED, Kept, rebuilt, samples_in, tensors
from coresim.attaching.observe import batch_sizes

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


class Pair(NamedTuple):
    images: Any
    labels: Any


class Graph:
    """A batch that is an object of its own."""

    def __init__(self) -> None:
        self.nodes, self.name = torch.ones(2), "graph"


def kept(*values: float) -> Kept:
    found = Kept()
    for value in values:
        found.keep({"x": torch.full((4,), value), "names": ["a"]})
    return found


def test_a_batch_that_the_program_changes_in_place_is_copied_first() -> None:
    found = kept(1.0, 2.0)
    seen = []
    for _ in range(WATCHED + 4):
        batch = found.give()
        seen.append(batch["x"].tolist())
        batch["x"].mul_(10.0)
        batch["names"].append("more")
        assert batch["names"] == ["a", "more"]
    assert seen == [[1.0] * 4, [2.0] * 4] * (WATCHED // 2 + 2)
    assert found.changes


def test_batches_that_the_program_leaves_alone_are_shared_once_that_is_known() -> None:
    found = kept(1.0)
    places = [found.give()["x"].data_ptr() for _ in range(WATCHED + 3)]
    assert found.changes is False
    assert len(set(places[WATCHED:])) == 1


def test_what_is_kept_is_a_copy_of_what_the_program_got() -> None:
    found, batch = Kept(), [torch.zeros(3)]
    found.keep(batch)
    batch[0].add_(1.0)
    batch.clear()
    assert found.give()[0].tolist() == [0.0] * 3


def test_no_more_are_kept_than_a_few_or_than_memory_is_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not kept().full and not kept(*range(MOST_BATCHES - 1)).full and kept(*range(MOST_BATCHES)).full
    assert (kept(1.0).bytes, kept(1.0).arrays) == (16, 1)
    monkeypatch.setattr(batches, "MOST_BYTES", 32)
    assert not kept(1.0).full and kept(1.0, 2.0).full


def test_a_batch_of_any_kind_is_rebuilt_as_it_was() -> None:
    x, y = torch.zeros(1), torch.ones(1)
    graph = Graph()
    whole = OrderedDict(pair=Pair(x, y), list=[x, (y, "text", 3)], graph=graph)
    assert [tensor.tolist() for tensor in tensors(whole)] == [[0.0], [1.0], [0.0], [1.0], [1.0, 1.0]]
    twin = rebuilt(whole, lambda tensor: tensor + 5)
    assert isinstance(twin["pair"], Pair) and (twin["pair"].images.item(), twin["pair"].labels.item()) == (5.0, 6.0)
    assert twin["list"][1][1:] == ("text", 3)
    assert twin["graph"] is not graph and (twin["graph"].nodes.tolist(), twin["graph"].name) == ([6.0, 6.0], "graph")
    assert graph.nodes.tolist() == [1.0, 1.0]


def test_a_batch_has_as_many_samples_as_all_of_its_tensors_are_long() -> None:
    labels = torch.zeros(3)
    assert samples_in((torch.zeros(3, 2), {"labels": labels, "epoch": torch.tensor(1)})) == 3
    assert samples_in((torch.zeros(5, 3), labels)) is None  # time comes first, or nodes of graphs
    assert samples_in("no tensor") is None and samples_in(None) == 0

    class Odd:
        def __len__(self) -> int:
            raise OSError("closed")

        _version = untyped_storage = 1
        dim = __len__

    assert samples_in([Odd()]) is None


def test_the_sizes_of_batches_are_told_where_all_tell_them() -> None:
    assert batch_sizes([4, 100, 7], None) == {"least": 4, "most": 100, "mean": 37.0}
    assert batch_sizes([4, 0], 4) == {"least": 0, "most": 4, "mean": 2.0}
    assert batch_sizes([4, None], 4) is None
    assert batch_sizes([5, 4], 4) is None and batch_sizes([3, 3], 4) is None  # these are no samples
    assert batch_sizes([0, 0], 4) is None and batch_sizes([], 4) is None


def test_an_empty_batch_is_kept_and_given_like_the_others() -> None:
    found = Kept()
    for batch in (None, torch.zeros(4)):
        found.keep(batch)
    assert (found.length, found.bytes, found.arrays) == (2, 8, 1)
    assert [found.give() is None for _ in range(4)] == [True, False, True, False]


def test_a_batch_is_as_long_as_the_first_tensors_are_on_average() -> None:
    found = Kept()
    for length in (4, 4, 7):
        found.keep({"x": torch.zeros(length, 2), "y": torch.zeros(9)})
    assert found.length == 5
    scalar = Kept()
    scalar.keep(torch.tensor(1.0))
    assert scalar.length is None
