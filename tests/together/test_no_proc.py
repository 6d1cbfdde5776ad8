"""Cli, attaching and measure: where /proc cannot be read each verb says so in one line, and starts nothing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from faulty import told

import coresim
from coresim.attaching.here import watch_here
from coresim.errors import MissingPartError

pytestmark = pytest.mark.usefixtures("folder")

PROGRAM = ("--", sys.executable, "-c", "open('started', 'w')")
MEASURING = (
    *((verb, *PROGRAM) for verb in ("recommend", "measure", "validate", "whatif", "report", "watch")),
    ("watch", "--pid", "1"),
    ("recommend", "--step-time", "50 ms"), ("measure", "--step-time", "50 ms"),
)  # fmt: skip
#: Of a machine that hides what runs: an empty folder in place of /proc, in a mount namespace of its own.
HIDDEN = ("unshare", "--map-root-user", "--mount", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh")


def said(line: str, file: str = "/proc/stat") -> bool:
    return line.startswith(f"coresim: {file} cannot be read, ") and "mount -t proc" in line


@pytest.mark.parametrize("words", MEASURING, ids=lambda words: " ".join(words[:2]))
@pytest.mark.parametrize("file", ["stat", "self/stat"])
def test_what_measures_says_that_it_cannot(
    words: tuple[str, ...],
    file: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "proc").mkdir()
    if file != "stat":
        (tmp_path / "proc/stat").write_text("cpu 1 2 3 4\n")
    monkeypatch.setattr("coresim.measure.system_root.HERE", tmp_path)
    code, out, last = told(capsys, *words)
    assert (code, out) == (3, "") and said(last, f"/proc/{file}"), last
    assert not Path("started").exists()


@pytest.mark.parametrize("hook", [coresim.attach, watch_here], ids=["attach", "callbacks"])
def test_a_loop_of_this_process_is_not_hooked(
    hook: Callable[[], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coresim.measure.system_root.HERE", tmp_path)
    with pytest.raises(MissingPartError, match=r"^/proc/stat cannot be read, "):
        hook()


def test_a_machine_without_it_answers_what_needs_no_measuring() -> None:
    if subprocess.run([*HIDDEN, "true"], capture_output=True).returncode:
        pytest.skip("no mount namespace may be made here")

    def run(*words: str) -> tuple[int, str, str]:
        command = [*HIDDEN, sys.executable, "-m", "coresim", *words]
        done = subprocess.run(command, capture_output=True, text=True)
        assert "Traceback" not in done.stderr
        return done.returncode, done.stdout, done.stderr.rstrip("\n").rpartition("\n")[2]

    code, out, last = run("recommend", *PROGRAM)
    assert (code, out) == (3, "") and said(last) and not Path("started").exists()
    code, out, _ = run("recommend", "simple.toml", "--max-cores", "2")
    assert code in (0, 4) and "2 cores" in out
