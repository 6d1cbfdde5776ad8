"""The answer for a node of several GPUs: what all of its ranks need together, as it was simulated together."""

from __future__ import annotations

from typing import NamedTuple

from coresim.advise.memory import memory_of
from coresim.advise.recommend import Recommendation
from coresim.advise.sweep import Point
from coresim.model.option import Option
from coresim.model.scenario import Scenario
from coresim.units import format_bytes


class Node(NamedTuple):
    """What the ranks of one host need together at one setting; physical cores.

    ``workers``: 0 where the trainers prepare their own batches. ``memory_bytes``: of batches and, where they were
    measured, of worker processes; None where not known.
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
    """Cores, workers per rank and memory of the whole node, to be put before what one GPU needs; "" for one GPU.

    Its ranks share the cores, their memory bandwidth and the storage, and each step waits for the slowest of them.
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
