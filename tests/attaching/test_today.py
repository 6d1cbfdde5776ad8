"""Today observed beside today predicted, from costs that are known: what is trusted, and which term is named."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from attach_kit import profile_in
from made_up import profile

from coresim.advise.sweep import Study
from coresim.api import recommend
from coresim.attaching.today import Checked, check, free_cores
from coresim.cli.attach import another_step
from coresim.cli.common import study_of
from coresim.cli.main import main
from coresim.errors import InputError
from coresim.model.load import scenario_of
from coresim.model.loader_settings import LoaderSettings
from coresim.model.option import Option
from coresim.model.profile import AcceleratorSource, Profile
from coresim.model.scenario import Scenario, read_scenario
from coresim.model.today import Today
from coresim.report.settings import loader_settings
from coresim.report.today import TODAY, today_section
from coresim.sim.estimate import Plan

#: 32 samples of 5 ms: two workers on two cores have a batch every 80 ms, and a step of 50 ms leaves 30 of them idle.
TABLES: dict[str, Any] = {
    "workload": {"batch_size": 32, "preprocess": "5 ms"},
    "accelerator": {"step": "50 ms", "sync": "block"},
    "host": {"cores": 2},
    "loader": {"workers": 2},
}


def today(**other: Any) -> Today:
    """What was observed; the program needs what it needs when its loader runs alone, unless it is said otherwise."""
    known: dict[str, Any] = {
        "program": "python train.py", "gpu_idle": 0.375, "samples_per_s": 400.0, "wait": 0.03, "step": 0.05,
        "batches": 60, "workers": 2, "prefetch_factor": 2, "threads": 2, "ranks": 1, "worker_cpu": 0.16,
    }  # fmt: skip
    return Today(**(known | other))


@pytest.fixture
def scenario() -> Scenario:
    return read_scenario(TABLES, "a test")


@pytest.fixture
def study() -> Iterator[Study]:
    with study_of(Plan(), "fast", lambda *_: None) as made:
        yield made


def test_pinned_memory_is_for_batches_that_are_copied_to_a_device() -> None:
    def settings(found: Profile, *overrides: str) -> str:
        return loader_settings(scenario_of(found, "a test", overrides), 2, 2)

    def flags(**given: str) -> argparse.Namespace:
        return argparse.Namespace(**({"step_time": None, "gpu": None, "model": None, "precision": None} | given))

    def step_on(device: str) -> Profile:
        source = AcceleratorSource(kind="measured", provenance="", uncertainty=0.0, step_time_s=0.1, name=device)
        return replace(profile(), accelerator=source)

    cpu, cuda = (replace(profile(), today=today(device=device)) for device in ("cpu", "cuda"))
    assert "pin_memory=False" in settings(cpu) and "pin_memory=True" in settings(cuda)
    assert "pin_memory=False" in settings(replace(cpu, today=today(pin_memory=True)))
    for given in ({"step_time": "9 ms"}, {"gpu": "h100"}):
        told, overrides = another_step(flags(**given), cpu)
        assert "pin_memory=True" in settings(told, *overrides)
    assert told.accelerator.provenance.startswith("catalogue: ResNet-50") and told.today == cpu.today
    assert another_step(flags(), cpu) == (cpu, [])
    assert "pin_memory=False" in settings(step_on("cpu")) and "pin_memory=True" in settings(step_on("some GPU"))


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("recommend --gpu nosuch", "unknown GPU 'nosuch'"),
        ("recommend --precision odd", "odd"),
        ("recommend --step-time soon", "--step-time"),
        ("recommend --gpu a100 --step-time 9ms", "leave one of the two out"),
        ("measure --gpu a100", "--gpu: the program after -- says what is measured"),
        ("validate --step-time 9ms", "--step-time: the program after -- says what is measured"),
    ],
)
def test_a_step_that_cannot_be_taken_is_told_before_the_program_is_started(
    flags: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    started = tmp_path / "started"
    assert main([*flags.split(), "--", "touch", str(started)]) == InputError.exit_code
    found = capsys.readouterr()
    assert words in found.err and found.out == "" and not started.exists()
    assert len(found.err.strip().splitlines()) == 1


def test_a_prediction_that_holds_names_no_term(scenario: Scenario, study: Study) -> None:
    checked = check(scenario, today(), study)
    assert checked.predicted == pytest.approx(0.375, abs=0.005)
    assert checked.trusted and checked.term is None
    told = today_section(checked).words
    assert told.startswith("Today: GPU idle observed 37.5 %, predicted 37.5 % [37.5, 37.5]; 400 samples/s; 2 workers")
    assert "Not to be trusted" not in told and "Warning" not in told
    assert TODAY.write(checked)["outside_interval"] is False


@pytest.mark.parametrize(
    ("low", "high", "warning"),
    [
        (0.35, 0.5, None),
        (0.36, 0.5, None),  # as far as the digits tell
        (0.38, 0.5, "Warning: the observed GPU idle is outside of the predicted 95 % interval."),
        (0.1, 0.9, "Warning: the prediction misses today by 14.1 points, although its 95 % interval is wide enough"),
    ],
)
def test_a_miss_is_a_warning_in_the_second_line(low: float, high: float, warning: str | None) -> None:
    """Whether the prediction is to be trusted or not: outside of the interval, or by more than 12 points."""
    predicted = 0.5 if high == 0.9 else 0.4
    checked = Checked(today(gpu_idle=0.359), predicted, low, high)
    told = today_section(checked).words
    assert f"GPU idle observed 35.9 %, predicted {100 * predicted:.1f} % [{100 * low:.1f}, {100 * high:.1f}]" in told
    assert ("Warning" in told) == (warning is not None)
    assert warning is None or f"worked on 50 ms. {warning}" in told
    assert TODAY.write(checked)["outside_interval"] == (low == 0.38)


def test_a_miss_with_batches_of_different_sizes_is_laid_to_them(scenario: Scenario, study: Study) -> None:
    sizes = {"batch_size": 19, "batch_least": 4, "batch_most": 100, "batch_mean": 18.7}
    checked = check(scenario, today(gpu_idle=0.8, **sizes), study)
    assert checked.term is not None and checked.term.name == "batches of different sizes"
    text = today_section(checked).words
    assert "2 workers, prefetch_factor 2, batches of 4 to 100 samples, 18.7 on average, 2 hardware threads" in text
    assert "Warning: the observed GPU idle is outside of the predicted 95 % interval. Not to be trusted:" in text
    assert "large ones are waited for; all are predicted as of 19." in text
    told = TODAY.write(checked)
    assert {name: told[name] for name in sizes} == sizes
    # A last one of each epoch that is smaller changes nothing.
    alike = today_section(
        check(scenario, today(batch_size=64, batch_least=16, batch_most=64, batch_mean=62.5), study)
    ).words
    assert "batch 64, 2 hardware threads" in alike


@pytest.mark.parametrize(
    ("other", "term"),
    [
        ({"gpu_idle": 0.75, "step": 0.02}, "the step"),  # 60 of 80 ms
        ({"gpu_idle": 0.6, "worker_cpu": 0.25}, "preparing a batch"),  # 75 of 125 ms
        ({"gpu_idle": 0.8}, "handing batches over"),  # the step and the workers are as they were
        ({"gpu_idle": 0.8, "step": 0.049, "worker_cpu": 0.165}, "handing batches over"),  # they explain little of it
    ],
)
def test_a_miss_names_the_term_that_explains_it(
    scenario: Scenario, study: Study, other: dict[str, Any], term: str
) -> None:
    checked = check(scenario, today(**other), study)
    assert checked.predicted == pytest.approx(0.375, abs=0.005)  # nothing that was observed went into it
    assert not checked.trusted
    assert checked.term is not None and checked.term.name == term
    text = today_section(checked).words
    assert f"Likeliest term: {term}" in text
    explained = f"; with that, the prediction is {100 * checked.term.idle:.1f} %." in text
    assert explained == (term != "handing batches over")
    assert ("The net trains on the cores that the workers use" in text) == (term == "the step")
    told = TODAY.write(checked)
    assert (told["trusted"], told["likeliest_term"]["name"]) == (False, term)


def test_short_epochs_are_told_and_are_the_term_of_a_miss(scenario: Scenario, study: Study) -> None:
    short = {"epoch_batches": 4, "epoch_wait": 0.29, "epoch_period": 0.08}
    checked = check(scenario, today(**short), study)
    assert checked.term is None
    text = today_section(checked).words
    # 4 steps of 50 ms in three periods of 80 ms, a wait of 290 ms and a step.
    assert "An epoch has 4 batches, and its first is waited for 290 ms, which is not in these figures." in text
    assert "With that the GPU idles 65.5 %." in text
    assert TODAY.write(checked)["gpu_idle_with_epoch_starts"] == pytest.approx(1 - 200 / 580)
    missed = check(scenario, today(gpu_idle=0.0, **short), study)
    assert missed.term is not None and missed.term.name == "short epochs"
    text = today_section(missed).words
    assert (
        "Likeliest term: short epochs: of the 4 batches of an epoch 4 are prepared while its first is waited for"
        in text
    )
    assert "with that, the prediction" not in text
    assert "An epoch has" not in today_section(check(scenario, today(**(short | {"epoch_batches": 4000})), study)).words


def test_cores_that_others_used_are_not_the_programs(scenario: Scenario, study: Study) -> None:
    # Alone on one core two workers have a batch every 160 ms.
    assert check(scenario, today(other_cores=1.0), study).predicted == pytest.approx(1 - 50 / 160, abs=0.005)
    assert free_cores(scenario, today(other_cores=0.05)) == 2.0  # less than can be told
    assert free_cores(scenario, today(ranks=2)) == 1.0
    assert free_cores(scenario, today(other_cores=5.0)) == pytest.approx(0.2)


def test_no_workers_are_no_overlap(scenario: Scenario, study: Study) -> None:
    checked = check(scenario, today(workers=0, gpu_idle=0.76), study)
    assert checked.predicted == pytest.approx(160 / 210, abs=0.005)
    assert "no workers (num_workers=0)" in today_section(checked).words


@pytest.fixture
def job(tmp_path: Path) -> Any:
    """Writes the profile of a made-up program whose GPU idles so much; predicted are nine tenths."""

    def write(idle: float, **other: Any) -> Path:
        path = tmp_path / "job.json"
        profile(today=today(gpu_idle=idle, step=0.075, worker_cpu=1.5, **other)).save(path)
        return path

    return write


def in_one_line(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("verb", ["recommend", "whatif", "report"])
def test_every_verb_begins_with_today_and_ends_with_5_where_it_misses(
    verb: str, job: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "plan.md"
    more = ["--output", str(output)] if verb == "report" else []
    more += ["--remedy", "more-workers"] if verb == "whatif" else ["--max-cores", "3"]
    assert main([verb, str(job(0.9)), *more]) in (0, 4)
    text = capsys.readouterr().out
    assert text.startswith("Today: GPU idle observed 90.0 %, predicted")
    assert main([verb, str(job(0.3)), *more]) == 5
    text = in_one_line(capsys.readouterr().out)
    assert text.startswith("Today: GPU idle observed 30.0 %, predicted")
    assert "Not to be trusted: the prediction misses today by" in text
    if verb == "report":
        rows = [line for line in output.read_text().splitlines() if line.startswith("| ")]
        assert rows[2].startswith("| Today | GPU idle observed 30.0 %")


def test_what_would_help_a_program_without_workers_begins_with_no_overlap(
    job: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    path = job(0.95, workers=0, prefetch_factor=None)
    assert main(["whatif", str(path), "--remedy", "offline", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["option"] == 1
    assert told["today"]["gpu_idle"] == pytest.approx(told["observed"]["gpu_idle_predicted"], abs=0.02)


def test_workers_help_a_program_that_has_none(job: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["whatif", str(job(0.95, workers=0, prefetch_factor=None)), "--remedy", "more-workers", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    (found,) = [one for one in told["remedies"] if one["name"] == "more-workers"]
    assert 1.0 - found["gpu_idle"] > 1.5 * (1.0 - told["today"]["gpu_idle"])


def test_a_program_is_answered_for_with_workers_whoever_asks(job: Any, tmp_path: Path) -> None:
    path, output = job(0.9), tmp_path / "plan.md"
    answer = recommend(profile_in(path), max_cores=3)
    assert [found.option for found in answer.result.options] == [Option.OVERLAPPED]
    assert str(answer).startswith("Today: GPU idle observed 90.0 %")
    assert main(["report", str(path), "-o", str(output), "--max-cores", "3"]) in (0, 4)
    assert "option 3" not in output.read_text()


def test_the_settings_of_a_named_loader_are_todays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = LoaderSettings(workers=3, prefetch_factor=4, pin_memory=True, persistent_workers=True, context="spawn")
    path = tmp_path / "named.json"
    profile(settings=own).save(path)
    assert profile_in(path).settings == own
    assert Profile.from_dict(profile().to_dict()).settings is None
    assert main(["recommend", str(path), "--json", "--max-cores", "3"]) in (0, 4)
    now = json.loads(capsys.readouterr().out)["own_host"]["today"]
    assert (now["workers"], now["prefetch_factor"]) == (3, 4)
    assert main(["recommend", str(path), "--max-cores", "3"]) in (0, 4)
    idle = f"{100 * now['gpu_idle']:.1f} %"
    assert in_one_line(capsys.readouterr().out).startswith(
        "Today: the DataLoader that was named has num_workers=3, prefetch_factor=4, pin_memory=True,"
        f" persistent_workers=True, multiprocessing_context='spawn'; GPU idle predicted {idle} on this host's 2 cores"
    )
