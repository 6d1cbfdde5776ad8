"""Shares of the time of several runs, by what it was spent on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from coresim import stats
from coresim.errors import InputError
from coresim.model.pipeline import Pipeline
from coresim.sim.run import Run


def duration_of(run: Run) -> float:
    """Time of the windows of all ranks, s."""
    total = math.fsum(rank.end - rank.begin for rank in run.ranks)
    if total <= 0.0:
        raise InputError("the simulated steps take no time: every time in the scenario is zero")
    return total


def idle_of(run: Run) -> float:
    """GPU idle of one run, over its ranks."""
    busy = math.fsum(rank.accelerator["busy"] for rank in run.ranks)
    return 1.0 - busy / duration_of(run)


def settled(shares: dict[str, float], name: str, share: float) -> dict[str, float]:
    """The shares with one of them set to its long-run value, and the others scaled in proportion."""
    rest = 1.0 - shares[name]
    factor = (1.0 - share) / rest if rest > 0.0 else 0.0
    return {key: share if key == name else found * factor for key, found in shares.items()}


def clipped(share: float) -> float:
    """The share, limited to the range from 0 to 1."""
    return min(1.0, max(0.0, float(share)))


def shares_of(runs: Sequence[Run], account: str) -> dict[str, float]:
    """Shares of all time in an account of `coresim.sim.run.RankAccount`, over runs and ranks."""
    tables, total = [getattr(rank, account) for run in runs for rank in run.ranks], math.fsum(map(duration_of, runs))
    return {name: math.fsum(table[name] for table in tables) / total for name in tables[0]}


def station_of(pipeline: Pipeline, runs: Sequence[Run], index: int) -> dict[str, Any]:
    """Shares of a stage's servers, over runs and ranks."""
    stage = pipeline.stages[index]
    parts = [rank.stations[index].fractions(rank.end - rank.begin) for run in runs for rank in run.ranks]
    shares = {name: clipped(stats.mean([float(part[name]) for part in parts])) for name in parts[0]}
    return {"name": stage.name, "servers": stage.servers, **shares}
