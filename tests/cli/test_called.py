"""A name that trains where it was to give data is run as a program."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from attach_kit import ENVIRON, PROGRAMS, TIMES, left_behind

from coresim.cli import attach as cli
from coresim.cli.main import main

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("own_modules")]
pytest.importorskip("torch")

TRAINS = str(PROGRAMS / "just-train.py")


def test_a_name_that_trains_is_answered_as_a_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "job.json"
    for name, value in {**ENVIRON, "SAMPLE_S": "0.0005", "STEP_S": "0.005"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(cli, "_QUICK", TIMES)
    assert main(["measure", "--quick", "--dataset", f"{TRAINS}:train", "-o", str(path)]) == 0
    said = capsys.readouterr().err
    assert "importing your module ..." in said
    assert "iterates a DataLoader, so it trains: it is run as a program" in said
    profile = json.loads(path.read_text())
    assert profile["workload"] == f"{TRAINS}:train"
    assert (profile["today"]["workers"], profile["batch_size"]) == (1, 32)
    assert not left_behind("coresim.cli.called")
