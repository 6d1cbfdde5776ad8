"""``coresim validate``: the whole verb where torch is, and what is told where something is missing."""

from __future__ import annotations

import importlib.util
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coresim.cli.main import main
from coresim.errors import MissingPartError
from coresim.validate.ledger import load_ledger

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="the real loader is torch's")


@pytest.fixture
def in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is measured in no time, and nothing is too disturbed to count."""
    from coresim.validate import session, trials

    monkeypatch.setattr(trials, "TRIAL_S", 0.2)
    monkeypatch.setattr(session, "BUDGET_S", 0.3)
    monkeypatch.setattr(session, "BANDWIDTH_S", 0.1)
    for bound in ("MOST_OTHERS", "MOST_SLOWER", "MOST_LATE"):
        monkeypatch.setattr(session, bound, 1e9)
    monkeypatch.setattr(session, "ATTEMPTS", 0)


@needs_torch
@pytest.mark.parametrize(("text", "told"), [("0 s", "must be more than 0"), ("5", "unit missing")])
def test_a_trial_lasts_some_time(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, told: str):
    assert main(["validate", "--quick", "-o", str(tmp_path / "ledger.json"), "--trial-time", text]) == 2
    assert told in capsys.readouterr().err and not (tmp_path / "ledger.json").exists()


class Late:
    def __init__(self) -> None:
        time.sleep(60.0)


@needs_torch
@pytest.mark.usefixtures("in_a_hurry")
def test_validate_gives_up_a_data_set_that_takes_too_long(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    flags = ["--dataset", f"{__file__}:Late", "--build-timeout", "1 s", "-o", str(tmp_path / "ledger.json")]
    assert main(["validate", "--quick", *flags]) == 2
    assert "took more than 1 s; " in capsys.readouterr().err


@needs_torch
@pytest.mark.usefixtures("in_a_hurry")
def test_validate_from_the_command_line_writes_a_ledger_and_goes_on_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    grid = tmp_path / "grid.toml"
    grid.write_text('[[block]]\nworkload = "tiny"\nbatch_size = 64\nworkers = [1, 2]\nratio = [1.0]\n')
    output = tmp_path / "ledger.json"
    arguments = ["validate", "--grid", str(grid), "-o", str(output), "--max-error", "1", "--trial-time", "0.2 s"]
    assert main([*arguments, "--time", "1 ms"]) == 5
    assert "nothing can be said" in capsys.readouterr().out
    assert main([*arguments, "--figure", str(tmp_path / "f.svg")]) == 0
    found = load_ledger(output)
    assert len(found.points) == 2 and all(p.trials and p.trials[0].step_starts_us for p in found.points)
    (job,) = found.jobs  # one calibration for all settings
    assert job.costs.scenario.workload.preprocess.mean > 0 and job.seconds > 0
    assert "<svg" in (tmp_path / "f.svg").read_text()
    capsys.readouterr()
    assert main([*arguments, "--time", "1 ms"]) == 5  # the finished one steps aside
    assert "finished validation; kept as" in capsys.readouterr().err
    assert load_ledger(f"{output}.old") == found and not load_ledger(output).points
    assert list((tmp_path / "state" / "coresim" / "ledgers").iterdir())


@needs_torch
@pytest.mark.usefixtures("in_a_hurry")
def test_the_process_that_built_a_data_set_makes_all_of_its_calibrations_and_trials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from coresim.measure.server import Server
    from coresim.validate import session

    built: list[Any] = []
    monkeypatch.setattr(session, "Server", lambda *given, **named: built.append(given) or Server(*given, **named))
    grid, output = tmp_path / "grid.toml", tmp_path / "ledger.json"
    grid.write_text('[[block]]\nworkload = "tiny"\nbatch_size = 64\nworkers = [1]\noption = [2, 3]\nratio = [1.0]\n')
    arguments = ["validate", "--grid", str(grid), "-o", str(output), "--max-error", "1", "--trial-time", "0.2 s"]
    assert main(arguments) == 0
    found = load_ledger(output)
    assert len(built) == 1 and len(found.jobs) == 2
    assert {point.job: point.setting.option for point in found.points} == {0: 2, 1: 3}
    assert all(job.seconds > 0 for job in found.jobs)
    # Interrupted before the second calibration: it goes on with that one alone.
    replace(found, jobs=found.jobs[:1], points=found.points[:1]).save(output)
    assert main(arguments) == 0
    again = load_ledger(output)
    assert again.jobs[0] == found.jobs[0] and again.points[0] == found.points[0] and len(built) == len(again.jobs) == 2
    assert {point.job: point.setting.option for point in again.points} == {0: 2, 1: 3}


@pytest.fixture
def a_user_s_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder from which modules are imported; the command runs there."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


BRIEFLY = ("--quick", "--trial-time", "0.2 s", "--max-error", "1", "-o", "own.json")


@needs_torch
@pytest.mark.usefixtures("in_a_hurry")
def test_batches_are_those_of_the_loader_that_is_named(a_user_s_folder: Path, capsys: pytest.CaptureFixture[str]):
    (a_user_s_folder / "loader_of_a_user.py").write_text(
        "import torch\nfrom torch.utils.data import DataLoader\n"
        "def make():\n    return DataLoader([torch.zeros(4) for _ in range(50)], batch_size=8)\n"
    )
    arguments = ["validate", "--dataset", "loader_of_a_user:make", "--step-time", "5 ms", *BRIEFLY]
    assert main(arguments) == 0
    found = load_ledger("own.json")
    assert {point.setting.batch_size for point in found.points} == {8}
    assert {job.costs.scenario.workload.batch_size for job in found.jobs} == {8} and len(found.points) == 3
    assert main([*arguments, "--time", "1 ms"]) == 5
    assert "a finished validation; kept as" in capsys.readouterr().err


@needs_torch
@pytest.mark.usefixtures("in_a_hurry")
def test_validate_trains_with_the_user_s_own_step(a_user_s_folder: Path, capsys: pytest.CaptureFixture[str]):
    (a_user_s_folder / "job_of_a_user.py").write_text(
        "import time, torch\n"
        "def data():\n    return [torch.zeros(4) for _ in range(50)]\n"
        "def train_step(batch):\n    assert batch.shape == (8, 4)\n    time.sleep(0.002)\n"
    )
    job = ["--dataset", "job_of_a_user:data", "--step", "job_of_a_user:train_step", "--batch-size", "8"]
    assert main(["validate", *job, "--device", "cpu", *BRIEFLY]) == 0
    found = load_ledger("own.json")
    assert found.accelerator == "training job_of_a_user:train_step on cpu"
    assert {p.setting.model for p in found.points} == {"job_of_a_user:train_step"}
    assert all(p.step_s >= 0.002 and p.clean for p in found.points)
    for step_s, trial in ((p.step_s, trial) for p in found.points for trial in p.trials):
        assert trial.idle == pytest.approx(1.0 - step_s / trial.seconds_per_step)
        assert trial.uncovered is not None and trial.launch_s is not None
        assert 0 <= trial.uncovered < 1 and 0 < trial.launch_s < 2 * trial.seconds_per_step
    assert "training job_of_a_user:train_step on cpu" in capsys.readouterr().out


def test_training_without_a_device_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    from coresim.measure import parts

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(parts, "optional_parts", tuple)
    assert main(["validate", "--model", "tiny"]) == MissingPartError.exit_code
    told = capsys.readouterr().err
    assert "no CUDA device" in told and "--step-time" in told and len(told.splitlines()) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ("--grid", "missing.toml"),
        ("--grid", "g.toml", "--quick"),
        ("--workload", "images", "--dataset", "a:b"),
        ("--figure", "f.xyz"),
        ("--workload", "no-such-job"),
        ("--step-time", "12"),
        ("--batch-size", "0"),
        ("--grid", "g.toml", "--batch-size", "0"),
        ("--step", "a:b", "--model", "tiny"),
        ("--model", "tiny", "--step-time", "12 ms"),
        ("--precision", "bf16"),
        ("--step", "no_colon", "--device", "cpu"),
        ("--model", "alexnet", "--device", "cpu"),
        ("--model", "tiny", "--precision", "fp8", "--device", "cpu"),
    ],
)
def test_bad_usage_of_validate_is_one_line(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    assert main(["validate", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 1


@needs_torch
def test_validate_tries_ranks_and_many_workers(
    tmp_path: Path, in_a_hurry: None, capsys: pytest.CaptureFixture[str]
) -> None:
    grid = tmp_path / "grid.toml"
    block = '[[block]]\nworkload = "slow-reads"\nbatch_size = 2\nratio = 1.0\n'
    grid.write_text(f"{block}ranks = 2\nworkers = 2\nstraggler = 1.5\n{block}workers = 8\n")
    output = tmp_path / "ledger.json"
    assert main(["validate", "--grid", str(grid), "-o", str(output), "--max-error", "1"]) == 0
    assert "b2 x2 late1.5" in capsys.readouterr().out
    found = load_ledger(output)
    settings = {(p.setting.ranks, p.setting.workers, p.setting.straggler) for p in found.points}
    assert settings == {(2, 2, 1.5), (1, 8, 1.0)}
    # The barrier of two ranks is timed with their job.
    assert {tuple(ranks for ranks, _ in job.costs.barriers) for job in found.jobs} <= {(2,), ()}
    assert [ranks for ranks, cost in found.jobs[0].costs.barriers if cost > 0] == [2]
    for point in found.points:
        (trial,) = point.trials
        assert 0 <= trial.idle < 1 and len(trial.step_starts_us) == point.steps
