"""A rank's way through the phases: as it is, without waiting, the loader alone, trials, the end.

Everything happens within the loop's own asks for batches. The rank learns from the session's folder when all ranks go
on, so coresim needs no collective operation.
"""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Any

from coresim.attaching import device, observe
from coresim.attaching.batches import Kept
from coresim.attaching.instrument import calibrate
from coresim.attaching.loops import Loop
from coresim.attaching.session import FAILED, KEPT, LOADER, READY, TRIAL, WATCH, Folder, SessionPlan
from coresim.attaching.trials import DEFAULT_PREFETCH, AttachedTrial
from coresim.errors import CoresimError, InputError

if TYPE_CHECKING:
    from coresim.attaching.rank import AttachedRank

#: Between two checks of how far the loop is and of what coresim says, and between two reports while watching only, s.
CHECK_S, TELL_S = 0.2, 0.5
#: Between two polls of a rank that waits, s.
POLL_S = 0.02
#: Periods that every measured phase has at the least, and those after a change that do not count.
LEAST_PERIODS, SETTLING = 20, 4
#: A phase with slow steps ends after so many times its seconds, with fewer periods.
PATIENCE = 5
#: Steps without a loop that trains, after which none is to come: a thread that reads ahead is within the loader nearly
#: all the time, so that hardly any step falls between two of its asks.
STEPS_APART = 32
READ_AHEAD = (
    "one thread of the program reads its loader and another one trains, so that coresim cannot see what training waits"
    " for; measure the data set apart (recommend --dataset FILE:NAME)"
)


class Phases:
    """A rank's phase, and what it has found by name; files in the session's folder tell coresim."""

    def __init__(self, rank: AttachedRank, folder: Folder, plan: SessionPlan) -> None:
        self._rank, self._folder, self._plan = rank, folder, plan
        self.found: dict[str, Any] = {}
        spans = dict.fromkeys(("wait_s", "step_s", "calibrated"), 0.0)
        self._status: dict[str, Any] = {"lead": 0, "periods": 0, "prepared": 0, "error": None, **spans}
        self._state, self._since, self._told = WATCH, 0.0, 0.0
        self._usage: observe.Usage | None = None
        self._stopping = False

    def check(self, loop: Loop, iterator: Any, now: float) -> None:
        """Enter the next phase if it is time; an error here is coresim's own, and the program goes on."""
        rank = self._rank
        rank.next_check = now + CHECK_S
        try:
            apart = rank.stepper not in (None, threading.get_ident()) and not self._plan.only_watch
            if rank.lead is None and apart and (loop.trains or rank.steps >= STEPS_APART):
                raise InputError(READ_AHEAD)
            if loop.trains and loop is not rank.lead:
                self._follow(loop, iterator, now)
            if loop is rank.lead:
                {WATCH: self._watch, TRIAL: self._try}.get(self._state, self._measure)(loop, iterator, now)
            self._end_if_alone()
            if now - self._told >= TELL_S or self._state != WATCH:
                self._told = now
                self.tell()
        except Exception as error:
            rank.leave()
            self._state = FAILED
            self.tell(error=str(error) if isinstance(error, CoresimError) else f"{type(error).__name__}: {error}")

    def tell(self, **more: Any) -> None:
        """Say how far the rank is, with the names of all that was found."""
        self._status |= more
        self._folder.write(f"rank.{os.getpid()}.json", self.status | {"found": list(self.found)})

    @property
    def status(self) -> dict[str, Any]:
        """How far the rank is; see `coresim.attaching.conduct` for who reads it."""
        rank = self._rank
        counts = {"batches": rank.batches, "steps": rank.steps, "errors": rank.errors}
        return {"state": self._state, **counts, **self._status}

    @property
    def told(self) -> dict[str, Any]:
        """How far the rank is, and all that it has found."""
        return self.status | self.found

    def _said(self, word: str) -> bool:
        """Whether coresim said so; where the loop goes on there is nobody to say it, and none to wait for."""
        return self._plan.goes_on or self._folder.said(word)

    def _report(self, name: str, found: Any) -> None:
        """Keep what was found, and write it once, because it is too much for every report."""
        self.found[name] = found
        self._folder.write(f"found.{name}.{os.getpid()}.json", found)

    def _pause(self) -> None:
        self._end_if_alone()
        time.sleep(POLL_S)

    def _end_if_alone(self) -> None:
        """A program that coresim started ends with it."""
        try:
            os.kill(self._plan.parent, 0)
        except ProcessLookupError:
            raise SystemExit("coresim is gone, and the program ends with it") from None

    def _follow(self, loop: Loop, iterator: Any, now: float) -> None:
        """The first loop that trains leads; a later one leads if the first has ended and its loader was made anew.

        An outer loop, which gives a task or a part of the data to an inner loop, does not lead.
        """
        if self._rank.lead is None:
            self._since = now
            self._status |= observe.place()
            cuda = device.device_of_program() is not None
            self._report("settings", observe.settings(loop.loader, iterator, cuda))
        elif self._rank.lead.goes_on or loop.is_around(self._rank.lead):
            return
        else:
            loop.take_over(self._rank.lead)
        self._rank.lead = loop

    def count(self) -> None:
        """Add up the lead's periods, where it is only watched, and tell."""
        periods, status = self._rank.periods(), self._status
        self._rank.clear()
        self.tell(
            wait_s=status["wait_s"] + sum(period.wait for period in periods),
            step_s=status["step_s"] + sum(period.step for period in periods),
            periods=status["periods"] + len(periods),
        )

    def _watch(self, loop: Loop, iterator: Any, now: float) -> None:
        """As it is: until the loop is steady, and then for the time that the plan says."""
        if self._plan.only_watch:
            self.count()
        elif "today" not in self.found:
            seen = self._seen(loop, iterator._num_workers, now)
            if seen is not None:
                size = self.found["settings"]["batch_size"]
                self._report("sizes", observe.batch_sizes(self._rank.lengths, size))
                self._report("today", seen)
        elif self._said(f"go.{KEPT}"):
            self._state, self._rank.feeding = KEPT, True
            self._rank.device = device.DeviceEvents(device.device_of_program())
            self._restart(now)

    def _seen(self, loop: Loop, workers: int | None, now: float) -> dict[str, Any] | None:
        """The loop as it is, once it got steady, or is not going to, and was then watched for long enough."""
        plan, waited = self._plan, now - self._since
        if self._usage is not None:
            factor = self.found["settings"]["prefetch_factor"] or DEFAULT_PREFETCH
            periods = self._rank.periods()
            chosen = observe.settled(periods, workers, factor)
            if not self._enough(len(chosen), now, plan.watch_s):
                return None
            return observe.observed(chosen, self._usage, waited) | observe.epochs(loop, periods)
        late = waited > plan.watch_most_s / 2
        if waited >= plan.settle_s and (late or observe.steady(self._rank.periods(), workers)):
            if "steady" not in self.found:
                self._report("steady", not late)
            self._usage = observe.Usage.now()
            self._restart(now)
        return None

    def _restart(self, now: float) -> None:
        self._rank.clear()
        self._since = now

    def _enough(self, periods: int, now: float, seconds: float) -> bool:
        waited = now - self._since
        return (waited >= seconds and periods >= LEAST_PERIODS) or (waited >= PATIENCE * seconds and periods > 0)

    def _measure(self, loop: Loop, iterator: Any, now: float) -> None:
        """Without waiting, for the time that the plan says; then the loader alone."""
        rank = self._rank
        if "step" not in self.found:
            kept = rank.kept.get(loop.key, Kept())
            periods = rank.periods()[len(kept) + SETTLING :]
            if not self._enough(len(periods), now, self._plan.kept_s):
                return
            self._report("step", observe.step(periods, kept, rank.device) | {"loaders": len(rank.kept)})
        rank.next_check = now  # every batch is told from here on, so that all ranks can stop at the same one
        if not self._stopping:
            # Told before coresim's word is looked for: a rank that stops at that word then knows of this batch.
            self.tell(lead=loop.batches + 1)
            self._stopping = self._said(f"go.{LOADER}")
        if self._stopping:
            self._stop(loop)

    def _stop(self, loop: Loop) -> None:
        """Wait within this ask for a batch, unless another rank is ahead: it may need this one for its step."""
        turn = f"turn.{os.getpid()}"
        self._state = LOADER
        self.tell(lead=loop.batches)
        while not self._said(turn) and not self._said(f"go.{READY}"):
            if any(told["lead"] > loop.batches for told in self._folder.ranks().values()):
                self._state = KEPT
                self.tell(lead=loop.batches + 1)
                return
            self._pause()
        if self._said(turn):
            self._run(loop)
        self._state = READY
        self.tell()
        if self._plan.goes_on:
            self._rank.leave()
            return
        while not self._said(f"go.{TRIAL}.0"):  # without a trial, coresim ends the program
            self._pause()
        self._begin_trial(loop, 0)

    def _run(self, loop: Loop) -> None:
        self._rank.aside = True
        try:
            settings = self.found["settings"]
            pinned = settings["pin_memory"] and settings["cuda"]  # without a device torch pins nothing
            found = calibrate(
                loop.loader,
                workers=settings["workers"],
                pin_memory=pinned,
                budget_s=self._plan.budget_s,
                progress=self._calibrated,
            )
            self._report("loader", found)
        finally:
            self._rank.aside = False
        self.tell()

    def _calibrated(self, done: float) -> None:
        """Tell now and then how much of the calibration is done, and how many batches were prepared for it."""
        now = self._rank.clock()
        self._status["prepared"] += 1
        if now - self._told >= TELL_S:
            self._told = now
            self.tell(calibrated=done)

    def _begin_trial(self, loop: Loop, number: int) -> None:
        """Feed the loop with another number of workers from now on."""
        rank = self._rank
        if rank.trial is not None:
            rank.trial.close()
        factor = self.found["settings"]["prefetch_factor"]
        loop.forget_epochs()
        rank.trial = AttachedTrial(loop.loader, self._plan.trials[number], factor, rank.inner, skips=rank.errors > 0)
        rank.device = device.DeviceEvents(None)
        self._state, self._usage = TRIAL, None
        self._restart(rank.clock())

    def _try(self, loop: Loop, iterator: Any, now: float) -> None:
        """As `_watch`, with another number of workers; then the next one, when all ranks have seen enough.

        Where the loader fails with so many, the loop gets kept batches until then.
        """
        done, trial = self.found.get("trials", []), self._rank.trial
        assert trial is not None
        if self._plan.trials[len(done) :][:1] == (trial.workers,):
            seen = {"failed": trial.failed} if trial.failed else self._seen(loop, trial.workers, now)
            if seen is not None:
                self._report("trials", [*done, {"workers": trial.workers, **seen}])
        elif self._said(f"go.{TRIAL}.{len(done)}"):
            self._begin_trial(loop, len(done))
