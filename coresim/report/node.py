"""The answer for a node of several GPUs: what all of its ranks need together, as it was simulated together."""

from __future__ import annotations

from coresim.advise.memory import memory_of
from coresim.advise.recommend import Recommendation
from coresim.model.option import Option
from coresim.units import format_bytes


def node_words(answer: Recommendation) -> str:
    """Cores, workers per rank and memory of the whole node, to be put before what one GPU needs; "" for one GPU.

    Its ranks share the cores, their memory bandwidth and the storage, and each step waits for the slowest of them.
    """
    point, count = answer.point, answer.scenario.accelerator.count
    if count == 1:
        return ""
    parts = [f"{point.cores * count} CPU cores for the node of {count} GPUs"]
    if point.option != Option.NO_OVERLAP and not answer.scenario.stages:
        parts.append(f"{point.workers * count} workers ({point.workers} per rank)")
    overlapped = point.option == Option.OVERLAPPED
    memory = memory_of(answer.scenario, point.workers, point.prefetch_factor) if overlapped else None
    if memory is not None:
        parts.append(f"{format_bytes(memory.total)} of memory")
    return ", ".join(parts) + "; "
