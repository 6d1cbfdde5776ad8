"""A job's own DataLoader as a subject: nothing of it is changed, and all that it does is done."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from kit import Frozen, Lines, numbers, running

from coresim.errors import InputError
from coresim.measure.handover import PIPE_BYTES
from coresim.measure.subject import Layout, Subject
from coresim.workloads.base import DatasetWorkload, Workload

torch = pytest.importorskip("torch")
data = torch.utils.data


def job(dataset: Any, **loader: Any) -> Subject:
    """A loader as its user wrote it."""
    from coresim.measure.torch_loader import TorchSubject

    return TorchSubject(data.DataLoader(dataset, **loader))


def test_the_job_s_own_sampler_deals_whole_batches_over_and_over():
    subject = job(range(10), batch_size=4)
    assert (subject.batch_size, subject.samples, subject.steps) == (4, 10, ())
    with running(subject) as pipe:
        # The last batch of a pass has two samples, and a cost that is no other's.
        assert numbers(pipe, 5) == [[0, 1, 2, 3], [4, 5, 6, 7]] * 2 + [[0, 1, 2, 3]]
    with running(job(range(3), batch_size=4)) as pipe:
        assert numbers(pipe, 2) == [[0, 1, 2]] * 2  # there is no other
    with running(job(range(6), batch_size=2, sampler=[5, 3, 1])) as pipe:
        assert numbers(pipe, 3) == [[5, 3]] * 3
    shuffled = job(range(40), batch_size=4, shuffle=True)
    with running(shuffled) as pipe:
        assert sorted(value for batch in numbers(pipe, 10) for value in batch) == list(range(40))


def test_a_sampler_of_batches_is_the_user_s():
    sampled = job(range(6), batch_sampler=[[0, 1], [2, 3], [5, 4]])
    with running(sampled) as pipe:
        assert numbers(pipe, 4) == [[0, 1], [2, 3], [5, 4], [0, 1]]
    with running(job(range(6), batch_sampler=[[0], [2, 3], [5, 4, 1]])) as pipe:
        assert numbers(pipe, 3) == [[0], [2, 3], [5, 4, 1]]  # of no one size, although the first has one sample


def test_a_sampler_that_gives_nothing_is_told():
    with pytest.raises(InputError, match="the sampler gives no index"), running(job(range(4), sampler=[])):
        pass


def test_the_loader_itself_is_left_alone():
    loader = data.DataLoader(range(10), batch_size=4, num_workers=1, prefetch_factor=5)
    from coresim.measure.torch_loader import TorchSubject

    before = dict(vars(loader))
    with running(TorchSubject(loader)) as pipe:
        numbers(pipe, 2)
    assert vars(loader) == before
    assert [len(batch) for batch in loader] == [4, 4, 2]


def test_a_loader_without_workers_leaves_torch_as_it_was():
    usual = data._DatasetKind.create_fetcher
    with running(job(range(10), batch_size=4), workers=0) as pipe:
        batch, note = pipe.next()
        assert data._DatasetKind.create_fetcher is usual
        # Another loader of the same process knows nothing of notes.
        assert [part.tolist() for part in data.DataLoader(range(2), batch_size=2)] == [[0, 1]]
    assert batch.tolist() == [0, 1, 2, 3] and len(note.wall) == 4


def test_the_first_full_garbage_collection_of_a_worker_does_not_visit_what_it_inherited():
    inherited, here = [[number] for number in range(10_000)], gc.get_freeze_count()
    with running(job(Frozen(), batch_size=2), workers=1) as pipe:
        assert min(pipe.next()[0].tolist()) >= here + len(inherited)
    assert gc.get_freeze_count() == here


def test_samples_are_asked_for_all_at_once_where_the_data_set_can(tmp_path: Path):
    asked = Lines(tmp_path / "asked")

    class Together:
        def __len__(self) -> int:
            return 8

        def __getitem__(self, index: int) -> int:
            raise AssertionError("asked one by one")

        def __getitems__(self, indices: list[int]) -> list[int]:
            asked.add(indices)
            return indices

    with running(job(Together(), batch_size=4), workers=1, prefetch_factor=1) as pipe:
        batch, note = pipe.next()
    assert batch.tolist() == [0, 1, 2, 3] and asked.all()[0] == "[0, 1, 2, 3]"
    assert len(note.wall) == 4 and len(set(note.wall)) == 1


class Sharded(data.IterableDataset):
    """Each worker has its part of ten numbers, as torch's page on iterable data sets has it."""

    def __iter__(self) -> Iterator[int]:
        found = data.get_worker_info()
        return iter(range(found.id, 10, found.num_workers) if found else range(10))


@pytest.mark.parametrize("size", [2, None])
def test_a_stream_is_dealt_to_its_workers_and_started_over(size: int | None):
    subject = job(Sharded(), batch_size=size)
    assert subject.samples == 0 and subject.batch_size == (size or 1)
    with running(subject, workers=2) as pipe:
        found = [np.atleast_1d(np.asarray(pipe.next()[0])).tolist() for _ in range(12)]
    flat = [[value for batch in found[worker::2] for value in batch] for worker in (0, 1)]
    # Five numbers of each worker's own; then the same again.
    for worker, values in enumerate(flat):
        own = list(range(worker, 10, 2))
        assert values == [own[number % 5] for number in range(len(values))]


def test_items_that_are_batches_already_are_taken_as_they_are():
    batches = [np.full((3, 2), number, dtype=np.float32) for number in range(4)]
    subject = job(batches, batch_size=None, sampler=[2, 0])
    with running(subject, workers=1) as pipe:
        found = [pipe.next() for _ in range(3)]
    assert [float(batch[0, 0]) for batch, _ in found] == [2.0, 0.0, 2.0]
    assert all(torch.is_tensor(batch) and batch.shape == (3, 2) and len(note.wall) == 1 for batch, note in found)


@pytest.mark.parametrize(("collate", "pickled"), [(None, False), (list, True)])
def test_the_first_batch_of_a_worker_tells_whether_it_is_pickled_through_the_pipe(collate: Any, pickled: bool):
    rows = [np.zeros(40_000, dtype=np.float32) for _ in range(4)]
    with running(job(rows, batch_size=2, collate_fn=collate), workers=1) as pipe:
        first, second = (pipe.next()[1] for _ in range(2))
    assert (first.message > 2 * rows[0].nbytes) == pickled and (first.message > PIPE_BYTES) == pickled
    assert first.pickling > 0.0 and (second.message, second.pickling) == (0, 0.0)


def test_the_job_s_own_start_of_a_worker_is_called_as_torch_calls_it(tmp_path: Path):
    started = Lines(tmp_path / "started")

    def start(worker: int) -> None:
        info = data.get_worker_info()
        started.add((worker, info.id, info.num_workers, len(info.dataset)))

    class Knows:
        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> int:
            return data.get_worker_info().id

    with running(job(Knows(), batch_size=2, worker_init_fn=start), workers=2) as pipe:
        assert numbers(pipe, 2) == [[0, 0], [1, 1]]
    assert sorted(started.all()) == ["(0, 0, 2, 4)", "(1, 1, 2, 4)"]


class Picklable:
    """What a fresh interpreter can be given."""

    def __init__(self, built: Lines) -> None:
        built.add("built")
        self.told = built

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        return 10 * index + data.get_worker_info().id


def joined(samples: list[int]) -> list[int]:
    return samples


def locked(samples: list[int]) -> Any:
    return threading.Lock()


def told(worker: int) -> None:
    os.environ["STARTED"] = str(worker)


@pytest.mark.parametrize("collate", [joined, locked])
def test_a_job_that_spawns_its_workers_is_run_so(collate: Callable[[list[int]], Any], tmp_path: Path):
    built = Lines(tmp_path / "built")
    subject = job(
        Picklable(built), batch_size=2, collate_fn=collate, worker_init_fn=told, num_workers=1,
        multiprocessing_context="spawn",
    )  # fmt: skip
    with running(subject, workers=1) as pipe:
        if collate is locked:
            with pytest.raises(InputError, match="a batch of type lock cannot be sent"):
                pipe.next()
            return
        assert pipe.next()[0] == [0, 10] and pipe.next()[0] == [20, 30]
        _, note = pipe.next()
    assert len(note.wall) == 2 and note.worker != os.getpid()
    assert built.all() == ["built"]


def dies_at_its_end(worker: int) -> None:
    Finalize(None, os.abort, exitpriority=0)


def test_a_worker_that_dies_while_it_ends_fails_nothing() -> None:
    with running(job(range(8), batch_size=2, worker_init_fn=dies_at_its_end)) as pipe:
        assert numbers(pipe, 1) == [[0, 1]]
        pids = pipe.pids()
    assert len(pids) == 2 and not any(map(psutil.pid_exists, pids))


def test_what_goes_wrong_before_the_first_batch_is_one_line_with_its_cause():
    def start(worker: int) -> None:
        raise OSError("no such device\nsecond line")

    class Closed(data.IterableDataset):
        def __iter__(self) -> Iterator[int]:
            raise ConnectionError("nobody answers")

    for subject, workers, words in (
        (job(range(4), worker_init_fn=start), 1, "the loader's worker_init_fn raised OSError: no such device; fix it"),
        (job(Closed()), 1, "iterating over the data set raised ConnectionError: nobody answers; fix the data set"),
        (job(Closed()), 0, "iterating over the data set raised ConnectionError: nobody answers; fix the data set"),
    ):
        with pytest.raises(InputError) as caught, running(subject, workers) as pipe:
            pipe.next()
        assert str(caught.value) == words


def test_tensors_come_out_unless_the_user_said_how(tmp_path: Path):
    from coresim.measure.torch_loader import collation

    samples = [(torch.zeros(2), 3), (torch.ones(2), 4)]
    plain = collation(DatasetWorkload(samples, "plain"))(samples)
    assert all(torch.is_tensor(part) for part in plain) and plain[1].tolist() == [3, 4]
    given = collation(DatasetWorkload(samples, "given", collate=list))(samples)
    assert given is not samples and given == samples  # a user's function gives what it gives

    class Own(Workload):
        def collate(self, samples: list[Any]) -> tuple[np.ndarray, list[str]]:
            return np.concatenate(samples), ["kept"]

    joint, words = collation(Own(tmp_path))([np.zeros(2), np.ones(3)])
    assert torch.is_tensor(joint) and joint.shape == (5,) and words == ["kept"]
    assert collation(DatasetWorkload([b"ab"], "bytes"))([b"ab", b"c"]) == [b"ab", b"c"]


def test_a_built_in_workload_shows_its_steps_and_each_worker_draws_its_own(tmp_path: Path):
    from coresim.measure.torch_loader import of_workload

    class Drawn(Workload):
        batch_size = 8

        def __len__(self) -> int:
            return 16

        def fetch(self, index: int) -> int:
            return index

        def decode(self, raw: int) -> int:
            return raw

        def transform(self, x: int, rng: np.random.Generator) -> float:
            return float(rng.random())

    subject = of_workload(Drawn(tmp_path))
    assert subject.steps == ("fetch", "decode", "transform") and subject.samples == 16
    with running(subject, workers=2) as pipe:
        found = [pipe.next() for _ in range(4)]
    values = [value for batch, _ in found for value in batch.tolist()]
    assert len(set(values)) == len(values)
    assert all(len(note.steps) == 3 and sum(note.steps) > 0 for _, note in found)
    subject.seed()
    one = subject.sample(3)
    subject.seed()
    assert subject.sample(3) == one


def test_a_note_says_when_its_batch_was_pinned() -> None:
    from coresim.device.emulated import Emulated, EmulatedDevice

    subject: Any = job(range(8), batch_size=2)
    began = time.perf_counter()
    device = EmulatedDevice(Emulated(), torch.device("cpu"))
    with device.loading(), closing(subject.open(Layout(1, pin_memory=True), seed=1)) as pipe:
        notes = [pipe.next()[1] for _ in range(3)]
    assert all(began < note.made < note.pinned == note.there < time.perf_counter() for note in notes)
    clocks = [note.pin_clock for note in sorted(notes, key=lambda note: note.pinned)]
    assert 0.0 < clocks[0] < clocks[1] < clocks[2]
    with device.loading(), closing(subject.open(Layout(0, pin_memory=True), seed=1)) as pipe:
        alone = pipe.next()[1]
    assert (alone.pinned, alone.pin_clock) == (0.0, 0.0)  # the trainer itself pins
    with closing(subject.open(Layout(1), seed=1)) as pipe:
        note = pipe.next()[1]
    assert note.pinned == 0.0 and note.there == note.made


def test_pinning_is_asked_of_the_loader(monkeypatch: pytest.MonkeyPatch):
    subject: Any = job(range(4), batch_size=2)
    assert subject._clone(Layout(1, pin_memory=True, prefetch_factor=3), seed=1).pin_memory
    plain = subject._clone(Layout(1, prefetch_factor=3), seed=1)
    assert not plain.pin_memory and plain.prefetch_factor == 3 and plain.in_order
    assert not subject._clone(Layout(1, ordered=False), seed=1).in_order
