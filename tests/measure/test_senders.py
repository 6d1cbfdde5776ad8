"""Workers that only send: which numbers of them run, and what is told of them."""

from __future__ import annotations

import multiprocessing
from contextlib import closing
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from coresim.measure import senders
from coresim.measure.calibrate import ROUNDS, Calibration, calibrate
from coresim.measure.rig import Rig, loader_of
from coresim.measure.senders import COUNTS, _rounds, _same, measure_senders
from coresim.measure.subject import Layout
from coresim.workloads.named import WorkloadSpec


class Numbers:
    """Samples of two numbers and a text."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> Any:
        return np.full(2, index), "text"


class Whole(list[Any]):
    """A batch that can be sent and not be copied."""

    def __deepcopy__(self, _: Any) -> Any:
        raise ValueError("one and only")


def calibrated(collate: str | None = None) -> Calibration:
    found = Rig(WorkloadSpec(f"{__file__}:Numbers", "", 4, collate)).subject(threads=False)
    return calibrate(found, budget_s=0.3, counts=(1,))


def sent(found: Calibration, seconds: float) -> list[Any]:
    return measure_senders(found, found.subject, loader_of, False, seconds)


def test_what_1_2_4_and_8_workers_send_is_told_with_three_repeats() -> None:
    found = calibrated()
    took = {one.name: one for one in sent(found, 10.0)}
    assert set(took) == {f"handover.{what}.{count}" for what in ("cpu", "fed") for count in COUNTS}
    assert all(len(one.values) == ROUNDS and min(one.flat) > 0 for one in took.values())
    assert {one.unit for one in took.values()} == {"s/batch", "s/sample"}
    # Receiving is a part of the time from batch to batch, which is told for each of the four samples.
    assert all(took[f"handover.cpu.{count}"].mean < 4 * took[f"handover.fed.{count}"].mean for count in COUNTS)
    assert not multiprocessing.active_children()


def test_a_trivial_data_set_sends_copies_of_a_batch_of_the_job() -> None:
    found = calibrated()
    workload, size = _same(found.subject)
    assert size == 4
    with closing(loader_of(workload).open(Layout(1), seed=0)) as pipe:
        first, second = pipe.next()[0], pipe.next()[0]
    numbers, texts = first
    assert np.shape(numbers) == (4, 2) and list(texts) == ["text"] * 4
    assert np.array_equal(numbers, second[0]) and set(map(int, np.ravel(numbers))) <= set(range(64))


def test_nothing_is_told_of_batches_that_take_long_or_cannot_be_copied() -> None:
    found = calibrated(f"{__file__}:Whole")
    assert sent(found, 5.0) == []
    run = found.runs[0]
    late = tuple(note._replace(made=note.made + 6.0) for note in run.trial.notes)
    slow = replace(run, trial=replace(run.trial, notes=late))
    assert sent(replace(calibrated(), runs=(slow,)), 5.0) == []


@pytest.mark.parametrize(
    ("seconds", "fitting"), [(100.0, (1, 2, 4, 8)), (3 * 15.0, (1, 2, 4, 8)), (3 * 14.0, (1, 2, 4)), (1.0, (1,))]
)
def test_as_many_workers_run_as_fit_into_the_time(
    monkeypatch: pytest.MonkeyPatch, seconds: float, fitting: tuple[int, ...]
) -> None:
    """A run takes a second for each worker, so that 1 + 2 + 4 + 8 are 15 seconds for a round."""
    ran = list[int]()

    def run(count: int, _: float) -> tuple[float, float]:
        ran.append(count)
        return 0.1, 0.2

    monkeypatch.setattr(senders, "time", SimpleNamespace(perf_counter=lambda: float(sum(ran))))
    found = _rounds(run, COUNTS, seconds)
    assert [tuple(one) for one in found] == [fitting] * ROUNDS and ran == list(fitting) * ROUNDS
    assert _rounds(run, (), seconds) == [{}] * ROUNDS
