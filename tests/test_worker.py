"""What a worker takes: memory, and threads, counted from the kernel's own account, priced, and said with the cure."""

from __future__ import annotations

import mmap
import sys
import threading
import time
from pathlib import Path

import pytest
from coresim.measuring.worker import count_threads, measure_worker, private_bytes, task_folder, worked

import coresim
from coresim.advise.threads import unlimited
from coresim.measuring.protocol import Clock
from coresim.model.crowding import CURE
from coresim.model.measurement import Measurement
from coresim.model.profile import load_profile
from coresim.model.scenario import Scenario, read_scenario
from coresim.workloads.base import Step, Workload, WorkloadSpec

linux = pytest.mark.skipif(not task_folder().is_dir(), reason="the system does not list a process's threads")
PROFILE = Path(__file__).parents[1] / "notebooks" / "profile.json"


def spin(seconds: float) -> None:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


class Pool(Workload):
    """Three threads share the work of a sample, from sample to sample, as libraries keep them."""

    name, batch_size = "pool", 2

    def __init__(self) -> None:
        self._work_for = [threading.Semaphore(0) for _ in range(2)]
        self._done = threading.Semaphore(0)
        for place in range(2):
            threading.Thread(target=self._serve, args=(place,), daemon=True).start()

    def __len__(self) -> int:
        return 8

    def steps(self) -> tuple[Step, ...]:
        return (Step("work", self._work),)

    def _serve(self, place: int) -> None:
        while self._work_for[place].acquire():
            spin(0.03)
            self._done.release()

    def _work(self, index: int, _: object) -> int:
        for start in self._work_for:
            start.release()
        spin(0.03)
        for _ in self._work_for:
            self._done.acquire()
        return index


@linux
def test_threads_of_a_pool_are_counted_and_those_that_wait_are_not() -> None:
    idle = threading.Event()
    threading.Thread(target=idle.wait, daemon=True).start()
    found, spread = count_threads(Pool(), 0.5, Clock())
    idle.set()
    assert found == 3
    assert 2.0 < spread <= 3.0


def test_what_a_thread_did_is_the_difference_of_two_readings() -> None:
    before = {"1": 10.0, "2": 3.0, "3": 0.0}
    assert worked(before, {"1": 11.0, "2": 3.05, "3": 0.5, "4": 0.9}) == (3, pytest.approx(2.45))
    assert worked(before, before) == worked({}, {}) == (1, 1.0)


@linux
def test_memory_of_ones_own_grows_with_what_is_written() -> None:
    before = private_bytes()
    # Straight from the system and written: freed memory would be used again, and untouched pages are nobody's.
    block = mmap.mmap(-1, 40 * 2**20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    block.write(b"x" * (40 * 2**20))
    assert 39 * 2**20 < private_bytes() - before < 60 * 2**20
    assert len(block) > 0


@linux
def test_a_fresh_process_is_left_as_the_environment_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "told.py").write_text(
        "import os\n"
        "class Data:\n"
        "    def __len__(self): return 4\n"
        "    def __getitem__(self, index):\n"
        f"        open({str(tmp_path / 'said')!r}, 'w').write(os.environ.get('OMP_NUM_THREADS', 'free'))\n"
        "        return index\n"
        "def make(): return Data()\n"
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    names = [found.name for found in measure_worker(WorkloadSpec("told:make", str(tmp_path), 2), budget_s=0.1)]
    assert names == ["threads.worked", "threads.spread", "worker.private"]
    assert (tmp_path / "said").read_text() == "free"


def job(**loader: object) -> Scenario:
    return read_scenario(
        {
            "workload": {"batch_size": 32, "preprocess": "6 ms"},
            "accelerator": {"step": "60 ms"},
            "loader": loader,
        }
    )


def test_the_answer_counts_on_one_thread_and_says_what_more_would_do() -> None:
    plain = coresim.recommend(job(), options=(2,))
    found = coresim.recommend(job(default_threads=8), options=(2,))
    assert plain.result.unlimited is None
    assert found.result.point == plain.result.point
    left = found.result.unlimited
    assert left is not None
    assert left.crowding.threads == 8 * found.result.point.workers
    assert left.estimate.gpu_idle > found.result.point.estimate.gpu_idle
    assert CURE in str(found) and "8 threads in every worker" in str(found)
    assert "threads in every worker" not in str(plain)


def test_where_the_cores_have_room_for_all_nothing_is_said() -> None:
    answer = coresim.recommend(job(default_threads=2), options=(2,)).result
    roomy = type(answer.point)(2, 64, 2, 2, answer.point.estimate)
    assert unlimited(job(default_threads=2), roomy, None) is None  # type: ignore[arg-type]


@pytest.mark.parametrize(("threads", "spread", "told"), [(4, 3.0, 4), (4, 1.1, 1), (1, 1.5, 1)])
def test_a_profile_tells_of_threads_that_share_the_work(threads: int, spread: float, told: int) -> None:
    from dataclasses import replace

    profile = load_profile(PROFILE)
    more = (
        Measurement("threads.worked", "threads", ((float(threads),),), "test"),
        Measurement("threads.spread", "threads", ((spread,),), "test"),
    )
    others = tuple(found for found in profile.measurements if not found.name.startswith("threads."))
    scenario = read_scenario(replace(profile, measurements=(*others, *more)).scenario_tables())
    assert (scenario.loader.default_threads, scenario.loader.library_threads) == (told, 1)
