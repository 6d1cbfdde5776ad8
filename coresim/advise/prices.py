"""What a remedy costs besides cores, in this job's own numbers, where the sizes that it takes are known."""

from __future__ import annotations

from collections.abc import Callable

from coresim.model.scenario import Scenario
from coresim.model.storage import data_bytes
from coresim.units import format_bytes, format_duration

#: Words about the price, or nothing where a size is not known.
Price = Callable[[Scenario], str]


def nothing_more(scenario: Scenario) -> str:
    """No number to add."""
    return ""


def samples(scenario: Scenario) -> float | None:
    """Samples of the set: as given, or its bytes over those of a sample."""
    work = scenario.workload
    if work.samples_per_epoch is not None or work.sample_bytes is None or work.dataset_bytes is None:
        return work.samples_per_epoch
    return work.dataset_bytes / work.sample_bytes


def in_memory(scenario: Scenario) -> str:
    """The whole set beside the memory that there is."""
    size, room = data_bytes(scenario), scenario.host.memory_bytes
    if size is None:
        return ""
    if room is None:
        return format_bytes(size)
    return f"{format_bytes(size)} of {format_bytes(room)}{'' if fits_in_memory(scenario) else ', which does NOT fit'}"


def fits_in_memory(scenario: Scenario) -> bool:
    """Whether nothing known says that the set is larger than the memory."""
    size, room = data_bytes(scenario), scenario.host.memory_bytes
    return size is None or room is None or size <= room


def whole_set(scenario: Scenario) -> str:
    """The set as it is stored."""
    size = data_bytes(scenario)
    return "" if size is None else format_bytes(size)


def stored_times(factor: float) -> Price:
    """The set stored once more, ``factor`` times as large."""

    def price(scenario: Scenario) -> str:
        size = data_bytes(scenario)
        return "" if size is None else f"{format_bytes(factor * size)} instead of {format_bytes(size)}"

    return price


def prepared_once(scenario: Scenario) -> str:
    """The prepared set, and the one-off CPU time to make it."""
    work, count = scenario.workload, samples(scenario)
    if count is None:
        return ""
    hours = _cpu_time(scenario, count)
    return hours if work.batch_bytes is None else f"{format_bytes(count * work.batch_bytes / work.batch_size)}, {hours}"


def read_once(scenario: Scenario) -> str:
    """The one-off CPU time to read, change and write every sample."""
    count = samples(scenario)
    return "" if count is None else _cpu_time(scenario, count)


def _cpu_time(scenario: Scenario, count: float) -> str:
    seconds = count * scenario.workload.preprocess.mean
    return f"{seconds / 3600:.3g} CPU hours once" if seconds >= 360 else f"{format_duration(seconds)} of CPU time once"


def gpu_share(least: float, most: float, decoded_there: bool) -> Price:
    """GPU seconds of each step, for so many per sample, and the bytes of a batch that it must hold or be sent."""

    def price(scenario: Scenario) -> str:
        work = scenario.workload
        low, high = (format_duration(seconds * work.batch_size) for seconds in (least, most))
        found = f"{low} to {high} of GPU time in each step"
        if decoded_there and work.sample_bytes is not None:
            found += f", {format_bytes(work.sample_bytes * work.batch_size)} sent to it for a batch"
        return (
            found if work.batch_bytes is None else f"{found}, at least {format_bytes(work.batch_bytes)} of its memory"
        )

    return price
