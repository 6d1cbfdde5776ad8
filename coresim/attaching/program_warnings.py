"""Reasons to trust an answer about a program less, from what its ranks tell; one line each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from coresim import stats
from coresim.model.today import Today
from coresim.model.warning import HostWarning
from coresim.units import format_duration


def program_warnings(found: Sequence[dict[str, Any]], today: Today) -> Iterator[HostWarning]:
    """Warnings of the loop, then of the loader; ``found``: what each rank told, by rank."""
    first = found[0]
    step = first["step"]
    if not first["settings"]["cuda"]:
        seconds = stats.mean([value for told in found for value in told["step"]["steps"]])
        yield HostWarning(
            "the program trains without CUDA",
            f"where none is given, the step is what its loop does with a batch: {format_duration(seconds)}",
            "a GPU changes it: --gpu gives a recorded step of a known net, --step-time one that you know",
        )
    if step["loaders"] > 1:
        yield HostWarning(
            "the loop takes batches from several loaders",
            f"{step['loaders']} of them; only the first was run apart",
            "its workers and cores come on top of those of the others",
        )
    if step["changed_in_place"]:
        yield HostWarning(
            "the program changes its batches in place",
            "a kept batch was copied before each step without waiting",
            "the copying is not in the step's time",
        )
    if today.batches_differ:
        yield HostWarning(
            "the program's batches differ in size",
            f"{today.batch_words}; the answer takes each for one of {today.batch_size}, with a step as the kept"
            f" batches took, which have {step['batch_length']} on average",
            "where steps depend on the size, --step-time gives one that you know",
        )
    if broken := first["loader"]["broken"]:
        seen = f"the program went on after {first['errors']} such errors" if first["errors"] else ""
        yield HostWarning(
            "samples that cannot be prepared were left out",
            f"{broken['count']} of {broken['of']}, the first with {broken['first']}",
            seen or "a program that does not catch this ends there: repair them, or leave them out of the data set",
        )
    yield from (HostWarning(*told) for told in first["loader"]["warnings"])
