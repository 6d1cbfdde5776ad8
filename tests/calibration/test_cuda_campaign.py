"""The campaign on a CUDA machine, part by part: its verbs are stand-ins, the clock moves when they are told to run."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import cuda_campaign
import pytest
from made_up import ledger, point

from coresim.measure.host import read_host
from coresim.model.profile import load_document
from coresim.validate.grid import Grid, load_grid
from coresim.validate.ledger import RecordedPoint, load_ledger

GRID = """
[[block]]
workload = "images"
ratio = 1.0
batch_size = 10
model = ["tiny"]
workers = [1, 2]
"""


class Campaign:
    """Calls the script; its verbs note what they were asked, take time, and leave what they are told to."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.path = folder, folder / "x.ledger.json"
        self.file = folder / "grid.toml"
        self.file.write_text(GRID)
        self.grid: Grid = load_grid(self.file)
        self.now, self.asked = 0.0, []
        self.codes: dict[str, int] = {}
        self.takes = {"measure": 20.0, "validate": 100.0}
        self.left: list[RecordedPoint] = []

    def verb(self, until: float, *arguments: str) -> int:
        verb = arguments[0]
        self.asked.append(arguments)
        self.now += self.takes[verb]
        if self.now > until - cuda_campaign.STOP_S:
            self.now = until - cuda_campaign.STOP_S
        if verb == "validate" and self.left:
            self.save(*self.left)
        if verb == "measure" and not self.codes.get(verb):
            Path(arguments[-1]).write_text("{}")
        return 130 if self.now == until - cuda_campaign.STOP_S else self.codes.get(verb, 0)

    def save(self, *points: RecordedPoint, **other: object) -> None:
        known = {"grid_sha256": self.grid.sha256, "host_fingerprint": read_host(load_window=0.0).fingerprint}
        ledger(points, **(known | other)).save(self.path)

    def points(self, *trials: tuple[int, int]) -> list[RecordedPoint]:
        """The grid's points with so many clean and so many disturbed trials."""
        return [
            point(setting, 0.3, *[0.3] * clean, dirty=dirty)
            for setting, (clean, dirty) in zip(self.grid.settings, trials, strict=False)
        ]

    def call(self, *flags: str) -> int:
        self.now = 0.0
        code: int = cuda_campaign.main(["--name", "x", "--out", str(self.folder), "--grid", str(self.file), *flags])
        return code

    def seconds(self) -> float:
        [asked] = [asked for asked in self.asked if asked[0] == "validate"]
        return float(asked[asked.index("--time") + 1].split()[0])


@pytest.fixture
def campaign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Campaign:
    made = Campaign(tmp_path)
    monkeypatch.setattr(cuda_campaign, "coresim", made.verb)
    monkeypatch.setattr(cuda_campaign, "PROFILES", (("tiny", "fp32", 32),))
    monkeypatch.setattr(cuda_campaign.time, "monotonic", lambda: made.now)
    return made


def test_a_part_makes_profiles_and_trials_and_says_what_is_left(campaign: Campaign, capsys: Any):
    campaign.left = campaign.points((1, 0))
    assert campaign.call() == 6
    assert [asked[0] for asked in campaign.asked] == ["measure", "validate"]
    assert capsys.readouterr().out == "1 settings are left: run the same command again\n"
    # 20 s went to the profile; the last trial is begun early enough to end within the part.
    assert campaign.seconds() == 8 * 60 - 20 - cuda_campaign.TRIAL_S - cuda_campaign.STOP_S
    campaign.left, campaign.asked = campaign.points((1, 0), (1, 1)), []
    assert campaign.call() == 0
    assert [asked[0] for asked in campaign.asked] == ["validate"]
    assert capsys.readouterr().out == "the grid is done\n"


def test_trials_alone_take_all_of_the_time(campaign: Campaign) -> None:
    campaign.left = campaign.points((1, 0))
    assert campaign.call("--trials-only") == 6
    assert [asked[0] for asked in campaign.asked] == ["validate"]
    assert campaign.seconds() == 8 * 60 - cuda_campaign.TRIAL_S - cuda_campaign.STOP_S


def test_a_grid_that_is_done_is_printed_and_left_alone(campaign: Campaign, capsys: Any):
    campaign.save(*campaign.points((1, 0), (1, 2)), host_fingerprint="of another machine")
    before = campaign.path.read_bytes()
    assert campaign.call("--minutes", "0.1") == 0
    assert campaign.asked == [] and campaign.path.read_bytes() == before
    assert "GPU idle was predicted within" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("trials", "code", "words"),
    [
        ([(1, 0), (0, 1)], 6, "1 settings are left"),
        ([(0, 2), (1, 0)], 6, "1 settings are left"),
        ([(0, 3), (1, 0)], 0, "the grid is done; 1 settings never ran undisturbed"),
        ([(0, 3), (0, 3)], 5, "the grid is done; 2 settings never ran undisturbed"),
    ],
)
def test_only_a_setting_with_enough_clean_trials_or_no_attempt_left_is_done(
    campaign: Campaign, capsys: Any, trials: list[tuple[int, int]], code: int, words: str
):
    campaign.left = campaign.points(*trials)
    assert campaign.call() == code
    assert words in capsys.readouterr().out


@pytest.mark.parametrize(("verb", "code"), [("measure", 3), ("validate", 3), ("validate", 1), ("validate", -9)])
def test_a_verb_that_fails_ends_the_part_with_one_line_and_its_exit_code(
    campaign: Campaign, capsys: Any, verb: str, code: int
):
    campaign.codes[verb] = code
    assert campaign.call() == max(1, code)
    out, error = capsys.readouterr()
    assert out == "" and campaign.asked[-1][0] == verb
    assert error == (
        f"cuda_campaign: coresim {verb} ended with {code}, see above; mend that and run the same command again\n"
    )


def test_a_model_that_cannot_be_measured_holds_up_no_trial(campaign: Campaign, capsys: Any):
    campaign.codes["measure"], campaign.left = 1, campaign.points((1, 0), (1, 0))
    assert campaign.call() == 1
    out, error = capsys.readouterr()
    assert out == "the grid is done\n" and "x-tiny-fp32.profile.json: not measured; going on" in error


@pytest.mark.parametrize("code", [4, 5])
def test_an_answer_that_is_not_to_be_trusted_is_no_failure(campaign: Campaign, code: int):
    campaign.codes["validate"], campaign.left = code, campaign.points((1, 0), (1, 0))
    assert campaign.call() == 0


def test_a_part_that_is_too_short_is_refused_in_one_line(campaign: Campaign, capsys: Any):
    assert campaign.call("--minutes", "2") == 2
    assert campaign.asked == []
    assert capsys.readouterr().err == "cuda_campaign: --minutes 2: a calibration and a trial may not fit; at least 6\n"
    # The shortest part that is not refused comes to trials, once its profiles are there.
    campaign.takes["measure"], campaign.left = 80.0, campaign.points((1, 0))
    assert campaign.call("--minutes", "6") == 6
    assert [asked[0] for asked in campaign.asked] == ["measure"]
    assert campaign.call("--minutes", "6") == 6
    assert [asked[0] for asked in campaign.asked] == ["measure", "validate"]


def test_what_is_not_done_in_time_is_interrupted_and_goes_on_later(campaign: Campaign, capsys: Any):
    campaign.takes["validate"], campaign.left = 1000.0, campaign.points((1, 0))
    assert campaign.call() == 6
    assert campaign.now == 8 * 60 - cuda_campaign.STOP_S
    assert "GPU idle was predicted within" in capsys.readouterr().out
    # No trial came to its end: the same again would do no better.
    assert campaign.call() == 1
    assert "no trial was made in this part, 1 settings are left; give it more --minutes" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("other", "words"),
    [({"grid_sha256": "0" * 64}, "of another grid"), ({"host_fingerprint": "else"}, "begun on another machine")],
)
def test_another_s_ledger_is_not_overwritten(campaign: Campaign, capsys: Any, other: dict[str, str], words: str):
    campaign.save(*campaign.points((1, 0)), **other)
    before = campaign.path.read_bytes()
    assert campaign.call() == 2
    assert words in capsys.readouterr().err and campaign.path.read_bytes() == before and campaign.asked == []


@pytest.mark.parametrize("here", [True, False])
def test_a_figure_is_drawn_where_it_can_be_and_called_as_on_the_page(
    campaign: Campaign, monkeypatch: pytest.MonkeyPatch, here: bool
):
    if here:
        pytest.importorskip("matplotlib")
    else:
        monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    campaign.left = campaign.points((1, 0))
    campaign.call()
    asked = campaign.asked[-1]
    assert (asked[-2:] == ("--figure", str(campaign.folder / "x.svg"))) == here
    assert ("--figure" in asked) == here


def test_a_folder_is_meant_from_where_the_script_is_called(campaign: Campaign, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(campaign.folder)
    campaign.left = campaign.points((1, 0))
    assert campaign.call("--out", ".") == 6
    assert campaign.asked[-1][campaign.asked[-1].index("-o") + 1] == str(campaign.path)


@pytest.mark.parametrize(
    ("body", "given_s", "code"), [("import sys; sys.exit(4)", 250.0, 4), ("import time; time.sleep(600)", 0.5, 130)]
)
def test_a_verb_ends_by_itself_or_is_ended(monkeypatch: pytest.MonkeyPatch, body: str, given_s: float, code: int):
    started: list[Any] = []
    real: Callable[..., Any] = cuda_campaign.subprocess.Popen

    def popen(command: list[str], **options: Any) -> Any:
        assert command == [sys.executable, "-m", "coresim", "validate"]
        started.append(real([sys.executable, "-c", body], **options))
        return started[0]

    monkeypatch.setattr(cuda_campaign.subprocess, "Popen", popen)
    # On a busy machine it may take long until a signal is dealt with.
    monkeypatch.setattr(cuda_campaign, "STOP_S", 120.0)
    until = cuda_campaign.time.monotonic() + given_s + cuda_campaign.STOP_S
    assert cuda_campaign.coresim(until, "validate") == code
    assert started[0].returncode == (code if code == 4 else -signal.SIGTERM)


def test_the_declared_grid_can_be_read():
    grid = load_grid(cuda_campaign.HERE / "cuda_grid.toml")
    assert len(set(grid.settings)) == len(grid.settings) > 100
    assert all(setting.model for setting in grid.settings)
    assert replace(grid.settings[0], cores=4) in grid.settings


# ---- the whole of it, on the emulated device ---------------------------------------------------------------------

BLOCK = '[[block]]\nworkload = "{}"\nratio = 1.0\nbatch_size = 4\nmodel = ["tiny"]\n{}\n'
KINDS = (
    ("images", "workers = [1, 2]\npin_memory = [true]"),
    ("images", "option = [1]\nworkers = [0]"),
    ("images", "option = [3]"),
    ("images-encoded", ""),
)
WHOLE = "".join(BLOCK.format(*kind) for kind in KINDS)
#: A verb in a hurry: short runs, on a machine where others may work; told to end after so many trials.
HURRY = """
import os, signal, sys
from coresim.measure import campaign
from coresim.validate import session, trials

session.MOST_OTHERS = session.MOST_SLOWER = session.MOST_LATE = 1e9
session.ATTEMPTS = 0
campaign.QUICK_BUDGET = campaign.LEAST_BUDGET
session.BUDGET_S, trials.TRIAL_S = 5.0, 0.3
left, attempt = int(os.environ.get("TRIALS", "1000")), session._attempt

def counted(*order):
    global left
    if left == 0:
        os.kill(os.getpid(), signal.SIGTERM)
    left -= 1
    return attempt(*order)

session._attempt = counted
if __name__ == "__main__":
    from coresim.cli.entry import main
    sys.exit(main())
"""


@pytest.mark.torch
@pytest.mark.timeout(900)
def test_from_the_first_line_to_the_last_interrupted_and_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
):
    pytest.importorskip("torch")
    (tmp_path / "grid.toml").write_text(WHOLE)
    (tmp_path / "hurry.py").write_text(HURRY)
    device = "emulated:step=10ms,launch=1ms,decode=1ms,bus=2e9,sync=block"
    flags = ["--name", "x", "--out", str(tmp_path), "--grid", str(tmp_path / "grid.toml"), "--device", device]
    flags += ["--minutes", "60"]  # however slow the machine is, no part is over before it is done
    real: Callable[..., Any] = cuda_campaign.subprocess.Popen

    def hurried(command: list[str], **options: Any) -> Any:
        assert command[1:3] == ["-m", "coresim"]
        return real([command[0], str(tmp_path / "hurry.py"), *command[3:]], **options)

    monkeypatch.setattr(cuda_campaign.subprocess, "Popen", hurried)
    monkeypatch.setattr(cuda_campaign, "PROFILES", (("tiny", "fp32", 4),))
    grid = load_grid(tmp_path / "grid.toml")
    monkeypatch.setenv("TRIALS", "3")
    assert cuda_campaign.main(flags) == 130
    profile, first = load_document(tmp_path / "x-tiny-fp32.profile.json"), load_ledger(tmp_path / "x.ledger.json")
    names = {measured.name for measured in profile.measurements}
    assert names >= {
        "accelerator.step",
        "accelerator.launch",
        "accelerator.step.busy.1",
        "copy.pinned",
        "copy.pageable",
    }
    assert profile.accelerator.provenance.startswith("measured: tiny (coresim) on emulated (step 0.01")
    assert sum(len(point.trials) for point in first.points) == 3 and cuda_campaign.unsettled(grid, first) == 2

    monkeypatch.delenv("TRIALS")
    assert cuda_campaign.main(flags) == 0
    last = load_ledger(tmp_path / "x.ledger.json")
    assert cuda_campaign.unsettled(grid, last) == 0 and {point.setting for point in last.points} == set(grid.settings)
    done = {point.setting: point.trials for point in first.points if point.trials}
    # What was made stays; only trials that others disturbed are made again.
    kept = [(point.trials, done[point.setting]) for point in last.points if point.setting in done]
    assert len(kept) == len(done) and all(trials[: len(before)] == before for trials, before in kept)
    for job in last.jobs:
        assert job.device.startswith("emulated") and job.costs.training is not None
        assert min(job.costs.training.step) >= 0.01 and min(job.costs.training.launch) >= 0.001
    capfd.readouterr()
    before = (tmp_path / "x.ledger.json").read_bytes()
    assert cuda_campaign.main(flags) == 0
    assert "the grid is done" in capfd.readouterr().out and (tmp_path / "x.ledger.json").read_bytes() == before
