"""Samples that cannot be prepared are left out of their batches and noted, and what they took is a sample's time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kit import Works

from coresim.attaching import skipping
from coresim.attaching.skipping import FEW, MOST_TEXT, SkippingReader
from coresim.measure import notes
from coresim.measure.notes import Note, unpacked

MS = 2.0**-10


@pytest.fixture
def works(monkeypatch: pytest.MonkeyPatch) -> Works:
    made = Works()
    monkeypatch.setattr(notes, "time", made.time)
    monkeypatch.setattr(skipping, "time", made.time)
    return made


class Holes:
    """Each sample works for a millisecond; some are broken."""

    def __init__(self, works: Works, *broken: int) -> None:
        self.works, self.broken = works, broken

    def __getitem__(self, index: int) -> int:
        self.works.work(MS, wait=MS)
        if index in self.broken:
            raise ValueError(f"broken {index}")
        return index


class AtOnce(Holes):
    def __getitems__(self, indices: list[int]) -> list[int]:
        return [self[index] for index in indices]


def fetched(dataset: Any, index: Any, batched: bool = True) -> tuple[Any, Note]:
    batch, note = SkippingReader(dataset, False, batched, lambda values: values).fetch(index)
    return batch, unpacked(note)


def test_a_broken_sample_is_left_out_and_its_time_counts(works: Works) -> None:
    batch, note = fetched(Holes(works, 1, 2), [0, 1, 2, 3])
    assert (batch, note.broken) == ([0, 3], ("ValueError: broken 1", "ValueError: broken 2"))
    assert list(note.cpu) == [MS] * 4 and list(note.wall) == [2 * MS] * 4
    assert fetched(Holes(works), [0, 1])[1].broken == ()


def test_of_samples_that_come_at_once_the_broken_one_is_found(works: Works) -> None:
    batch, note = fetched(AtOnce(works, 2), [0, 1, 2, 3])
    assert (batch, note.broken) == ([0, 1, 3], ("ValueError: broken 2",))
    assert list(note.cpu) == [4 * MS, MS, MS, MS]  # three were tried before
    batch, note = fetched(AtOnce(works, 2), [0, 1])
    assert (batch, note.broken, list(note.cpu)) == ([0, 1], (), [MS] * 2)


@pytest.mark.parametrize("batched", [True, False])
def test_a_batch_of_broken_samples_alone_is_none(works: Works, batched: bool) -> None:
    batch, note = fetched(Holes(works, 5), [5] if batched else 5, batched)
    assert (batch, note.broken, list(note.cpu)) == (None, ("ValueError: broken 5",), [MS])


def test_a_data_set_of_broken_samples_is_told(works: Works) -> None:
    reader = SkippingReader(Holes(works, *range(8)), False, True, lambda values: values)
    for index in range(FEW):
        assert reader.fetch([index])[0] is None
    with pytest.raises(ValueError, match="broken 3"):
        reader.fetch([3])
    with pytest.raises(ValueError, match="broken 0"):
        fetched(Holes(works, *range(8)), range(8))
    assert fetched(Holes(works, *range(5)), range(8))[0] == [5, 6, 7]
    # A worker that goes on after the error is asked for more.
    with pytest.raises(ValueError, match="broken 4"):
        reader.fetch([4])
    with pytest.raises(ValueError, match="broken 4"):
        reader.fetch([9])
    assert reader.fetch([9])[0] == [9]


def test_a_stream_that_raises_is_at_its_end(works: Works) -> None:
    def stream() -> Iterator[int]:
        yield 1
        raise ValueError("broken")

    reader = SkippingReader(stream(), True, True, lambda values: values)
    with pytest.raises(ValueError, match="broken"):
        reader.fetch([0, 1])


def test_a_note_keeps_the_beginning_of_a_long_error(works: Works) -> None:
    class Long(Holes):
        def __getitem__(self, index: int) -> int:
            raise ValueError("x" * 10_000)

    assert [len(text) for text in fetched(Long(works), [0])[1].broken] == [MOST_TEXT]
