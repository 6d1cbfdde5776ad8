"""The user's command, started with hooks in its environment, watched until all is measured, and ended."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
import textwrap
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO

from coresim.attaching import family
from coresim.attaching.foreign import parts_of
from coresim.attaching.session import Folder
from coresim.errors import InputError

SITE = Path(__file__).parent / "site"
#: Environment variables: the session's folder, and the module to hook besides torch's loader.
VARIABLE, MODULE = "CORESIM_ATTACH", "CORESIM_ATTACH_MODULE"
#: Characters that are shown of an argument with several lines.
WORD = 60
#: Bytes of the program's output that are remembered, to tell how it ended.
REMEMBERED = 4000


class Program(AbstractContextManager["Program"]):
    """The command while it runs; at the end nothing of it is left."""

    def __init__(self, command: Sequence[str], folder: Folder, write: Callable[[bytes], object]) -> None:
        self.command = tuple(command)
        self.mark = mark(folder)
        self._write: Callable[[bytes], object] | None = write
        self._tail = b""
        self._process = _start(command, environment(folder))
        self._reader = threading.Thread(target=self._forward, daemon=True)
        self._reader.start()

    def _forward(self) -> None:
        stream: IO[bytes] | None = self._process.stdout
        assert stream is not None
        while part := os.read(stream.fileno(), 1 << 16):
            self._tail = (self._tail + part)[-REMEMBERED:]
            if self._write is not None:
                self._write(part)

    @property
    def exit_code(self) -> int | None:
        """The command's exit code; None while it runs."""
        return self._process.poll()

    def members(self) -> set[int]:
        """All processes of the program that there are."""
        return family.members(self._process.pid, self.mark)

    @property
    def last_line(self) -> str:
        """The last line with a word that it wrote."""
        self._reader.join(1.0)
        lines = self._tail.decode(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if any(map(str.isalnum, line))), "")

    def __exit__(self, *_: object) -> None:
        """End all its processes; their output meanwhile is dropped."""
        self._write = None
        family.end(self._process.pid, self.mark)
        self._process.wait()
        self._reader.join(1.0)


def spoken(command: Sequence[str]) -> str:
    """The command in one line; of a program given as an argument, as after ``python -c``, only the beginning."""
    return shlex.join(textwrap.shorten(word, WORD, placeholder=" ...") if "\n" in word else word for word in command)


def mark(folder: Folder) -> str:
    """What every process of the program has in its environment."""
    return f"{VARIABLE}={folder.path}"


def environment(folder: Folder) -> dict[str, str]:
    """The environment of the command: our ``sitecustomize`` stands first on the path."""
    paths = [str(SITE), *filter(None, [os.environ.get("PYTHONPATH")])]
    hook = folder.read_plan().hook
    module = {} if hook is None else {MODULE: parts_of(hook)[0]}
    return {**os.environ, VARIABLE: str(folder.path), "PYTHONPATH": os.pathsep.join(paths), **module}


def _start(command: Sequence[str], environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            command,
            env=environ,
            stdin=subprocess.DEVNULL if sys.__stdin__ is None or sys.__stdin__.isatty() else None,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=family.end_with_parent,
        )
    except OSError as error:
        script = isinstance(error, PermissionError) and command[0].endswith(".py")
        remedy = f"start it with its interpreter: -- python {command[0]}" if script else "check the command after --"
        raise InputError(f"cannot start {command[0]!r}: {error.strerror}; {remedy}") from None


@contextmanager
def session_folder() -> Iterator[Folder]:
    """A new folder, gone at the end."""
    with tempfile.TemporaryDirectory(prefix="coresim-attach-") as path:
        yield Folder(path)
