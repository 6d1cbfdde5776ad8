"""What every subject does, whatever loader it is: torch's, the small one of our own, and stages in threads."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from kit import ALL, PROCESSES, Lines, numbers, running, subject_of, until

from coresim.errors import CoresimError, InputError
from coresim.measure import subject as module
from coresim.measure.subject import batches_of


def test_batches_visit_every_sample_once_per_round() -> None:
    batches = batches_of(6, 4, seed=1)
    seen = [index for _ in range(3) for index in next(batches)]
    assert sorted(seen) == sorted([*range(6)] * 2)


@pytest.mark.parametrize("kind", ALL)
def test_every_sample_comes_once_per_round_and_nothing_is_left_running(kind: str) -> None:
    threads = threading.active_count()
    # One thread fetches: several take turns, and a sample may come in after later ones.
    with running(subject_of(kind, range(12)), seed=3, fetchers=1) as pipe:
        batches = numbers(pipe, 6)
        pids = pipe.pids()
    assert {len(batch) for batch in batches} == {4}
    assert sorted(value for batch in batches for value in batch) == sorted([*range(12)] * 2)
    assert batches[:3] != [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert not any(map(psutil.pid_exists, pids))
    until(lambda: threading.active_count() <= threads)  # a queue's own thread ends when it sees that it is closed


@pytest.mark.parametrize("kind", PROCESSES)
def test_a_seed_is_an_order(kind: str) -> None:
    def order(seed: int) -> list[list[int]]:
        with running(subject_of(kind, range(40)), seed=seed) as pipe:
            return numbers(pipe, 5)

    assert order(1) == order(1) != order(2)


@pytest.mark.parametrize("kind", ALL)
def test_a_batch_comes_with_its_note(kind: str) -> None:
    class Slow(list[int]):
        def __getitem__(self, index: int) -> int:  # type: ignore[override]
            time.sleep(0.002)
            return index

    before = time.perf_counter()
    with running(subject_of(kind, Slow(range(12)))) as pipe:
        notes = [pipe.next()[1] for _ in range(4)]
        pids = pipe.pids()
    after = time.perf_counter()
    for note in notes:
        assert before <= note.began < note.made <= after
        assert len(note.wall) == len(note.cpu) == 4
        assert note.cpu_number in os.sched_getaffinity(0)
    if kind == "staged":  # what sleeps is the fetch, in threads of its own
        assert min(note.fetch for note in notes) >= 4 * 0.002 and pids == ()
    else:
        assert min(min(note.wall) for note in notes) >= 0.002
        assert {note.worker for note in notes} == set(pids) and len(pids) == 2 and os.getpid() not in pids


@pytest.mark.parametrize("kind", PROCESSES)
def test_without_workers_the_trainer_itself_prepares(kind: str) -> None:
    with running(subject_of(kind, range(12)), workers=0) as pipe:
        assert pipe.inline and pipe.pids() == () and pipe.stop() == 0
    with running(subject_of(kind, range(12)), workers=0) as pipe:
        batch, note = pipe.next()
    assert len(batch) == 4 and note.worker == os.getpid()


@pytest.mark.parametrize("kind", PROCESSES)
@pytest.mark.parametrize("ordered", [True, False])
def test_a_loader_that_is_stopped_gives_what_is_out_and_then_rests(kind: str, ordered: bool, tmp_path: Path) -> None:
    prepared = Lines(tmp_path / "prepared")

    class Told(list[int]):
        def __getitem__(self, index: int) -> int:  # type: ignore[override]
            prepared.add(index)
            return index

    with running(subject_of(kind, Told(range(100)), 2), workers=2, prefetch_factor=3, ordered=ordered) as pipe:
        for _ in range(5):
            pipe.next()
        left = pipe.stop()
        assert left == 6
        for _ in range(left):
            pipe.next()
        assert len(prepared.all()) == 2 * (5 + left)


@pytest.mark.parametrize("kind", PROCESSES)
def test_the_data_set_is_built_once_and_its_workers_have_the_very_same_one(kind: str, tmp_path: Path) -> None:
    built = Lines(tmp_path / "built")

    class Counted:
        def __init__(self) -> None:
            built.add(os.getpid())

        def __len__(self) -> int:
            return 8

        def __getitem__(self, index: int) -> int:
            return id(self)

    data = Counted()
    subject = subject_of(kind, data, batch_size=2)
    for workers in (1, 2):
        with running(subject, workers=workers) as pipe:
            seen = {value for batch in numbers(pipe, 6) for value in batch}
        assert seen == {id(data)}
    assert built.all() == [str(os.getpid())]


#: Something that a data set finds in its module.
TABLE: dict[str, int] = {}


@pytest.mark.parametrize("kind", PROCESSES)
def test_what_was_there_before_is_there_in_a_worker(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Looks(list[int]):
        def __getitem__(self, index: int) -> int:  # type: ignore[override]
            return TABLE["found"] + index

    monkeypatch.setitem(TABLE, "found", 100)
    with running(subject_of(kind, Looks(range(4)))) as pipe:
        assert sorted(numbers(pipe, 1)[0]) == [100, 101, 102, 103]


@pytest.mark.parametrize("kind", ALL)
def test_a_function_without_a_name_may_collate(kind: str) -> None:
    with running(subject_of(kind, range(12), collate=lambda samples: [sum(samples), len(samples)])) as pipe:
        assert sum(total for total, _ in numbers(pipe, 3)) % sum(range(12)) == 0


@pytest.mark.parametrize("kind", PROCESSES[:1])  # our own loader keeps the order
def test_out_of_order_a_slow_batch_holds_up_no_other(kind: str, tmp_path: Path) -> None:
    released = tmp_path / "released"

    class Slow(list[int]):
        def __getitem__(self, index: int) -> int:  # type: ignore[override]
            while index == 0 and not released.exists():
                time.sleep(0.01)
            return index

    with running(subject_of(kind, Slow(range(40)), 1), workers=2, ordered=False) as pipe:
        before = [value for (value,) in numbers(pipe, 35)]
        released.touch()
        # How soon its worker gets a turn is the scheduler's business.
        came = next(number for number in range(10_000) if numbers(pipe, 1)[0] == [0])
    assert 0 not in before and came >= 0


@pytest.mark.parametrize("kind", PROCESSES)
def test_a_stream_is_started_over(kind: str) -> None:
    class Stream:
        def __iter__(self) -> Any:
            return iter(range(5))

    with running(subject_of(kind, Stream(), 4), workers=1, fetchers=1) as pipe:
        batches = numbers(pipe, 4)
    assert [value for batch in batches for value in batch] == [number % 5 for number in range(16)]


class Broken(list[int]):
    def __getitem__(self, index: int) -> int:  # type: ignore[override]
        if index == 1:
            raise KeyError("no file a.jpg\nsecond line")
        return index


@pytest.mark.parametrize("kind", PROCESSES)
@pytest.mark.parametrize("workers", [0, 2])
def test_what_a_sample_raises_is_one_line(kind: str, workers: int) -> None:
    with (
        running(subject_of(kind, Broken(range(3)), 3), workers=workers) as pipe,
        pytest.raises(InputError, match=r"^[^\n]* raised KeyError: 'no file a.jpg[^\n]*$") as caught,
    ):
        pipe.next()
    assert "; fix the data" in str(caught.value)


@pytest.mark.parametrize("kind", ALL)
def test_what_collating_raises_is_one_line(kind: str) -> None:
    def collate(samples: list[int]) -> int:
        raise RuntimeError("they do not fit\nat all")

    with (
        running(subject_of(kind, range(12), collate=collate)) as pipe,
        pytest.raises(InputError, match=r"^[^\n]* raised RuntimeError: they do not fit[^\n]*$"),
    ):
        pipe.next()


@pytest.mark.parametrize("kind", PROCESSES)
def test_a_batch_that_cannot_be_sent_names_its_type(kind: str) -> None:
    with (
        running(subject_of(kind, range(12), collate=lambda samples: {"lock": threading.Lock()})) as pipe,
        pytest.raises(
            InputError, match=r"^a batch of type dict cannot be sent[^\n]*lock[^\n]*collate function that does"
        ),
    ):
        pipe.next()


@pytest.mark.parametrize("kind", ALL)
def test_a_sample_that_is_none_is_one_line_unless_the_user_s_collation_leaves_it_out(kind: str) -> None:
    for samples in ([1, None, 2], [(1, 2), (3, None)], [None, np.zeros(2)]):
        subject = subject_of(kind, samples, len(samples))
        with running(subject) as pipe, pytest.raises(InputError, match=r"^[^\n]*None[^\n]*$"):
            pipe.next()
    if kind != "staged":
        left_out = subject_of(kind, [1, None, 2], 3, lambda found: [value for value in found if value is not None])
        with running(left_out) as pipe:
            assert sorted(numbers(pipe, 1)[0]) == [1, 2]


class Deadly(list[int]):
    def __getitem__(self, index: int) -> int:  # type: ignore[override]
        os.kill(os.getpid(), 9)
        return index


@pytest.mark.parametrize("kind", PROCESSES)
def test_a_worker_that_is_killed_is_told_and_not_waited_for(kind: str) -> None:
    with (
        running(subject_of(kind, Deadly(range(12)))) as pipe,
        pytest.raises(CoresimError, match=r"^[^\n]*memory[^\n]*$"),
    ):
        pipe.next()


class Hangs(list[int]):
    def __getitem__(self, index: int) -> int:  # type: ignore[override]
        time.sleep(600)
        return index


@pytest.mark.parametrize("kind", PROCESSES)
def test_a_batch_that_does_not_come_is_given_up(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from coresim.measure import stand_in

    modules = [stand_in]
    if kind == "torch":
        from torch.utils.data import _utils

        from coresim.measure import torch_loader

        modules.append(torch_loader)
        monkeypatch.setattr(_utils, "MP_STATUS_CHECK_INTERVAL", 0.1)  # what torch waits for a worker to end
    for found in modules:
        monkeypatch.setattr(found, "PATIENCE", 1.0)
    with (
        running(subject_of(kind, Hangs(range(12)))) as pipe,
        pytest.raises(InputError, match=r"^no batch came for 1 s; make the data set answer"),
    ):
        pipe.next()
    assert module.PATIENCE > 60


@pytest.mark.parametrize("kind", ALL)
def test_one_sample_is_prepared_here_as_in_a_worker(kind: str) -> None:
    class Drawn(list[int]):
        def __getitem__(self, index: int) -> float:  # type: ignore[override]
            return index + float(np.random.random())

    subject = subject_of(kind, Drawn(range(12)))
    assert (subject.samples, subject.batch_size) == (12, 4)
    subject.seed()
    one = [subject.sample(index) for index in (3, 5)]
    subject.seed()
    assert [subject.sample(index) for index in (3, 5)] == one and [int(value) for value in one] == [3, 5]
