"""One attached run from coresim's side: start it, lead all ranks through the phases, end it; what they found."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from coresim.attaching import family
from coresim.attaching.launch import Program, session_folder, spoken
from coresim.attaching.session import KEPT, LOADER, READY, TRIAL, Folder, SessionPlan
from coresim.errors import CoresimError
from coresim.measure.system_root import check_proc
from coresim.units import format_duration

PATIENCE_S = 120.0
POLL_S = 0.05
#: How long to wait for ranks, s; and, if a rank calibrates its loader, for another batch.
SILENCE_S = 600.0
#: A command may end before the program that it started: how long to wait then for a rank, s.
LATE_S = 60.0
_HELD = "while coresim held its loop and ran its loader"
#: What each phase is called while it goes on, the share of all that is done when it begins, and what coresim does to
#: the program meanwhile: the program may fail because of it.
PHASES = {
    "start": ("your program starts", 0.0, ""),
    "watch": ("the loop as it is", 0.1, ""),
    "kept": ("the step without waiting", 0.3, "while coresim gave it the same few batches over again"),
    "stop": ("the loader without the step", 0.5, _HELD),
    "loader": ("the loader without the step", 0.5, _HELD),
    "trial": (
        "the loop with other numbers of workers",
        0.9,
        "while coresim gave it batches of loaders with other numbers of workers",
    ),
}
NO_OPTIMIZER = "where no torch optimizer steps, measure the data set apart (recommend --dataset FILE:NAME)"
Progress = Callable[[str, float], None] | None
Told = dict[int, dict[str, Any]]


@dataclass(frozen=True)
class AttachRequest(SessionPlan):
    """What to run, and what its ranks are to do.

    Attributes:
        command: the user's program.
        patience_s: a program that has not begun to train by then is ended.
    """

    command: tuple[str, ...]
    patience_s: float = PATIENCE_S
    watch_s: float = field(default=5.0, kw_only=True)


def attach(request: AttachRequest, write: Callable[[bytes], object], progress: Progress = None) -> list[dict[str, Any]]:
    """Run the program through all phases and end it; return what each rank found, by rank.

    ``write`` takes the program's output; ``progress`` is called with the phase and the fraction of all that is done.

    Raises:
        InputError: the command cannot be started.
        MissingPartError: /proc cannot be read.
        CoresimError: it ended, did not train, was not hooked, or its loader failed; the message says what was seen.
    """
    check_proc()
    with session_folder() as folder:
        folder.write_plan(request)
        with family.adopting(), Program(request.command, folder, write) as program:
            return _Conductor(request, folder, program, progress).run()


class _Conductor:
    def __init__(self, request: AttachRequest, folder: Folder, program: Program, progress: Progress) -> None:
        self._request, self._folder, self._program, self._progress = request, folder, program, progress
        self._ended: float | None = None
        self._done, self._shown = "", 0.0

    def run(self) -> list[dict[str, Any]]:
        self._wait("start", self._training, self._request.patience_s)
        self._wait("watch", self._all("today"))
        self._folder.say(f"go.{KEPT}")
        self._wait("kept", self._all("step"))
        if self._request.hook is not None:
            return self._found()
        self._folder.say(f"go.{LOADER}")
        self._wait("stop", self._stopped)
        first = min(self._training().items(), key=lambda item: item[1]["rank"])[0]
        self._folder.say(f"turn.{first}")
        self._wait("loader", lambda: "loader" in self._training()[first]["found"])
        self._folder.say(f"go.{READY}")
        self._wait("loader", lambda: self._states() == {READY})
        for number in range(len(self._request.trials)):
            self._folder.say(f"go.{TRIAL}.{number}")
            self._wait("trial", self._tried(number + 1))
        return self._found()

    def _found(self) -> list[dict[str, Any]]:
        found = [self._folder.found(pid, told) for pid, told in self._training().items()]
        return sorted(found, key=lambda told: told["rank"])

    def _training(self) -> Told:
        """The ranks that train, once as many are there as they say."""
        told = {pid: found for pid, found in self._folder.ranks().items() if "rank" in found}
        wanted = max((found["local_world"] for found in told.values()), default=1)
        return told if len(told) >= wanted else {}

    def _all(self, name: str) -> Callable[[], bool]:
        return lambda: all(name in told["found"] for told in self._training().values())

    def _tried(self, count: int) -> Callable[[], bool]:
        pids = list(self._training())
        return lambda: all(len(self._folder.read(f"found.trials.{pid}.json") or ()) >= count for pid in pids)

    def _stopped(self) -> bool:
        return self._states() == {LOADER} and len({told["lead"] for told in self._training().values()}) == 1

    def _states(self) -> set[str]:
        return {told["state"] for told in self._training().values()}

    def _wait(self, phase: str, check: Callable[[], Any], seconds: float = SILENCE_S) -> None:
        """Until ``check`` holds, so many seconds at the most; a calibration may take longer while it has batches."""
        label, fraction, self._done = PHASES[phase]
        if self._progress:
            self._progress(label, fraction)
        seen, until = dict[int, int](), time.monotonic() + seconds
        while not check():
            self._check_alive()
            told = self._training() if phase == "loader" else {}
            if (prepared := {pid: found["prepared"] for pid, found in told.items()}) != seen:
                seen, until = prepared, time.monotonic() + seconds
                self._shown = max([self._shown, *(found["calibrated"] for found in told.values())])
                if self._progress:
                    self._progress(label, fraction + (PHASES["trial"][1] - fraction) * self._shown)
            if time.monotonic() >= until:
                silent = f"{label}: the program did not answer for {format_duration(seconds)}"
                raise CoresimError(self._untrained() if phase == "start" else silent)
            time.sleep(POLL_S)

    def _check_alive(self) -> None:
        for told in self._folder.ranks().values():
            if told["error"]:
                raise CoresimError(told["error"])
        failed = self._folder.notes("failed")
        if failed:
            raise CoresimError(f"not attached: {next(iter(failed.values()))}")
        code = self._exit_code()
        if code is not None:
            how = f"with code {code}" if code >= 0 else f"by signal {-code}"
            line = self._program.last_line
            raise CoresimError(
                f"{spoken(self._program.command)}: ended {how} before all was measured"
                f"{self._done and f', {self._done}'} ({self._seen()})"
                + (f"; its last line: {line}" if line else "")
                + (f"; {self._remedy()}" if code == 0 else "")
            )

    def _remedy(self) -> str:
        """What to do if a program did all its work and was not measured."""
        ranks, apart = self._folder.ranks(), "measure its data set apart (recommend --dataset FILE:NAME)"
        if any(found["steps"] for found in ranks.values()):
            return "let it train for longer: more epochs, or more of its data"
        if not ranks and "-" in self._program.command:
            return "standard input gave it no program that trains: add < train.py, or name the file"
        if ranks or self._request.hook is not None:
            return apart
        return f"{apart}, or name the call that gives its batches (recommend --loader-hook MODULE:CLASS.METHOD)"

    def _exit_code(self) -> int | None:
        """The command's exit code when it has ended and no rank of it is left.

        What else it leaves running is not waited for: a compiler's workers, say, never end.
        """
        if (code := self._program.exit_code) is None:
            return None
        self._ended = self._ended or time.monotonic()
        left, ranks = self._program.members(), self._folder.ranks().keys()
        late = not ranks and time.monotonic() < self._ended + LATE_S
        return None if left & ranks or (left and late) else code

    def _untrained(self) -> str:
        seen, patience = self._seen(), format_duration(self._request.patience_s)
        if seen.startswith("not attached"):
            return seen
        untold = any(found["batches"] and not found["steps"] for found in self._folder.ranks().values())
        return f"{seen} in {patience}; --patience waits longer{f'; {NO_OPTIMIZER}' if untold else ''}"

    def _seen(self) -> str:
        ranks = self._folder.ranks()
        batches = sum(found["batches"] for found in ranks.values())
        steps = sum(found["steps"] for found in ranks.values())
        if not self._folder.notes("python"):
            return "not attached: no Python of the command read sitecustomize (python -I, -E and -S skip it)"
        if not ranks:
            hook = self._request.hook
            return "no DataLoader was iterated" if hook is None else f"{hook} was not called"
        if not steps:
            return f"{batches} batches were asked for, and no optimizer stepped between them"
        return f"{batches} batches were asked for and optimizers stepped {steps} times"
