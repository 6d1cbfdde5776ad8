"""Scenarios: the example, every key, bad input, the way back to a document."""

from __future__ import annotations

import copy
import re
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shared import SCENARIO

from coresim.cli.common import read_input
from coresim.errors import InputError, UnknownKeyError
from coresim.model.build import build
from coresim.model.overrides import override
from coresim.model.scenario import (
    SECTIONS,
    StageTable,
    read_scenario,
    scenario_schema,
    with_services,
)
from coresim.model.service import ZERO, Service
from coresim.sim.draws import draw
from coresim.sim.fast import simulate
from coresim.sim.run import RunLength
from coresim.units import short

#: Every key of every section, each away from its default.
FULL: dict[str, Any] = {
    "workload": {
        "batch_size": 4, "samples_per_epoch": 240, "startup": "30 ms", "worker_startup": "0.1 s",
        "worker_wait": "0.2 s", "batch_bytes": 1e6,
        "worker_bytes": 5e8, "pin": {"mean": "1 ms", "cv": 0.5, "distribution": "gamma", "uncertainty": 0.02},
        "pin_wait": "2 ms", "pages": "1 ms", "shared_cv": 0.1, "send_overlap": 0.5,
        "preprocess": {"values": [3, 5, 11, 7, 0.1], "unit": "ms", "mean": "5.1 ms", "uncertainty": 0.1},
        "fetch": "0.25 ms", "collate": {"mean": "2 ms", "cv": 0.1}, "send": "1.5 ms", "in_process_collate": 0.5,
        "consumer": {"values": ["1 ms", "2 ms"]}, "consumer_growth": 0.02,
        "consumer_by_workers": [1, 1.2], "release": 0.3,
        "copy": {"mean": "700 us", "distribution": "exponential"}, "sample_bytes": 1.1e5, "dataset_bytes": 9e9,
        "device_preprocess": "2 ms", "decode_share": 0.6, "handover": {"rest_free": "1 ms", "work_crowded": "4 ms"},
    },
    "accelerator": {
        "step": "19 ms", "launch": "1 ms", "lead": 0.25, "sync": "block", "run_ahead": 2, "count": 2, "hosts": 3,
        "allreduce": "3 ms",
        "slowdown": [1, 1.5], "name": "a device", "cpu_step": "2 s", "copies": False,
    },
    "host": {
        "cores": 3.5, "threads_per_core": 2, "speed": [1, 0.9], "speed_uncertainty": 0.05, "siblings": 0.1,
        "sharing_loss": 0.02,
        "storage_streams": 8, "machine_cores": 12.0, "memory_bytes": 64e9, "shm_bytes": 32e9, "storage": "ssd-nvme",
    },
    "loader": {
        "preset": "pytorch-unordered", "dispatch": "shared", "ordered": True, "workers": 3, "prefetch_factor": 5,
        "fetchers": 4, "buffer": 3, "split": 2, "copy_mode": "overlap", "pin_memory": True, "persistent_workers": False,
        "grain": "sample", "credits": "queue", "max_workers": 9, "in_process": True, "gil": 0.25, "library_threads": 2,
        "default_threads": 3, "more_queued": 1, "lock_passing": 0.2,
    },
    "target": {"gpu_idle": 0.1},
    "stage": [{
        "name": "decode", "service": {"mean": "2 ms", "cv": 1.5}, "servers": 3, "grain": "sample", "buffer": 7,
        "holds_core": False, "ordered": False,
    }],
}  # fmt: skip


SMALL: dict[str, Any] = {"workload": {"batch_size": 4, "preprocess": "5 ms"}, "accelerator": {"step": "20 ms"}}


def example() -> dict[str, Any]:
    return tomllib.loads(SCENARIO)


def with_key(path: str, value: Any) -> dict[str, Any]:
    """The example with one more key; ``stage.`` puts it into a stage."""
    document = copy.deepcopy(example())
    section, name = path.split(".", 1)
    if section == "stage":
        document["stage"] = [{"name": "a", "service": "1 ms"} | {name: value}]
    else:
        document.setdefault(section, {})[name] = value
    return document


# Good input


def test_the_example_reads() -> None:
    scenario = read_scenario(example())
    workload, device = scenario.workload, scenario.accelerator
    assert workload.fetch == Service(0.0004, 1.0, "exponential")
    assert workload.preprocess == Service(pytest.approx(0.0052), 0.4, "lognormal")
    assert (workload.collate, workload.consumer, workload.copy) == (Service(0.003), Service(0.002), Service(0.0015))
    assert (device.step.mean, device.launch.mean, device.sync, device.count) == (0.098, 0.005, "spin", 1)
    assert (scenario.host.cores, scenario.host.threads_per_core, scenario.host.speed) == (16.0, 2, (1.0, 1.0, 0.97))
    assert (scenario.loader.workers, scenario.loader.prefetch_factor, scenario.loader.ordered) == (8, 2, True)
    assert scenario.target.gpu_idle == 0.05
    assert scenario.batches_per_epoch == 1281167 // 256


def test_the_full_document_has_every_key() -> None:
    for name, kind in {**SECTIONS, "stage": StageTable}.items():
        table = FULL[name][0] if name == "stage" else FULL[name]
        assert set(table) == {field.name for field in fields(kind)}


def test_every_key_is_read() -> None:
    full = read_scenario(FULL)
    defaults = read_scenario({**SMALL, "stage": [{"name": "x", "service": "9 s"}]})
    for name in SECTIONS:
        for key in FULL[name]:
            if key not in ("batch_size", "ordered"):
                assert getattr(getattr(full, name), key) != getattr(getattr(defaults, name), key), key
    (stage,) = full.stages
    assert (stage.servers, stage.grain, stage.buffer, stage.holds_core, stage.ordered) == (3, "sample", 7, False, False)
    assert full.workload.preprocess.mean == pytest.approx(0.0051)
    assert full.workload.copy.mean == 0.0007
    assert full.batches_per_epoch == 10


def test_what_is_left_out_has_its_default() -> None:
    scenario = read_scenario(SMALL)
    assert scenario.workload.fetch == scenario.workload.copy == ZERO
    assert (scenario.host.cores, scenario.loader.prefetch_factor, scenario.loader.ordered) == (None, 2, True)
    assert scenario.batches_per_epoch is None


def test_a_preset_is_a_default_that_a_key_overrides() -> None:
    assert not read_scenario(SMALL | {"loader": {"preset": "pytorch-unordered"}}).loader.ordered
    assert read_scenario(SMALL | {"loader": {"preset": "pytorch-unordered", "ordered": True}}).loader.ordered


FREE: dict[str, Any] = SMALL | {"workload": SMALL["workload"] | {"preprocess": "0 s"}}


@pytest.mark.parametrize(
    "document", [example(), FULL, SMALL, FREE, SMALL | {"loader": {"preset": "pytorch-unordered"}}]
)
def test_a_scenario_is_written_and_read_back_equal(document: dict[str, Any]) -> None:
    scenario = read_scenario(document)
    assert read_scenario(scenario.to_dict()) == scenario
    scaled = with_services(scenario, 1 / 3, "preprocess", "consumer", "step")
    assert read_scenario(scaled.to_dict()) == scaled
    assert scaled.workload.preprocess.mean == pytest.approx(scenario.workload.preprocess.mean / 3)


def test_a_file_is_read_with_overrides(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text(SCENARIO)
    assert read_input(str(path), []) == (read_scenario(example()), None)
    changed, _ = read_input(str(path), ["accelerator.step=98 ms", "prefetch_factor = 4"])
    assert (changed.loader.prefetch_factor, changed.accelerator.step.mean) == (4, 0.098)


# Bad input: one line with the key, the value and a remedy

BAD = [
    ("workload.batchsize", 4, r"did you mean 'batch_size'"),
    ("workload.preproces", "5 ms", r"did you mean 'preprocess'"),
    ("loader.colour", 1, r"use .*prefetch_factor"),
    ("workload.preprocess", "-5 ms", r"-5 ms.*not negative"),
    ("workload.preprocess", "nan ms", r"nan ms.*finite"),
    ("workload.preprocess", "inf ms", r"inf ms.*finite"),
    ("workload.preprocess", "1e999 s", r"1e999 s.*finite"),
    ("workload.preprocess", "5", r"'5': unit missing; write \"5 ms\""),
    ("workload.preprocess", 5, r"= 5: unit missing; write .*\"5 ms\""),
    ("workload.preprocess", "5 parsecs", r"unknown unit 'parsecs'; use one of ns"),
    ("workload.preprocess", "fast", r"'fast': not a time; write"),
    ("workload.preprocess", True, r"True: unit missing"),
    ("workload.preprocess", ["5 ms"], r"\['5 ms'\]: unit missing; write"),
    ("workload.preprocess", {}, r"mean missing; write"),
    ("workload.preprocess", {"mean": "5 ms", "sd": 1}, r"preprocess\.sd: unknown key; use mean, cv"),
    ("workload.preprocess", {"mean": "5 ms", "cv": -1}, r"cv = -1: a number at least 0 and at most 1000"),
    ("workload.preprocess", {"mean": "5 ms", "cv": float("nan")}, r"cv = nan: a number at least 0"),
    ("workload.preprocess", {"mean": "5 ms", "cv": True}, r"cv = True: a number at least 0 .* is needed"),
    ("workload.preprocess", {"mean": "5 ms", "cv": 1e9}, r"cv = 1000000000.0: a number at least 0 and at most 1000"),
    ("workload.preprocess", {"mean": "5 ms", "cv": 10**400}, r"cv = an integer of .*: a number at least 0 and"),
    ("workload.preprocess", {"mean": "5 ms", "cv": 0.4, "distribution": "constant"}, r"cv = 0\.4.*leave cv out"),
    ("workload.preprocess", {"mean": "5 ms", "cv": 0.4, "distribution": "exponential"}, r"cv = 0\.4.*leave cv out"),
    ("workload.preprocess", {"mean": "5 ms", "distribution": "gamma"}, r"cv: missing; .*cv = 0\.4"),
    ("workload.preprocess", {"mean": "5 ms", "distribution": "normal"}, r"= 'normal': use one of constant"),
    ("workload.preprocess", {"mean": "5 ms", "distribution": ["gamma"]}, r"distribution = \['gamma'\]: use one of"),
    ("workload.preprocess", {"mean": "5 ms", "unit": "ms"}, r"unit: goes with values only; write"),
    ("workload.preprocess", {"values": []}, r"values = \[\]: a list of at least one time"),
    ("workload.preprocess", {"values": "5 ms"}, r"values = '5 ms': a list"),
    ("workload.preprocess", {"values": [5]}, r"values = 5: unit missing; write"),
    ("workload.preprocess", {"values": [-5], "unit": "ms"}, r"values = -5: a number at least 0"),
    ("workload.preprocess", {"values": [5], "unit": "m"}, r"unit = 'm': use one of ns"),
    ("workload.preprocess", {"values": [5], "unit": ["ms"]}, r"unit = \['ms'\]: use one of ns"),
    ("workload.preprocess", {"values": ["5 ms"], "cv": 1}, r"values and cv exclude each other"),
    ("workload.preprocess", {"values": ["5 ms"], "distribution": "gamma"}, r"'gamma' exclude each other"),
    ("workload.preprocess", {"values": ["0 ms"], "mean": "5 ms"}, r"all zero .*leave one out"),
    ("workload.preprocess", {"values": ["1e308 s", "1e308 s"]}, r"'1e308 s': a time is 0 or from .*check the unit"),
    ("workload.preprocess", {"values": ["1e-300 s"], "mean": "1e300 s"}, r"'1e-300 s': a time is 0 or from"),
    ("workload.batch_size", 0, r"batch_size = 0: a whole number from 1 to"),
    ("workload.batch_size", -3, r"= -3: a whole number"),
    ("workload.batch_size", 2.5, r"= 2\.5: a whole number"),
    ("workload.batch_size", True, r"= True: a whole number"),
    ("workload.batch_size", "8", r"= '8': a whole number"),
    ("workload.batch_size", 10**400, r"= an integer of .*to 1e\+12"),
    ("workload.samples_per_epoch", 255, r"= 255: fewer than one batch.*lower batch_size"),
    ("workload.batch_bytes", float("inf"), r"= inf: a number above 0"),
    ("workload.startup", 3, r"= 3: unit missing"),
    ("accelerator.step", "0 ms", r"step = 0: a step must take time; measure"),
    ("accelerator.sync", "spinn", r"'spinn': use one of spin, block; did you mean 'spin'"),
    ("accelerator.run_ahead", -1, r"= -1: a whole number from 0 to"),
    ("accelerator.slowdown", [], r"= \[\]: a list of positive numbers"),
    ("accelerator.name", 3, r"= 3: a text is needed"),
    ("host.cores", 0, r"= 0: a number above 0"),
    ("host.cores", "16", r"= '16': a number above 0"),
    ("host.cores", True, r"= True: a number above 0"),
    ("host.cores", 10**400, r"a number above 0"),
    ("host.speed", 1.0, r"= 1\.0: a list of positive numbers"),
    ("host.speed", [1.0, 0.0], r"speed\[1\] = 0\.0: a number at least 1e-06 and at most 1e\+06"),
    ("host.speed", [1.0, True], r"speed\[1\] = True: a number at least 1e-06"),
    ("loader.preset", "tensorflow", r"'tensorflow': use one of pytorch"),
    ("loader.preset", ["pytorch"], r"\['pytorch'\]: use one of pytorch"),
    ("loader.ordered", 1, r"= 1: true or false"),
    ("loader.dispatch", "random", r"'random': use one of round_robin, shared"),
    ("loader.workers", -1, r"= -1: a whole number from 0 to"),
    ("target.gpu_idle", 1.5, r"= 1\.5: a number at least 0 and at most 1"),
    ("target.gpu_idle", "5 %", r"= '5 %': a number"),
    ("stage.service", "soon", r"stage\.service = 'soon': not a time"),
    ("stage.servers", 0, r"stage\.servers = 0: a whole number"),
    ("stage.grain", "item", r"'item': use one of sample, batch"),
    ("stage.kind", 1, r"stage\.kind: unknown key"),
    ("stage.name", "trainer", r"'trainer': taken already; give"),
]


@pytest.mark.parametrize(("path", "value", "message"), BAD, ids=[f"{path}={str(value)[:30]}" for path, value, _ in BAD])
def test_bad_values_are_named(path: str, value: Any, message: str) -> None:
    with pytest.raises(InputError) as caught:
        read_scenario(with_key(path, value), "job.toml")
    text = str(caught.value)
    assert re.search(message, text), text
    assert text.startswith("job.toml: ") and path in text and "\n" not in text
    unknown = "unknown key" in message or "did you mean '" in message or "use .*" in message
    assert isinstance(caught.value, UnknownKeyError) == (unknown and "one of" not in message)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({}, r"\[workload\]: missing; it needs batch_size"),
        ({"workload": SMALL["workload"]}, r"\[accelerator\]: missing; it needs step"),
        (SMALL | {"workload": {"batch_size": 4}}, r"workload\.preprocess: missing; .*5\.2 ms"),
        (SMALL | {"workload": {"preprocess": "1 ms"}}, r"workload\.batch_size: missing; samples per batch"),
        (SMALL | {"accelerator": {}}, r"accelerator\.step: missing; .*98 ms"),
        (SMALL | {"workload": [4]}, r"workload = \[4\]: a table is needed, such as \[workload\]"),
        (SMALL | {"host": 16}, r"host = 16: a table is needed"),
        (SMALL | {"loader": []}, r"loader = \[\]: a table is needed"),
        (SMALL | {"hosts": {}}, r"hosts: unknown key; did you mean 'host'"),
        (SMALL | {"stage": {"name": "a"}}, r"stage: write \[\[stage\]\]"),
        (SMALL | {"stage": [3]}, r"stage = 3: a table is needed"),
        (SMALL | {"stage": [{"name": "a", "service": "1 s"}] * 2}, r"stage\.name = 'a': taken already"),
    ],
)
def test_bad_documents_are_named(document: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        read_scenario(document)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["[workload", "batch_size = ", "a = 1\na = 2", "\x00", "[workload]\nx = 5 ms"])
def test_a_file_that_is_not_toml_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=r"bad\.toml: not valid TOML: .+ \(at "):
        read_input(str(path), [])
    with pytest.raises(InputError, match=r"none\.toml: no such file; check the path"):
        read_input(str(tmp_path / "none.toml"), [])


_ATOMS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.dates(),
    st.sampled_from(("5 ms", "-1 s", "nan s", "0 s", "lognormal", "values", "ms", "pytorch", 10**400, 0, -1)),
)  # fmt: skip


_KEYS = st.sampled_from(
    [*SECTIONS, "stage", "mean", "cv", "values", "unit", "distribution", "uncertainty", "x"]
    + [field.name for kind in (*SECTIONS.values(), StageTable) for field in fields(kind)]
)


_VALUES = st.recursive(_ATOMS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=4))


_PATHS = st.sampled_from([f"{name}.{field.name}" for name, kind in SECTIONS.items() for field in fields(kind)])


def survives(document: Any, *places: str) -> None:
    """Reading gives a scenario that can be written and read back, or an `InputError` of one line that names a place."""
    try:
        scenario = read_scenario(document)
    except InputError as error:
        assert "\n" not in str(error)
        assert any(place in str(error) for place in places), (str(error), places)
    else:
        assert read_scenario(scenario.to_dict()) == scenario


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(_KEYS, _VALUES, max_size=4))
def test_garbage_is_refused(document: dict[str, Any]) -> None:
    # What is bad is named, or else a key that is missing beside it.
    survives(document, *document, "workload", "accelerator")
    survives({**SMALL, **document}, *document, "workload", "accelerator")


@settings(max_examples=150, deadline=None)
@given(_PATHS, _VALUES)
def test_one_bad_value_in_a_good_document_is_refused(path: str, value: Any) -> None:
    survives(with_key(path, value), path)


@settings(max_examples=100, deadline=None)
@given(
    _PATHS | st.text(max_size=8), st.sampled_from(("", ".mean", ".cv", ".x.y")), st.text(max_size=8) | _ATOMS.map(repr)
)
def test_any_setting_is_taken_or_refused(path: str, entry: str, value: str) -> None:
    try:
        survives(override(example(), [f"{path}{entry}={value}"]), path.rpartition(".")[2] or path or "=")
    except InputError as error:
        assert short(f"{path}{entry}={value}") in str(error)


# Schema


def fits(value: Any, schema: dict[str, Any]) -> bool:
    """Whether a value fits a JSON schema, of which this knows the words that the scenario's uses."""
    kinds = {"object": dict, "array": list, "string": str, "boolean": bool, "integer": int, "number": int | float}
    names = schema.get("type", list(kinds))
    named = [kinds[name] for name in ([names] if isinstance(names, str) else names)]
    if not any(isinstance(value, kind) and (kind is bool or not isinstance(value, bool)) for kind in named):
        return False
    if isinstance(value, str) and not re.search(schema.get("pattern", ""), value):
        return False
    if "anyOf" in schema and not any(fits(value, option) for option in schema["anyOf"]):
        return False
    if isinstance(value, dict):
        return _fits_object(value, schema)
    if isinstance(value, list):
        return len(value) >= schema.get("minItems", 0) and all(fits(item, schema.get("items", {})) for item in value)
    return value in schema.get("enum", [value]) and _within(value, schema)


def _fits_object(value: dict[str, Any], schema: dict[str, Any]) -> bool:
    known = schema.get("properties", {})
    unknown = set(value) - set(known) if schema.get("additionalProperties") is False else set()
    if unknown or set(schema.get("required", ())) - set(value):
        return False
    return all(fits(item, known.get(name, {})) for name, item in value.items())


def _within(value: Any, schema: dict[str, Any]) -> bool:
    if isinstance(value, str | bool):
        return True
    low, high = schema.get("minimum", value), schema.get("maximum", value)
    return low <= value <= high and ("exclusiveMinimum" not in schema or value > schema["exclusiveMinimum"])


@pytest.mark.parametrize("document", [example(), FULL, SMALL, read_scenario(FULL).to_dict()])
def test_the_schema_accepts_what_is_read(document: dict[str, Any]) -> None:
    assert fits(document, scenario_schema())


def test_the_schema_describes_every_key() -> None:
    properties = scenario_schema()["properties"]
    assert set(properties) == {*SECTIONS, "stage"}
    for section in (*SECTIONS, "stage"):
        inner = properties[section].get("items", properties[section])
        assert all(len(item["description"]) > 10 for item in inner["properties"].values())


@pytest.mark.parametrize(
    ("path", "value"),
    [("workload.batch_size", 0), ("workload.preprocess", 5), ("workload.preprocess", "5"), ("loader.ordered", 1),
     ("host.speed", []), ("accelerator.sync", "spinn"), ("workload.batchsize", 4), ("target.gpu_idle", 2)],
)  # fmt: skip
def test_the_schema_refuses_what_the_reader_refuses(path: str, value: Any) -> None:
    assert not fits(with_key(path, value), scenario_schema())


@pytest.mark.parametrize("option", [1, 2, 3])
@pytest.mark.parametrize("document", [example(), {name: table for name, table in FULL.items() if name != "stage"}])
def test_every_option_runs(option: int, document: dict[str, Any]) -> None:
    pipeline = build(read_scenario(document), option, cores=2.0, workers=3)
    run = simulate(pipeline, draw(pipeline, 12, 1), RunLength(12, 2))
    assert run.makespan > 0
    rank = run.ranks[0]
    assert sum(rank.accelerator.values()) == pytest.approx(rank.end - rank.begin)


def test_a_hash_is_that_of_the_fields_whatever_another_thread_keeps_beside_them() -> None:
    plain, beside = (
        read_scenario({"workload": {"batch_size": 2, "preprocess": "1 ms"}, "accelerator": {"step": "1 ms"}})
        for _ in "ab"
    )
    vars(beside.workload.preprocess)["kept"] = vars(beside)["kept"] = 1
    assert hash(plain) == hash(beside)
    assert hash(plain.workload.preprocess) == hash(beside.workload.preprocess)


def hosts_of(**accelerator: object) -> dict:
    work = {"batch_size": 8, "preprocess": {"mean": "5 ms", "cv": 0.5, "distribution": "gamma"}}
    return {"workload": work, "accelerator": {"step": "20 ms"} | accelerator, "host": {"cores": 4}}


def test_hosts_are_read_and_written_back():
    scenario = read_scenario(hosts_of(hosts=4, count=2))
    assert scenario.accelerator.total == 8
    assert read_scenario(scenario.to_dict()) == scenario


def test_an_epoch_is_shared_by_all_accelerators():
    document = hosts_of(hosts=2, count=2)
    document["workload"]["samples_per_epoch"] = 3200
    assert read_scenario(document).batches_per_epoch == 100


def test_no_host_is_refused():
    with pytest.raises(Exception, match="hosts"):
        read_scenario(hosts_of(hosts=0))
