"""The price of a remedy besides cores, in this job's own numbers: words, or none if a size is not known."""

from __future__ import annotations

from coresim.model.scenario import Scenario
from coresim.model.storage import data_bytes
from coresim.units import format_bytes, format_duration

#: Fewer samples are a piece of a set, or a stand-in for one; prices are then for a million samples.
LEAST_SET, MILLION = 1000, 1e6


def samples(scenario: Scenario) -> float | None:
    """Samples of the set: as given, or its bytes over those of a sample; None where that is not known.

    A number so small that it can only be a piece for trying things out does not count as the set.
    """
    work = scenario.workload
    known: float | None = work.samples_per_epoch
    if known is None and work.sample_bytes is not None and work.dataset_bytes is not None:
        known = work.dataset_bytes / work.sample_bytes
    return None if known is None or known < LEAST_SET else known


def _amount(scenario: Scenario, each: float) -> tuple[float, str]:
    """``each`` for every sample of the set, or for a million of them, and the words that say so."""
    count = samples(scenario)
    return (each * MILLION, " per million samples") if count is None else (each * count, "")


def _set_bytes(scenario: Scenario) -> tuple[float | None, str]:
    """Bytes of the stored set, or of a million samples of it; None where a sample's are not known."""
    each = scenario.workload.sample_bytes
    if samples(scenario) is None and each is not None:
        return _amount(scenario, each)
    return data_bytes(scenario), ""


def in_memory(scenario: Scenario) -> str:
    """The whole set beside the memory that there is."""
    (size, per), room = _set_bytes(scenario), scenario.host.memory_bytes
    if size is None:
        return ""
    if room is None or per:
        return f"{format_bytes(size)}{per}" + (f", of {format_bytes(room)}" if room else "")
    return f"{format_bytes(size)} of {format_bytes(room)}{'' if fits_in_memory(scenario) else ', which does NOT fit'}"


def fits_in_memory(scenario: Scenario) -> bool:
    """Whether nothing known says that the set is larger than the memory."""
    (size, per), room = _set_bytes(scenario), scenario.host.memory_bytes
    return size is None or bool(per) or room is None or size <= room


def whole_set(scenario: Scenario) -> str:
    """The set as it is stored."""
    size, per = _set_bytes(scenario)
    return "" if size is None else f"{format_bytes(size)}{per}"


def stored_times(scenario: Scenario, factor: float) -> str:
    """The set stored once more, ``factor`` times as large."""
    size, per = _set_bytes(scenario)
    return "" if size is None else f"{format_bytes(factor * size)} instead of {format_bytes(size)}{per}"


def prepared_once(scenario: Scenario) -> str:
    """The prepared set, and the one-off CPU time to make it."""
    work = scenario.workload
    if work.batch_bytes is None:
        return read_once(scenario)
    size, _ = _amount(scenario, work.batch_bytes / work.batch_size)
    return f"{format_bytes(size)}, {read_once(scenario)}"


def read_once(scenario: Scenario) -> str:
    """The one-off CPU time to read, change and write every sample."""
    seconds, per = _amount(scenario, scenario.workload.preprocess.mean)
    hours = f"{seconds / 3600:.3g} CPU hours once" if seconds >= 360 else f"{format_duration(seconds)} of CPU time once"
    return f"{hours}{per}"


def gpu_share(scenario: Scenario, least: float, most: float) -> str:
    """GPU seconds of each step, for so many per sample, and the bytes of a batch that it must hold or be sent."""
    work = scenario.workload
    low, high = (format_duration(seconds * work.batch_size) for seconds in (least, most))
    found = f"{low} to {high} of GPU time in each step"
    if work.sample_bytes is not None:
        found += f", {format_bytes(work.sample_bytes * work.batch_size)} sent to it for a batch"
    if work.batch_bytes is not None:
        found += f", at least {format_bytes(work.batch_bytes)} of its memory"
    return found
