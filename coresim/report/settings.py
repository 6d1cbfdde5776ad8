"""A loader's settings in the words of its framework, and the resources that they need on a host with its GPUs."""

from __future__ import annotations

import math
from typing import NamedTuple

from coresim.advise.memory import Memory, memory_of
from coresim.advise.recommend import Recommendation
from coresim.advise.refine import OptionAnswer
from coresim.advise.sweep import Point
from coresim.advise.threads import Unlimited
from coresim.model.crowding import CURE, Crowding
from coresim.model.option import Option
from coresim.model.scenario import Scenario
from coresim.report.words import interval, plural
from coresim.units import format_bytes


def loader_settings(scenario: Scenario, workers: int, prefetch_factor: int) -> str:
    """The framework's own settings: the preset's template, filled in."""
    values = vars(scenario.loader) | {
        "workers": workers,
        "workers_plus_one": workers + 1,
        "prefetch": prefetch_factor,
        "prefetch_plus_one": prefetch_factor + 1,
        "prefetch_plus_two": prefetch_factor + 2,
        "batch_size": scenario.workload.batch_size,
        "pin_memory": pins_memory(scenario),
    }
    return scenario.preset.settings.format(**values)


def pins_memory(scenario: Scenario) -> bool:
    """Whether to pin: yes, as copies to the device are then fast, unless the scenario knows the cost of pinning and has
    it off.
    """
    return scenario.accelerator.copies and (scenario.loader.pin_memory or scenario.workload.pin.is_zero)


def memory_text(memory: Memory) -> str:
    """The memory of a setting, whether it fits, and the option that makes it fit."""
    if not memory.shared:
        return f"{format_bytes(memory.batches)} of batches in the trainer's process" + _ram(memory)
    size = math.ceil(1.25 * memory.batches / 2**20)
    if memory.fits_shm is False:
        cure = f", which does NOT fit in this host's: raise it (--shm-size={size}m, or an emptyDir of {size}Mi)"
    else:
        cure = f" (--shm-size={size}m in a container)"
    return f"{format_bytes(memory.batches)} of /dev/shm{cure}{_ram(memory)}"


def cap_text(option: OptionAnswer) -> str | None:
    """Where memory stops an option's workers, which memory that is, and how much they would need; None: nowhere."""
    short = option.capped and option.capped.memory.short_of
    if not option.capped or not short:
        return None
    what, size, needed = short
    stop = plural(option.capped.workers, "worker")
    return (
        f"option {option.option} stops at {stop} per GPU: {what} of the host that was"
        f" measured or given, {format_bytes(size)}; {option.capped.wanted} per GPU need {format_bytes(needed)} (of"
        f" another machine: --set host.{'shm_bytes' if what == '/dev/shm' else 'memory_bytes'}=...)"
    )


def _ram(memory: Memory) -> str:
    workers = "" if memory.workers is None else f"; {format_bytes(memory.workers)} of workers"
    if memory.fits_ram is False:
        return f"{workers}; together they do NOT fit in the {format_bytes(memory.ram_size or 0.0)} of this job"
    return workers


def unlimited_text(found: Unlimited) -> str:
    """A note that the prediction assumes one thread per worker, with the libraries' own number and the cure."""
    return (
        f"left as they are, libraries run {found.each} threads in every worker here (measured; more where there are"
        f" more cores): {crowding_text(found.crowding)}; without that the GPU would idle"
        f" {interval(found.estimate)}"
    )


def crowding_text(crowded: Crowding) -> str:
    """A note on library threads that compete for cores: their cost and the cure."""
    low, high = (100 * (crowded.factor * math.exp(sign * 2 * crowded.uncertainty) - 1) for sign in (-1, 1))
    return (
        f"{crowded.threads} library threads on {crowded.cores:g} cores: CPU work grows by"
        f" {100 * (crowded.factor - 1):.0f} % (by {max(0.0, low):.0f} to {high:.0f} %, from published cases);"
        f" set {CURE}"
    )


class Node(NamedTuple):
    """The resources that the ranks of one host need together at one setting; physical cores.

    ``workers``: 0 if the trainers prepare their own batches. ``memory_bytes``: of batches and, if they were measured,
    of worker processes; None if not known.
    """

    gpus: int
    cores: int
    workers: int
    memory_bytes: float | None


def node_of(scenario: Scenario, point: Point) -> Node:
    """The node at a point, whose cores and workers are those of each GPU."""
    count = scenario.accelerator.count
    workers = 0 if point.option == Option.NO_OVERLAP else point.workers
    memory = memory_of(scenario, workers, point.prefetch_factor, point.option)
    return Node(count, point.cores * count, workers * count, None if memory is None else memory.total)


def node_words(answer: Recommendation) -> str:
    """Cores, workers per rank and memory of the whole node, which stand before those of one GPU; "" for one GPU.

    The ranks share the cores, the memory bandwidth and the storage, and each step waits for the slowest rank.
    """
    node = node_of(answer.scenario, answer.point)
    if node.gpus == 1:
        return ""
    parts = [f"{node.cores} CPU cores for the node of {node.gpus} GPUs"]
    if node.workers and not answer.scenario.stages:
        parts.append(f"{node.workers} workers ({answer.point.workers} per rank)")
    if node.memory_bytes is not None:
        parts.append(f"{format_bytes(node.memory_bytes)} of memory")
    return ", ".join(parts) + "; "
