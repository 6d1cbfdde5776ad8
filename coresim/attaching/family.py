"""Find all processes of an attached program, by an inherited variable and by their parent process, and end them."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

#: Processes are asked to end, and killed after so many seconds.
GRACE_S, POLL_S = 3.0, 0.05
#: prctl(2): orphans of our descendants become our children, and the kernel ends a child whose parent is gone.
_SET_CHILD_SUBREAPER, _SET_PDEATHSIG = 36, 1


@contextmanager
def adopting() -> Iterator[None]:
    """Within the block, orphans of started processes become children of this one, so that none is lost."""
    c = ctypes.CDLL(None)
    c.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        c.prctl(_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def end_with_parent() -> None:
    """Ask the kernel to end this process when the one that started it ends, however that ends."""
    ctypes.CDLL(None).prctl(_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def members(root: int, mark: str, proc: Path = Path("/proc")) -> set[int]:
    """Processes that have ``mark`` in their environment or descend from ``root``; zombies do not count."""
    parents: dict[int, int] = {}
    marked = set()
    for folder in proc.iterdir():
        if not folder.name.isdecimal():
            continue
        with suppress(OSError):  # it ended meanwhile, or is another user's
            state, parent = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[:2]
            if state == "Z":
                continue
            parents[int(folder.name)] = int(parent)
            if mark.encode() in (folder / "environ").read_bytes().split(b"\0"):
                marked.add(int(folder.name))
    found = {root} & parents.keys() | marked
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {os.getpid()}


def end(root: int, mark: str) -> None:
    """End them all, with time to clean up; returns when none is left."""
    until = time.monotonic() + GRACE_S
    ended = members(root, mark)
    _send(ended, signal.SIGTERM)
    while left := members(root, mark):
        ended |= left
        if time.monotonic() >= until:
            _send(left, signal.SIGKILL)
        time.sleep(POLL_S)
    for pid in ended - {root}:  # orphans became our children: no zombie of theirs is left
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def _send(pids: set[int], number: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
            os.kill(pid, signal.SIGCONT)
