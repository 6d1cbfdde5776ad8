"""Processes that measure, and how they end: silent, killed, interrupted, or with what cannot be sent."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from multiprocessing.connection import Listener
from pathlib import Path

import psutil
import pytest

from coresim.errors import CoresimError, InputError
from coresim.measure.processes import Child, HangError, Link

pytestmark = pytest.mark.usefixtures("no_child_is_left")

IMAGES = "coresim.workloads.images:ImageWorkload"


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
        # Ctrl-C while the loader runs: `cli/test_main.py`.
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


def sends_a_lock(link: Link) -> None:
    queue: multiprocessing.Queue[object] = multiprocessing.Queue()
    queue.put(threading.Lock())
    queue.get()


def sends_what_is_no_module_s(link: Link) -> None:
    queue: multiprocessing.Queue[object] = multiprocessing.Queue()
    queue.put(lambda: None)
    queue.get()


def sleeps(link: Link) -> None:
    time.sleep(1000)


@pytest.mark.parametrize(
    ("job", "kind"), [(sends_a_lock, "'_thread.lock' object"), (sends_what_is_no_module_s, "local object")]
)
def test_what_cannot_be_pickled_is_named_and_not_waited_for(job: object, kind: str) -> None:
    # Were it waited for, it would be the test's own limit that ends it.
    with Child(job, doing="sending batches") as child, pytest.raises(InputError) as caught:  # type: ignore[arg-type]
        child.receive(timeout=3600)
    assert f"cannot pickle {kind}" in str(caught.value) and "sending batches" in str(caught.value)


def test_a_hang_says_the_time_that_was_given() -> None:
    with Child(sleeps, doing="sleeping") as child, pytest.raises(HangError, match=r"no answer for 0\.3 s"):
        child.receive(timeout=0.3)
