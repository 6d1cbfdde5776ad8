"""``coresim recommend``: its JSON and its exit code; a scenario's or a profile's samples read from storage."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_kit import call
from shared import check

from coresim.cli.main import main
from coresim.model.profile import Profile, load_document


def test_recommend_prints_one_json_object_that_fits_its_schema(capsys, scenario):
    code, out, _ = call(capsys, "recommend", scenario, "--json", "--max-cores", 18)
    assert code == 0
    answer = json.loads(out)
    check(json.loads(call(capsys, "schema", "recommend")[1]), answer)
    chosen = answer["recommendation"]
    assert chosen["gpu_idle_low"] <= chosen["gpu_idle"] <= chosen["gpu_idle_high"]
    assert chosen["gpu_idle"] <= 0.05
    for option in answer["options"]:
        cores = [point["cores"] for point in option["curve"]]
        assert cores == sorted(set(cores)) and cores[:16] == list(range(1, 17))[: len(cores)]
        within = [point["cores"] for point in option["curve"] if point["gpu_idle"] <= 0.05]
        assert option["cores_per_gpu"] == (within[0] if within else None)
    fewest = min(option["cores_per_gpu"] for option in answer["options"] if option["cores_per_gpu"])
    assert chosen["cores_per_gpu"] == fewest
    assert answer["lower_bound_cores"] <= fewest


def test_no_core_count_is_exit_4_and_says_what_would_help(capsys, scenario):
    slow = ("--set", "workload.consumer=80 ms", "--options", "2", "--max-cores", 18)
    code, out, _ = call(capsys, "recommend", scenario, *slow)
    assert code == 4
    assert out.startswith("No core count")
    assert "More cores will not help: serial consumer" in out


def test_cold_reads_are_waited_for(profile_path: Path, capsys: pytest.CaptureFixture[str]):
    profile = load_document(profile_path)
    assert isinstance(profile, Profile) and profile.scenario().workload.fetch.is_zero
    assert not profile.scenario(cold=True).workload.fetch.is_zero
    answers = []
    for flags in ([], ["--cold"]):
        main(["recommend", str(profile_path), "--max-cores", "3", "--options", "1", "--json", *flags])
        answers.append(json.loads(capsys.readouterr().out)["options"][0]["curve"][0]["gpu_idle"])
    assert answers[1] > answers[0]


def test_a_scenario_says_itself_what_fetching_takes(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "job.toml"
    path.write_text('[workload]\nbatch_size = 8\npreprocess = "5 ms"\n[accelerator]\nstep = "60 ms"\n')
    assert main(["recommend", str(path), "--cold"]) == 2
    assert "workload.fetch" in capsys.readouterr().err
