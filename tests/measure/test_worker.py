"""What a worker takes besides its samples, from the kernel's own account: memory, and the threads of libraries."""

from __future__ import annotations

import mmap
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from coresim.measure.worker import memory_of, task_times, worked

MIB = 2**20
linux = pytest.mark.skipif(not task_times(os.getpid()), reason="the system does not list a process's threads")


def block() -> mmap.mmap:
    """40 MiB straight from the system and written: untouched pages are nobody's."""
    made = mmap.mmap(-1, 40 * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    fill(made)
    return made


def fill(memory: mmap.mmap) -> None:
    """Write 40 MiB in small pieces: an allocator may keep what a large one took."""
    for _ in range(40):
        memory.write(b"x" * MIB)


@contextmanager
def worker(begin: Callable[[], Any], work: Callable[[Any], None] = lambda kept: None) -> Iterator[tuple[int, Any]]:
    """A forked process that keeps what it begins with, and works on it when told; its number, and a link to tell it."""
    fork = multiprocessing.get_context("fork")
    mine, theirs = fork.Pipe()

    def live() -> None:
        kept = begin()
        while True:
            theirs.send("rests")
            theirs.recv()
            work(kept)

    process = fork.Process(target=live, daemon=True)
    process.start()
    try:
        assert mine.poll(120) and mine.recv() == "rests"
        yield process.pid or 0, mine
    finally:
        process.kill()
        process.join()


@linux
def test_what_a_worker_writes_is_its_own_and_what_it_was_forked_with_is_shared() -> None:
    inherited = block()
    with worker(lambda: None) as (pid, _):
        plain = memory_of(pid)
    with worker(block) as (pid, _):
        written = memory_of(pid)
    assert plain is not None and written is not None and len(inherited) > 0
    assert 39 * MIB < written.private - plain.private < 60 * MIB
    # What the trainer holds is not multiplied by its workers.
    assert plain.private < 40 * MIB < plain.shared


@linux
def test_batches_in_shared_memory_are_counted_as_batches() -> None:
    def share() -> mmap.mmap:
        file = os.memfd_create("batch")
        os.ftruncate(file, 40 * MIB)
        made = mmap.mmap(file, 40 * MIB)
        fill(made)
        return made

    with worker(lambda: None) as (pid, _):
        plain = memory_of(pid)
    with worker(share) as (pid, _):
        shared = memory_of(pid)
    assert plain is not None and shared is not None
    assert shared.private - plain.private < 10 * MIB and shared.shared - plain.shared < 10 * MIB


def test_of_a_process_that_has_ended_nothing_is_known() -> None:
    process = multiprocessing.get_context("fork").Process(target=lambda: None)
    process.start()
    process.join()
    assert memory_of(process.pid or 0) is None and task_times(process.pid or 0) == {}


def test_what_a_thread_did_is_the_difference_of_two_readings() -> None:
    before = {1: 10.0, 2: 3.0, 3: 0.0}
    assert worked(before, {1: 11.0, 2: 3.05, 3: 0.5, 4: 0.9}) == (3, pytest.approx(2.45))
    assert worked(before, before) == worked({}, {}) == (1, 1.0)


class Pool:
    """Three threads share the work, from batch to batch, as libraries keep them; a fourth waits."""

    def __init__(self) -> None:
        self._begin = [threading.Semaphore(0) for _ in range(2)]
        self._done = threading.Semaphore(0)
        for place in range(2):
            threading.Thread(target=self._serve, args=(place,), daemon=True).start()
        threading.Thread(target=threading.Event().wait, daemon=True).start()

    def _serve(self, place: int) -> None:
        while self._begin[place].acquire():
            spin()
            self._done.release()

    def work(self) -> None:
        for begin in self._begin:
            begin.release()
        spin()
        for _ in self._begin:
            self._done.acquire()


def spin() -> None:
    """A tenth of a second of this thread's CPU time."""
    until = time.thread_time() + 0.1
    while time.thread_time() < until:
        pass


@linux
def test_threads_of_a_pool_are_counted_and_those_that_wait_are_not() -> None:
    with worker(Pool, Pool.work) as (pid, link):
        before = task_times(pid)
        link.send("work")
        assert link.poll(120) and link.recv() == "rests"
        count, spread = worked(before, task_times(pid))
    assert count == 3 and 2.0 < spread < 3.001
