"""The folder through which coresim and the ranks of an attached program communicate: small files, written whole.

========================= ==========================================================================
file                      what it says
========================= ==========================================================================
``plan.json``             coresim to all ranks: what to do, for how long (`SessionPlan`)
``python.PID``            a Python of the program read our ``sitecustomize``; its command line
``failed.PID``            why a process could not be hooked
``rank.PID.json``         a rank to coresim: its state, its counts, the names of what it has found so far
``found.NAME.PID.json``   a rank to coresim: what it has found
``go.STATE``              coresim to all ranks: go on to this state; ``go.trial.N``: to the trial of that number
``turn.PID``              coresim to one rank: run your loader now
``sockets/``              those that multiprocessing opens in the program's processes
========================= ==========================================================================

Standard library only: this runs in the user's process too.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

#: The states of a rank, in order: it watches; it feeds the loop from memory; it waits, and one rank runs its loader; it
#: is ready to try another setting, and tries it. Or coresim's own part failed, and the program goes on without it.
WATCH, KEPT, LOADER, READY, TRIAL, FAILED = "watch", "kept", "loader", "ready", "trial", "failed"


@dataclass(frozen=True, kw_only=True)
class SessionPlan:
    """What the ranks are to do.

    Attributes:
        parent: process id of coresim, which makes it; a rank whose parent is gone ends.
        settle_s: the loop is watched for so long at the least before it can be steady.
        watch_s: seconds of the loop as it is, once it is steady.
        watch_most_s: a loop that never gets steady is watched for so long in all.
        kept_s: seconds of the loop with batches kept in memory.
        budget_s: seconds for which one rank runs its loader.
        hook: ``pkg.mod:Class.method`` that gives a batch, for loaders that are not torch's; it ends with the step
            without waiting.
        trials: further numbers of workers to run the loop with afterwards.
        goes_on: whether the loop goes on when all is measured, instead of being ended.
        only_watch: whether to watch only, and to report all the time how long the loop waits.
    """

    parent: int = field(default_factory=os.getpid)
    settle_s: float = 1.0
    watch_s: float = 4.0
    watch_most_s: float = 40.0
    kept_s: float = 4.0
    budget_s: float = 20.0
    hook: str | None = None
    trials: tuple[int, ...] = ()
    goes_on: bool = False
    only_watch: bool = False


class Folder:
    """The session's folder, seen from either side."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def write(self, name: str, content: Any) -> None:
        """Write a JSON file, whole; nothing where the session is over."""
        target = self.path / name
        part = target.with_name(f".{name}.{os.getpid()}")
        try:
            part.write_text(json.dumps(content))
            os.replace(part, target)
        except FileNotFoundError:
            return

    def read(self, name: str) -> Any:
        """A JSON file's content, or None where there is none."""
        try:
            return json.loads((self.path / name).read_text())
        except FileNotFoundError:
            return None

    def say(self, name: str) -> None:
        """Leave an empty file."""
        self.write(name, None)

    def said(self, name: str) -> bool:
        """Whether the file is there."""
        return os.path.exists(self.path / name)

    def notes(self, kind: str) -> dict[int, str]:
        """The notes ``KIND.PID``, by process."""
        return {int(path.name.split(".")[1]): path.read_text() for path in self.path.glob(f"{kind}.*")}

    def write_plan(self, plan: SessionPlan) -> None:
        """Write what to do; other fields of a plan are for coresim alone."""
        self.write("plan.json", {item.name: getattr(plan, item.name) for item in fields(SessionPlan)})

    def read_plan(self) -> SessionPlan:
        """What to do."""
        told = self.read("plan.json")
        return SessionPlan(**told | {"trials": tuple(told["trials"])})

    def found(self, pid: int, told: dict[str, Any]) -> dict[str, Any]:
        """All that a rank has found, with what it ``told`` of itself."""
        return told | {name: self.read(f"found.{name}.{pid}.json") for name in told["found"]}

    def ranks(self) -> dict[int, dict[str, Any]]:
        """What every rank has told of itself, by process."""
        found = {int(path.name.split(".")[1]): self.read(path.name) for path in self.path.glob("rank.*.json")}
        return {pid: told for pid, told in found.items() if told is not None}
