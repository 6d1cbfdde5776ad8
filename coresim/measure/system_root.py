"""Files of Linux (/proc, /sys, control groups) below a root folder, so that a test can show another machine.

A file that is missing, unreadable or malformed reads as None, never as a crash and never as 0.
"""

from __future__ import annotations

import re
from pathlib import Path

from coresim.errors import MissingPartError

#: Below it lie the files of this machine.
HERE = Path("/")


class SystemRoot:
    """Files below a root; one that is missing, unreadable or malformed reads as None."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def text(self, path: str) -> str | None:
        """What the file holds, without blanks around it."""
        try:
            return (self.root / path.lstrip("/")).read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            return None

    def number(self, path: str) -> int | None:
        """The whole number that the file holds."""
        return whole(self.text(path))

    def lines(self, path: str) -> list[str]:
        """The file's lines; none where it cannot be read."""
        return (self.text(path) or "").splitlines()

    def exists(self, path: str) -> bool:
        """Whether the file or folder is there."""
        return (self.root / path.lstrip("/")).exists()

    def glob(self, pattern: str) -> list[str]:
        """Paths that match, below the root, sorted."""
        return sorted(str(path.relative_to(self.root)) for path in self.root.glob(pattern))


def check_proc() -> None:
    """Refuse to measure where /proc is hidden: CPU time, the processes of a program and their end are read there.

    Raises:
        MissingPartError: it cannot be read.
    """
    system = SystemRoot(HERE)
    for file in ("/proc/stat", "/proc/self/stat"):
        if not system.text(file):
            raise MissingPartError(
                f"{file} cannot be read, and what programs use is measured there; mount it (mount -t proc proc /proc)"
                " or leave the sandbox that hides it; scenarios and profiles are answered without"
            )


def whole(text: str | None) -> int | None:
    """The whole number that the text is, else None."""
    return int(text) if text is not None and re.fullmatch(r"-?[0-9]{1,20}", text) else None


def cpu_list(text: str | None) -> tuple[int, ...]:
    """CPUs of Linux's list form, such as ``0-3,8``; empty when malformed."""
    if text is None or not re.fullmatch(r"\d{1,6}(-\d{1,6})?(,\d{1,6}(-\d{1,6})?)*", text):
        return ()
    ends = [part.partition("-") for part in text.split(",")]
    return tuple(cpu for first, _, last in ends for cpu in range(int(first), int(last or first) + 1))
