"""The sentences of an answer agree with the object that they are made from."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from report_kit import TABLES

import coresim
from coresim.advise.recommend import recommend
from coresim.advise.sweep import Study
from coresim.cli.main import main
from coresim.model.scenario import read_scenario
from coresim.report.text import core_range
from coresim.report.words import WIDTH
from coresim.sim.estimate import Plan
from coresim.sim.fast import simulate


def test_the_answer_is_in_the_first_two_lines_and_agrees_with_the_object(answer):
    first = " ".join(line.strip() for line in str(answer).splitlines()[:2])
    assert first.startswith(f"{answer.cores_per_gpu} CPU cores per GPU")
    assert f"{100 * answer.gpu_idle:.1f} %" in first
    assert f"{2 * answer.cores_per_gpu} hardware threads" in first


def test_text_says_when_shared_memory_does_not_fit(answer):
    assert "does NOT fit" in str(answer)


def test_text_compares_the_own_host(answer):
    assert "On the host's 2 cores per GPU  too few cores" in str(answer)


def test_elasticity_of_a_starved_gpu_is_that_of_the_preparation():
    scenario = read_scenario({"workload": {"batch_size": 8, "preprocess": "4 ms"}, "accelerator": {"step": "12 ms"}})
    found = recommend(scenario, Study(simulate, Plan()), options=(2,), max_cores=1)
    by_name = {item.name: item for item in found.elasticities}
    assert by_name["preprocess"].change > 0 > by_name["cores"].change
    assert by_name["preprocess"].change == pytest.approx(-by_name["cores"].change, rel=0.2)


def test_what_a_setting_gives_rests_on_that_setting(capsys, profile_path: Path, tmp_path: Path) -> None:
    said = " ".join(
        str(coresim.recommend(profile_path, settings=["step=49 ms", "host.speed=[1.0]"], max_cores=4)).split()
    )
    assert "(5224 samples/s): given by the setting accelerator.step=49 ms (--set) - " in said
    assert "busy cores: given by the setting host.speed=[1.0] (--set)" in said and "MLPerf" not in said
    kept = " ".join(str(coresim.recommend(profile_path, settings=["step.uncertainty=0.1"], max_cores=4)).split())
    assert "result_0.txt, with the setting accelerator.step.uncertainty=0.1 (--set) - " in kept
    scenario = tmp_path / "job.toml"
    scenario.write_text('[workload]\nbatch_size = 8\npreprocess = "4 ms"\n[accelerator]\nstep = "12 ms"\n')
    arguments = ["recommend", str(scenario), "--max-cores", "2", "--set", "accelerator.step=49 ms"]
    main(arguments)
    assert "given by the setting accelerator.step=49 ms (--set)" in " ".join(capsys.readouterr().out.split())
    main([*arguments, "--json"])
    provenance = json.loads(capsys.readouterr().out)["metadata"]["step_provenance"]
    assert provenance == "given by the setting accelerator.step=49 ms (--set)"


@pytest.mark.slow
def test_bandwidth_is_blamed_only_where_it_is_saturated() -> None:
    # Crowded cores slow the one process that receives batches: it is what binds, and more cores do more work.
    tables = {
        "workload": {"batch_size": 32, "preprocess": "5 ms", "consumer": "10 ms"},
        "accelerator": {"step": "5 ms", "sync": "block"},
        "host": {"cores": 24, "speed": [k**-0.1 for k in range(1, 65)]},
    }
    growing = coresim.recommend(tables, options=(2,))
    assert "More cores will not help: serial consumer" in str(growing)
    assert "not saturated by 64 cores of this work" in str(growing)
    assert "bandwidth" not in {growing.result.verdict.name, growing.result.verdict.next_bottleneck}
    assert growing.result.verdict.advice == "send fewer, larger tensors; smaller dtypes; pin"
    on_cpu = coresim.recommend(tables, options=(2,), settings=["accelerator.copies=false"])
    assert on_cpu.result.verdict.advice == "send fewer, larger tensors; smaller dtypes"
    level = [1 / max(1.0, k / 4) for k in range(1, 65)]
    flat = coresim.recommend(tables | {"host": {"cores": 24, "speed": level}}, options=(2,))
    assert flat.result.verdict.name == "bandwidth" and "saturated by 4 cores of this work" in str(flat)


def test_why_no_number_of_cores_reaches_the_target() -> None:
    def why(tables: dict, **options: object) -> str:
        said = " ".join(str(coresim.recommend(tables, **options)).split())
        return said[said.index("no number of cores") :]

    slow = {"batch_size": 32, "preprocess": "5 ms"}
    consumer = {"workload": slow | {"consumer": "10 ms"}, "accelerator": {"step": "5 ms"}}
    assert why(consumer, options=(2,)).startswith(
        "no number of cores reaches the target: the bound is serial trainer, X"
    )
    crowded = {"host": {"speed": [1.0, 0.5]}, "loader": {"max_workers": 2}}
    few = {"workload": slow, "accelerator": {"step": "80 ms", "sync": "block"}, **crowded}
    assert "target with 2 workers, which can use no more of them: X <= 1.5 /" in why(few, options=(2,))


def test_only_the_first_line_is_wider_than_the_text() -> None:
    tables = {**TABLES, "accelerator": {"step": "12 ms", "launch": "1 ms", "count": 8}, "host": {"cores": 16}}
    for speed in ([1.0], [1.0, 0.99, 0.98]):
        tables["host"] = {"cores": 16, "shm_bytes": 1e6, "speed": speed}
        lines = str(coresim.recommend(tables)).splitlines()
        assert max(map(len, lines[1:])) <= WIDTH
        assert any(line.strip().startswith("With a DataLoader") for line in lines)
        assert any(line.strip().startswith("- Lower bound: ") for line in lines)


def test_an_interval_of_one_value_is_an_interval(answer) -> None:
    assert core_range(replace(answer.result, cores_low=37, cores_high=37)).startswith("95 % interval 37 to 37;")
