"""The command's first and last moments: signals and streams come before the imports that take time."""

from __future__ import annotations

import signal
import sys

from coresim.cli import process


def main() -> int:
    """The ``coresim`` command: its exit code."""
    process.handle(process.stop_at_once)
    sys.unraisablehook = process.unraisable
    process.open_streams()

    from coresim.cli.main import main as run

    code = run()
    process.handle(process.stop_at_once)
    if process.interrupted():
        # Python sends itself SIGINT at its end where an interrupt went through code from a string, as dataclasses are
        # made, although it was dealt with. While that is blocked, the exit code stays 130.
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    return code
