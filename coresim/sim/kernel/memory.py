"""Where the kernel's records and lists come from in Python; in C it is ``memory.pyx``."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from coresim.model.pipeline import Number
from coresim.sim.kernel.records import Actor, Clock, Host, Item, Job, PhaseRecord, Rank, StageRecord

Element = TypeVar("Element")
#: Without the interpreter's lock, in C.
nogil = nullcontext()


class Arena:
    """The memory of one run; ``number`` is the dtype of its times: float64, or object for exact numbers."""

    def __init__(self, number: Any = np.float64) -> None:
        self.number = number
        self.size = 0  # records and places of lists so far, without those of arrays

    def job(self) -> Job:
        """A job."""
        return Job()

    def hosts(self, count: int) -> list[Host]:
        """So many hosts; like all memory of the arena they begin at zero."""
        return self._counted([Host() for _ in range(count)])

    def clocks(self, count: int) -> list[Clock]:
        """Clocks."""
        return self._counted([Clock() for _ in range(count)])

    def ranks(self, count: int) -> list[Rank]:
        """Ranks."""
        return self._counted([Rank() for _ in range(count)])

    def stages(self, count: int) -> list[StageRecord]:
        """Stages."""
        return self._counted([StageRecord() for _ in range(count)])

    def phases(self, count: int) -> list[PhaseRecord]:
        """Phases."""
        return self._counted([PhaseRecord() for _ in range(count)])

    def actors(self, count: int) -> list[Actor]:
        """Actors."""
        return self._counted([Actor() for _ in range(count)])

    def items(self, count: int) -> list[Item]:
        """Items."""
        return self._counted([Item() for _ in range(count)])

    def no_ranks(self, count: int) -> list[Any]:
        """A list for so many ranks, without any."""
        return self._counted([None] * count)

    def no_phases(self, count: int) -> list[Any]:
        """A list for phases."""
        return self._counted([None] * count)

    def no_actors(self, count: int) -> list[Any]:
        """A list for actors."""
        return self._counted([None] * count)

    def no_items(self, count: int) -> list[Any]:
        """A list for items."""
        return self._counted([None] * count)

    def numbers(self, count: int, value: Number = 0) -> list[Number]:
        """So many times of this value."""
        return self._counted([value] * count)

    def counts(self, count: int, value: int = 0) -> list[int]:
        """So many counts of this value."""
        return self._counted([value] * count)

    def tables(self, rows: int, columns: int) -> list[list[Number]]:
        """Rows of zero times."""
        return [self.numbers(columns) for _ in range(rows)]

    def values(self, array: NDArray[Any]) -> list[Number]:
        """The array's values, in C where they are."""
        values: list[Number] = np.asarray(array).ravel().tolist()
        return values

    def _counted(self, given: list[Element]) -> list[Element]:
        self.size += len(given)
        return given
