"""One rank's way through the phases: as it is, without waiting, the loader alone, the end.

Everything happens within the loop's own asks for batches. What the rank finds it writes into the session's folder, and
from there it learns when all ranks go on, so that no collective of ours is needed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from coresim.attach import observe
from coresim.attach.batches import Kept
from coresim.attach.instrument import calibrate
from coresim.attach.loops import Loop
from coresim.attach.session import DONE, KEPT, LOADER, TOGETHER, WATCH, Folder, Plan

#: Between two looks at how far the loop is and at what coresim says, s.
LOOK_S, POLL_S = 0.1, 0.02
#: Periods that every measured phase has at the least, and those after a change that do not count.
LEAST_PERIODS, SETTLING = 20, 4
#: A phase with slow steps ends after so many times its seconds, with fewer periods.
PATIENCE = 5

Inner = Callable[[Any], Any]


class Rank:
    """What one process of the program does and has found; `fetch` stands for the iterator's ``__next__``.

    Attributes:
        hooked: whether the optimizers of this process tell their steps.
        steps: of all optimizers so far.
    """

    def __init__(self, folder: Folder, plan: Plan, clock: Callable[[], float] = time.perf_counter) -> None:
        self.hooked = False
        self.steps = 0
        self._folder, self._plan, self._clock = folder, plan, clock
        self._loops: dict[tuple[int, int], Loop] = {}
        self._lead: Loop | None = None
        self._others = 0
        self._found: dict[str, Any] = {}
        self._kept = Kept()
        self._state, self._since, self._next_look = WATCH, 0.0, 0.0
        self._fed = False

    def fetch(self, iterator: Any, inner: Inner) -> Any:
        """Give the batch that is asked for: the loader's own, or a kept one."""
        loop = getattr(iterator, "_coresim_loop", None) or self._begin(iterator)
        began = self._clock()
        loop.asked(began, *self._marks(loop))
        if began >= self._next_look:
            self._look(loop, iterator, began)
            began = self._clock()
        if not loop.trains:
            self._others += 1
        try:
            batch = self._feed(iterator, inner) if self._fed and loop is self._lead else inner(iterator)
        except StopIteration:
            loop.broke()
            raise
        loop.got(began, self._clock(), *self._marks(loop))
        return batch

    def _begin(self, iterator: Any) -> Loop:
        """The loop of a new iterator: that of its loader, which may have had iterators before."""
        key = (id(iterator._dataset), id(iterator._index_sampler))
        loop = self._loops.setdefault(key, Loop(getattr(iterator, "_coresim_loader", None)))
        loop.broke()
        iterator._coresim_loop = loop
        return loop

    def _marks(self, loop: Loop) -> tuple[float, float, int, int]:
        """The thread's and the process's CPU time, where they are wanted, and what was counted."""
        if self._fed and loop is self._lead:
            return time.thread_time(), time.process_time(), self.steps, self._others
        return 0.0, 0.0, self.steps, self._others

    def _feed(self, iterator: Any, inner: Inner) -> Any:
        if not self._kept.full:
            try:
                batch = inner(iterator)
            except StopIteration:
                if not len(self._kept):
                    raise
            else:
                self._kept.keep(batch)
                return batch
        return self._kept.give()

    def _look(self, loop: Loop, iterator: Any, now: float) -> None:
        self._next_look = now + LOOK_S
        if self._lead is None and loop.trains:
            self._lead, self._since = loop, now
            self._found["settings"] = observe.settings(loop.loader, iterator)
        if loop is self._lead:
            (self._watch if self._state == WATCH else self._measure)(loop, iterator, now)
        self._end_if_alone()
        self._tell()

    def _tell(self) -> None:
        batches = [loop.batches for loop in self._loops.values()]
        lead = self._lead.batches if self._lead else 0
        told = {"state": self._state, "batches": batches, "steps": self.steps, "lead": lead}
        self._folder.write(f"rank.{os.getpid()}.json", told | self._found)

    def _end_if_alone(self) -> None:
        """A program that coresim started ends with it."""
        try:
            os.kill(self._plan.parent, 0)
        except ProcessLookupError:
            raise SystemExit("coresim is gone, and the program ends with it") from None

    def _watch(self, loop: Loop, iterator: Any, now: float) -> None:
        """As it is: until the loop is steady, and then for the time that the plan says."""
        plan, waited = self._plan, now - self._since
        if "steady" not in self._found:
            late = waited > plan.watch_most_s / 2
            if waited >= plan.settle_s and (late or observe.steady(loop.periods, iterator._num_workers)):
                self._found["steady"] = not late
                self._restart(now)
        elif "today" not in self._found:
            if self._enough(len(loop.periods), now, plan.watch_s):
                self._found["today"] = observe.observed(loop.periods)
        elif self._folder.said(f"go.{KEPT}"):
            self._state, self._fed = KEPT, True
            self._restart(now)

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
            periods = loop.periods[len(self._kept) + SETTLING :]
            if self._enough(len(periods), now, self._plan.kept_s):
                self._found["step"] = observe.step(periods, self._kept)
            return
        self._next_look = now  # every batch is told from here on, so that all ranks can stop at the same one
        if self._folder.said(f"go.{LOADER}"):
            self._stop(loop)

    def _stop(self, loop: Loop) -> None:
        """Wait within this ask for a batch, unless another rank is ahead: it may need this one for its step."""
        self._state = LOADER
        self._tell()
        pid = os.getpid()
        while not self._folder.said(f"turn.{pid}"):
            if any(told["lead"] > loop.batches for told in self._folder.ranks().values()):
                self._state = KEPT
                return
            self._pause()
        self._found["loader"] = calibrate(loop.loader, budget_s=self._plan.budget_s, seed=self._plan.seed)
        self._tell()
        while not self._folder.said(f"go.{TOGETHER}") and not self._folder.said(f"go.{DONE}"):
            self._pause()
        if self._folder.said(f"go.{TOGETHER}"):
            self._found["together"] = calibrate(loop.loader, budget_s=self._plan.budget_s / 4, seed=self._plan.seed)
        self._state = DONE
        self._tell()
        while True:
            self._pause()

    def _pause(self) -> None:
        self._end_if_alone()
        time.sleep(POLL_S)
