"""A program that is watched and not stopped: what its ranks wait, told from inside of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from attach_kit import ENVIRON, RANKS, left_behind

from coresim.attaching.inside import Inside
from coresim.attaching.session import Folder
from coresim.cli.main import main


@pytest.mark.torch
def test_each_rank_of_a_program_is_watched_from_inside_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rank 0 needs 128 ms of CPU time for a batch, rank 1 a quarter of it, and both step together."""
    pytest.importorskip("torch")
    own = {"SAMPLE_S": "0.004", "STEP_S": "0.010", "OTHER_RANKS": "0.25", "EPOCHS": "1"}
    for name, value in {**ENVIRON, **own}.items():
        monkeypatch.setenv(name, value)
    ticks = tmp_path / "ticks"
    assert main(["watch", "--json", "--interval", "300 ms", "--ticks", str(ticks), "--", *RANKS]) == 0
    told = json.loads(capsys.readouterr().out)
    waits = told["waiting_for_loader_by_rank"]
    assert waits.keys() == {"0", "1"}
    # Rank 1 waits for rank 0 within its step, and not for its own loader.
    assert waits["0"] > 0.5 > 2 * waits["1"]
    assert any(
        "waits for the loader rank 0 " in line and ", rank 1 " in line for line in ticks.read_text().splitlines()
    )
    # The ranks are the trainers, each with one worker, and torchrun is neither.
    activity = told["activity"]
    assert (activity["trainers"], len(activity["worker_cores"])) == (2, 2)
    # However little of the cores they get: a batch costs its worker 128 ms of CPU time, and its trainer hardly any.
    assert 5 * activity["main_cores"] < sum(activity["worker_cores"])
    assert not left_behind("ranks.py")


def test_what_a_rank_waited_is_summed_over_its_starts_and_told_for_what_is_new(tmp_path: Path) -> None:
    def tell(pid: int, **told: float) -> None:
        (tmp_path / f"rank.{pid}.json").write_text(json.dumps(told))

    inside = Inside(Folder(tmp_path))
    assert inside.since_last() == inside.overall() == {} and inside.trainers() == set()
    tell(7, batches=3)  # it evaluates
    tell(8, rank=1, wait_s=3.0, step_s=1.0)
    tell(9, rank=0, wait_s=1.0, step_s=3.0)
    assert inside.since_last() == {0: 0.25, 1: 0.75} and inside.trainers() == {8, 9}
    assert inside.since_last() == {}  # nobody finished a batch
    tell(9, rank=0, wait_s=2.0, step_s=4.0)
    tell(10, rank=1, wait_s=0.0, step_s=4.0)  # started again
    assert inside.since_last() == {0: 0.5, 1: 0.0}
    assert inside.overall() == {0: pytest.approx(2 / 6), 1: 3 / 8}
