"""The command's process: closed and full streams, and signals at any moment."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from cli_kit import run
from faulty import told

from coresim.errors import CoresimError


def shell(command: str) -> subprocess.CompletedProcess[str]:
    words = f'"{sys.executable}" -m coresim {command}'
    return subprocess.run(["/bin/sh", "-c", words], capture_output=True, text=True, timeout=200, check=False)


def test_a_closed_stdout_is_told() -> None:
    done = shell("catalogue >&-")
    assert done.returncode == 1
    assert done.stderr == "coresim: cannot write the answer: stdout is closed; send it elsewhere\n"


@pytest.mark.parametrize("stream", ["2>&-", "2>/dev/full", pytest.param("2>&- <&-", marks=pytest.mark.slow)])
def test_what_cannot_be_said_on_stderr_does_not_hold_the_answer_back(folder: Path, stream: str) -> None:
    done = shell(f"simulate scenario.toml --steps 20 --replications 1 --engine reference {stream}")
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.startswith("Simulated")
    done = shell(f"machines --file no-such.csv {stream}")
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "")


def test_a_reader_that_went_away_is_told_nothing() -> None:
    """As behind ``| head``, which reads its lines and ends."""
    reader, writer = os.pipe()
    os.close(reader)
    done = run("catalogue", stdout=writer)
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.parametrize("command", ["doctor", "--version", "--help", "recommend --help"])
def test_a_full_disk_is_told_whatever_is_printed(command: str) -> None:
    done = shell(f"{command} >/dev/full")
    assert done.returncode == 1
    assert done.stderr == "coresim: cannot write the answer: No space left on device; send it elsewhere\n"


# Signals

BOOT = """
import os, signal, sys
from coresim.cli.entry import main
left, number = int(sys.argv.pop(1)), int(sys.argv.pop(1))
def hook(event, args):
    global left
    if event in ("import", "open", "exec", "compile"):
        left -= 1
        if left == 0:
            os.kill(os.getpid(), number)
sys.addaudithook(hook)
code = main()
if left > 0:
    print("left", left, file=sys.stderr)
sys.exit(code)
"""


def interrupted_after(events: int, number: int, *words: str) -> subprocess.CompletedProcess[str]:
    # Tests that run under nohup hand on that SIGHUP is ignored.
    heeding = f"import signal\nsignal.signal(signal.SIGHUP, signal.SIG_DFL)\n{BOOT}"
    command = [sys.executable, "-c", heeding, str(events), str(number), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)


def test_a_signal_at_any_moment_is_130(folder: Path) -> None:
    words = ("recommend", "simple.toml", "--max-cores", "2")
    whole = interrupted_after(10**9, signal.SIGINT, *words)
    count = 10**9 - int(whole.stderr.split()[-1])
    assert whole.returncode in (0, 4) and count > 500
    # Most of the first half second is imports; each of them is a moment at which a signal may come.
    rng = random.Random(20)
    for events in (1, 2, 3, *rng.sample(range(4, count), 6)):
        done = interrupted_after(events, rng.choice((signal.SIGINT, signal.SIGTERM, signal.SIGHUP)), *words)
        assert (done.returncode, done.stdout) == (130, ""), (events, done)
        said = [line for line in done.stderr.splitlines() if not line.endswith("...")]
        assert said == ["coresim: interrupted; nothing was left behind"], (events, done.stderr)


def test_an_interrupt_does_not_wait_for_a_long_simulation(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its compiled part heeds no signal: were it waited for, it would be the test's own limit that ends it."""
    begun, over = threading.Event(), threading.Event()

    def engine(*_: object) -> None:
        begun.set()
        over.wait()
        raise CoresimError("nobody asks any more")

    def interrupt() -> None:
        begun.wait()
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr("coresim.sim.fast.simulate", engine)
    threading.Thread(target=interrupt, daemon=True).start()
    try:
        assert told(capsys, "simulate", "scenario.toml")[:2] == (130, "")
    finally:
        over.set()


def test_nohup_keeps_what_a_terminal_that_closes_would_end(folder: Path) -> None:
    words = [sys.executable, "-c", BOOT, "300", str(int(signal.SIGHUP)), "simulate", "scenario.toml", "--steps", "20"]
    done = subprocess.run(["nohup", *words], capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0 and done.stdout.startswith("Simulated"), done.stderr
    assert "left" not in done.stderr.split()  # the signal came


def test_an_interrupt_in_code_from_a_string_is_130_too(tmp_path: Path) -> None:
    """As dataclasses are made while modules are imported: Python then ends itself by SIGINT, dealt with or not."""
    (tmp_path / "told.py").write_text("""
import sys
import coresim.cli.main
from coresim.cli import entry, process

def interrupted_within_a_string():
    process.interruptible()
    try:
        exec("import os, signal, time; os.kill(os.getpid(), signal.SIGINT); time.sleep(600)")
    except KeyboardInterrupt:
        return 130

coresim.cli.main.main = interrupted_within_a_string
sys.exit(entry.main())
""")
    command = [sys.executable, "-m", "told"]
    assert subprocess.run(command, cwd=tmp_path, timeout=200, check=False).returncode == 130
