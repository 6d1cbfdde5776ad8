"""One quantity in two profiles: the interval of its change, and what it says of a limit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from coresim import stats

LEVEL = 0.95
#: More fresh processes than anyone would wait for.
MOST_PROCESSES = 1000


@dataclass(frozen=True)
class Change:
    """One quantity in both profiles.

    Attributes:
        old, new: means (geometric, over ``repeats``).
        low, high: interval of the relative change; ``high`` is infinite where no spread is known.
        repeats: what the test rests on.
        more_is_worse: whether growth is a loss (a time) or a gain (a bandwidth).
        deviation: standard deviation of the logarithms of process means, pooled; infinite where it is not known.
        processes: fresh processes of the old and the new profile.
        weight: its share of what it is a part of: the preparation of a batch, or the step that a hand-over holds up.
        cores: cores per GPU if this alone had changed; None where that was not asked, or no core count will do.
    """

    name: str
    unit: str
    old: float
    new: float
    low: float
    high: float
    repeats: str
    more_is_worse: bool = True
    deviation: float = 0.0
    processes: tuple[int, int] = (1, 1)
    level: float = LEVEL
    weight: float = 1.0
    cores: int | None = None

    @property
    def relative(self) -> float:
        """(new - old) / old."""
        return self.new / self.old - 1.0

    @property
    def is_real(self) -> bool:
        """Whether the interval leaves out no change."""
        return not self.low <= 0.0 <= self.high

    @property
    def loss(self) -> float:
        """The relative change for the worse, in cost: 0.25 for a time x 1.25 or a bandwidth / 1.25; below 0: a gain."""
        return self.relative if self.more_is_worse else self.old / self.new - 1.0

    @property
    def most_loss(self) -> float:
        """The largest loss in the interval."""
        if self.more_is_worse:
            return self.high
        return 1.0 / (1.0 + self.low) - 1.0 if self.low > -1.0 else math.inf

    def is_over(self, limit: float) -> bool:
        """Whether it is a real change for the worse, by more than ``limit``, a share of the old cost."""
        return self.is_real and self.loss > limit

    def is_untold(self, limit: float) -> bool:
        """Whether it is undecided: not over the limit, but its weighted interval holds a loss over it."""
        return not self.is_over(limit) and self.weight * self.most_loss > limit

    def processes_to_tell(self, limit: float) -> int | None:
        """Fresh processes of each profile that would decide it, if the difference stayed as it is now.

        None if no spread is known, or if `MOST_PROCESSES` would not be enough.
        """
        cost = math.log1p(self.loss)
        # Over the limit it can be told from nothing; below what would matter, from that.
        room = max(math.log1p(limit / self.weight) - cost, cost if self.loss > limit else 0.0)
        counts = range(max(2, min(self.processes) + 1), MOST_PROCESSES + 1)
        return next((n for n in counts if half_width(self.deviation, 2 * n - 2, (n, n), self.level) < room), None)


def deviation_of(old: Sequence[float], new: Sequence[float]) -> float:
    """The standard deviation of values around the mean of their own sample."""
    degrees = len(old) + len(new) - 2
    if min(len(old), len(new)) < 1 or degrees < 1:
        return math.inf
    return math.sqrt(((len(old) - 1) * stats.variance(old) + (len(new) - 1) * stats.variance(new)) / degrees)


def half_width(deviation: float, degrees: int, sizes: tuple[int, int], level: float) -> float:
    """Half-width of the interval of a difference of means of so many processes."""
    if deviation in (0.0, math.inf):
        return deviation
    return stats.t_quantile(0.5 + level / 2, degrees) * deviation * math.sqrt(sum(1 / size for size in sizes))
