"""``coresim simulate``: its JSON, engines and seeds, a key that is set, the trace and the drawing."""

from __future__ import annotations

import json

import pytest
from cli_kit import call
from shared import check


def test_simulate_says_nothing_of_workers_where_the_stages_are_listed(capsys, tmp_path):
    path = tmp_path / "staged.toml"
    path.write_text(
        '[workload]\nbatch_size = 10\n[accelerator]\nstep = "2 ms"\n'
        '[[stage]]\nname = "decode"\nservice = "1 ms"\nservers = 2\n'
    )
    out = call(capsys, "simulate", path, "--cores", 4, "--steps", 50)[1]
    assert out.startswith("Simulated: listed stages 1, cores 4.0, engine fast\n")


@pytest.mark.parametrize("engine", ["fast", "reference"])
def test_simulate_prints_one_json_object_that_fits_its_schema(capsys, scenario, engine):
    arguments = ("--option", 2, "--workers", 8, "--cores", 9, "--steps", 60, "--seed", 1, "--json", "--engine", engine)
    code, out, _ = call(capsys, "simulate", scenario, *arguments)
    assert code == 0
    answer = json.loads(out)
    check(json.loads(call(capsys, "schema", "simulate")[1]), answer)
    assert answer["accelerator_utilisation"] == pytest.approx(1 - answer["gpu_idle"])


def test_both_engines_give_the_same_answer(capsys, scenario):
    answers = []
    for engine in ("fast", "reference"):
        arguments = ("--workers", 3, "--cores", 2, "--steps", 40, "--replications", 2, "--json", "--engine", engine)
        answers.append(json.loads(call(capsys, "simulate", scenario, *arguments)[1]))
    for name in ("gpu_idle", "gpu_idle_low", "throughput_samples_per_s", "makespan_s", "busy_cores"):
        assert answers[0][name] == pytest.approx(answers[1][name], rel=1e-9)


def test_a_seed_gives_the_same_answer_again_and_another_another(capsys, scenario):
    def answer(seed):
        out = call(capsys, "simulate", scenario, "--steps", 50, "--seed", seed, "--json")[1]
        return json.loads(out)["gpu_idle"]

    assert answer(1) == answer(1) != answer(2)


def test_set_overrides_a_key(capsys, scenario):
    def rate(*settings):
        flags = [word for setting in settings for word in ("--set", setting)]
        return json.loads(call(capsys, "simulate", scenario, "--json", *flags)[1])["throughput_samples_per_s"]

    assert rate("workload.preprocess=0.1 ms", "fetch=0 s") > 2000 > rate()
    assert rate("accelerator.step=1 s") == pytest.approx(256 / 1.0035, rel=1e-3)


def test_trace_is_written_whole_or_not_at_all(capsys, tmp_path, scenario):
    path = tmp_path / "trace.json"
    assert call(capsys, "simulate", scenario, "--trace", path)[0] == 0
    assert json.loads(path.read_text())["traceEvents"]
    assert call(capsys, "simulate", scenario, "--trace", tmp_path / "no" / "trace.json")[0] == 2


def test_the_first_batches_are_drawn(capsys, tmp_path, scenario):
    path = tmp_path / "gantt.svg"
    assert call(capsys, "simulate", scenario, "--gantt", path)[0] == 0
    text = path.read_text()
    assert "<svg" in text
    assert len(text) > 10_000
    code, _, err = call(capsys, "simulate", scenario, "--gantt", tmp_path / "gantt.xyz")
    assert (code, len(err.splitlines())) == (2, 1)
