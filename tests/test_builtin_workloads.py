"""The built-in workloads: same data and same work each time, the kind of work that each says it is."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coresim.errors import InputError
from coresim.measuring.campaign import Request
from coresim.workloads.arrays import MIB, MemoryBoundWorkload
from coresim.workloads.base import Workload, WorkloadSpec, batch_facts, load_object, seed_everything
from coresim.workloads.folder import FolderWorkload
from coresim.workloads.registry import DEFAULT, WORKLOADS, listing
from coresim.workloads.small_images import HeavyTailedWorkload, WaitingWorkload
from coresim.workloads.text import fnv1a

FEW = 4


@pytest.fixture(scope="module", params=WORKLOADS)
def spec(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkloadSpec]:
    """The workload with its data made; a few files will do."""
    entry = WORKLOADS[request.param]
    if entry.needs:
        pytest.importorskip(entry.needs)
    kind = load_object(entry.target, "workload")
    with pytest.MonkeyPatch.context() as patch:
        if isinstance(kind, type) and issubclass(kind, FolderWorkload):
            patch.setattr(kind, "count", FEW)
        spec = WorkloadSpec(entry.target, str(tmp_path_factory.mktemp("data")))
        spec.make()
        yield spec


def prepare(workload: Workload, index: int, seed: int) -> Any:
    rng, value = seed_everything(seed), index
    for step in workload.steps():
        value = step.call(value, rng)
    return value


def arrays_in(value: Any) -> Iterator[np.ndarray]:
    if isinstance(value, tuple | list):
        for part in value:
            yield from arrays_in(part)
    else:
        yield np.asarray(value)


def same(one: Any, other: Any) -> bool:
    pairs = zip(arrays_in(one), arrays_in(other), strict=True)
    return all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in pairs)


def test_a_workload_repeats_exactly_and_makes_a_batch(spec: WorkloadSpec, tmp_path: Path) -> None:
    again = WorkloadSpec(spec.target, str(tmp_path))
    again.make()
    one, other = spec.build(), pickle.loads(pickle.dumps(again)).build()
    assert len(one) == len(other) >= FEW
    for index in (0, len(one) - 1):
        assert same(prepare(one, index, 5), prepare(other, index, 5))
    assert not same(prepare(one, 0, 5), prepare(one, len(one) - 1, 5))
    batch = one.collate([prepare(one, index, index) for index in range(FEW)])
    size, count = batch_facts(batch)
    assert size > 0 and count > 0
    assert [len(array) for array in arrays_in(batch)] == [FEW] * count
    assert {array.dtype.kind for array in arrays_in(batch)} <= {"f", "i", "u"}
    read = one.bytes_per_sample()
    assert read is not None and read > 0


def test_data_that_is_there_is_kept(spec: WorkloadSpec) -> None:
    def stamps() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in Path(spec.folder).iterdir()}

    before = stamps()
    spec.make()
    assert stamps() == before != {}


def test_the_names_are_those_that_recommend_takes() -> None:
    assert [entry.name for entry in listing()] == list(WORKLOADS) and DEFAULT in WORKLOADS
    assert Request().workload == DEFAULT
    with pytest.raises(InputError, match=r"workload 'speech' is not known; use one of images, .*tiny"):
        Request(workload="speech")


# What each says of itself


def test_one_in_25_is_10_to_30_times_dearer() -> None:
    pixels = np.array(HeavyTailedWorkload(Path()).pixels())
    assert np.mean(pixels > np.median(pixels)) == 1 / 25
    # Measured CPU time follows pixels plus a part per sample, which makes 10 to 30 of these.
    assert 30 < pixels[0] / pixels[-1] < pixels.max() / pixels[-1] < 110


def test_waiting_outweighs_the_work_and_is_the_same_each_time() -> None:
    workload = WaitingWorkload(Path())
    waits = [workload.latency(index) for index in range(256)]
    assert waits == [workload.latency(index) for index in range(256)]
    assert np.median(waits) == pytest.approx(8e-3, rel=0.15) and max(waits) <= 0.1
    assert len(set(waits)) > 200


def test_slabs_are_far_beyond_the_private_caches_and_stay_inside_the_table(tmp_path: Path) -> None:
    workload = MemoryBoundWorkload(tmp_path)
    workload.make()
    assert workload.slab >= 32 * MIB and workload.table >= 8 * workload.slab
    [path] = tmp_path.iterdir()
    table = np.load(path, mmap_mode="r")
    assert table.nbytes == workload.table
    assert np.array_equal(workload.fetch(len(workload) - 1)[-1], table[-1])
    assert np.array_equal(workload.fetch(1)[0], table[4 * MIB // table[0].nbytes])


@pytest.mark.parametrize(
    ("text", "value"),
    [("", 0x811C9DC5), ("a", 0xE40C292C), ("foobar", 0xBF9CF968)],  # the authors' published test vectors
)
def test_the_hash_is_fnv1a(text: str, value: int) -> None:
    assert fnv1a(text) == value
