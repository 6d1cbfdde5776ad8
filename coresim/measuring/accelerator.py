"""How long the accelerator takes for one training step, and what that asks of the host's cores.

Every repeat runs in a fresh Python process, so that start-up state (allocator, autotuning, memory placement) is
sampled and a crash or an out-of-memory kill ends in one message here. No process outlives the call.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

import numpy as np

from coresim import stats
from coresim.errors import CoresimError, InputError
from coresim.measuring import models
from coresim.measuring.transfer import Clock, batch_bytes, measure_copies, open_clock, open_device, to_device
from coresim.model.measurement import Measurement

STABLE = 0.05
WINDOW = 3
FEWEST_STEPS = 3
SYNC_TRIALS = 5
SHORTEST_HOLD = 2e-3
BUSY_BYTES = 32_000_000
_PATIENCE = 60.0
_PR_SET_PDEATHSIG = 1
_OUT_OF_MEMORY = ("out of memory", "not enough memory", "can't allocate memory", "MemoryError")


@dataclass(frozen=True)
class AcceleratorConfig:
    """What to measure.

    Attributes:
        device: ``cuda``, ``cuda:N``, or ``cpu`` where there is no GPU at all.
        model: ``resnet50``, ``resnet18`` or ``tiny``; not used with ``step``.
        batch_size: samples in a synthetic batch.
        image_size: pixels along each side of a synthetic image.
        precision: ``fp32`` (torch's default) or ``bf16``; a user's own step sets its own.
        step: the user's step or factory of one, see ``models.as_step``; importable in a fresh process.
        batch: called in the fresh process for a collated host batch; absent, a synthetic image batch.
        processes: fresh processes, the independent repeats.
        steps: steps timed for each quantity in each process.
        seconds: time allowed for each quantity in each process; fewer steps are timed where they are long,
            but never fewer than ``FEWEST_STEPS``.
        busy: numbers of busy processes; absent, a few up to all cores of this process's affinity.
        copies: measure host-to-device copies too.
        timeout: seconds after which a process is given up.
    """

    device: str = "cuda"
    model: str = "resnet50"
    batch_size: int = 64
    image_size: int = 224
    precision: str = "fp32"
    step: Callable[..., object] | None = None
    batch: Callable[[], object] | None = None
    processes: int = 3
    steps: int = 30
    seconds: float = 5.0
    busy: tuple[int, ...] | None = None
    copies: bool = True
    timeout: float = 300.0

    def __post_init__(self) -> None:
        """InputError where a number that must be at least 1 is not."""
        for name in ("batch_size", "image_size", "processes", "steps"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} = {getattr(self, name)}: must be at least 1")


@dataclass(frozen=True)
class AcceleratorResult:
    """What was measured.

    Attributes:
        measurements: in the order taken; every name once.
        synchronises: the step function itself waits for the device before it returns.
        settled: in every process the step time was stable before timing began.
        provenance: device, driver, versions, precision, peak memory, clocks; None where nothing could tell.
    """

    measurements: tuple[Measurement, ...]
    synchronises: bool
    settled: bool
    provenance: Mapping[str, str | int | float | None]

    def __getitem__(self, name: str) -> Measurement:
        """The measurement of that name; CoresimError where it was not taken."""
        for measurement in self.measurements:
            if measurement.name == name:
                return measurement
        raise CoresimError(f"{name} was not measured; there are {', '.join(m.name for m in self.measurements)}")


@dataclass(frozen=True)
class WarmUp:
    """Steps run before timing; ``step`` is the last window's median in seconds."""

    steps: int
    settled: bool
    step: float

    def __str__(self) -> str:
        """The stability test and its outcome, in words."""
        outcome = "within" if self.settled else "still not within"
        return f"{self.steps} warm-up steps, medians of the last 3 windows of {WINDOW} {outcome} {STABLE:.0%}"


def time_steps(step: models.Step, batch: Any, clock: Clock, count: int) -> tuple[float, ...]:
    """Device seconds of each of ``count`` steps launched back to back, with no wait between them.

    One step more is run first, and not counted: it alone finds the device idle.
    """
    clock.wait()
    marks = []
    for _ in range(count + 1):
        step(batch)
        marks.append(clock.mark())
    clock.wait()
    return tuple(clock.seconds(start, end) for start, end in pairwise(marks))


def warm_up(step: models.Step, batch: Any, clock: Clock, seconds: float = 5.0) -> WarmUp:
    """Run windows of steps until the medians of the last three lie within ``STABLE`` of their least, or time is up."""
    medians: list[float] = []
    deadline = clock.wall() + seconds
    while True:
        medians.append(stats.median(time_steps(step, batch, clock, WINDOW)))
        last = medians[-3:]
        settled = len(last) == 3 and max(last) <= (1 + STABLE) * min(last)
        if settled or clock.wall() >= deadline:
            return WarmUp((WINDOW + 1) * len(medians), settled, medians[-1])


def measure_step(step: models.Step, batch: Any, clock: Clock, *, warm: WarmUp, count: int = 30) -> list[Measurement]:
    """One training step on resident data.

    Args:
        step: ``train_step(batch)``.
        batch: a batch that lies on the device already.
        clock: the device's clock.
        warm: the warm-up that was done.
        count: steps timed.

    Returns:
        ``accelerator.step`` (between device marks), ``accelerator.step.wall`` (host clock over all steps: more
        than the former means work that the marks missed) and ``accelerator.launch`` (CPU time of the process
        from an idle device until the call returns; all threads, since autograd launches the backward pass
        from a thread of its own), all in s/step. A step that waits for the device (``waits_for_device``) spins
        meanwhile, and that is in its launch cost: it does hold a core.
    """
    clock.wait()
    begin = clock.wall()
    steps = time_steps(step, batch, clock, count)
    wall = (clock.wall() - begin) / (count + 1)
    launches = tuple(_launch_cost(step, batch, clock) for _ in range(count))
    return [
        _per_step("step", steps, f"device time of back-to-back steps on resident data, after {warm}"),
        _per_step("step.wall", (wall,), "host wall clock of the same steps, over their number"),
        _per_step("launch", launches, "CPU time of the process, all threads, until the step returns; waiting counts"),
    ]


def waits_for_device(step: models.Step, batch: Any, clock: Clock) -> bool:
    """Whether the step function waits for the device before it returns.

    The device is held up by a known time before the step. A function that then returns later by more than half
    of it has waited. (Return time beside device end alone takes a step that is bound by its launches for one that
    waits.) The hold is a quarter of the return time, so that the launch queue does not fill up behind it.
    """
    if not clock.asynchronous:
        return True
    free = stats.median([_return_time(step, batch, clock, 0.0) for _ in range(SYNC_TRIALS)])
    hold = max(free / 4, SHORTEST_HOLD)
    held = stats.median([_return_time(step, batch, clock, hold) for _ in range(SYNC_TRIALS)])
    return held - free > hold / 2


def measure_busy(
    step: models.Step,
    batch: Any,
    clock: Clock,
    levels: Sequence[int],
    count: int,
    occupy: Callable[[int], AbstractContextManager[object]] | None = None,
) -> list[Measurement]:
    """``accelerator.step.busy.K`` in s/step for each K in ``levels``: the step with K processes busy beside it."""
    found = []
    for level in levels:
        with (occupy or busy_processes)(level):
            values = time_steps(step, batch, clock, count)
        how = f"device time of a step beside {level} pinned busy processes, each adding over {BUSY_BYTES} B of memory"
        found.append(_per_step(f"step.busy.{level}", values, how))
    return found


def busy_levels(cores: int) -> tuple[int, ...]:
    """1, a quarter, half and all of the cores, each once."""
    return tuple(sorted({1, max(1, cores // 4), max(1, cores // 2), cores}))


@contextmanager
def busy_processes(count: int) -> Iterator[tuple[int, ...]]:
    """``count`` processes that compute and touch memory, pinned to this process's cores in turn; gives their ids.

    They run on entry and are gone on exit, whatever ends the block; where this process is killed, the kernel
    kills them.

    Raises:
        CoresimError: one did not start.
    """
    cores = sorted(os.sched_getaffinity(0))
    running: list[subprocess.Popen[bytes]] = []
    try:
        for index in range(count):
            running.append(_start("busy_loop", str(cores[index % len(cores)]), stdout=subprocess.PIPE))
        _await_ready(running)
        yield tuple(process.pid for process in running)
    finally:
        for process in running:
            process.kill()
        for process in running:
            process.wait(_PATIENCE)
            if process.stdout is not None:
                process.stdout.close()


def busy_loop(core: str) -> None:
    """Body of a busy process: never returns."""
    os.sched_setaffinity(0, {int(core)})
    numbers = np.ones(BUSY_BYTES // 8)
    print("ready", flush=True)  # noqa: T201 - the signal to the process that started this one
    while True:
        np.add(numbers, 1.0, out=numbers)


def measure_here(config: AcceleratorConfig) -> AcceleratorResult:
    """All measurements once, in this process; ``measure_accelerator`` is the way to repeat them."""
    step, host_batch, device = _prepare(config)
    clock = open_clock(device)
    batch = to_device(host_batch, device)
    warm = warm_up(step, batch, clock, config.seconds)
    count = max(FEWEST_STEPS, min(config.steps, int(config.seconds / max(warm.step, 1e-9))))
    levels = busy_levels(len(os.sched_getaffinity(0))) if config.busy is None else config.busy
    found = measure_step(step, batch, clock, warm=warm, count=count)
    waits = waits_for_device(step, batch, clock)
    found += measure_busy(step, batch, clock, levels, count)
    found += measure_copies(host_batch, device, clock) if config.copies else []
    return AcceleratorResult(tuple(found), waits, warm.settled, provenance(config, device))


def measure_accelerator(config: AcceleratorConfig) -> AcceleratorResult:
    """Measure in ``config.processes`` fresh processes, one after the other, and join their values.

    Raises:
        InputError: the step or the batch cannot be brought into a fresh process, or fails there.
        MissingPartError: no torch, or no CUDA device.
        CoresimError: out of memory, a crash, or no end within ``config.timeout``.
    """
    return merge([_in_fresh_process(config) for _ in range(config.processes)])


def merge(results: Sequence[AcceleratorResult]) -> AcceleratorResult:
    """Join the results of several processes: one inner tuple of values each; the step waits if most say so."""
    joined = []
    for measurement in results[0].measurements:
        parts = [result[measurement.name] for result in results]
        how = "; ".join(dict.fromkeys(part.how for part in parts))
        values = tuple(values for part in parts for values in part.values)
        joined.append(replace(measurement, values=values, how=how))
    waits = 2 * sum(result.synchronises for result in results) > len(results)
    settled = all(result.settled for result in results)
    return AcceleratorResult(tuple(joined), waits, settled, results[0].provenance)


def provenance(config: AcceleratorConfig, device: Any) -> dict[str, str | int | float | None]:
    """What the step ran on and with; units are in the keys (bytes, Hz). Clocks are read after the last step."""
    torch = models.load_torch()
    gpu = torch.cuda.get_device_properties(device) if device.type == "cuda" else None
    own = config.step
    return {
        "device": gpu.name if gpu else "cpu",
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "step": models.describe_model(config.model) if own is None else models.describe_step(own),
        "batch_size": config.batch_size if config.batch is None else None,
        "precision": config.precision if own is None else "set by the step",
        "memory_peak_bytes": torch.cuda.max_memory_allocated(device) if gpu else None,
        **_driver_facts(str(getattr(gpu, "uuid", "")) if gpu else None),
    }


def child_main(folder: str) -> None:
    """Body of a fresh process: ``folder/request`` to ``folder/reply``, a result or the error that says why not."""
    room = Path(folder)
    config = None
    answer: AcceleratorResult | CoresimError
    try:
        models.load_torch()
        config = pickle.loads((room / "request").read_bytes())
        answer = measure_here(config)
    except Exception as error:
        answer = _explained(error, config)
    (room / "unfinished").write_bytes(pickle.dumps(answer))
    (room / "unfinished").rename(room / "reply")


def _per_step(name: str, values: tuple[float, ...], how: str) -> Measurement:
    return Measurement(f"accelerator.{name}", "s/step", (values,), how)


def _launch_cost(step: models.Step, batch: Any, clock: Clock) -> float:
    clock.wait()
    before = clock.cpu()
    step(batch)
    return clock.cpu() - before


def _return_time(step: models.Step, batch: Any, clock: Clock, hold: float) -> float:
    clock.wait()
    if hold:
        clock.hold(hold)
    before = clock.wall()
    step(batch)
    return clock.wall() - before


def _prepare(config: AcceleratorConfig) -> tuple[models.Step, Any, Any]:
    step = None if config.step is None else models.as_step(config.step)
    device = open_device(str(getattr(step, "device", None) or config.device))
    if step is None:
        step = models.default_step(models.build_model(config.model), device, config.precision)
    batch = config.batch() if config.batch else models.synthetic_batch(config.batch_size, config.image_size)
    if batch_bytes(batch) == 0:
        raise InputError(f"the batch ({type(batch).__name__}) holds no tensors: collate it before it is measured")
    return step, batch, device


def _driver_facts(uuid: str | None) -> dict[str, str | float | None]:
    fields = _nvidia_smi(uuid) if uuid is not None else []
    if len(fields) != 3:
        return {"driver": None, "clock_sm_hz": None, "clock_sm_max_hz": None}
    clocks = [float(text) * 1e6 if text.replace(".", "", 1).isdigit() else None for text in fields[1:]]
    return {"driver": fields[0], "clock_sm_hz": clocks[0], "clock_sm_max_hz": clocks[1]}


def _nvidia_smi(uuid: str) -> list[str]:
    query = ["--query-gpu=driver_version,clocks.sm,clocks.max.sm", "--format=csv,noheader,nounits"]
    which = ["-i", f"GPU-{uuid}"] if uuid else []
    try:
        done = subprocess.run(["nvidia-smi", *query, *which], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return []
    rows = done.stdout.strip().splitlines()
    return rows[0].split(", ") if done.returncode == 0 and len(rows) == 1 else []


def _in_fresh_process(config: AcceleratorConfig) -> AcceleratorResult:
    with tempfile.TemporaryDirectory(prefix="coresim-") as folder:
        room = Path(folder)
        (room / "request").write_bytes(_pickled(config))
        code = _run_child(room, config.timeout)
        if not (room / "reply").exists():
            raise _crash(code, (room / "errors").read_text(errors="replace"))
        answer = pickle.loads((room / "reply").read_bytes())
    if isinstance(answer, CoresimError):
        raise answer
    assert isinstance(answer, AcceleratorResult)
    return answer


def _run_child(room: Path, timeout: float) -> int:
    with (room / "errors").open("wb") as errors:
        process = _start("child_main", str(room), stdout=subprocess.DEVNULL, stderr=errors)
    try:
        return process.wait(timeout)
    except subprocess.TimeoutExpired as error:
        raise CoresimError(
            f"measuring the training step did not end within {timeout:g} s: use a smaller --batch-size"
        ) from error
    finally:
        process.kill()
        process.wait(_PATIENCE)


def _start(function: str, argument: str, **pipes: Any) -> subprocess.Popen[bytes]:
    """A fresh Python that runs one function of this module; in its own session, so that Ctrl-C comes to us alone."""
    code = "import sys; from coresim.measuring import accelerator as a; a.enter(*sys.argv[1:])"
    command = [sys.executable, "-c", code, str(os.getpid()), function, argument]
    paths = os.pathsep.join(path for path in sys.path if path)
    environment = {**os.environ, "PYTHONPATH": paths}
    return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, start_new_session=True, **pipes)


def enter(parent: str, function: str, argument: str) -> None:
    """First call in a process that ``_start`` made: bind its life to its parent's, then run the body."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(parent):  # it died before the line above could take effect
        return
    {"busy_loop": busy_loop, "child_main": child_main}[function](argument)


def _await_ready(running: Sequence[subprocess.Popen[bytes]]) -> None:
    deadline = time.monotonic() + _PATIENCE
    for process in running:
        if not _says_ready(process.stdout, max(0.0, deadline - time.monotonic())):
            raise CoresimError(f"busy process {process.pid} did not start within {_PATIENCE:g} s: ask for fewer")


def _says_ready(pipe: IO[bytes] | None, seconds: float) -> bool:
    return pipe is not None and bool(select.select([pipe], [], [], seconds)[0]) and bool(pipe.readline())


def _pickled(config: AcceleratorConfig) -> bytes:
    try:
        return pickle.dumps(config)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise _not_importable(error) from error


def _not_importable(error: Exception) -> InputError:
    return InputError(
        "the training step or batch cannot be brought into a fresh process "
        f"({models.one_line(error)}): define it at the top level of a module that can be imported"
    )


def _explained(error: Exception, config: AcceleratorConfig | None) -> CoresimError:
    if isinstance(error, CoresimError):
        return error
    if config is None:
        return _not_importable(error)
    words = models.one_line(error)
    if any(sign in words for sign in _OUT_OF_MEMORY):
        return _out_of_memory(f"{config.device}, batch size {config.batch_size}: {words}")
    if config.step is None and config.batch is None:
        return CoresimError(f"the {config.model} step failed on {config.device}: {words}")
    what = "the batch" if config.step is None else f"training step {models.describe_step(config.step)}"
    return InputError(f"{what} failed: {words}; run it once in Python by itself")


def _out_of_memory(where: str) -> CoresimError:
    return CoresimError(f"out of memory while measuring the training step ({where}): use a smaller --batch-size")


def _crash(code: int, errors: str) -> CoresimError:
    if code == -signal.SIGKILL:
        return _out_of_memory("the system killed the process")
    last = (errors.strip().splitlines() or ["no message"])[-1]
    return CoresimError(
        f"the process that measured the training step died (exit status {code}: {last}): run the step by itself, "
        "or use a smaller --batch-size"
    )
