"""The schemas that ``coresim schema`` prints, held beside what the verbs print."""

from __future__ import annotations

import copy
import io
import json
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from shared import SCENARIO, check

from coresim.advise.starved import BOUNDED, SEARCHED, SIMULATED
from coresim.cli.main import main
from coresim.model.profile import Profile, load_document
from coresim.model.today import Today

FLEET = """
machines = ["aws:p4d.24xlarge", "lambda:gpu_1x_h100_pcie"]
options = [1, 2]
[[workload]]
path = "job.toml"
gpu_hours = 10
gpu = "A100-SXM4-40GB"
[[workload]]
name = "given"
path = "job.toml"
gpu_hours = 1
steps = { H100 = "50 ms", A100 = "98 ms" }
set = ["workload.preprocess=0.5 ms"]
"""


def printed(*argv: str) -> Any:
    """What a verb prints as JSON."""
    with redirect_stdout(io.StringIO()) as out:
        assert main(list(argv)) in (0, 4, 5, 7)  # 7: two quick processes do not tell
    return json.loads(out.getvalue())


def of_a_program(path: Path, idle: float) -> Profile:
    """The profile of that file as one of a program that was seen to idle so."""
    profile = load_document(path)
    assert isinstance(profile, Profile)
    today = Today(
        program="python train.py", gpu_idle=idle, samples_per_s=400.0, wait=0.03, step=0.05, batches=60, workers=2,
        threads=2, rank_busy=(1.0 - idle,),
    )  # fmt: skip
    return replace(profile, today=today)


@pytest.fixture(scope="module")
def outputs(profile_path: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The output of each verb whose whole document has a schema."""
    folder = tmp_path_factory.mktemp("outputs")
    (folder / "job.toml").write_text(SCENARIO)
    (folder / "fleet.toml").write_text(FLEET)
    of_a_program(profile_path, idle=0.0).save(folder / "program.json")
    return {
        "recommend": printed("recommend", str(folder / "program.json"), "--max-cores", "2", "--json"),
        "compare": printed("compare", str(profile_path), str(profile_path), "--json", "--fail-over", "10%"),
        "machines": printed("machines", "--json"),
        "plan": printed("plan", str(folder / "fleet.toml"), "--jobs", "1", "--json"),
    }


@pytest.mark.slow
def test_outputs_fit_their_schemas(outputs: dict[str, Any]) -> None:
    plan = outputs["plan"]
    assert plan["not_predicted"] and plan["mix"] and len(plan["rows"]) == 2 * 4 - 2
    assert {row["provenance"] for row in plan["rows"]} == {BOUNDED, SEARCHED, SIMULATED}
    assert len(outputs["machines"]["machines"]) > 100 and outputs["compare"]["changes"]
    today = outputs["recommend"]["today"]
    assert (today["gpu_idle_observed"], today["gpu_idle_by_rank"], today["batch_size"]) == (0.0, [0.0], None)
    assert not today["trusted"] and set(today["likeliest_term"]) == {"name", "words"}
    for verb, document in outputs.items():
        schema = printed("schema", verb)
        assert schema["title"] == f"coresim {verb}"
        check(schema, document)
        # Whole: no key that the schema does not tell of.
        check(closed(schema), document)


def closed(schema: Any) -> Any:
    """The schema with objects that allow no key besides those that they list."""
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: closed(value) for name, value in schema.items()}
    return {"additionalProperties": False, **found} if "required" in schema else found


def test_of_a_job_that_is_no_program_nothing_is_told_of_today(profile_path: Path) -> None:
    told = printed("recommend", str(profile_path), "--max-cores", "2", "--json")
    assert told["today"] is None
    check(printed("schema", "recommend"), told)


@pytest.mark.slow
def test_a_wrong_output_does_not_fit(outputs: dict[str, Any]) -> None:
    wrong = {
        "recommend": lambda document: document["today"].update(gpu_idle_by_rank=[0.5, -0.5]),
        "compare": lambda document: document["changes"][0].update(real=1),
        "machines": lambda document: document["machines"][0].update(certainty_cores="guessed"),
        "plan": lambda document: document["rows"][0].update(gpu_idle=1.5),
    }
    for verb, spoil in wrong.items():
        spoiled = copy.deepcopy(outputs[verb])
        spoil(spoiled)
        with pytest.raises(AssertionError):
            check(printed("schema", verb), spoiled)


def test_all_schemas_at_once_are_those_by_name() -> None:
    together = printed("schema")
    assert list(together) == [
        "scenario",
        "fleet",
        "recommend",
        "recommend-steps",
        "simulate",
        "compare",
        "machines",
        "plan",
    ]
    assert all(printed("schema", name) == schema for name, schema in together.items())
