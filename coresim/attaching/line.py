"""A rank's line to coresim: what it has found, how far it is, and what it is told to do."""

from __future__ import annotations

import os
import time
from typing import Any

from coresim.attaching.session import Folder, SessionPlan

#: Between two polls of a rank that waits, s.
POLL_S = 0.02


class SessionFiles:
    """Files of the session's folder, from the rank's side.

    Attributes:
        found: everything that was reported, by name.
        status: what goes with every word; see `coresim.attaching.conduct` for who reads it.
    """

    def __init__(self, folder: Folder, plan: SessionPlan) -> None:
        self.plan, self._folder = plan, folder
        self.found: dict[str, Any] = {}
        self.status: dict[str, Any] = {
            "batches": 0, "steps": 0, "lead": 0, "wait_s": 0.0, "step_s": 0.0, "periods": 0, "error": None, "errors": 0,
        }  # fmt: skip

    def tell(self, **status: Any) -> None:
        """Write how far the rank is."""
        self.status |= status
        self._folder.write(f"rank.{os.getpid()}.json", self.status | {"found": list(self.found)})

    def report(self, name: str, found: Any) -> None:
        """Keep what was found, and write it once; it is too much to go with every word."""
        self.found[name] = found
        self._folder.write(f"found.{name}.{os.getpid()}.json", found)

    def said(self, word: str) -> bool:
        """Whether coresim said so to all ranks."""
        return self._folder.said(f"go.{word}")

    @property
    def turn(self) -> bool:
        """Whether it is this rank's turn to run its loader."""
        return self._folder.said(f"turn.{os.getpid()}")

    def behind(self, batches: int) -> bool:
        """Whether another rank has more batches, or is about to."""
        return any(told["lead"] > batches for told in self._folder.ranks().values())

    def wait_for(self, word: str) -> None:
        """Wait until coresim says so."""
        while not self.said(word):
            self.pause()

    def pause(self) -> None:
        """Wait a little."""
        self.end_if_alone()
        time.sleep(POLL_S)

    def end_if_alone(self) -> None:
        """A program that coresim started ends with it."""
        try:
            os.kill(self.plan.parent, 0)
        except ProcessLookupError:
            raise SystemExit("coresim is gone, and the program ends with it") from None
