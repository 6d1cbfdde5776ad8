"""The signals and the streams of the command's process."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, TextIO

INTERRUPTED = "coresim: interrupted; nothing was left behind"
_EXIT_INTERRUPTED = 130
#: Signals that stop the command, and how many of them end it at once: the first begins to clear up.
_SIGNALS, _MOST = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP), 3
_AGAIN_S = 0.01
_seen: list[int] = []
_unwritten: list[OSError] = []


def interruptible() -> None:
    """From here on SIGINT, SIGTERM and SIGHUP raise `KeyboardInterrupt`, once."""
    _seen.clear()
    handle(_interrupt)
    signal.signal(signal.SIGALRM, signal.default_int_handler)


def handle(handler: Callable[[int, FrameType | None], None]) -> None:
    """Let this function deal with the signals that stop the command."""
    for number in _SIGNALS:
        # nohup ignores SIGHUP so that the command outlives its terminal.
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, handler)


def interrupted() -> bool:
    """Whether a signal has come, though perhaps another exception took the place of what it raised."""
    return bool(_seen)


def unwritten() -> OSError | None:
    """Why the answer could not be written on stdout, if it could not."""
    return _unwritten[-1] if _unwritten else None


def stop_at_once(number: int, frame: FrameType | None) -> None:
    """End at once: nothing has been begun, or all is done."""
    try:
        os.write(2, f"{INTERRUPTED}\n".encode())
    finally:
        os._exit(_EXIT_INTERRUPTED)


def _interrupt(number: int, frame: FrameType | None) -> None:
    _seen.append(number)
    if len(_seen) == 1:
        raise KeyboardInterrupt
    if len(_seen) >= _MOST:
        stop_at_once(number, frame)


def unraisable(what: Any) -> None:
    """An interrupt within a callback that cannot raise is lost there: it is raised again just after."""
    if isinstance(what.exc_value, KeyboardInterrupt):
        signal.setitimer(signal.ITIMER_REAL, _AGAIN_S)
    else:
        sys.__unraisablehook__(what)


class _Output(io.FileIO):
    """Stdout tells its own failures from those of other files; what is said on stderr is no part of the answer."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            if self.fileno() == 2:
                return len(data)
            _unwritten.append(error)
            raise


def open_streams() -> None:
    """Open closed streams, so that the next file does not take their place."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            # Writing the answer to a closed stdout must fail, as on a full disk; stderr takes anything.
            os.open(os.devnull, os.O_RDWR if number == 2 else os.O_RDONLY)
    sys.stdout = _stream(1, sys.stdout, line_buffering=os.isatty(1))
    sys.stderr = _stream(2, sys.stderr, line_buffering=True)


def _stream(number: int, usual: TextIO | None, line_buffering: bool) -> TextIO:
    """A name of odd bytes, or one that the terminal has no letters for, is no reason not to answer."""
    encoding = usual.encoding if usual else "utf-8"
    writer = io.BufferedWriter(_Output(number, "wb", closefd=False))
    return io.TextIOWrapper(writer, encoding=encoding, errors="backslashreplace", line_buffering=line_buffering)
