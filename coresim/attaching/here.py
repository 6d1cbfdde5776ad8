"""The phases for a loop of the current process: a notebook, or a script that calls `coresim.attach`."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from coresim.attaching.assemble import profile_of
from coresim.attaching.hooks import hook
from coresim.attaching.rank import AttachedRank
from coresim.attaching.session import FAILED, READY, Folder, SessionPlan
from coresim.errors import CoresimError, MissingPartError
from coresim.files import utc_now
from coresim.measure.system_root import check_proc
from coresim.model.profile import Profile

#: Where files are not written: there is nobody to read them.
NOWHERE = "/nonexistent/coresim"
MODULE = "torch.utils.data.dataloader"


class Attached:
    """The next loop of this process that trains; its hooks are removed when it is measured, and the loop goes on."""

    def __init__(self, plan: SessionPlan) -> None:
        check_proc()
        try:
            module = importlib.import_module(MODULE)
        except ImportError:
            raise MissingPartError("attach: torch is not installed; pip install torch") from None
        self._began, base = utc_now(), module._BaseDataLoaderIter
        self._rank = AttachedRank(Folder(NOWHERE), plan, base.__next__)
        self._phases, self._unhook = self._rank.phases, hook(base, self._rank)

    @property
    def _state(self) -> str:
        return str(self._phases.status["state"])

    @property
    def done(self) -> bool:
        """Whether all is measured."""
        return self._state == READY

    @property
    def profile(self) -> Profile:
        """What was measured.

        Raises:
            CoresimError: not all is measured yet; it says how far the loop is.
        """
        if self._state == FAILED:
            raise CoresimError(f"attach: {self._phases.status['error']}")
        if not self.done:
            so_far = f"{self._rank.batches} batches so far"
            raise CoresimError(f"attach: not measured yet: {so_far}; let the loop go on for a minute")
        self.detach()
        return profile_of([self._phases.told], sys.orig_argv or ["python"], "coresim.attach()", self._began)

    @property
    def watched(self) -> dict[str, Any]:
        """What the loop waited and did so far, with the settings of its loader; empty before it trains."""
        self._phases.count()
        return self._phases.told if "rank" in self._phases.status else {}

    def detach(self) -> None:
        """Take the hooks away; a loop that is being measured goes on without."""
        self._rank.leave()
        self._unhook()

    def __repr__(self) -> str:
        state = "measured" if self.done else f"{self._state}, {self._rank.batches} batches so far"
        return f"<Attached: {state}>"


def watch_here() -> Attached:
    """Only watch the loops of this process.

    Raises:
        MissingPartError: torch is not installed, or /proc cannot be read.
    """
    return Attached(SessionPlan(goes_on=True, only_watch=True))


def attach(**times: float) -> Attached:
    """Measure the next loop of this process that trains, as ``coresim recommend -- COMMAND`` measures a program's.

    The loop is watched, fed with batches kept in memory, and waits while its loader runs alone; then it goes on, having
    trained on a few hundred repeated batches. `coresim.recommend` answers for its ``profile``. Several ranks are for
    ``coresim recommend -- torchrun ...``.

    Args:
        times: ``watch_s``, ``kept_s`` and ``budget_s`` of `coresim.attaching.session.SessionPlan`, in seconds.

    Raises:
        MissingPartError: torch is not installed, or /proc cannot be read.
    """
    return Attached(SessionPlan(goes_on=True, **times))  # type: ignore[arg-type]
