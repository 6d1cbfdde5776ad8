"""Host memory and /dev/shm that a loader setting takes."""

from __future__ import annotations

from dataclasses import dataclass

from coresim.model.scenario import Scenario


@dataclass(frozen=True)
class Memory:
    """Bytes for all accelerators of the host.

    ``shm``: finished and growing batches in shared memory: at most workers x prefetch_factor dispatched and one in the
    trainer's hands, of ``batch_bytes`` each (credits, as in `coresim.model.pipeline`). ``workers``: the private memory
    of the worker processes, None where it was not measured.
    """

    shm: float
    workers: float | None
    shm_size: float | None

    @property
    def fits_shm(self) -> bool | None:
        """Whether /dev/shm holds it; None where its size is not known."""
        return None if self.shm_size is None else self.shm <= self.shm_size


def memory_of(scenario: Scenario, workers: int, prefetch_factor: int) -> Memory | None:
    """The memory of a setting, or None where the batch's size is not known."""
    workload, count = scenario.workload, scenario.accelerator.count
    if workload.batch_bytes is None:
        return None
    batches = workers * prefetch_factor + 1
    private = None if workload.worker_bytes is None else workload.worker_bytes * workers * count
    return Memory(batches * workload.batch_bytes * count, private, scenario.host.shm_bytes)
