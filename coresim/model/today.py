"""How a program's own loop runs with its own settings, as coresim saw it from inside: the ``today`` of a profile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from coresim.model.keys import COUNT, COUNT_OR_NONE, FLAG, FRACTION, NOT_NEGATIVE, POSITIVE, TABLE, TEXT, choice, key
from coresim.model.loader_settings import LoaderSettings

#: An epoch is short if its workers prepare at least one in so many of its batches ahead.
FEW = 2
#: Batches differ where their mean is less than this share of the largest: more than an epoch's last one is smaller.
ALIKE = 0.95
#: The device of a step that needs no copy of a batch.
CPU = "cpu"


@dataclass(frozen=True, kw_only=True)
class Today(LoaderSettings):
    """One program, observed. Times in seconds per batch; idle is the share of the loop's time spent waiting."""

    program: str = key(TEXT, "the command that was run")
    gpu_idle: float = key(FRACTION, "share of the time in which the device had no step to do, all ranks")
    samples_per_s: float = key(POSITIVE, "samples per second of all ranks")
    wait: float = key(NOT_NEGATIVE, "mean wait in the loader per batch, s")
    step: float = key(POSITIVE, "mean time from a batch to the next ask for one, s")
    batches: int = key(COUNT, "batches observed, all ranks")
    threads: int = key(COUNT, "hardware threads that the ranks may run on")
    ranks: int = key(COUNT, "ranks on this host", 1)
    sync: str = key(choice("spin", "block"), "whether the loop holds a core while it steps", "block")
    device: str = key(choice("cpu", "cuda"), "what the loop trains on", "cpu")
    steady: bool = key(FLAG, "whether the loop was steady when it was observed", True)
    batches_per_step: float = key(POSITIVE, "batches per step of the optimizer", 1.0)
    other_cores: float = key(NOT_NEGATIVE, "cores that other programs kept busy meanwhile", 0.0)
    batch_size: int | None = key(COUNT, "samples of a batch of one rank, as which all are predicted", None)
    batch_least: int | None = key(COUNT_OR_NONE, "fewest samples of a batch that the loop got; absent: not known", None)
    batch_most: int | None = key(COUNT, "most samples of a batch that the loop got", None)
    batch_mean: float | None = key(POSITIVE, "mean samples of a batch that the loop got", None)
    worker_cpu: float = key(NOT_NEGATIVE, "CPU time of the workers per batch, s", 0.0)
    rank_busy: tuple[float, ...] = key(TABLE, "busy share (1 - idle) of each rank", (1.0,))
    epoch_batches: int | None = key(COUNT, "batches of an epoch of one rank; absent: none ended before", None)
    epoch_wait: float | None = key(NOT_NEGATIVE, "mean wait for the first batch of an epoch, s; not in wait", None)
    epoch_period: float | None = key(NOT_NEGATIVE, "mean seconds from batch to batch in an epoch, s", None)

    @property
    def batches_differ(self) -> bool:
        """Whether batches are known to have notably different numbers of samples."""
        return self.batch_mean is not None and self.batch_mean < ALIKE * (self.batch_most or 0)

    @property
    def batch_words(self) -> str:
        """The samples of batches that differ."""
        return f"{self.batch_least} to {self.batch_most} samples, {self.batch_mean:.3g} on average"

    @property
    def idle_with_starts(self) -> float | None:
        """Share of the time in which the device had no step, starts of epochs included; None if no start was seen.

        An epoch of n batches takes n - 1 periods, the wait for its first batch and that batch's step.
        """
        if self.epoch_batches is None or self.epoch_wait is None or self.epoch_period is None:
            return None
        whole = (self.epoch_batches - 1) * self.epoch_period + self.epoch_wait + self.step
        busy = (1.0 - self.gpu_idle) * (self.wait + self.step)
        return max(0.0, 1.0 - self.epoch_batches * busy / whole)

    @property
    def ahead(self) -> int:
        """Batches that the workers prepare while the loop waits for the first of an epoch, if it has so many."""
        return self.workers * (self.prefetch_factor or 1)

    @property
    def epochs_are_short(self) -> bool:
        """Whether an epoch is over before the loop can show the throughput that it would keep."""
        return self.epoch_batches is not None and self.epoch_batches <= FEW * self.ahead

    def accelerator_fields(self) -> dict[str, Any]:
        """The fields of a scenario's accelerator given here: the ranks, how they wait, whether batches are copied."""
        return {"count": self.ranks, "sync": self.sync, "copies": self.device != CPU}
