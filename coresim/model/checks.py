"""Checks of a description, which build a message only when a check fails; and lookups in its tables."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from coresim.errors import InputError

if TYPE_CHECKING:
    from coresim.model.pipeline import Pipeline


def kept_hash(description: Any) -> int:
    """The stored hash of a frozen description: a search needs it very often, and some have thousands of values."""
    try:
        return description._hash  # type: ignore[no-any-return]
    except AttributeError:
        # Of the fields alone: another thread may keep the hash at this moment.
        values = [getattr(description, field.name) for field in fields(description)]
        found = vars(description)["_hash"] = hash(tuple(values))
        return found


def are_positive(table: tuple[Any, ...]) -> bool:
    """Whether there is at least one number, and all are finite and positive."""
    return bool(table) and bool not in map(type, table) and all(map(math.isfinite, table)) and min(table) > 0


def is_finite(number: Any) -> bool:
    """Whether it is a finite number, and no truth value."""
    return not isinstance(number, bool) and math.isfinite(number)


def check(holds: bool, message: str, *parts: object) -> None:
    """Raise InputError with the message unless the condition holds."""
    # The message is put together only where it is needed: a sweep makes very many descriptions.
    if not holds:
        raise InputError(message.format(*parts) if parts else message)


def check_count(value: object, what: str, *parts: object, least: int = 1) -> None:
    """Raise InputError unless the value is a whole number of at least ``least``."""
    good = isinstance(value, int) and not isinstance(value, bool) and value >= least
    check(good, what + " = {!r}: a whole number of at least {} is needed", *parts, value, least)


def at(table: tuple[Any, ...], position: Any) -> Any:
    """A table at a fractional position, linear between its points and constant beyond its ends."""
    if position <= 0:
        return table[0]
    if position >= len(table) - 1:
        return table[-1]
    low = math.floor(position)
    if low == position:
        return table[low]
    return table[low] + (position - low) * (table[low + 1] - table[low])


def check_line(pipeline: Pipeline) -> None:
    """Check a pipeline's trainer and hosts, and then its stages; a message names the stage that is wrong.

    A pipeline that passes has no buffer that grows without bound, and its line never stops for good.
    """
    check(bool(pipeline.stages) != bool(pipeline.trainer.inline), "either stages or the trainer's inline phases")
    batches = bool(pipeline.stages) and all(stage.grain == "batch" for stage in pipeline.stages)
    trainer = pipeline.trainer
    check(batches or not trainer.handover, "handover is for stages that make batches")
    waits = all(phase.resource == "wait" and phase.split == 1 for phase in trainer.handover)
    check(waits, "trainer: a hand-over holds no core and is not split")
    check(is_finite(trainer.settling) and trainer.settling >= 0, "trainer: settling must be finite and not negative")
    check(batches or not trainer.settling, "settling is for stages that make batches")
    check(0 <= trainer.lead <= 1, "trainer: lead {!r} must be a share, from 0 to 1", trainer.lead)
    check(0 <= trainer.release <= 1, "trainer: release {!r} must be a share, from 0 to 1", trainer.release)
    check(pipeline.hosts == 1 or pipeline.barrier, "several hosts without a barrier are independent: simulate one")
    for index, stage in enumerate(pipeline.stages):
        robin = stage.dispatch == "round_robin"
        first = index == 0 and stage.grain == "batch"
        check(not robin or first, "stage {}: round_robin is for a batch stage 0", stage.name)
        check(not robin or pipeline.credits is not None, "stage {}: round_robin needs credits", stage.name)
        mixed = robin and not stage.ordered and any(later.grain == "sample" for later in pipeline.stages)
        check(not mixed, "stage {}: unordered round_robin deals by batch: no later stage may take samples", stage.name)
        _check_order(pipeline, index)
        bounded = pipeline.credits is not None or stage.buffer is not None
        check(bounded, "stage {}: needs a buffer, or the line credits; else it grows without bound", stage.name)


def _check_order(pipeline: Pipeline, index: int) -> None:
    """A bounded ordered stage that is fed out of order could fill up with later items and stop for good."""
    stage, before = pipeline.stages[index], pipeline.stages[index - 1] if index else None
    if before is None or before.ordered or not stage.ordered or stage.buffer is None:
        return
    gathered = before.grain == "sample" and stage.grain == "batch"
    check(gathered, "stage {}: ordered with a buffer, but {} before it is not ordered", stage.name, before.name)
