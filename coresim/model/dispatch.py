"""A loader whose workers have one batch out: each is dealt the next only when the trainer has received the one before.

A DataLoader with ``prefetch_factor=1`` does so; with more batches out a worker has another one meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from coresim.model.handover import MAKERS
from coresim.model.pipeline import Phase, Stage
from coresim.model.scenario import Loader, Scenario
from coresim.model.service import Service

#: The phase in which a worker waits for its next batch.
DISPATCH = "dispatch"


def has_pin_thread(scenario: Scenario) -> bool:
    """Whether a thread of the trainer's process pins batches, behind worker processes."""
    loader = scenario.loader
    return loader.pin_memory and not loader.in_process and not scenario.workload.pin.is_zero


def deals_after_receipt(loader: Loader, prefetch_factor: int) -> bool:
    """Whether each worker makes whole batches and has one of them out, which the trainer receives from it."""
    own = loader.credits == "per_worker" and loader.dispatch == "round_robin" and loader.grain == "batch"
    return prefetch_factor == 1 and own and not loader.in_process


def waits_before_deal(waits: Sequence[Service], receipt: Service, cores: float | None) -> tuple[Service, ...]:
    """A trainer's wait for a hand-over, s, by state, if the maker gets no new batch before this one is received.

    The calibration subtracted from ``waits`` the time by which sharing the cores lengthens the trainer's own work. Up
    to the deal, in ``receipt``, the maker does not share them, so that part is added back.

    Args:
        waits: as calibrated, s, one for each of `coresim.model.handover.STATES`, or none.
        receipt: the trainer's CPU time for a batch without freeing the one before, s; after it the trainer deals the
            next.
        cores: of the machine that was calibrated; None: not known, and nothing is added.
    """
    if not cores:
        return tuple(waits)
    longer = Service(receipt.mean / cores)
    return tuple(one if number < len(MAKERS) else one.longer(longer) for number, one in enumerate(waits))


def wait_for_deal(stages: tuple[Stage, ...], wait: Service, receipt: Service) -> tuple[Stage, ...]:
    """The line whose workers first wait, in a phase of their own, until the trainer has dealt them a batch.

    Until then the trainer waits for the hand-over of the batch before, for ``wait`` (s), and does the first part of its
    own work, ``receipt`` (s of CPU time). Both are taken as constant.
    """
    received = Service(wait.mean, uncertainty=wait.uncertainty).longer(
        Service(receipt.mean, uncertainty=receipt.uncertainty)
    )
    if received.is_zero:
        return stages
    first, *later = stages
    return (replace(first, phases=(Phase(DISPATCH, "wait", received), *first.phases)), *later)
