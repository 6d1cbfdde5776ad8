"""The small loader of our own: batches by turns, arrays in shared memory, and no torch."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kit import Frozen, running, subject_of

from coresim.measure.stand_in import StandInSubject
from coresim.workloads.base import Workload

ROOT = Path(__file__).parents[2]


def test_batches_are_dealt_by_turns_and_more_only_as_they_are_picked_up():
    with running(subject_of("stand-in", range(40), 1), workers=2, prefetch_factor=3) as pipe:
        dealt: Any = pipe
        assert dealt._dealt == 6
        makers = [pipe.next()[1].worker for _ in range(8)]
        assert dealt._dealt == 6 + 8
        assert makers == [*pipe.pids()] * 4


@pytest.mark.parametrize("kind", ["float32", "int64", "bool", "uint8"])
def test_arrays_come_as_they_were_whatever_they_are_in(kind: str):
    samples = [{"x": np.full((2, 3), index).astype(kind), "y": (index, f"text {index}")} for index in range(4)]

    def collate(found: list[dict[str, Any]]) -> Any:
        stacked = np.stack([sample["x"] for sample in found])
        return OrderedDict(x=stacked, names=[sample["y"][1] for sample in found], nothing=np.zeros((0, 5)))

    with running(subject_of("stand-in", samples, 2, collate), workers=1) as pipe:
        batch, _ = pipe.next()
    assert batch["x"].dtype == kind and batch["x"].shape == (2, 2, 3) and batch["nothing"].shape == (0, 5)
    for place, name in enumerate(batch["names"]):
        assert (batch["x"][place] == np.array(int(name.split()[1])).astype(kind)).all()


def test_an_array_outlives_its_maker():
    with running(subject_of("stand-in", [np.arange(1000)], 1), workers=1) as pipe:
        batch, _ = pipe.next()
    assert (batch[0] == np.arange(1000)).all() and batch.shape == (1, 1000)


def test_arrays_of_objects_are_pickled():
    samples = [np.array([{"a": index}], dtype=object) for index in range(2)]
    with running(subject_of("stand-in", samples, 2), workers=1) as pipe:
        assert sorted(item["a"] for item in pipe.next()[0].ravel()) == [0, 1]


def test_the_steps_of_a_built_in_workload_are_seen(tmp_path: Path):
    class Numbers(Workload):
        batch_size = 8

        def __len__(self) -> int:
            return 8

        def fetch(self, index: int) -> int:
            return index

        def decode(self, raw: int) -> float:
            return float(np.sqrt(raw))

        def transform(self, x: float, rng: np.random.Generator) -> float:
            return x + float(rng.random())

    subject = StandInSubject(Numbers(tmp_path))
    assert subject.steps == ("fetch", "decode", "transform") and "torch was not installed" in subject.loader
    with running(subject, workers=1) as pipe:
        _, note = pipe.next()
    assert len(note.steps) == 3 and sum(note.steps) > 0


def test_the_first_full_garbage_collection_of_a_worker_does_not_visit_what_it_inherited():
    inherited = [[number] for number in range(10_000)]
    with running(subject_of("stand-in", Frozen(), 2), workers=1) as pipe:
        assert min(pipe.next()[0]) >= gc.get_freeze_count() + len(inherited)


def test_it_needs_no_torch():
    code = """
import sys
sys.modules["torch"] = None
from coresim.measure.rig import loader_of
from coresim.measure.subject import Layout
from coresim.workloads.base import DatasetWorkload
workload = DatasetWorkload(range(8), "mine")
workload.batch_size = 4
subject = loader_of(workload)
pipe = subject.open(Layout(2), seed=1)
print(sorted(map(int, [*pipe.next()[0], *pipe.next()[0]])), subject.loader)
pipe.close()
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert found.stdout.startswith("[0, 1, 2, 3, 4, 5, 6, 7] coresim's own small loader") and not found.stderr
