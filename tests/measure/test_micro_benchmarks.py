"""The micro-benchmarks for real, in their quickest mode: shapes and names, never seconds; and how they end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import count
from multiprocessing.connection import Listener
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from coresim.errors import CoresimError, InputError
from coresim.measure import bandwidth, storage, worker_pool
from coresim.measure.processes import Child, HangError, Link
from coresim.measure.protocol import Context
from coresim.model.measurement import Measurement
from coresim.model.warning import HostWarning
from coresim.workloads.named import WorkloadSpec

IMAGES = "coresim.workloads.images:ImageWorkload"


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> WorkloadSpec:
    spec = WorkloadSpec(IMAGES, str(tmp_path_factory.mktemp("images")), batch_size=8)
    spec.make()
    return spec


@pytest.fixture(autouse=True)
def no_child_is_left() -> Iterator[None]:
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    yield
    assert {child.pid for child in psutil.Process().children(recursive=True)} <= before


def by_name(measurements: list[Measurement]) -> dict[str, Measurement]:
    named = {m.name: m for m in measurements}
    assert len(named) == len(measurements)
    for m in measurements:
        assert m.how and m.unit and m.values and all(m.values)
    return named


#: Seconds between two looks at the clock, of a budget of 0.3 s.
@pytest.mark.parametrize(("later", "rounds"), [(0.0, 5), (0.2, 3), (1.0, 1)])
def test_three_rounds_stand_behind_a_bandwidth_unless_they_take_long(
    later: float, rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = count()
    monkeypatch.setattr(worker_pool, "time", SimpleNamespace(monotonic=lambda: later * next(looks)))
    cpus = worker_pool.physical_cpus()[:2]
    monkeypatch.setattr(bandwidth, "physical_cpus", lambda: cpus)
    monkeypatch.setattr(bandwidth, "cache_size", lambda: 2**20)
    told: list[float] = []
    found = bandwidth.measure_bandwidth(Context(0.3, told.append))
    assert set(by_name(found)) == {f"bandwidth.triad.{k}" for k in range(1, len(cpus) + 1)}
    assert all(value > 1e8 for m in found for value in m.flat)
    assert {len(m.flat) for m in found} == {rounds}
    assert told == sorted(told) and told[0] == 0.0 and told[-1] < 1.0


@pytest.fixture
def once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "PROCESSES", 1)


def test_cold_storage_or_an_honest_warning(images: WorkloadSpec, once: None) -> None:
    files = sorted(Path(images.folder).glob("*.jpg"))[:16]
    warnings: list[HostWarning] = []
    named = by_name(storage.measure_storage(files, Context(0.2, warnings=warnings)))
    if warnings:
        assert named == {} and "cannot be emptied" in warnings[0].what
        return
    assert {name: m.unit for name, m in named.items()} == {
        "storage.cold.read": "s/sample",
        "storage.cold.bandwidth": "B/s",
    }
    [seconds], [rates] = named["storage.cold.read"].values, named["storage.cold.bandwidth"].values
    assert len(seconds) == 16 * len(rates) and min(seconds) > 0 and min(rates) > 0


def test_memory_is_never_reported_as_cold_storage(images: WorkloadSpec, once: None) -> None:
    folder = Path("/dev/shm")
    if not os.access(folder, os.W_OK):
        pytest.skip("no /dev/shm here")
    path = folder / f"coresim-test-{os.getpid()}"
    path.write_bytes(b"x" * 100_000)
    try:
        warnings: list[HostWarning] = []
        named = by_name(storage.measure_storage([path], Context(0.1, warnings=warnings)))
    finally:
        path.unlink()
    assert named == {}
    assert [warning.value for warning in warnings] == ["100% left"]


def test_pages_in_and_out_of_the_cache_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(b"x" * 1_000_000)
    assert storage.resident_fraction(path) == 1.0
    if storage.drop([path]) == 1.0:
        pytest.skip("this file system lives in memory")
    assert storage.resident_fraction(path) == 0.0
    assert path.read_bytes() and storage.resident_fraction(path) == 1.0


def test_a_missing_file_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"gone.*cannot be read"):
        storage.measure_storage([tmp_path / "gone"], Context(0.1))


# --- cores and bandwidth ---------------------------------------------------------------------------------------


def test_many_cores_are_measured_at_some_counts() -> None:
    assert worker_pool.levels(1) == [1] and worker_pool.levels(8) == list(range(1, 9))
    assert worker_pool.levels(64) == [1, 2, 3, 4, 5, 6, 7, 8, 12, 18, 27, 40, 60, 64]


def test_one_hardware_thread_per_core(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for cpu, siblings in {0: "0,4", 1: "1,5", 4: "0,4", 5: "1,5", 6: "2,6"}.items():
        folder = tmp_path / f"sys/devices/system/cpu/cpu{cpu}/topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(siblings + "\n")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 4, 5, 6, 9})
    assert worker_pool.physical_cpus(tmp_path) == (0, 1, 6, 9)


def test_bandwidth_arrays_leave_memory_to_others(tmp_path: Path) -> None:
    assert bandwidth.array_bytes(cache=2**20, processes=4, memory=2**34) == 2**20
    assert bandwidth.array_bytes(cache=2**30, processes=4, memory=12 * 2**30) == 2**28
    for index, size in enumerate(("32K", "1024K", "36608K")):
        folder = tmp_path / f"sys/devices/system/cpu/cpu0/cache/index{index}"
        folder.mkdir(parents=True)
        for name, text in {"size": size, "level": f"{index + 1}", "shared_cpu_list": "0-3"}.items():
            (folder / name).write_text(text + "\n")
    assert bandwidth.cache_size(tmp_path) == 36608 * 1024
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("300\n")
    assert bandwidth.available_memory(tmp_path) == 700
    assert bandwidth.cache_size(tmp_path / "none") == bandwidth.USUAL_CACHE


# --- processes and how they end -------------------------------------------------------------------------------


def sleep_job(link: Link) -> None:
    link.send(("ready", None))
    time.sleep(600)


def environment_job(link: Link) -> tuple[str | None, set[int]]:
    return os.environ.get("OMP_NUM_THREADS"), os.sched_getaffinity(0)


def failing_job(link: Link) -> None:
    raise ValueError("first\nsecond")


def test_a_child_is_single_threaded_and_pinned() -> None:
    cpu = max(os.sched_getaffinity(0))
    with Child(environment_job, cpu=cpu) as child:
        assert child.receive() == ("done", ("1", {cpu}))


def socket_job(link: Link) -> str:
    with Listener(family="AF_UNIX") as listener:
        return Path(listener.address).parents[1].name[:8]


def test_a_child_opens_sockets_wherever_temporary_files_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / ("long" * 20)
    deep.mkdir()
    monkeypatch.setenv("TMPDIR", str(deep))
    monkeypatch.setattr(tempfile, "tempdir", None)
    with Child(socket_job) as child:
        assert child.receive() == ("done", "coresim-")
    assert list(deep.iterdir()) == []


def test_a_silent_child_is_given_up_and_stopped() -> None:
    with Child(sleep_job, doing="sleeping") as child:
        assert child.receive() == ("ready", None)
        with pytest.raises(HangError, match=r"sleeping: no answer for 0\.2 s"):
            child.receive(timeout=0.2)


def test_a_killed_child_is_named_and_not_waited_for() -> None:
    with Child(sleep_job, doing="sleeping") as child:
        child.receive()
        os.kill(child.pid, signal.SIGKILL)
        with pytest.raises(CoresimError, match="sleeping: the worker process was killed by SIGKILL"):
            child.receive()


def test_an_unexpected_exception_comes_home_as_one_line() -> None:
    with (
        Child(failing_job, doing="failing") as child,
        pytest.raises(CoresimError, match=r"^failing: the worker process raised ValueError: first$"),
    ):
        child.receive()


MEASURE = f"""
import signal, tempfile
signal.signal(signal.SIGINT, signal.default_int_handler)  # who runs tests in the background may ignore it
from coresim.measure import bandwidth
from coresim.measure.protocol import Context
from coresim.measure.server import Ask, Server
from coresim.workloads.named import WorkloadSpec
tell = lambda done: print(done, flush=True)
with tempfile.TemporaryDirectory() as folder:
    spec = WorkloadSpec({IMAGES!r}, folder)
    %s
"""
CALLS = {
    "bandwidth": "bandwidth.measure_bandwidth(Context(600, tell))",
    # Its loader's workers are there once the first of its batches are.
    "loader": "spec.make(); Server(spec).__enter__().calibrate(Ask(budget_s=600), tell)",
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("call", "how"),
    [
        pytest.param(CALLS["bandwidth"], signal.SIGINT, id="bandwidth-ctrl-c"),
        pytest.param(CALLS["bandwidth"], signal.SIGKILL, id="bandwidth-killed"),
        # Ctrl-C while the loader runs: `test_cli.py`.
        pytest.param(CALLS["loader"], signal.SIGKILL, id="loader-killed"),
    ],
)
def test_an_interrupt_leaves_no_process_and_no_file(short_folder: Path, how: signal.Signals, call: str) -> None:
    paths = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    environment = {**os.environ, "TMPDIR": str(short_folder), "PYTHONPATH": paths}
    command = [sys.executable, "-c", MEASURE % call]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=quiet, env=environment) as measuring:
        assert measuring.stdout is not None and measuring.stdout.readline()
        children = psutil.Process(measuring.pid).children(recursive=True)
        assert children
        measuring.send_signal(how)
        assert measuring.wait() != 0
    assert not psutil.wait_procs(children, timeout=120)[1]
    if how == signal.SIGINT:
        assert list(short_folder.iterdir()) == []
