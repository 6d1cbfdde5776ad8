"""How fast the machine is meanwhile: the same work on each CPU in turn, by a process that ends with its user."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
from kit import made_note, until

from coresim.errors import CoresimError
from coresim.measure import machine_speed
from coresim.measure.machine_speed import PROBED, SpeedSampler
from coresim.measure.processes import HangError
from coresim.measure.subject import Subject


class Work(Subject):
    """Samples that take the CPU for milliseconds that a file says, and note what they were."""

    MS = 3.0
    samples = 100

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.slower(1.0)

    def slower(self, factor: float) -> None:
        # Whole at once: the sampler may read it meanwhile, and an empty file would end it.
        (self.folder / "ms.new").write_text(str(self.MS * factor))
        (self.folder / "ms.new").replace(self.folder / "ms")

    def seed(self) -> None:
        self.rng = np.random.default_rng(0)

    def sample(self, index: int) -> None:
        began = time.thread_time()  # what noting takes is part of it
        with (self.folder / f"drawn-{os.getpid()}").open("a") as file:
            file.write(f"{index} {int(self.rng.integers(10**6))}\n")
        end = began + float((self.folder / "ms").read_text()) / 1000.0
        while time.thread_time() < end:
            pass

    def drawn(self) -> list[list[str]]:
        """What each process noted."""
        return [file.read_text().splitlines() for file in sorted(self.folder.glob("drawn-*"))]


def more_rounds(sampler: SpeedSampler, count: int) -> None:
    """Wait until the sampler has made so many more rounds, however busy the machine is."""
    enough = sampler._head[0] + count
    until(lambda: sampler._head[0] >= enough)


def seen_now(sampler: SpeedSampler, rounds: int = 6) -> float:
    """What a worker would see that is at work from now on, for so many rounds."""
    began = time.perf_counter()
    more_rounds(sampler, rounds)
    return sampler.seen([made_note(began, time.perf_counter(), cpu_number=min(os.sched_getaffinity(0)))])


def test_the_sampler_repeats_the_same_work_and_shows_a_slower_machine(tmp_path: Path) -> None:
    work = Work(tmp_path)
    with SpeedSampler(work, share=0.2) as sampler:
        usual = seen_now(sampler)
        work.slower(3.0)
        more_rounds(sampler, 2)  # the one under way has faster samples in it
        found = seen_now(sampler)
        taken = sampler.cpu_s
    assert found == pytest.approx(3.0 * usual, rel=0.25)  # CPU times both, of work that spins until it has spent them
    assert taken > 0.0
    (drawn,) = work.drawn()
    assert len(set(drawn[PROBED:])) == 1  # the lightest sample, with the same random numbers


class Threads(Subject):
    """Samples that say with how many threads torch prepares them."""

    samples = 1

    def __init__(self) -> None:
        self.told = np.frombuffer(mmap.mmap(-1, 8), np.float64)

    def seed(self) -> None:
        pass

    def sample(self, index: int) -> None:
        self.told[0] = sys.modules["torch"].get_num_threads()


def test_samples_of_torch_are_prepared_with_one_thread_because_the_others_of_a_trainer_are_not_forked() -> None:
    """With more, the first operation that torch splits waits for threads that only the trainer has."""
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        work = Threads()
        with SpeedSampler(work, share=0.2) as sampler:
            more_rounds(sampler, 1)
        assert work.told[0] == 1.0
    finally:
        torch.set_num_threads(before)


def test_speeds_of_one_subject_are_told_by_the_same_work_from_run_to_run(tmp_path: Path) -> None:
    """A run in which samples are light must not take more of them: what it saw is held beside the other runs."""
    work = Work(tmp_path)
    with SpeedSampler(work, share=0.2) as sampler:
        usual = seen_now(sampler)
    chosen = work.timed_sample
    work.slower(0.2)
    with SpeedSampler(work, share=0.2) as sampler:
        found = seen_now(sampler)
    assert chosen is not None and chosen[1] == 1 and work.timed_sample == chosen
    assert found == pytest.approx(0.2 * usual, rel=0.3)


def test_where_samples_need_a_worker_around_them_work_of_our_own_tells_the_speed(tmp_path: Path) -> None:
    class InWorkers(Work):
        def sample(self, index: int) -> None:
            raise AttributeError("'NoneType' object has no attribute 'num_workers'")

    work = InWorkers(tmp_path)
    with SpeedSampler(work, share=0.2) as sampler:
        assert 0.0 < seen_now(sampler) < 1.0
    assert work.timed_sample is not None and work.timed_sample[0] == machine_speed.OWN_WORK
    chosen = work.timed_sample
    with SpeedSampler(work, share=0.2) as sampler:
        seen_now(sampler)
    assert work.timed_sample == chosen


def test_it_pauses_so_long_that_it_takes_its_share_of_each_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before every CPU that it times: right after another one it would find warmer caches there, and read fast."""
    with stopped(tmp_path) as sampler:
        sampler._cpus, sampler._rows, sampler._head = [0, 1, 2], np.zeros((4, 4)), np.zeros(4)
        happened: list[str] = []
        pauses: list[float] = []

        def pause(seconds: float) -> None:
            happened.append("pause")
            pauses.append(seconds)

        monkeypatch.setattr(os, "sched_setaffinity", lambda pid, cpus: happened.append("timed"))
        monkeypatch.setattr(os, "getppid", lambda: 1 if len(happened) < 12 else 2)
        monkeypatch.setattr(machine_speed, "_timed", lambda subject, indices: 0.003)
        monkeypatch.setattr(sampler, "_pause", pause)
        sampler._parent = 1
        sampler._rounds()
    assert happened == ["timed", "pause"] * 6
    # A round times three CPUs for 3 ms each, and lasts 3 ms over the share.
    assert pauses == pytest.approx([0.003 / machine_speed.SHARE / 3] * 6)


def stopped(folder: Path) -> SpeedSampler:
    """A sampler whose process is gone."""
    sampler = SpeedSampler(Work(folder))
    sampler._process.kill()
    sampler._process.join()
    return sampler


def test_the_sampler_ends_with_its_user_and_with_its_process(tmp_path: Path) -> None:
    with SpeedSampler(Work(tmp_path)) as sampler:
        process = sampler._process
    assert not process.is_alive()
    code = """
import sys
from pathlib import Path
from test_machine_speed import Work, SpeedSampler
sampler = SpeedSampler(Work(Path(sys.argv[1])))
print(sampler._process.pid, flush=True)
sys.stdin.read()
"""
    here = Path(__file__).parent
    paths = os.pathsep.join(map(str, [here, *here.parents[:2]]))
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": paths},
    )  # fmt: skip
    assert child.stdout is not None and child.stdin is not None
    pid = int(child.stdout.readline())
    child.kill()
    child.communicate()
    until(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)


def test_a_sampler_whose_user_is_gone_before_it_looks_makes_no_round(tmp_path: Path) -> None:
    with stopped(tmp_path) as sampler:
        sampler._rounds()  # this process is not its own parent
        assert sampler._head[0] == 0


def test_a_sampler_that_died_is_told_and_not_waited_for(tmp_path: Path) -> None:
    with stopped(tmp_path) as sampler, pytest.raises(CoresimError, match="has died"):
        now = time.perf_counter()
        sampler.seen([made_note(now, now, cpu_number=min(os.sched_getaffinity(0)))])


def seen_just_now(sampler: SpeedSampler) -> float:
    now = time.perf_counter()
    return sampler.seen([made_note(now, now, cpu_number=min(os.sched_getaffinity(0)))])


def test_a_sample_that_never_ends_is_told_and_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Endless(Work):
        def sample(self, index: int) -> None:
            time.sleep(10**6)

    monkeypatch.setattr(machine_speed, "PATIENCE", 0.1)
    with SpeedSampler(Endless(tmp_path)) as sampler:
        with pytest.raises(HangError, match=r"a sample did not end for 0\.1 s in the process that samples"):
            seen_just_now(sampler)
        assert sampler._process.is_alive()
    assert not sampler._process.is_alive()


def test_a_sampler_that_pauses_for_long_shows_that_it_goes_on(tmp_path: Path) -> None:
    with SpeedSampler(Work(tmp_path), share=1e-9) as sampler:
        until(lambda: sampler._signs[0] > 5)
        assert sampler._head[0] == 0  # its first round takes weeks


def test_who_goes_on_is_waited_for_however_long_it_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 1000
    with stopped(tmp_path) as sampler:
        sampler._cpus, sampler._signs = sorted(os.sched_getaffinity(0))[:1], np.zeros(1)
        sampler._rows, sampler._head = np.array([[np.inf, 0.5]]), np.zeros(4)

        def look(_: float) -> None:
            sampler._signs += 1
            sampler._head[0] = sampler._signs[0] >= looks

        monkeypatch.setattr(machine_speed, "PATIENCE", 2 * machine_speed.ROUND_S)
        monkeypatch.setattr(sampler._process, "is_alive", lambda: True)
        monkeypatch.setattr(time, "sleep", look)
        assert seen_just_now(sampler) == 0.5
    assert sampler._signs[0] == looks


def test_a_sample_that_fails_later_ends_the_sampler_alone(tmp_path: Path) -> None:
    class Broken(Work):
        def sample(self, index: int) -> None:
            if (self.folder / "torn").exists():
                raise ValueError("torn")
            super().sample(index)

    with SpeedSampler(Broken(tmp_path), share=0.2) as sampler:
        more_rounds(sampler, 1)
        (tmp_path / "torn").touch()
        until(lambda: not sampler._process.is_alive())
        assert sampler._process.exitcode == 1


def test_a_stream_s_place_is_taken_by_work_of_our_own(tmp_path: Path) -> None:
    class Stream(Work):
        samples = 0

    with SpeedSampler(Stream(tmp_path)) as sampler:
        assert seen_now(sampler, 1) > 0.0
    assert not Stream(tmp_path).drawn()


def test_speeds_are_averaged_over_the_cpus_that_the_workers_were_on(tmp_path: Path) -> None:
    with stopped(tmp_path) as sampler:
        sampler._cpus = [0, 1]
        # Rounds end at 1, 2 and 3 s; the second CPU is half as fast, the first one too in the last round.
        sampler._rows = np.array([[1.0, 1.0, 2.0], [2.0, 1.0, 2.0], [3.0, 2.0, 2.0], [9.0, 9.0, 9.0]])
        sampler._head = np.array([3.0, 0.0, 0.0, 0.0])
        fast, slow = made_note(0.5, 1.9, cpu_number=0), made_note(0.5, 1.9, cpu_number=1)
        assert sampler.seen([fast]) == 1.0
        assert sampler.seen([slow]) == 2.0
        assert sampler.seen([fast, slow]) == pytest.approx(1.0 / 0.75)
        assert sampler.seen([made_note(2.5, 2.9, cpu_number=0)]) == 2.0


def test_when_the_room_for_rounds_is_full_the_oldest_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_speed, "ROWS", 4)
    with stopped(tmp_path) as sampler:
        sampler._cpus = [0]
        # Six rounds were made: the fifth and the sixth stand where the first and the second stood.
        sampler._rows = np.array([[5.0, 5.0], [6.0, 6.0], [3.0, 3.0], [4.0, 4.0]])
        sampler._head = np.array([6.0, 0.0, 0.0, 0.0])
        assert sampler.seen([made_note(4.5, 4.9)]) == 5.0
        assert sampler.seen([made_note(2.5, 2.9)]) == 3.0
