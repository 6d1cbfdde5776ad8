"""What the tests of faults share: a small job and fleet, a command in this process, and a disk with little room."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from shared import SCENARIO

from coresim.cli.main import main

#: A job whose times do not vary, so that it is answered in no time.
SIMPLE = '[workload]\nbatch_size = 8\npreprocess = "4 ms"\n[accelerator]\nstep = "12 ms"\n'
FLEET = '[[workload]]\npath = "scenario.toml"\ngpu_hours = 10.0\ngpu = "a100"\nmodel = "resnet50"\n'


def give_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in that folder, in which a scenario, the simple job and a fleet are."""
    monkeypatch.chdir(folder)
    Path("scenario.toml").write_text(SCENARIO)
    Path("simple.toml").write_text(SIMPLE)
    Path("F").write_text(f'machines = ["aws:p4d.24xlarge", "aws:p5.48xlarge"]\n{FLEET}')


def told(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Exit code, stdout and the last line of stderr of a command that leaves no traceback."""
    try:
        code = main(list(words))
    except SystemExit as exit_:
        code = int(exit_.code or 0)
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    return code, out, err.rstrip("\n").rpartition("\n")[2]


@contextmanager
def disk_of(size: int) -> Iterator[None]:
    """A limit on a file's size stands for a full disk: writing beyond it is an `OSError`."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
