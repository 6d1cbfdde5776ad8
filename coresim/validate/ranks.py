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
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path

from coresim.errors import CoresimError, InputError
from coresim.measure.processes import DeathError
from coresim.measure.rig import Rig
from coresim.measure.subject import PATIENCE, Layout
from coresim.measure.trial import Trial, run_trial
from coresim.workloads.base import describe

#: How long the ranks may take to end, s.
STOP_S = 10.0


@dataclass(frozen=True)
class _Rank:
    """What one rank has to do, in a process of its own; see `run_ranks`."""

    rig: Rig
    layout: Layout
    rank: int
    ranks: int
    folder: str
    step_s: Sequence[float]
    warm_up: int
    wait: Callable[[float], None]
    stretch: float

    def live(self, link: Connection) -> None:
        """The process's life."""
        try:
            link.send(self._trial())
        except CoresimError as error:
            link.send(type(error)(str(error)))
        except Exception as error:
            link.send(CoresimError(f"a rank of the trial raised {describe(error)}"))

    def _trial(self) -> Trial:
        import torch.distributed as dist  # noqa: PLC0415 (torch is optional and heavy)

        if self.stretch != 1.0:
            self.rig.workload.stretch = self.stretch  # type: ignore[attr-defined]
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        store = Path(self.folder, "store").as_uri()
        dist.init_process_group("gloo", store, timedelta(seconds=PATIENCE), self.ranks, self.rank)
        try:
            seed = (time.perf_counter_ns() + self.rank) % 2**32
            with closing(self.rig.subject(threads=False).open(self.layout, seed)) as pipe:
                return run_trial(pipe, self.step_s, self.warm_up, wait=self.wait, join=latest)
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
                stretch = straggler if rank == 0 else 1.0
                job = _Rank(rig, layout, rank, ranks, folder, step_s, warm_up, wait, stretch)
                process = fork.Process(target=job.live, args=(theirs,))
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
