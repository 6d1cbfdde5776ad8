"""Each verb with a program behind it. One run of a real program, by ``validate``, is played to the other verbs."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from attach_kit import BATCH, ENVIRON, TIMES, least_period, left_behind, profile_in, script
from shared import benchmark

from coresim.attaching import conduct
from coresim.attaching.conduct import AttachRequest
from coresim.cli import attach as cli
from coresim.cli.main import main

pytestmark = pytest.mark.torch
pytest.importorskip("torch")

#: A sample's CPU time and a step's wait, s.
SAMPLE_S, STEP_S = 0.001, 0.010
COMMAND = script("plain.py", "--sample", str(SAMPLE_S), "--step", str(STEP_S), "--epochs=103")
TRIED = (0, 3)


class Recorded(NamedTuple):
    """What validate was asked, answered and wrote, and what the ranks of its program found."""

    code: int
    told: dict[str, Any]
    profile: Path
    ranks: list[dict[str, Any]]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    """The real run, in a short time."""
    folder = tmp_path_factory.mktemp("validated")
    path, out, found = folder / "job.json", folder / "out.json", []
    run = conduct.attach

    def short(request: AttachRequest, *others: Any) -> list[dict[str, Any]]:
        assert request.trials == TRIED
        found.extend(run(AttachRequest(request.command, trials=request.trials, **TIMES), *others))
        return found

    with pytest.MonkeyPatch.context() as patch, open(out, "w") as stream:
        for name, value in ENVIRON.items():
            patch.setenv(name, value)
        patch.setattr(conduct, "attach", short)
        patch.setattr(cli, "_worker_counts", lambda: TRIED)
        patch.setattr("sys.stdout", stream)
        code = main(["validate", "--json", "-o", str(path), "--", *COMMAND])
    assert not left_behind("--epochs=103")
    yield Recorded(code, json.loads(out.read_text()), path, found)


@pytest.fixture
def asked(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> list[AttachRequest]:
    """Every run that is asked for gives what was recorded."""
    requests = []

    def play(request: AttachRequest, write: Any, progress: Any) -> list[dict[str, Any]]:
        requests.append(request)
        write(b"loss 2.3\n")
        return recorded.ranks

    monkeypatch.setattr(conduct, "attach", play)
    return requests


def test_validate_runs_the_loop_with_other_numbers_of_workers(recorded: Recorded) -> None:
    told = recorded.told
    assert recorded.code == (0 if told["trusted"] else 5)
    assert [trial["workers"] for trial in told["trials"]] == list(TRIED)
    assert told["today"]["workers"] == 2
    misses = [abs(trial["gpu_idle_predicted"] - trial["gpu_idle_observed"]) for trial in told["trials"]]
    assert told["mean_absolute_error"] == pytest.approx(sum(misses) / len(TRIED))
    # Without workers the trainer makes each batch itself, and three need a third of that time at the least.
    none, three = told["trials"]
    assert none["wait_s"] >= 0.98 * BATCH * SAMPLE_S
    watched = len(recorded.ranks[0]["trials"][1]["waits"])
    assert three["wait_s"] + three["step_s"] >= least_period(BATCH * SAMPLE_S, 3, watched)
    assert profile_in(recorded.profile).today is not None


def test_the_benchmark_of_attaching_reads_what_ranks_told(
    recorded: Recorded, capsys: pytest.CaptureFixture[str]
) -> None:
    attached = benchmark("attached")
    result = attached.result_of("plain", COMMAND, recorded.ranks)
    assert [row.checked.today.workers for row in result.rows] == [2, *TRIED]
    attached._table(result)
    attached._summary([result])
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith(f"plain: {result.cores} cores recommended per rank, ")
    assert lines[3].endswith("(its own setting)") and lines[-1].split()[0] == "all"


def test_validate_asks_for_workers_below_and_above_the_cores() -> None:
    cores, counts = len(os.sched_getaffinity(0)), cli._worker_counts()
    assert {0, 1, cores, cores + 1} <= set(counts)
    assert list(counts) == sorted(set(counts))


def test_measure_keeps_the_job(asked: list[AttachRequest], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "job.json"
    assert main(["measure", "--patience", "7 s", "-o", str(path), "--", *COMMAND]) == 0
    assert (asked[0].command, asked[0].patience_s, asked[0].trials) == (COMMAND, 7.0, ())
    out, err = capsys.readouterr()
    assert out.startswith("plain.py, batch 32") and "stops it when all is measured" in err
    profile = profile_in(path)
    assert profile.today is not None and profile.today.workers == 2
    assert profile.today.program.endswith(f"--step {STEP_S} --epochs=103")


def test_recommend_answers_for_the_program_with_its_own_step_or_with_one_that_is_given(
    asked: list[AttachRequest], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["recommend", "--json", "--step-time", "500 ms", "--", *COMMAND]) in (0, 4, 5)
    slow = json.loads(capsys.readouterr().out)
    assert main(["recommend", "--json", "--", *COMMAND]) in (0, 4, 5)
    own = json.loads(capsys.readouterr().out)
    assert slow["recommendation"]["cores_per_gpu"] <= own["recommendation"]["cores_per_gpu"]
    # However busy the machine was when its own step was timed, it was not half a second.
    rates = [told["recommendation"]["throughput_samples_per_s"] for told in (slow, own)]
    assert rates[0] <= BATCH / 0.5 < rates[1]
    assert own["today"]["program"].split()[1:] == list(COMMAND[1:])
    assert len(asked) == 2


def test_whatif_puts_remedies_beside_the_program_as_it_is(
    asked: list[AttachRequest], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "job.json"
    code = main(["whatif", "--save", str(path), "--remedy", "more-cores", "--json", "--", *COMMAND])
    told = json.loads(capsys.readouterr().out)
    assert code == (0 if told["observed"]["trusted"] else 5)
    assert [found["name"] for found in told["remedies"]] == ["more-cores"]
    assert told["observed"]["workers"] == profile_in(path).today.workers == 2  # type: ignore[union-attr]
    assert len(asked) == 1


def test_report_begins_with_today_and_names_the_program(
    asked: list[AttachRequest], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "plan.html"
    words = ["report", "-o", str(path), "--save", str(tmp_path / "job.json"), "--idle-target", "50%"]
    assert main([*words, "--", *COMMAND]) in (0, 4, 5)
    out = capsys.readouterr().out
    assert out.startswith("Today: GPU idle observed") and str(path) in out
    page = path.read_text()
    assert "CPU cores per GPU for plain.py" in page
    assert page.index("GPU idle observed") < page.index("Predicted GPU idle")
    assert len(asked) == 1


@pytest.mark.parametrize("verb", ["recommend", "measure", "validate", "whatif", "report"])
def test_a_bad_flag_is_told_before_the_program_is_started(
    verb: str, asked: list[AttachRequest], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([verb, "--patience", "soon", "--", *COMMAND]) == 2
    keep = "--save" if verb == "whatif" else "-o"
    assert main([verb, keep, str(tmp_path / "none" / "file.html"), "--", *COMMAND]) == 2
    assert capsys.readouterr().err.count("\n") == 2
    assert not asked
