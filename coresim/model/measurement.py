"""One measured quantity with its raw values; summaries are derived, never stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from coresim import stats
from coresim.model.keys import NOT_NEGATIVE, TEXT, key, list_of

VALUES = list_of(list_of(NOT_NEGATIVE))


@dataclass(frozen=True)
class Measurement:
    """Raw values of one quantity."""

    name: str = key(TEXT, "dotted name, such as prepare.sample")
    unit: str = key(TEXT, "SI unit of one value, such as s/sample")
    values: tuple[tuple[float, ...], ...] = key(VALUES, "one inner list per fresh process, in the order taken")
    how: str = key(TEXT, "one sentence: what was timed, and how")

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

    def interval(self) -> tuple[float, float]:
        """Student-t interval (95 %) of the mean, over processes where there are two or more, else over values."""
        sample: Sequence[float] = self.process_means if len(self.values) > 1 else self.flat
        return stats.t_interval(sample, 0.95)
