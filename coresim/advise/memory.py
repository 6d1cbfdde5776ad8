"""Host memory and /dev/shm that a loader setting takes."""

from __future__ import annotations

from dataclasses import dataclass

from coresim.model.build import batches_out
from coresim.model.option import Option
from coresim.model.scenario import Scenario


@dataclass(frozen=True)
class Memory:
    """Bytes for all accelerators of the host.

    Attributes:
        batches: finished and growing batches: those between dispatch and pick-up and one in the trainer's hands, of
            ``batch_bytes`` each (credits, as in `coresim.model.pipeline`).
        workers: the private memory of worker processes, None where it was not measured.
        shared: whether the batches lie in /dev/shm (worker processes) and not in the trainer's own memory.
        shm_size, ram_size: what there is, None where that is not known.
    """

    batches: float
    workers: float | None
    shared: bool
    shm_size: float | None
    ram_size: float | None

    @property
    def total(self) -> float:
        """All of it: /dev/shm is memory too."""
        return self.batches + (self.workers or 0.0)

    @property
    def fits_shm(self) -> bool:
        """Whether its part fits into /dev/shm, or a size is not known."""
        return not self.shared or self.shm_size is None or self.batches <= self.shm_size

    @property
    def fits_ram(self) -> bool:
        """Whether it fits into the memory, or a size is not known."""
        return self.ram_size is None or self.total <= self.ram_size

    @property
    def fits(self) -> bool:
        """Whether it fits into both."""
        return self.fits_shm and self.fits_ram

    @property
    def short_of(self) -> tuple[str, float, float] | None:
        """The memory that is too small, its bytes, and the bytes needed; None if everything fits."""
        if self.shm_size is not None and not self.fits_shm:
            return "/dev/shm", self.shm_size, self.batches
        if self.ram_size is not None and not self.fits_ram:
            return "memory", self.ram_size, self.total
        return None


@dataclass(frozen=True)
class MemoryCap:
    """The workers per accelerator at which memory stops, how many were wanted, and the memory that those would take."""

    workers: int
    wanted: int
    memory: Memory


def memory_of(
    scenario: Scenario, workers: int, prefetch_factor: int, option: Option = Option.OVERLAPPED
) -> Memory | None:
    """The memory of a setting, or None where a size that it needs is not known.

    ``workers`` of each accelerator and ``prefetch_factor`` as in `coresim.model.build`. In a pipeline of the user's own
    the batches of the stages are not known.
    """
    workload, count = scenario.workload, scenario.accelerator.count
    if scenario.stages or workload.batch_bytes is None:
        return None
    held = _held(scenario, workload.batch_bytes, workers, prefetch_factor, option)
    if held is None:
        return None
    processes = option != Option.NO_OVERLAP and not scenario.loader.in_process
    private = workload.worker_bytes * workers * count if workload.worker_bytes and processes else None
    host = scenario.host
    return Memory(held * count, private, processes, host.shm_bytes, host.memory_bytes)


def _held(scenario: Scenario, size: float, workers: int, prefetch_factor: int, option: Option) -> float | None:
    """Bytes of the batches of one accelerator in host memory; None: a size is not known.

    Of option 3 each server holds a batch, and each queue between two stages ``buffer`` of them. What is fetched and not
    prepared is as large as it is stored. Behind the copy a batch lies on the accelerator.
    """
    if option == Option.NO_OVERLAP:
        return size  # the trainer makes a batch only when it has used the one before
    if option == Option.OVERLAPPED:
        return (batches_out(scenario, workers, prefetch_factor) + 1) * size
    workload, buffer = scenario.workload, scenario.loader.buffer
    prepared = workers + buffer + (1 + buffer if scenario.loader.gil else 0) + 1
    if workload.fetch.is_zero:
        return prepared * size
    if workload.sample_bytes is None:
        return None
    return prepared * size + (1 + buffer) * workload.batch_size * workload.sample_bytes
