"""The answer where nobody has said how long a training step takes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jsonschema import validate
from made_up import RECORDED, profile

import coresim
from coresim.cli.main import main
from coresim.errors import InputError
from coresim.model.profile import Profile
from coresim.model.scenario import Scenario
from coresim.report.schemas import schemas

#: One option, and so little work that few cores do for each step.
LITTLE = ("workload.preprocess=1 ms", "host.speed=[1.0]")
QUICKLY = ("--options", "2", *(word for setting in LITTLE for word in ("--set", setting)))
UNKNOWN = replace(RECORDED, kind="unknown", provenance="not known; in its place the catalogue's ResNet-50")


def unknown() -> Profile:
    return profile(accelerator=UNKNOWN)


@pytest.fixture
def path(tmp_path: Path) -> str:
    unknown().save(tmp_path / "own.json")
    return str(tmp_path / "own.json")


@pytest.fixture(scope="module")
def found() -> Any:
    """For the steps, and for a rate."""
    return coresim.recommend_for_steps(unknown(), settings=LITTLE, options=(2,)).result


def test_the_answer_leads_with_what_is_not_known(
    path: str, found: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def simulated_before(scenario: Scenario, *_: object) -> Any:
        assert scenario.workload == found.answers[0].scenario.workload
        return found

    monkeypatch.setattr("coresim.advise.steps.for_steps", simulated_before)
    assert main(["recommend", path, *QUICKLY]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("Step time unknown: ") and "cores per 1,000 samples/s" in lines[0]
    told = " ".join(" ".join(lines).split()).split(" - with ")
    for step, line in zip(("10 ms", "30 ms", "100 ms"), told[1:], strict=True):
        assert f"steps of {step} (" in line and ("cores per GPU" in line or "no core count" in line)
    assert "--step-time" in " ".join(lines) and "--gpu" in " ".join(lines)


def test_a_longer_step_needs_fewer_cores_and_the_same_for_a_rate(found: Any) -> None:
    rates = [256 / answer.scenario.accelerator.step.mean for answer in found.answers]
    assert rates == pytest.approx([25600, 256 / 0.03, 2560])
    cores = [answer.point.cores for answer in found.answers if answer.meets_target]
    assert cores == sorted(cores, reverse=True) and len(cores) == 3
    # 2,560 samples/s, with a core for the trainer, which spins.
    assert found.answers[-1].point.cores == pytest.approx(1 + 2.56 * found.per_rate.cores, rel=0.15)


def test_the_json_is_as_its_schema_says(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recommend", path, *QUICKLY, "--json", "--confidence", "80%"]) == 0
    told = json.loads(capsys.readouterr().out)
    validate(told, schemas()["recommend-steps"])
    assert told["step_time_known"] is False
    assert [one["step_s"] for one in told["steps"]] == [0.01, 0.03, 0.1]
    assert {one["sure"]["confidence"] for one in told["steps"]} == {0.8}


def test_a_step_that_is_given_makes_it_one_number(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recommend", path, *QUICKLY, "--set", "accelerator.step=98 ms"]) == 0
    out = capsys.readouterr().out
    assert "Step time unknown" not in out and "CPU cores per GPU, option " in out.splitlines()[0]


@pytest.mark.parametrize("verb", [["simulate"], ["whatif"], ["report", "-o", "plan.md"]])
def test_what_needs_a_step_is_refused(
    verb: list[str], path: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*verb, path]) == 2
    assert "step time unknown" in capsys.readouterr().err


def test_python_refuses_and_says_what_to_give() -> None:
    with pytest.raises(InputError, match="step time unknown"):
        coresim.recommend(unknown())
    given = coresim.recommend(unknown(), settings=["accelerator.step=98 ms"], options=(2,), max_cores=3)
    assert given.cores_per_gpu > 1


def test_the_headline_names_a_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    profile().save(tmp_path / "builtin.json")
    main(["recommend", str(tmp_path / "builtin.json"), *QUICKLY])
    first = capsys.readouterr().out.splitlines()[0]
    assert "for the 3,413 samples/s recorded of ResNet-50 v1.5 on A100," in first
