"""One rank's way through the phases: as it is, without waiting, the loader alone, the end.

Everything happens within the loop's own asks for batches. What the rank finds it writes into the session's folder, and
from there it learns when all ranks go on, so that no collective of ours is needed.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from typing import Any

from coresim.attaching import observe
from coresim.attaching.batches import Kept
from coresim.attaching.instrument import calibrate
from coresim.attaching.loops import Loop, Period
from coresim.attaching.session import FAILED, KEPT, LOADER, READY, TOGETHER, TRIAL, WATCH, Folder, Plan
from coresim.attaching.trials import Trial, loader_of

#: Between two looks at how far the loop is and at what coresim says, between two words to coresim while only watching,
#: and between two polls of a rank that waits, s.
LOOK_S, TELL_S, POLL_S = 0.2, 0.5, 0.02
#: Periods that every measured phase has at the least, and those after a change that do not count.
LEAST_PERIODS, SETTLING = 20, 4
#: A phase with slow steps ends after so many times its seconds, with fewer periods.
PATIENCE = 5
#: The share of its calibration's time that a rank runs its loader while all others run theirs.
TOGETHER_SHARE = 0.25


class Rank:
    """What one process of the program does and has found; `fetch` stands for the iterator's ``__next__``.

    Args:
        folder: the session's.
        plan: what to do.
        inner: the iterators' own ``__next__``.
        clock: monotonic seconds.

    Attributes:
        steps: of all optimizers so far.
        aside: batches are the calibration's, and nothing is noted.
    """

    def __init__(
        self, folder: Folder, plan: Plan, inner: Callable[[Any], Any], clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.aside = False
        self.steps = 0
        self._folder, self._plan, self._inner, self._clock = folder, plan, inner, clock
        self._proofs: dict[tuple[int, int], int] = {}
        self._lead: Loop | None = None
        self._others = self._batches = self._told = 0
        self._feeding = self._stopping = False
        self._found: dict[str, Any] = {}
        self._place: dict[str, int] = {}
        self._totals = {"wait_s": 0.0, "step_s": 0.0, "periods": 0.0}
        self._error: str | None = None
        self._kept = Kept()
        self._state, self._since, self._next_look, self._last_told = WATCH, 0.0, 0.0, 0.0
        self._usage: observe.Usage | None = None
        self._trial: Trial | None = None
        self._number = 0

    def fetch(self, iterator: Any) -> Any:
        """Give the batch that is asked for: the loader's own, or a kept one."""
        loop = getattr(iterator, "_coresim_loop", None) or self._begin(iterator)
        asked = self._clock()
        fed = self._feeding and loop is self._lead
        cpu, busy = (time.thread_time(), time.process_time()) if fed else (0.0, 0.0)
        loop.asked(asked, cpu, busy, self.steps, self._others)
        if asked >= self._next_look:
            self._look(loop, iterator, asked)
            asked, fed = self._clock(), self._feeding and loop is self._lead
        if not loop.trains:
            self._others += 1
        self._batches += 1
        try:
            batch = self._feed(loop, iterator) if fed else self._inner(iterator)
        except StopIteration:
            loop.begin(loop.loader)
            raise
        # CPU times cost more than all else here: they are taken only where they are wanted.
        cpu, busy = (time.thread_time(), time.process_time()) if fed else (0.0, 0.0)
        loop.got(asked, self._clock(), cpu, busy, self.steps, self._others)
        return batch

    def _begin(self, iterator: Any) -> Loop:
        """The loop of a new iterator: that which leads, where its loader is the same."""
        key = (id(iterator._dataset), id(iterator._index_sampler))
        lead = self._lead
        loop = lead if lead is not None and lead.key == key else Loop(key, self._proofs.get(key, 0))
        loop.begin(getattr(iterator, "_coresim_loader", None) or loader_of(iterator))
        iterator._coresim_loop = loop
        return loop

    def _feed(self, loop: Loop, iterator: Any) -> Any:
        if self._trial is not None:
            batch, began = self._trial.next()
            if began:
                loop.begin(loop.loader)
            return batch
        if not self._kept.full:
            try:
                batch = self._inner(iterator)
            except StopIteration:
                if not len(self._kept):
                    raise
            else:
                self._kept.keep(batch)
                return batch
        return self._kept.give()

    def _look(self, loop: Loop, iterator: Any, now: float) -> None:
        """Go on where it is time to; what goes wrong here is ours, and the program goes on."""
        self._next_look = now + LOOK_S
        try:
            self._proofs[loop.key] = loop.proofs
            if self._lead is None and loop.trains:
                self._lead, self._since = loop, now
                self._place = observe.place()
                self._report("settings", observe.settings(loop.loader, iterator))
            if loop is self._lead:
                handle = {WATCH: self._watch, TRIAL: self._try}.get(self._state, self._measure)
                handle(loop, iterator, now)
            self._end_if_alone()
            if now - self._last_told >= TELL_S or self._state != WATCH:
                self._last_told = now
                self._tell()
        except Exception as error:
            self._state = FAILED
            self.leave()
            self._error = f"{type(error).__name__}: {error}"
            self._tell()

    def count(self) -> None:
        """Add up the periods of the loop that trains, where it is only watched, and tell."""
        if self._lead is not None:
            for wait, step, *_ in self._lead.periods:
                self._totals["wait_s"] += wait
                self._totals["step_s"] += step
            self._totals["periods"] += len(self._lead.periods)
            self._lead.periods.clear()
            self._tell()

    def leave(self) -> None:
        """Leave the program alone from here on: it gets its own batches."""
        self._feeding, self._next_look, self._kept = False, math.inf, Kept()

    def _tell(self, lead: int | None = None) -> None:
        """Write how far the rank is; ``lead``: batches that the loop that trains has or is about to have."""
        self._told = self._told if lead is None else lead
        told = {"state": self._state, "batches": self._batches, "steps": self.steps, "lead": self._told}
        told |= {"found": list(self._found), **self._place, **self._totals, "error": self._error}
        self._folder.write(f"rank.{os.getpid()}.json", told)

    def _report(self, name: str, found: Any) -> None:
        """Keep what was found, and write it; it is too much to write with every word."""
        self._found[name] = found
        self._folder.write(f"found.{name}.{os.getpid()}.json", found)

    def _end_if_alone(self) -> None:
        """A program that coresim started ends with it."""
        try:
            os.kill(self._plan.parent, 0)
        except ProcessLookupError:
            raise SystemExit("coresim is gone, and the program ends with it") from None

    def _watch(self, loop: Loop, iterator: Any, now: float) -> None:
        """As it is: until the loop is steady, and then for the time that the plan says."""
        if self._plan.only_watch:
            self.count()
        elif "today" not in self._found:
            if self._watched(loop, iterator._num_workers, now):
                assert self._usage is not None
                self._report("today", observe.observed(_periods(loop), self._usage, now - self._since))
        elif self._folder.said(f"go.{KEPT}"):
            self._state, self._feeding = KEPT, True
            self._restart(now)

    def _watched(self, loop: Loop, workers: int, now: float) -> bool:
        """Whether the loop got steady, or is not going to, and was then seen for long enough."""
        plan, waited = self._plan, now - self._since
        if self._usage is not None:
            return self._enough(len(loop.periods), now, plan.watch_s)
        late = waited > plan.watch_most_s / 2
        if waited >= plan.settle_s and (late or observe.steady(_periods(loop), workers)):
            if "steady" not in self._found:
                self._report("steady", not late)
            self._usage = observe.Usage.now()
            self._restart(now)
        return False

    def _restart(self, now: float) -> None:
        assert self._lead is not None
        self._lead.periods.clear()
        self._since = now

    def _enough(self, periods: int, now: float, seconds: float) -> bool:
        waited = now - self._since
        return (waited >= seconds and periods >= LEAST_PERIODS) or (waited >= PATIENCE * seconds and periods > 0)

    def _measure(self, loop: Loop, iterator: Any, now: float) -> None:
        """Without waiting, for the time that the plan says; then the loader alone."""
        if "step" not in self._found:
            periods = _periods(loop)[len(self._kept) + SETTLING :]
            if not self._enough(len(periods), now, self._plan.kept_s):
                return
            self._report("step", observe.step(periods, self._kept))
        self._next_look = now  # every batch is told from here on, so that all ranks can stop at the same one
        if not self._stopping:
            # Told before coresim's word is looked for: a rank that stops at that word then knows of this batch.
            self._tell(loop.batches + 1)
            self._stopping = self._folder.said(f"go.{LOADER}")
        if self._stopping:
            self._stop(loop)

    def _stop(self, loop: Loop) -> None:
        """Wait within this ask for a batch, unless another rank is ahead: it may need this one for its step."""
        self._state = LOADER
        self._tell(loop.batches)
        while not self._folder.said(f"turn.{os.getpid()}") and not self._folder.said(f"go.{TOGETHER}"):
            if any(told["lead"] > loop.batches for told in self._folder.ranks().values()):
                self._state = KEPT
                self._tell(loop.batches + 1)
                return
            self._pause()
        if self._folder.said(f"turn.{os.getpid()}"):
            self._run(loop, "loader", 1.0)
            self._wait_for(TOGETHER)
        if self._place["local_world"] > 1:
            self._run(loop, "together", TOGETHER_SHARE)
        self._state = READY
        if self._plan.goes_on:
            self.leave()
        self._tell()
        if self._plan.goes_on:
            return
        self._wait_for(f"{TRIAL}.0")  # without a trial, coresim ends the program
        self._begin_trial(loop, 0)

    def _begin_trial(self, loop: Loop, number: int) -> None:
        """Feed the loop with another number of workers from now on."""
        if self._trial is not None:
            self._trial.close()
        factor = self._found["settings"]["prefetch_factor"]
        self._trial = Trial(loop.loader, self._plan.trials[number], factor, self._inner)
        self._state, self._usage, self._number = TRIAL, None, number
        self._restart(self._clock())

    def _try(self, loop: Loop, iterator: Any, now: float) -> None:
        """As `_watch`, with another number of workers; then the next one, when all ranks have seen enough."""
        done = self._found.get("trials", [])
        assert self._trial is not None
        if self._number == len(done):
            if self._watched(loop, self._trial.workers, now):
                assert self._usage is not None
                seen = observe.observed(_periods(loop), self._usage, now - self._since)
                self._report("trials", [*done, {"workers": self._trial.workers, **seen}])
        elif self._folder.said(f"go.{TRIAL}.{len(done)}"):
            self._begin_trial(loop, len(done))

    def _run(self, loop: Loop, name: str, share: float) -> None:
        self.aside = True
        try:
            self._report(name, calibrate(loop.loader, budget_s=share * self._plan.budget_s))
        finally:
            self.aside = False
        self._tell()

    def _wait_for(self, state: str) -> None:
        while not self._folder.said(f"go.{state}"):
            self._pause()

    def _pause(self) -> None:
        self._end_if_alone()
        time.sleep(POLL_S)


def _periods(loop: Loop) -> list[Period]:
    return [Period(*found) for found in loop.periods]
