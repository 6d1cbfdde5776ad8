"""One process of the program: tell its loops apart, and feed the one that trains with what the phase needs."""

from __future__ import annotations

import math
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from coresim.attaching.batches import Kept, samples_in
from coresim.attaching.device import DeviceEvents
from coresim.attaching.loops import Loop, Period
from coresim.attaching.phases import Phases
from coresim.attaching.session import Folder, SessionPlan
from coresim.attaching.trials import AttachedTrial, loader_of


class AttachedRank:
    """`fetch` replaces the iterator's ``__next__``, and ``inner`` is the original; ``clock``: monotonic seconds.

    Attributes:
        aside: whether batches are the calibration's, so that nothing is noted.
        counted: handles of the hooks that count optimizer steps.
        steps: steps of all optimizers so far.
        stepper: the thread of the last step.
        batches: batches that were asked for, of all loops.
        lead: the loop that trains; None until one is found.
        feeding: whether loops that train get kept batches, or a trial's.
        kept: the kept batches of each of them.
        lengths: samples of each batch that the lead got of its own loader since the last `clear`; None: not known.
        errors: batches of the lead that its loader raised an error for; the program went on after all but the last.
        trial: what feeds the lead instead of kept batches, if anything.
        device: notes the device's time of each step.
        phases: where it is, and what it has found.
        next_check: when to check the phases again.
    """

    def __init__(
        self,
        folder: Folder,
        plan: SessionPlan,
        inner: Callable[[Any], Any],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.inner, self.clock = inner, clock
        self.aside = self.feeding = False
        self._pid = os.getpid()
        self.counted: list[Any] = []
        self.steps = self.batches = self._others = 0
        self.stepper: int | None = None
        self.lead: Loop | None = None
        self.kept: dict[tuple[int, int], Kept] = {}
        self.lengths: list[int | None] = []
        self.errors = 0
        self._measures = not plan.only_watch
        self.trial: AttachedTrial | None = None
        self.device = DeviceEvents(None)
        self.next_check = self._beside = 0.0
        self._proofs: dict[tuple[int, int], int] = {}
        self.phases = Phases(self, folder, plan)

    def fetch(self, iterator: Any) -> Any:
        """Give the batch that is asked for."""
        loop = getattr(iterator, "_coresim_loop", None) or self._begin(iterator)
        lead = loop is self.lead
        asked = self.clock()
        fed = lead and self.feeding
        cpu, busy = _cpu_times() if fed else (0.0, 0.0)
        counts = loop.asked(asked, cpu, busy, self.steps, self._others, self._beside)
        if fed:
            self.device.asked(counts)
        if asked >= self.next_check:
            self._proofs[loop.key] = loop.proofs
            self.phases.check(loop, iterator, asked)
            asked, lead = self.clock(), loop is self.lead
        self._others += not loop.trains
        self.batches += 1
        try:
            batch = self._feed(loop, iterator) if self.feeding and loop.trains else self.inner(iterator)
        except StopIteration:
            loop.begin(loop.loader)
            loop.between = self.clock() - asked
            raise
        except Exception:
            self.errors += lead
            loop.missed(asked)
            raise
        cpu = busy = 0.0
        if lead and self.feeding:
            self.device.got()
            cpu, busy = _cpu_times()
        now = self.clock()
        if loop.trains and not lead:
            self._beside += now - asked
        loop.got(asked, now, cpu, busy, self.steps, self._others, self._beside)
        if lead and self._measures and not self.feeding:
            self.lengths.append(samples_in(batch))
        return batch

    def _begin(self, iterator: Any) -> Loop:
        """The loop of a new iterator: that which leads, where its loader is the same."""
        key = (id(iterator._dataset), id(iterator._index_sampler))
        lead = self.lead
        loop = lead if lead is not None and lead.key == key else Loop(key, self._proofs.get(key, 0))
        # Not by truth: that would ask the loader for its length.
        loader = getattr(iterator, "_coresim_loader", None)
        loop.begin(loader_of(iterator) if loader is None else loader)
        loop.between += getattr(iterator, "_coresim_made_s", 0.0)
        iterator._coresim_loop = loop
        return loop

    def _feed(self, loop: Loop, iterator: Any) -> Any:
        """A trial's batch; where there is no trial, or its loader failed, a kept one, and first those that are kept."""
        given = self.trial.next() if self.trial is not None and loop is self.lead else None
        if given is not None:
            batch, began = given
            if began:
                loop.begin(loop.loader)
            return batch
        kept = self.kept.setdefault(loop.key, Kept())
        if not kept.full:
            try:
                batch = self.inner(iterator)
            except StopIteration:
                if not len(kept):
                    raise
            else:
                kept.keep(batch)
                return batch
        return kept.give()

    def periods(self) -> list[Period]:
        """Those of the lead since the last `clear`."""
        return [] if self.lead is None else [Period(*found) for found in self.lead.periods]

    def clear(self) -> None:
        """Forget the lead's periods."""
        self.lengths.clear()
        if self.lead is not None:
            self.lead.periods.clear()

    def leave(self) -> None:
        """Leave the program alone from here on: it gets its own batches."""
        self.feeding, self.next_check = False, math.inf
        self.kept.clear()

    def count_steps(self) -> None:
        """Count the steps of all optimizers of the process, the mark of a loop that trains, if torch has loaded any.

        The global hooks are called by fused, compiled, scaled and wrapped optimizers too, as tried with torch 2.13.
        """

        def stepped(*_: Any) -> None:
            self.steps += 1
            self.stepper = threading.get_ident()

        optimizers = sys.modules.get("torch.optim.optimizer")
        if optimizers is not None:
            self.counted.append(optimizers.register_optimizer_step_post_hook(stepped))

    def end(self) -> None:
        """Tell the last counts of a process that is about to end; not of a child that it forked."""
        if self.batches and os.getpid() == self._pid:
            self.phases.tell()


def _cpu_times() -> tuple[float, float]:
    """CPU time of the thread and of the process: they cost more than all else here, and are for fed loops only."""
    return time.thread_time(), time.process_time()
