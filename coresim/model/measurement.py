"""One measured quantity with its raw values; summaries are derived, never stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from coresim import stats


@dataclass(frozen=True)
class Measurement:
    """Raw values of one quantity.

    Attributes:
        name: dotted name, such as ``prepare.decode``.
        unit: SI unit of one value, such as ``s/sample``.
        values: one inner tuple per fresh process, in the order taken.
        how: one sentence: what was timed, and how.
    """

    name: str
    unit: str
    values: tuple[tuple[float, ...], ...]
    how: str

    @property
    def flat(self) -> tuple[float, ...]:
        """All values, processes joined."""
        return tuple(value for process in self.values for value in process)

    def scaled(self, factor: float) -> Measurement:
        """The same with every value so many times as large."""
        if factor == 1.0:
            return self
        return replace(self, values=tuple(tuple(value * factor for value in process) for process in self.values))

    @property
    def mean(self) -> float:
        """Mean over all values, in ``unit``."""
        return stats.mean(self.flat)

    @property
    def process_means(self) -> tuple[float, ...]:
        """The mean of each fresh process: the independent repeats."""
        return tuple(stats.mean(process) for process in self.values if process)

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Student-t interval of the mean, over processes where there are two or more, else over values."""
        sample: Sequence[float] = self.process_means if len(self.values) > 1 else self.flat
        return stats.t_interval(sample, level)
