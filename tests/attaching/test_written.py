"""A checkpoint that the program writes while it is attached to is pointed out."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from attach_kit import PROGRAMS, TIMES

from coresim.cli import attach as cli
from coresim.cli.main import main

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("quick_programs")]
pytest.importorskip("torch")


def test_a_checkpoint_that_is_written_meanwhile_is_pointed_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli, "_QUICK", TIMES)
    (tmp_path / "train.py").write_text((PROGRAMS / "plain.py").read_text().replace(
        "optimizer.zero_grad()", "optimizer.zero_grad(); torch.save(model.state_dict(), 'last.pt')"
    ))  # fmt: skip
    command = (sys.executable, "train.py", "--sample=0.001", "--step=0.01")
    assert main(["measure", "--quick", "-o", "job.json", "--", *command]) == 0
    out, err = capsys.readouterr()
    told = " ".join(out.split()).partition("what looks like a checkpoint")[2]
    assert "last.pt" in told and "it was trained on repeated data: do not go on from it" in told
    assert "epoch 0 batch 0" in err and "epoch 0" not in out
