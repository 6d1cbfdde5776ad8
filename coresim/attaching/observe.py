"""A rank's observations of its own loop and loader, as JSON."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from coresim import stats
from coresim.attaching.batches import Kept
from coresim.attaching.device import DeviceEvents
from coresim.attaching.loops import Loop, Period

#: A loop is steady when its last periods take what those before them took, to this share or within their noise.
STEADY = 0.05
LEAST_WINDOW, MOST_WINDOW = 8, 64
MOST_PERIODS = 1000
#: Share of a period from which on the loop waits for its loader.
NOTABLE_WAIT = 0.05
#: The lead that workers get in a pause may last for so many times the batches that they can have out.
DRAINED = 4


def settings(loader: Any, iterator: Any, cuda: bool) -> dict[str, Any]:
    """The loader's settings, the rank's place, the CPUs that it may use, and whether it trains on a CUDA device."""
    sampler = getattr(loader, "batch_sampler", None)
    context = getattr(loader, "multiprocessing_context", None)
    return {
        "loader": type(loader).__name__,
        "dataset": type(iterator._dataset).__name__,
        "samples": _length(iterator._dataset),
        "batch_size": getattr(sampler, "batch_size", None) or getattr(loader, "batch_size", None),
        "batched": sampler is not None,
        "workers": iterator._num_workers,
        "prefetch_factor": getattr(iterator, "_prefetch_factor", None),
        "pin_memory": bool(iterator._pin_memory),
        "persistent_workers": bool(iterator._persistent_workers),
        "in_order": bool(getattr(iterator, "_in_order", True)),
        "context": None if context is None else context.get_start_method(),
        "cpus": sorted(os.sched_getaffinity(0)),
        "cuda": cuda,
        "folder": os.getcwd(),
        "torch": getattr(sys.modules.get("torch"), "__version__", None),
        "python": sys.version.split()[0],
    }


def batch_sizes(lengths: Sequence[int | None], size: int | None) -> dict[str, float] | None:
    """The fewest, the most and the mean samples of the batches that the loop got; None if these do not tell.

    Rows do not count as samples if tensors of a batch differ in length, or if no batch has the loader's ``size`` or one
    has more.
    """
    known = [length for length in lengths if length is not None]
    if not any(known) or len(known) < len(lengths) or size not in (None, max(known)):
        return None
    return {"least": min(known), "most": max(known), "mean": sum(known) / len(known)}


def _length(dataset: Any) -> int | None:
    try:
        return len(dataset)
    except Exception:  # a stream has none, and what a program's own __len__ does is its affair
        return None


def place() -> dict[str, int]:
    """Which rank this is, and how many there are on this host."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not (distributed.is_available() and distributed.is_initialized()):
        return {"rank": 0, "local_world": 1}
    here = int(os.environ.get("LOCAL_WORLD_SIZE", distributed.get_world_size()))
    return {"rank": distributed.get_rank(), "local_world": here}


def steady(periods: Sequence[Period], workers: int | None) -> bool:
    """Whether the last periods take as long as those before them; both windows are whole turns of all workers."""
    turn = max(1, workers or 1)
    window = -(-LEAST_WINDOW // turn) * turn
    window = max(window, min(MOST_WINDOW, len(periods) // 4) // turn * turn)
    if len(periods) < 2 * window:
        return False
    times = [period.wait + period.step for period in periods[-2 * window :]]
    before, after = times[:window], times[window:]
    usual, change = stats.mean(before), abs(stats.mean(after) - stats.mean(before))
    noise = ((stats.variance(before) + stats.variance(after)) / window) ** 0.5
    return change <= STEADY * usual or change <= 2 * noise < 0.5 * usual


def settled(periods: Sequence[Period], workers: int | None, prefetch_factor: int | None) -> list[Period]:
    """The periods of a loop that goes on, in whole turns of its workers; all of them where there are none.

    Workers go on while an epoch begins or the loop evaluates, so that the batches that were out then are there at once;
    this lead is used up when the loop waits again. Batches come in turns, one from each worker: a window that is not a
    whole number of turns shows too many or too few waits.
    """
    turn, ahead = max(1, workers or 1), (workers or 0) * (prefetch_factor or 1)
    chosen: list[Period] = []
    for run in _runs(periods):
        later = [period for period in run if period.place > ahead]
        if run[0].place <= DRAINED * ahead:
            waited = (number for number, one in enumerate(later, 1) if one.wait > NOTABLE_WAIT * (one.wait + one.step))
            later = later[next(waited, 0) :]
        chosen += later[: len(later) // turn * turn]
    return chosen or list(periods)


def _runs(periods: Sequence[Period]) -> Iterator[list[Period]]:
    """The periods between which the loop went on."""
    begin = 0
    for number, period in enumerate(periods, 1):
        if number == len(periods) or periods[number].place <= period.place:
            yield list(periods[begin:number])
            begin = number


class Usage(NamedTuple):
    """CPU seconds so far.

    Attributes:
        own: of this process.
        children: of all that it started.
        machine: of everybody, on the CPUs that this process may use.
    """

    own: float
    children: float
    machine: float

    @classmethod
    def now(cls) -> Usage:
        """Read from /proc (proc(5))."""
        times = os.times()
        ended = times.children_user + times.children_system
        return cls(times.user + times.system, ended + _children_seconds(), _machine_seconds())


def _children_seconds() -> float:
    """CPU seconds of the processes that this one started and that still run."""
    pids: list[str] = []
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # a thread that ended, or a kernel that does not tell
            pids += (task / "children").read_text().split()
    ticks = 0
    for pid in pids:
        with suppress(OSError):  # it ended
            fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def _machine_seconds() -> float:
    """CPU seconds of all programs on the CPUs that this process may use, since the machine started.

    They include the time that a virtual machine wanted and its host gave to others (``steal``, proc(5)).
    """
    allowed = {f"cpu{cpu}" for cpu in os.sched_getaffinity(0)}
    ticks = 0
    for line in Path("/proc/stat").read_text().splitlines():
        name, *fields = line.split()
        if name in allowed:
            user, nice, system, _, _, irq, softirq, steal = map(int, fields[:8])
            ticks += user + nice + system + irq + softirq + steal
    return ticks / os.sysconf("SC_CLK_TCK")


def observed(periods: Sequence[Period], before: Usage, seconds: float) -> dict[str, Any]:
    """The loop as it is: what it waited and what it did between, per batch, in seconds; the cores that were busy."""
    kept, now = periods[-MOST_PERIODS:], Usage.now()
    return {
        "waits": [period.wait for period in kept],
        "steps": [period.step for period in kept],
        "optimizer_steps": sum(period.steps for period in kept),
        "cores": [(after - first) / seconds for after, first in zip(now, before, strict=True)],
    }


def epochs(loop: Loop, periods: Sequence[Period]) -> dict[str, Any]:
    """Batches of an epoch, the waits for the first batch of each, and seconds from batch to batch after the first.

    The latter include batches that were prepared while the loop waited for the first.
    """
    whole = [period.wait + period.step for period in periods]
    return {"epoch": loop.epoch, "starts": list(loop.starts), "epoch_period": sum(whole) / len(whole)}


def step(periods: Sequence[Period], kept: Kept, device: DeviceEvents) -> dict[str, Any]:
    """The loop without waiting, per batch, in seconds, and the size of a batch."""
    chosen = periods[-MOST_PERIODS:]
    batch = kept.give()
    return {
        "steps": [period.step for period in chosen],
        "cpu": [period.cpu for period in chosen],
        "busy": [period.busy for period in chosen],
        "batch_bytes": kept.bytes,
        "batch_arrays": kept.arrays,
        "batch_length": kept.length,
        "changed_in_place": bool(kept.changes),
        "device": device.seconds(len(chosen)),
        "synchronises": device.synchronises,
        "copies": device.copies(batch),
    }
