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
        wait: until the batch was there.
        step: from then to the next ask.
        cpu, busy: CPU time within ``step``, of the asking thread and of the whole process; 0 where not taken.
        steps: optimizer steps within it.
    """

    wait: float
    step: float
    cpu: float
    busy: float
    steps: int


class Mark(NamedTuple):
    """What was counted when a batch was asked for or came.

    Attributes:
        now: `time.perf_counter`.
        cpu, busy: CPU time of the thread and of the process; 0 where not taken.
        steps: optimizer steps of the process so far.
        others: batches of loops that do not train, so far.
    """

    now: float
    cpu: float
    busy: float
    steps: int
    others: int


class Loop:
    """What asks for one loader's batches, over all of its iterators."""

    def __init__(self, key: tuple[int, int]) -> None:
        self.key = key
        self.loader: Any = None
        self.periods: list[Period] = []
        self.batches = self.proofs = 0
        self._got: Mark | None = None
        self._asked = 0.0
        self._first = True

    @property
    def trains(self) -> bool:
        """Whether optimizers step between its batches."""
        return self.proofs >= PROOF

    def begin(self, loader: Any) -> None:
        """An epoch begins or has ended: what came before the next batch is not the loop."""
        self.loader, self._got, self._first = loader, None, True

    def asked(self, mark: Mark) -> None:
        """The next batch is asked for: the period that was open ends, and counts unless others came between."""
        got, self._got = self._got, None
        if got is not None and got.others == mark.others:
            steps = mark.steps - got.steps
            self.proofs += steps > 0
            # The first of an epoch waits for workers to start, and a trainer that asks ahead does not step in it.
            if not self._first:
                spans = mark.now - got.now, mark.cpu - got.cpu, mark.busy - got.busy
                self.periods.append(Period(got.now - self._asked, *spans, steps))
            self._first = False

    def got(self, asked: float, mark: Mark) -> None:
        """The batch asked for at ``asked`` is there: a period is open."""
        self.batches += 1
        self._asked, self._got = asked, mark
