"""The loops of a program, told from when batches are asked for and when optimizers step.

A *period* runs from one ask for a batch to the next: first the wait in the loader, then what the loop does with the
batch. The loop that trains is the one between whose asks an optimizer steps. Its periods do not count where something
else came between: another loop (an evaluation), or the end of an epoch.
"""

from __future__ import annotations

from typing import Any, NamedTuple

#: Periods with an optimizer's step that make a loop one that trains.
PROOF = 2


class Moment(NamedTuple):
    """A batch is asked for or given. Seconds and counts since the program began.

    Attributes:
        now: `time.perf_counter`.
        cpu, busy: CPU time of the thread and of the process; 0 where not taken.
        steps: optimizer steps of the process.
        others: batches of loops that do not train.
        beside: what other loops which train waited for theirs: a step may take from two loaders.
    """

    now: float = 0.0
    cpu: float = 0.0
    busy: float = 0.0
    steps: int = 0
    others: int = 0
    beside: float = 0.0


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
    """What asks for one loader's batches, over all of its iterators.

    Attributes:
        starts: seconds that the first batch of an epoch was waited for, of each epoch but the program's first; making
            an iterator and ending the one before count.
        epoch: batches of the longest epoch that ended; 0 before one has.
        between: seconds of making and ending iterators since the last batch.
    """

    def __init__(self, key: tuple[int, int], proofs: int = 0) -> None:
        self.key, self.proofs = key, proofs
        self.loader: Any = None
        self.periods: list[Period] = []
        self.starts: list[float] = []
        self.batches = self.epoch = self._given = self._place = 0
        self.between = 0.0
        self._open, self._first = False, True
        #: When the loop began, when a batch was asked for that raised an error, and the last that was given.
        self._began = self._missed = self._asked = 0.0
        self._got = Moment()

    @property
    def trains(self) -> bool:
        """Whether optimizers step between its batches."""
        return self.proofs >= PROOF

    def begin(self, loader: Any) -> None:
        """An epoch begins or has ended: what came before the next batch is not the loop."""
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
        return 0.0 < self._got.now < other._began

    def take_over(self, other: Loop) -> None:
        """Go on where another loop ended."""
        self.periods, self.batches = other.periods, other.batches + self.batches
        self.starts, self.epoch = other.starts + self.starts, max(other._given, other.epoch)

    def forget_epochs(self) -> None:
        """What comes from here on is another loader's."""
        self.starts, self.epoch, self._given, self.between = [], 0, 0, 0.0

    def asked(self, at: Moment) -> bool:
        """The next batch is asked for: the period that was open ends; whether it counts."""
        if not self._open:
            return False
        self._open, got = False, self._got
        steps = at.steps - got.steps
        self.proofs += steps > 0
        if self._first:
            # The first of an epoch waits for workers to start, and a trainer that asks ahead does not step in it.
            self._first = False
            return False
        if at.others != got.others:
            self._place = 0
            return False
        self._place += 1
        waited = at.beside - got.beside
        wait, step = got.now - self._asked + waited, at.now - got.now - waited
        self.periods.append(Period(wait, step, at.cpu - got.cpu, at.busy - got.busy, steps, self._place))
        return True

    def got(self, asked: float, at: Moment) -> None:
        """The batch asked for at ``asked`` is there: a period is open."""
        asked, self._missed = self._missed or asked, 0.0
        if self._first and self.epoch:
            self.starts.append(at.now - asked + self.between)
        self._began = self._began or asked
        self.between = 0.0
        self.batches += 1
        self._given += 1
        self._open, self._asked, self._got = True, asked, at
