"""Recognise the loops of a program by when they ask for batches and when optimizers step.

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
        place: its number since the epoch began or another loop came between, from 1.
    """

    wait: float
    step: float
    cpu: float
    busy: float
    steps: int
    place: int


class Loop:
    """The code that asks for one loader's batches, over all of its iterators.

    Attributes:
        periods: as plain tuples in the order of `Period`, which cost a loop of short steps less.
        starts: seconds of waiting for the first batch of each epoch but the program's first, with the time to make its
            iterator and to end the one before.
        epoch: batches of the longest epoch that ended; 0 before one has.
        between: seconds of making and ending iterators since the last batch.
    """

    def __init__(self, key: tuple[int, int], proofs: int = 0) -> None:
        self.key, self.proofs = key, proofs
        self.loader: Any = None
        self.periods: list[tuple[float, float, float, float, int, int]] = []
        self.starts: list[float] = []
        self.batches = self.epoch = self._given = 0
        self.between = 0.0
        #: Whether optimizers step between its batches.
        self.trains = proofs >= PROOF
        self._open, self._first = False, True
        self._asked = self._began = self._got = self._cpu = self._busy = self._beside = self._missed = 0.0
        self._steps = self._others = self._place = 0

    def begin(self, loader: Any) -> None:
        """An epoch begins or has ended: the time before the next batch does not count."""
        self.loader, self._open, self._first, self._place = loader, False, True, 0
        self.epoch, self._given, self._missed = max(self._given, self.epoch), 0, 0.0

    def missed(self, asked: float) -> None:
        """The loader raised an error in place of this batch: a program that goes on waits for the next one too."""
        self._missed = self._missed or asked

    @property
    def goes_on(self) -> bool:
        """Whether it is within an epoch."""
        return self._open or not self._first

    def is_around(self, other: Loop) -> bool:
        """Whether the other one began since this one's last batch."""
        return 0.0 < self._got < other._began

    def take_over(self, other: Loop) -> None:
        """Go on where another loop ended."""
        self.periods, self.batches = other.periods, other.batches + self.batches
        self.starts, self.epoch = other.starts + self.starts, max(other._given, other.epoch)

    def forget_epochs(self) -> None:
        """Later batches come from another loader."""
        self.starts, self.epoch, self._given, self.between = [], 0, 0, 0.0

    def asked(self, now: float, cpu: float, busy: float, steps: int, others: int, beside: float) -> bool:
        """The next batch is asked for: the period that was open ends, and counts unless others came between.

        Args:
            now: `time.perf_counter`.
            cpu, busy: CPU time of the thread and of the process so far; 0 where not taken.
            steps: optimizer steps of the process so far.
            others: batches of loops that do not train, so far.
            beside: seconds so far that other training loops waited for their batches: a step may use two loaders.

        Returns:
            Whether it counts.
        """
        counts = False
        if self._open:
            done = steps - self._steps
            if done and not self.trains:
                self.proofs += 1
                self.trains = self.proofs >= PROOF
            if self._first:
                # The first of an epoch waits for workers to start, and a trainer that asks ahead does not step in it.
                self._first = False
            elif self._others == others:
                counts, got, waited = True, self._got, beside - self._beside
                self._place += 1
                used = cpu - self._cpu, busy - self._busy
                self.periods.append((got - self._asked + waited, now - got - waited, *used, done, self._place))
            else:
                self._place = 0
        self._open = False
        return counts

    def got(self, asked: float, now: float, cpu: float, busy: float, steps: int, others: int, beside: float) -> None:
        """The batch asked for at ``asked`` is there: a period is open."""
        asked, self._missed = self._missed or asked, 0.0
        if self._first and self.epoch:
            self.starts.append(now - asked + self.between)
        self._began = self._began or asked
        self.between = 0.0
        self.batches += 1
        self._given += 1
        self._beside = beside
        self._open, self._asked, self._got, self._cpu, self._busy = True, asked, now, cpu, busy
        self._steps, self._others = steps, others
