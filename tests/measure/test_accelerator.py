"""Accelerator measurements: exact on the emulated device, end to end on the CPU device, and no process left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from contextlib import contextmanager
from dataclasses import replace

import psutil
import pytest
from kit import until
from still import still

from coresim.device.emulated import PINNED, EmulatedDevice, open_device
from coresim.device.interface import Device
from coresim.device.queues import Work
from coresim.errors import CoresimError, InputError, MissingPartError
from coresim.measure import accelerator, training_step, worker_pool
from coresim.measure.accelerator import AcceleratorConfig, AcceleratorResult
from coresim.measure.training_step import WarmUp
from coresim.model.measurement import Measurement
from coresim.model.profile_scenario import lead_of

MS = 2.0**-10  # a power of two, so that the emulated device's sums are exact
SETTLED = WarmUp(steps=12, settled=True, step=8 * MS)


def stepper(device: EmulatedDevice, cpu: float, work: float, waits: bool = False):
    def step(batch: object) -> None:
        device.launch(work, cpu)
        if waits:
            device.synchronise()

    return step


# ---- the step, on the emulated device ----------------------------------------------------------------------------


def test_step_is_device_time_where_the_device_is_the_slower():
    device, _host = still()
    assert training_step.time_steps(stepper(device, MS, 8 * MS), None, device, 4) == (8 * MS,) * 4


def test_step_is_launch_time_where_the_host_is_the_slower():
    device, _host = still()
    assert training_step.time_steps(stepper(device, 8 * MS, MS), None, device, 4) == (8 * MS,) * 4


def test_first_step_on_an_idle_device_is_not_counted():
    device, _host = still()
    costs = iter([64 * MS, 8 * MS, 9 * MS])

    def step(batch: object) -> None:
        device.launch(next(costs), MS)

    assert training_step.time_steps(step, None, device, 2) == (8 * MS, 9 * MS)


def test_measure_step_tells_step_wall_and_launch_apart():
    device, _host = still()
    found = training_step.measure_step(stepper(device, MS, 8 * MS), None, device, warm=SETTLED, count=4)
    assert {m.name: (m.unit, m.values) for m in found} == {
        "accelerator.step": ("s/step", ((8 * MS,) * 4,)),
        "accelerator.step.wall": ("s/step", ((8 * MS,),)),
        "accelerator.launch": ("s/step", ((MS,) * 4,)),
        "accelerator.step.alone": ("s/step", ((8 * MS,) * 4,)),
    }
    assert "within 5%" in found[0].how


def test_a_step_alone_takes_longer_where_the_device_waits_for_launches():
    device, _host = still(tail=3 * MS)
    step, _, launch, alone = training_step.measure_step(
        stepper(device, 6 * MS, 8 * MS), None, device, warm=SETTLED, count=4
    )
    assert (step.flat, launch.flat, alone.flat) == ((8 * MS,) * 4, (6 * MS,) * 4, (9 * MS,) * 4)
    assert lead_of(step, launch, alone) == 1 / 6


def test_a_lead_is_a_share_of_the_launch_and_none_where_it_was_not_measured():
    one = {name: Measurement(name, "s/step", ((value * MS,),), "made up") for name, value in
           {"step": 8, "launch": 2, "short": 7, "long": 11}.items()}  # fmt: skip
    assert lead_of(one["step"], one["launch"], one["short"]) == 0.0
    assert lead_of(one["step"], one["launch"], one["long"]) == 1.0
    assert lead_of(one["step"], one["launch"], None) == lead_of(None, one["launch"], one["long"]) == 0.0
    none = replace(one["launch"], values=((0.0,),))
    assert lead_of(one["step"], none, one["long"]) == 0.0


def test_launch_is_cpu_time_from_an_idle_device():
    device, host = still()
    outstanding = []

    def step(batch: object) -> None:
        outstanding.append(device.record().end > host.now)
        device.launch(8 * MS, MS)
        host.now += 2 * MS  # the calling thread sleeps: no CPU time

    launch = training_step.measure_step(step, None, device, warm=SETTLED, count=4)[2]
    assert launch.flat == (MS,) * 4
    assert outstanding[-4:] == [False] * 4 and any(outstanding)


def test_wall_time_shows_work_that_the_marks_missed():
    device, host = still()
    # Events on a queue where nothing runs.
    device.record = lambda: device._copies.add(Work(host.now, 0.0))  # type: ignore[method-assign]
    step, wall, *_ = training_step.measure_step(stepper(device, MS, 8 * MS), None, device, warm=SETTLED, count=4)
    assert step.mean == MS and wall.mean == 8 * MS


@pytest.mark.parametrize(
    ("cpu", "work", "waits", "expected"),
    [
        (MS, 64 * MS, False, False),
        (MS, 64 * MS, True, True),
        (
            64 * MS,
            MS,
            False,
            False,
        ),  # bound by its launches: it returns at the device's end and waits for nothing
        (MS / 64, MS / 8, True, True),
        (MS / 64, MS / 8, False, False),
    ],
)
def test_waiting_is_told_from_being_launch_bound(cpu, work, waits, expected):
    device, _host = still()
    holds: list[float] = []
    hold = device.hold
    device.hold = lambda seconds: (holds.append(seconds), hold(seconds))  # type: ignore[assignment, method-assign]
    assert training_step.waits_for_device(stepper(device, cpu, work, waits), None, device) is expected
    returned = max(cpu, work) if waits else cpu
    assert holds == pytest.approx([max(returned / 4, training_step.SHORTEST_HOLD)] * training_step.SYNC_TRIALS)


def test_a_wait_in_the_middle_of_the_step_is_seen():
    device, _host = still()

    def step(batch: object) -> None:
        device.launch(32 * MS, MS)
        device.synchronise()  # reads the loss
        device.launch(32 * MS, MS)

    assert training_step.waits_for_device(step, None, device) is True


def test_the_host_as_device_waits_by_nature():
    def never(batch: object) -> None:
        raise AssertionError("not to be called")

    assert training_step.waits_for_device(never, None, Device(None)) is True


def declining(device: EmulatedDevice, costs: list[float]):
    """A step whose windows of four cost ``costs`` in turn, the last for ever."""
    calls = iter(range(10**6))

    def step(batch: object) -> None:
        device.launch(costs[min(next(calls) // 4, len(costs) - 1)], MS)

    return step


def test_warm_up_ends_when_three_windows_agree():
    device, _host = still()
    warm = training_step.warm_up(declining(device, [64 * MS, 16 * MS, 8 * MS]), None, device, seconds=1e6)
    assert warm == WarmUp(steps=20, settled=True, step=8 * MS)


def test_warm_up_gives_up_in_time_and_says_so():
    device, host = still()
    restless = declining(device, [MS * 2.0**n for n in range(60)])
    warm = training_step.warm_up(restless, None, device, seconds=1000 * MS)
    assert not warm.settled and "still not within 5%" in str(warm)
    assert host.now < 10_000 * MS


def test_warm_up_tolerates_five_per_cent_and_no_more():
    for step, settled in ((1.04, True), (1.06, False)):
        device, _host = still()
        costs = [8 * MS * (step if n % 2 else 1.0) for n in range(60)]
        assert training_step.warm_up(declining(device, costs), None, device, seconds=1.0).settled is settled


def test_busy_levels():
    assert [training_step.busy_levels(n) for n in (1, 2, 16)] == [(1,), (1, 2), (1, 4, 8, 16)]


def test_measure_busy_slows_inside_the_block_only(monkeypatch):
    device, _host = still()
    slow = [1.0]

    @contextmanager
    def occupy(count: int):
        slow[0] = 1.0 + count
        yield
        slow[0] = 1.0

    def step(batch: object) -> None:
        device.launch(8 * MS * slow[0], MS)

    monkeypatch.setattr(training_step, "busy_processes", occupy)
    found = training_step.measure_busy(step, None, device, (1, 3), 2)
    assert [(m.name, m.values) for m in found] == [
        ("accelerator.step.busy.1", ((16 * MS,) * 2,)),
        ("accelerator.step.busy.3", ((32 * MS,) * 2,)),
    ]
    assert training_step.time_steps(step, None, device, 1) == (8 * MS,)


def test_a_device_is_no_slower_for_slow_launches_beside_busy_cores(monkeypatch):
    device, _host = still()
    cpu = [4 * MS]

    @contextmanager
    def occupy(count: int):
        cpu[0] = 11 * MS
        yield

    monkeypatch.setattr(training_step, "busy_processes", occupy)
    found = training_step.measure_busy(lambda batch: device.launch(8 * MS, cpu[0]), None, device, (1,), 3)
    assert found[0].flat == pytest.approx((8 * MS,) * 3)
    # Launched back to back beside them, each takes as long as its launch.
    assert training_step.time_steps(lambda batch: device.launch(8 * MS, cpu[0]), None, device, 2) == (11 * MS,) * 2


# ---- copies ---------------------------------------------------------------------------------------------------


def test_no_copies_where_the_cpu_is_the_device():
    assert training_step.measure_copies(None, Device(None)) == []


def test_one_kind_of_copy_is_pinned_and_the_other_waited_for(monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(training_step, "COPIES", 2)
    monkeypatch.setattr(training_step, "TURNS_BYTES", 40)  # a batch has 32
    device, host = still(bus=8.0, sync="block")
    asked: list[tuple[bool, float, int]] = []
    plain = device.copy

    def copy(tensor):
        before = host.now
        there = plain(tensor)
        asked.append((getattr(tensor, PINNED, False), host.now - before, tensor.data_ptr()))
        return there

    device.copy = copy  # type: ignore[assignment, method-assign]
    found = {m.name: m for m in training_step.measure_copies([torch.zeros(8), "name"], device)}
    assert {name: (m.unit, m.values) for name, m in found.items()} == {
        "copy.pinned": ("s/batch", ((4.0, 4.0),)),
        "copy.pageable": ("s/batch", ((4.0, 4.0),)),
    }
    pinned, pageable = asked[:5], asked[5:]
    assert {each[:2] for each in pinned} == {(True, 0.0)} and {each[0] for each in pageable} == {False}
    assert all(waited >= 4.0 for _, waited, _ in pageable)
    for places in ([place for *_, place in kind] for kind in (pinned, pageable)):
        assert len(set(places)) == 2 and places[0] != places[1] and places == [*places[:2], *places[:2], places[0]]


@pytest.mark.parametrize("batch", [[], ["name"], None])
def test_a_batch_without_tensors_is_not_copied(batch):
    pytest.importorskip("torch")
    device, _host = still(bus=8.0, sync="block")
    assert training_step.measure_copies(batch, device) == []


def test_the_copies_leave_memory_to_others(monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(training_step, "available_memory", lambda: 960)  # a batch has 32, so three are a tenth of it
    device, _host = still(bus=8.0, sync="block")
    assert {"each of 3 in turn" in m.how for m in training_step.measure_copies(torch.zeros(8), device)} == {True}


def test_a_large_batch_is_copied_again_and_again(monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(training_step, "TURNS_BYTES", 16)
    device, _host = still(bus=8.0, sync="block")
    found = training_step.measure_copies(torch.zeros(8), device)
    assert [("each of 1 in turn" in m.how, len(m.flat)) for m in found] == [(True, training_step.COPIES)] * 2


# ---- busy processes: none stays behind ------------------------------------------------------------------------


def alive(pids) -> list[int]:
    return [p for p in pids if psutil.pid_exists(p) and psutil.Process(p).status() != psutil.STATUS_ZOMBIE]


def wait_gone(pids, seconds: float = 120.0) -> list[int]:
    deadline = time.monotonic() + seconds
    while alive(pids) and time.monotonic() < deadline:
        time.sleep(0.02)
    return alive(pids)


def test_busy_processes_run_pinned_and_end():
    cores = sorted(os.sched_getaffinity(0))
    with training_step.busy_processes(2) as children:
        pids = [child.pid for child in children]
        assert alive(pids) == pids and len(set(pids)) == 2
        assert [os.getsid(pid) for pid in pids] == pids  # a terminal's Ctrl-C is for their parent alone
        assert [os.sched_getaffinity(pid) for pid in pids] == [{cores[i % len(cores)]} for i in range(2)]
    assert not alive(pids)


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_busy_processes_end_with_an_exception(error):
    with pytest.raises(error), training_step.busy_processes(1) as children:
        raise error
    assert not alive([child.pid for child in children])


def dies(link) -> None:
    os._exit(1)


def hangs(link) -> None:
    time.sleep(600)


@pytest.mark.parametrize(
    ("job", "words", "timeout"), [(dies, "the worker process ended", 60.0), (hangs, "no answer for 0.5 s", 0.5)]
)
def test_busy_process_that_does_not_start(monkeypatch, job, words, timeout):
    monkeypatch.setattr(training_step, "_compute", job)
    monkeypatch.setattr(worker_pool, "START_TIMEOUT", timeout)
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    with pytest.raises(CoresimError, match=rf"keeping cores busy: {words}"), training_step.busy_processes(1):
        pass
    assert {child.pid for child in psutil.Process().children(recursive=True)} <= before


def script(body: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-c", textwrap.dedent(body)]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    )


def test_busy_processes_end_when_their_parent_is_killed():
    parent = script("""
        import time
        from coresim.measure.training_step import busy_processes
        with busy_processes(1) as children:
            print(children[0].pid, flush=True)
            time.sleep(600)
    """)
    pids = [int(word) for word in parent.stdout.readline().split()]
    assert alive(pids) == pids and pids
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert wait_gone(pids) == []


# ---- fresh processes ------------------------------------------------------------------------------------------

EMULATED = AcceleratorConfig(
    device="emulated:step=20ms,launch=2ms,bus=1e9,sync=block", batch_size=8, image_size=64, precision="bf16",
    processes=2, steps=4, busy=(1,), seconds=0.3,
)  # fmt: skip
CPU = AcceleratorConfig(
    device="cpu", model="tiny", batch_size=2, image_size=16, processes=1, steps=3, busy=(), seconds=0.3
)


@pytest.fixture
def fake_torch(tmp_path, monkeypatch):
    """Puts a ``torch`` with the given body before the real one, for fresh processes."""

    def write(body: str) -> None:
        (tmp_path / "torch.py").write_text(textwrap.dedent(body))
        monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])

    return write


@pytest.mark.parametrize(
    ("body", "error", "words"),
    [
        ("raise ImportError('No module named torch')", MissingPartError, "pip install torch"),
        ("import os; os.kill(os.getpid(), 11)", CoresimError, "exit status -11: no message"),
        (
            "import os, sys; sys.stderr.write('a\\nCUDA fell over'); os._exit(3)",
            CoresimError,
            "3: CUDA fell over",
        ),
        ("import os; os.kill(os.getpid(), 9)", CoresimError, "out of memory.*smaller --batch-size"),
    ],
)
def test_a_fresh_process_that_dies_is_one_line(fake_torch, body, error, words):
    fake_torch(body)
    with pytest.raises(error, match=words) as caught:
        accelerator.measure_accelerator(CPU)
    assert "\n" not in str(caught.value)


def test_a_fresh_process_that_hangs_is_ended(fake_torch, monkeypatch):
    monkeypatch.setattr(accelerator, "TIMEOUT", 1.0)
    fake_torch("import time; time.sleep(600)")
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    # However far it comes in this time: it never ends by itself.
    with pytest.raises(CoresimError, match="did not end within 1 s"):
        accelerator.measure_accelerator(CPU)
    assert {child.pid for child in psutil.Process().children(recursive=True)} <= before


def test_interrupt_leaves_no_process_and_no_file(fake_torch, tmp_path, monkeypatch):
    """Ctrl-C while a fresh process holds a busy process of its own."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    fake_torch("""
        from coresim.measure.training_step import busy_processes
        import os, time
        with busy_processes(1) as children:
            with open(os.path.dirname(__file__) + "/unfinished", "w") as file:
                file.write(f"{os.getpid()} {children[0].pid}")
            os.rename(file.name, os.path.dirname(__file__) + "/pids")
            time.sleep(600)
    """)
    parent = script("""
        import signal
        from coresim.measure.accelerator import AcceleratorConfig, measure_accelerator
        signal.signal(signal.SIGINT, signal.default_int_handler)  # who runs tests in the background may ignore it
        measure_accelerator(AcceleratorConfig(device="cpu"))
    """)
    until((tmp_path / "pids").exists)
    pids = [int(word) for word in (tmp_path / "pids").read_text().split()]
    assert alive(pids) == pids
    os.killpg(parent.pid, signal.SIGINT)
    assert parent.wait() == -signal.SIGINT
    parent.stdout.close()
    assert wait_gone(pids) == []
    assert list((tmp_path / "temporary").iterdir()) == []


def test_tiny_step_end_to_end():
    torch = pytest.importorskip("torch")
    result = accelerator.measure_accelerator(replace(CPU, busy=(1,)))
    names = ["step", "step.wall", "launch", "step.alone", "step.busy.1"]
    assert [m.name for m in result.measurements] == [f"accelerator.{name}" for name in names]
    assert [[len(values) for values in m.values] for m in result.measurements] == [[3], [1], [3], [3], [3]]
    assert all(value > 0 for m in result.measurements for value in m.flat)
    assert result.synchronises
    facts = result.provenance
    assert facts["device"] == "cpu" and facts["torch"] == torch.__version__ and facts["step"] == "tiny (coresim)"


def test_every_quantity_of_an_asynchronous_device_end_to_end():
    pytest.importorskip("torch")
    result = accelerator.measure_accelerator(EMULATED)
    names = [f"accelerator.{name}" for name in ("step", "step.wall", "launch", "step.alone", "step.busy.1")]
    names += ["copy.pinned", "copy.pageable"]
    assert [m.name for m in result.measurements] == names
    assert {len(m.values) for m in result.measurements} == {2}
    # A host that is late makes all of these longer, never shorter.
    assert min(result["accelerator.step"].flat) >= 0.02 and min(result["accelerator.launch"].flat) >= 0.002
    size = 8 * (3 * 64 * 64 * 4 + 8)
    assert min(result["copy.pinned"].flat) >= size / 1e9 * 0.999
    assert not result.synchronises
    assert str(result.provenance["device"]).startswith("emulated (step 0.02, launch 0.002")


USER_MODULE = """
import atexit
import pathlib
import time
import torch
calls = []

class Step:
    device = "cpu"
    def __init__(self):
        atexit.register(pathlib.Path(__file__).with_name("ended").touch)
        atexit.register(time.sleep, 0.5)
    def __call__(self, batch):
        calls.append(batch["x"].shape)

def broken(batch):
    raise ValueError("first line\\nsecond line")

def hungry(batch):
    raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
"""


@pytest.fixture
def user(tmp_path, monkeypatch):
    """The folder with the user's module and two batches of his."""
    torch = pytest.importorskip("torch")
    (tmp_path / "mytraining.py").write_text(USER_MODULE)
    torch.save({"x": torch.zeros(5, 2), "names": ["a"]}, tmp_path / "whole")
    torch.save({"names": ["a"]}, tmp_path / "empty")
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("mytraining", None)


def test_user_step_in_a_fresh_process(user):
    """Module, factory, device and batch travel, each time; the default device, cuda, is never asked for.

    What the step leaves for its end is done.
    """
    config = AcceleratorConfig(step="mytraining:Step", batch=user / "whole", processes=2, steps=4, busy=())
    result = accelerator.measure_accelerator(config)
    assert [len(values) for values in result["accelerator.step"].values] == [4, 4]
    assert result.provenance["step"] == "mytraining:Step"
    assert result.provenance["precision"] == "set by the step"
    assert (user / "ended").exists()


@pytest.mark.parametrize(
    ("step", "batch", "error", "words"),
    [
        (
            "broken",
            "whole",
            InputError,
            "mytraining:broken failed: ValueError: first line second line; run it",
        ),
        ("hungry", "whole", CoresimError, "batch size 2.*smaller --batch-size"),
        ("Step", "empty", InputError, "holds no tensors"),
        ("Step", None, InputError, "mytraining:Step failed: "),
        ("nothing", "whole", InputError, "mytraining has no 'nothing'"),
    ],
)
def test_what_fails_in_the_fresh_process_is_one_line(user, step, batch, error, words):
    config = replace(CPU, step=f"mytraining:{step}", batch=batch and user / batch)
    with pytest.raises(error, match=words) as caught:
        accelerator.step_job(None, config)
    assert "\n" not in str(caught.value)


def test_long_steps_are_timed_fewer_times(monkeypatch):
    pytest.importorskip("torch")
    device, _host = still()
    monkeypatch.setattr(accelerator, "open_device", lambda _: device)
    device.step = lambda *_: stepper(device, 1.0, 1.0)  # type: ignore[method-assign]
    for seconds, count in ((100.0, 30), (8.0, 8), (0.5, 3)):
        config = replace(CPU, steps=30, seconds=seconds)
        assert len(accelerator.measure_here(config)["accelerator.step"].flat) == count


@pytest.mark.parametrize(("slow_s", "processes"), [(1e9, 3), (-1.0, 1)])
def test_a_step_whose_module_takes_long_to_import_is_repeated_in_one_process(monkeypatch, slow_s, processes):
    pytest.importorskip("torch")
    device, _host = still()
    monkeypatch.setattr(accelerator, "open_device", lambda _: device)
    monkeypatch.setattr(accelerator.models, "user_step", lambda _: stepper(device, 1.0, 1.0))
    monkeypatch.setattr(accelerator, "SLOW_S", slow_s)
    made = []

    def in_fresh_process(config):
        made.append(accelerator.measure_here(config))
        return made[-1]

    monkeypatch.setattr(accelerator, "_in_fresh_process", in_fresh_process)
    found = accelerator.measure_accelerator(replace(CPU, step="a:b", processes=3, seconds=1.0))
    assert len(made) == processes and len(found["accelerator.step"].values) == 3


def test_merge_joins_processes_by_name():
    def result(value: float, waits: bool, settled: bool, how: str) -> AcceleratorResult:
        return AcceleratorResult((Measurement("a", "s", ((value,),), how),), waits, settled, {"device": how})

    joined = accelerator.merge(
        [result(1.0, True, True, "x"), result(2.0, True, False, "y"), result(3.0, False, True, "x")]
    )
    assert joined["a"].values == ((1.0,), (2.0,), (3.0,)) and joined["a"].how == "x; y"
    assert joined.synchronises is True and joined.settled is False and joined.provenance == {"device": "x"}


# ---- a real device --------------------------------------------------------------------------------------------


@pytest.fixture
def cuda():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    return torch


@pytest.mark.cuda
def test_cuda_events_and_hold_agree(cuda):
    device = open_device("cuda")
    device.hold(0.01)
    start = device.record()
    device.hold(0.05)
    end = device.record()
    assert not end.query()
    device.synchronise(end)
    assert device.elapsed(start, end) == pytest.approx(0.05, rel=0.5)


@pytest.mark.cuda
@pytest.mark.parametrize("waits", [False, True])
def test_cuda_step_that_waits_is_told(cuda, waits):
    device = open_device("cuda")
    x = cuda.randn(4096, 4096, device=device.place)

    def step(batch: object) -> None:
        y = x
        for _ in range(20):
            y = y @ x
        if waits:
            y.sum().item()

    training_step.warm_up(step, None, device)
    assert training_step.waits_for_device(step, None, device) is waits


@pytest.mark.cuda
def test_cuda_end_to_end(cuda):
    config = AcceleratorConfig(model="resnet18", batch_size=32, precision="bf16", processes=1, busy=(1,))
    result = accelerator.measure_accelerator(config)
    assert not result.synchronises
    assert result["accelerator.step"].mean > 0 and result["accelerator.launch"].mean > 0
    assert result["copy.pinned"].mean > 0 and result["copy.pageable"].mean > 0
    assert result.provenance["device"] == cuda.cuda.get_device_name()
