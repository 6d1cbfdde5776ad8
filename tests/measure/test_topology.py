"""A process on some CPUs alone, and back."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

from coresim.measure import topology
from coresim.measure.topology import on_cpus

needs_two_cpus = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="a mask must be able to differ")


@pytest.fixture
def asleep() -> Iterator[int]:
    """A thread that was started before and waits; its number."""
    end, numbers = threading.Event(), []
    ready = threading.Event()

    def body() -> None:
        numbers.append(threading.get_native_id())
        ready.set()
        end.wait()

    thread = threading.Thread(target=body)
    thread.start()
    ready.wait()
    yield numbers[0]
    end.set()
    thread.join()


@needs_two_cpus
def test_every_thread_is_bound_and_gets_its_own_cpus_back(asleep: int):
    allowed = os.sched_getaffinity(0)
    one, other = sorted(allowed)[:2]
    os.sched_setaffinity(asleep, {other})
    with on_cpus([one]):
        assert os.sched_getaffinity(0) == os.sched_getaffinity(asleep) == {one}
    assert os.sched_getaffinity(0) == allowed
    assert os.sched_getaffinity(asleep) == {other}


@needs_two_cpus
def test_a_thread_that_was_started_meanwhile_is_freed_too():
    allowed = os.sched_getaffinity(0)
    end = threading.Event()
    with on_cpus([min(allowed)]):
        thread = threading.Thread(target=end.wait)
        thread.start()
    try:
        assert os.sched_getaffinity(thread.native_id or 0) == allowed
    finally:
        end.set()
        thread.join()


def test_a_thread_that_has_ended_is_passed_over(monkeypatch: pytest.MonkeyPatch):
    gone = threading.Thread(target=lambda: None)
    gone.start()
    gone.join()
    number, allowed = gone.native_id, os.sched_getaffinity(0)
    assert number is not None
    real = topology._threads
    monkeypatch.setattr(topology, "_threads", lambda: real() | {number})
    with on_cpus([min(allowed)]):
        assert os.sched_getaffinity(0) == {min(allowed)}
    assert os.sched_getaffinity(0) == allowed


@needs_two_cpus
def test_cpus_are_given_back_after_an_error(asleep: int):
    allowed = os.sched_getaffinity(0)
    with pytest.raises(KeyError), on_cpus([min(allowed)]):
        raise KeyError
    assert os.sched_getaffinity(0) == os.sched_getaffinity(asleep) == allowed
