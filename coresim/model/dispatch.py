"""A loader whose workers have one batch out: each is dealt the next only when the trainer has received the one before.

A DataLoader with ``prefetch_factor=1`` does so; with more batches out a worker has another one meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from coresim.model.handover import MAKERS
from coresim.model.pipeline import Phase, Stage
from coresim.model.scenario import Loader, WorkloadCosts
from coresim.model.service import Service

#: The phase in which a worker waits for its next batch.
DISPATCH = "dispatch"
#: Of the trainer's CPU time for a batch, what comes before it deals a worker the next one: the rest returns the batch
#: and frees the one before. Median of the rounds of ``calibration/probe_dispatch.py``: 0.31 to 0.78 in four workloads.
BEFORE_DISPATCH = 0.56


def deals_late(loader: Loader, prefetch_factor: int) -> bool:
    """Whether each worker has one batch out, which the trainer receives from it."""
    return prefetch_factor == 1 and loader.credits == "per_worker" and not loader.in_process


def while_undealt(services: Sequence[Service], consumer: Service, cores: float | None) -> tuple[Service, ...]:
    """What a trainer waits in each state of a hand-over if its maker is dealt no batch before it has received this one.

    ``services`` were told of makers that share the ``cores`` of the machine with the trainer from the beginning: what
    its own work, ``consumer``, takes longer by that was taken off. Of the part that comes before the deal it is left.
    """
    if not cores:
        return tuple(services)
    longer = Service(BEFORE_DISPATCH * consumer.mean / cores)
    return tuple(one if number < len(MAKERS) else one.longer(longer) for number, one in enumerate(services))


def dealt_late(
    stages: tuple[Stage, ...], workload: WorkloadCosts, cores: float | None, state: int
) -> tuple[Stage, ...]:
    """The line, with workers that wait for what they are dealt.

    Until then the trainer waits for the hand-over, in this ``state``, and does a part of its own work.
    """
    waits = while_undealt(workload.handover.services(), workload.consumer, cores)
    received = (waits[state].mean if waits else 0.0) + BEFORE_DISPATCH * workload.consumer.mean
    if not received:
        return stages
    first, *later = stages
    return (replace(first, phases=(Phase(DISPATCH, "wait", Service(received)), *first.phases)), *later)
