"""A reader that leaves out samples that cannot be prepared, like a program that catches their errors."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from coresim.errors import InputError
from coresim.measure.notes import Note, Reader, Sample, timed
from coresim.workloads.base import describe

#: So many more samples may be broken than not: the first ones of a worker may be.
FEW = 3
#: Characters that are kept of what one raised: a note travels with its batch and stays small.
MOST_TEXT = 200
#: In the place of a sample that cannot be prepared.
_BROKEN = object()


class SkippingReader(Reader):
    """The time of a broken sample counts like that of any other. The note of its batch says what it raised.

    A stream's errors are raised.

    A batch of broken samples alone is None. Where more samples are broken than not, by more than a few, the error is
    raised.
    """

    _last: Exception | None = None
    #: Samples that could be prepared less those that could not.
    _balance = 0

    def fetch(self, index: Any) -> tuple[Any, Note]:
        """One batch with its note."""
        self._errors: list[Exception] = []
        batch, note = super().fetch(index)
        return batch, note._replace(broken=tuple(describe(error)[:MOST_TEXT] for error in self._errors))

    def _join(self, values: list[Any]) -> Any:
        if self._last is not None and self._balance < -FEW:
            raise self._errors[0] if self._errors else self._last
        left = [value for value in values if value is not _BROKEN]
        return super()._join(left) if left else None

    def _value(self, index: Any) -> Any:
        # A generator that has raised is at its end: what comes after the broken sample cannot be had.
        return super()._value(index) if self._iterable else self._tried(partial(super()._value, index))

    def _together(self, indices: Any) -> list[Sample]:
        began, cpu = time.perf_counter(), time.thread_time()
        try:
            samples = super()._together(indices)
        except Exception:  # one sample raised it; find which
            wall, cpu = time.perf_counter() - began, time.thread_time() - cpu
            first, *others = [timed(partial(self._tried, partial(self._alone, index))) for index in indices]
            return [Sample(first.value, began, first.wall + wall, first.cpu + cpu), *others]
        self._balance += len(samples)
        return samples

    def _alone(self, index: Any) -> Any:
        return self._dataset.__getitems__([index])[0]

    def _tried(self, prepare: Callable[[], Any]) -> Any:
        try:
            value = prepare()
        except InputError:
            raise
        except Exception as error:
            self._errors.append(error)
            self._last = error
            self._balance -= 1
            return _BROKEN
        self._balance += 1
        return value
