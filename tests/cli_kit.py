"""A command of coresim, in this process and in one of its own."""

from __future__ import annotations

import subprocess
import sys

from coresim.cli.main import main


def run(*words: str, **options: object) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own, with options of `subprocess.run`."""
    return subprocess.run(
        [sys.executable, "-m", "coresim", *words], text=True, timeout=200, check=False,
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options},
    )  # type: ignore[call-overload, no-any-return]  # fmt: skip


def call(capsys, *argv):
    """Exit code, stdout, stderr of a command run in this process."""
    try:
        code = main([str(word) for word in argv])
    except SystemExit as exit_:
        code = exit_.code
    captured = capsys.readouterr()
    return code, captured.out, captured.err
