"""The loops of a program, told from when batches are asked for and when optimizers step.

A *period* runs from one ask for a batch to the next: first the wait in the loader, then what the loop does with the
batch. The loop that trains is the one between whose asks an optimizer steps. Its periods do not count where something
else came between: another loop (an evaluation), or the end of an epoch.
"""

from __future__ import annotations

from typing import Any, NamedTuple

#: Periods with an optimizer's step that make a loop one that trains.
PROOF = 2


class Period(NamedTuple):
    """From one ask for a batch to the next, in seconds.

    Attributes:
        began: when the batch was asked for, `time.perf_counter`.
        wait: until it was there.
        step: from then to the next ask.
        cpu: CPU time of the asking thread within ``step``; 0 where it was not taken.
        busy: CPU time of the whole process within ``step``; 0 where it was not taken.
        steps: optimizer steps within it.
    """

    began: float
    wait: float
    step: float
    cpu: float
    busy: float
    steps: int


class Loop:
    """What one loader's batches are asked for by, over all of its iterators."""

    def __init__(self, loader: Any) -> None:
        self.loader = loader
        self.periods: list[Period] = []
        self.batches = self.proofs = 0
        self._open: tuple[float, float, float, float, int, int] | None = None
        self._first = True

    @property
    def trains(self) -> bool:
        """Whether optimizers step between its batches."""
        return self.proofs >= PROOF

    def asked(self, now: float, cpu: float, busy: float, steps: int, others: int) -> None:
        """The next batch is asked for: the period that was open ends, and counts unless others came between."""
        if self._open is not None:
            began, got, cpu_before, busy_before, steps_before, others_before = self._open
            if steps > steps_before and others == others_before:
                self.proofs += 1
            # The first of an epoch waits for workers to start; a trainer that asks ahead does not step in it.
            if others == others_before and not self._first:
                self.periods.append(
                    Period(began, got - began, now - got, cpu - cpu_before, busy - busy_before, steps - steps_before)
                )
            self._first = False
        self._open = None

    def got(self, began: float, now: float, cpu: float, busy: float, steps: int, others: int) -> None:
        """The batch asked for at ``began`` is there: a period is open."""
        self.batches += 1
        self._open = (began, now, cpu, busy, steps, others)

    def broke(self) -> None:
        """An epoch began or ended: what comes before the next batch is not the loop."""
        self._open, self._first = None, True
