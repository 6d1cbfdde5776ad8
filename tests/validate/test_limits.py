"""Fewer cores by the CPU quota of a control group."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from coresim.validate import limits
from coresim.validate.limits import QuotaGroup, on_cpus


def tree(root: Path, groups: str, *folders: str) -> Path:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(groups)
    for folder in folders:
        (root / "sys/fs/cgroup" / folder).mkdir(parents=True)
    return root


def test_no_group_where_none_may_be_made(tmp_path: Path):
    assert QuotaGroup.make(tmp_path) is None
    # A folder that shows no quota after it was made is no control group, and is removed again.
    root = tree(tmp_path / "v2", "0::/mine\n", "mine")
    assert QuotaGroup.make(root) is None
    assert list((root / "sys/fs/cgroup/mine").iterdir()) == []


@pytest.mark.parametrize(
    ("setting", "written"),
    [("cpu.max", {"cpu.max": "150000 100000"}),
     ("cpu.cfs_quota_us", {"cpu.cfs_quota_us": "150000", "cpu.cfs_period_us": "100000"})],
)  # fmt: skip
def test_cores_are_a_quota_and_the_process_comes_back(tmp_path: Path, setting: str, written: dict[str, str]):
    home, folder = tmp_path, tmp_path / "group"
    folder.mkdir()
    (folder / setting).write_text("")
    with QuotaGroup(folder, home).cores(1.5):
        assert {name: (folder / name).read_text() for name in written} == written
        assert (folder / "cgroup.procs").read_text() == str(os.getpid())
        assert not (home / "cgroup.procs").exists()
    assert (home / "cgroup.procs").read_text() == str(os.getpid())


def test_a_real_quota_holds_a_process_to_its_share():
    group = QuotaGroup.make()
    if group is None:
        pytest.skip("no CPU control group may be written here")
    try:
        with group.cores(0.25):
            began, cpu = time.perf_counter(), time.process_time()
            while time.perf_counter() - began < 1.0:
                pass
            share = (time.process_time() - cpu) / (time.perf_counter() - began)
    finally:
        group.remove()
    assert share < 0.5
    assert not group.folder.exists()


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
    real = limits._threads
    monkeypatch.setattr(limits, "_threads", lambda: real() | {number})
    with on_cpus([min(allowed)]):
        assert os.sched_getaffinity(0) == {min(allowed)}
    assert os.sched_getaffinity(0) == allowed


@needs_two_cpus
def test_cpus_are_given_back_after_an_error(asleep: int):
    allowed = os.sched_getaffinity(0)
    with pytest.raises(KeyError), on_cpus([min(allowed)]):
        raise KeyError
    assert os.sched_getaffinity(0) == os.sched_getaffinity(asleep) == allowed
