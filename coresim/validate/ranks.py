"""Trials of several ranks on this host: each has a loader of its own, and a real barrier ends every step.

The barrier is gloo's, as in data-parallel training on CPUs: the ranks tell one another when their devices are done, and
the latest of these moments ends the step of all. What passing the barrier takes beyond that is lateness, which is taken
out of the moments as that of the timer is (`coresim.measure.trial`).
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import timedelta
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from coresim.errors import CoresimError, InputError
from coresim.measure.processes import DeathError
from coresim.measure.rig import Rig
from coresim.measure.subject import PATIENCE, Layout
from coresim.measure.trial import Trial, run_trial
from coresim.workloads.base import describe

#: How long the ranks may take to end, s.
STOP_S = 10.0


def _live(link: Connection, trial: Callable[[], Trial]) -> None:
    """The life of a rank's process."""
    try:
        link.send(trial())
    except CoresimError as error:
        link.send(type(error)(str(error)))
    except Exception as error:
        link.send(CoresimError(f"a rank of the trial raised {describe(error)}"))


def _trial(rig: Rig, layout: Layout, rank: int, ranks: int, folder: str, straggler: float, **trial: Any) -> Trial:
    """Of one rank; the others find it by a file in the folder."""
    import torch.distributed as dist  # noqa: PLC0415 (torch is optional and heavy)

    if straggler != 1.0:
        rig.workload.stretch = straggler if rank == 0 else 1.0  # type: ignore[attr-defined]
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", Path(folder, "store").as_uri(), timedelta(seconds=PATIENCE), ranks, rank)
    try:
        seed = (time.perf_counter_ns() + rank) % 2**32
        with closing(rig.subject(threads=False).open(layout, seed)) as pipe:
            return run_trial(pipe, **trial, join=latest)
    finally:
        dist.destroy_process_group()


def run_ranks(
    rig: Rig,
    layout: Layout,
    ranks: int,
    step_s: Sequence[float],
    warm_up: int,
    wait: Callable[[float], None],
    straggler: float = 1.0,
) -> list[Trial]:
    """One trial of so many ranks, as `coresim.measure.trial.run_trial`; only in a process that may fork.

    ``straggler``: how many times as long the first rank's reads wait.

    Raises:
        InputError: a rank's data set fails, or it has no reads that could wait longer.
        CoresimError: a rank died or hangs.
    """
    if straggler != 1.0 and not hasattr(rig.workload, "stretch"):
        raise InputError(f"straggler = {straggler:g}: {rig.workload.name} has no waits to stretch; use slow-reads")
    fork = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory(prefix="coresim-ranks-") as folder:
        links, processes = [], []
        try:
            for rank in range(ranks):
                mine, theirs = fork.Pipe(duplex=False)
                known: dict[str, Any] = {"steps_s": step_s, "warm_up": warm_up, "wait": wait}
                trial = partial(_trial, rig, layout, rank, ranks, folder, straggler, **known)
                process = fork.Process(target=_live, args=(theirs, trial))
                process.start()
                theirs.close()
                links.append(mine)
                processes.append(process)
            told = [_received(link, process) for link, process in zip(links, processes, strict=True)]
            for process in processes:
                process.join(STOP_S)
        finally:
            for process in processes:
                process.kill()
                process.join()
    # Where one fails, the barrier fails in the others: what began it is told.
    errors = [one for kind in (InputError, DeathError, CoresimError) for one in told if isinstance(one, kind)]
    if errors:
        raise errors[0]
    return [one for one in told if isinstance(one, Trial)]


def _received(link: Connection, process: multiprocessing.process.BaseProcess) -> Trial | CoresimError:
    if not link.poll(PATIENCE):
        return CoresimError(f"a rank of the trial said nothing for {PATIENCE:g} s, so it was stopped")
    try:
        found: Trial | CoresimError = link.recv()
    except EOFError:
        process.join(STOP_S)
        return DeathError(f"a rank of the trial ended with exit code {process.exitcode}; is memory short?")
    return found


def latest(moment: float) -> float:
    """The latest of all ranks' moments, once all have come to this one."""
    import torch  # noqa: PLC0415 (torch is optional and heavy)
    from torch.distributed import ReduceOp, all_reduce  # noqa: PLC0415

    shared = torch.tensor([moment], dtype=torch.float64)
    all_reduce(shared, ReduceOp.MAX)
    return float(shared[0])
