"""Reading samples from storage instead of the page cache, from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from coresim.cli.main import main
from coresim.model.profile import Profile, load_document


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
