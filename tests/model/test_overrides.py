"""Settings that change a scenario: what a preset brings along, what a tier replaces, what a file may leave to them."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from shared import SCENARIO

from coresim.errors import InputError
from coresim.model.load import scenario_of
from coresim.model.overrides import changed, check_settings
from coresim.model.presets import PRESETS
from coresim.model.scenario import Scenario, read_scenario
from coresim.model.service import Service
from coresim.model.storage import tiers

SMALL = {"workload": {"batch_size": 4, "preprocess": "5 ms"}, "accelerator": {"step": "98 ms"}}


def example() -> dict[str, Any]:
    return tomllib.loads(SCENARIO)


def job(**sections: dict[str, Any]) -> Scenario:
    tables = {name: SMALL.get(name, {}) | sections.get(name, {}) for name in {*SMALL, *sections}}
    return read_scenario(tables)


def test_a_new_preset_replaces_what_the_one_before_stood_for() -> None:
    before = job(loader={"preset": "pytorch-unordered", "prefetch_factor": 7})
    after = changed(before, ["loader.preset=pytorch"])
    assert after == job(loader={"preset": "pytorch", "prefetch_factor": 7})
    for name, preset in PRESETS.items():
        if not preset.needs:
            assert changed(job(), [f"loader.preset={name}"]) == job(loader={"preset": name})
            assert changed(job(loader={"preset": name}), ["preset=pytorch"]) == job()


def test_a_new_preset_leaves_what_the_scenario_has_of_its_own() -> None:
    assert PRESETS["pytorch"].loader["ordered"] is True
    before = job(loader={"ordered": False, "copy_mode": "thread"})
    assert changed(before, ["loader.preset=tf.data"]).loader.ordered is False
    assert changed(before, ["loader.preset=tf.data"]).loader.copy_mode == "thread"
    # What is set beside the preset wins over it, wherever it stands.
    for settings in (["ordered=true", "preset=pytorch-unordered"], ["preset=pytorch-unordered", "ordered=true"]):
        assert changed(job(), settings).loader.ordered is True


def test_another_tier_replaces_how_samples_are_fetched() -> None:
    sizes = {"sample_bytes": 120e3}
    expected = job(workload=sizes, host={"storage": "s3"})
    assert changed(job(workload=sizes), ["host.storage=s3"]) == expected
    assert changed(job(workload=sizes | {"fetch": "1 ms"}), ["host.storage=s3"]) == expected
    assert changed(job(workload=sizes, host={"storage": "hdd-7200"}), ["host.storage=s3"]) == expected
    assert changed(job(workload=sizes), [], storage="s3") == expected
    # A setting is asked for more closely than the flag, and fetching more closely than both.
    assert changed(job(workload=sizes), ["host.storage=s3"], storage="hdd-7200") == expected
    own = changed(job(workload=sizes), ["workload.fetch=3 ms"], storage="s3")
    assert own.workload.fetch == Service(0.003) and own.host.storage_streams is None


def test_what_a_tier_says_follows_the_size_of_a_sample() -> None:
    before = job(workload={"sample_bytes": 120e3}, host={"storage": "hdd-7200"})
    after = changed(before, ["sample_bytes=4e6"])
    assert after == job(workload={"sample_bytes": 4e6}, host={"storage": "hdd-7200"})
    assert after.workload.fetch == tiers()["hdd-7200"].read_time(4e6) != before.workload.fetch
    # Streams that the scenario gives itself stay, and so does a time that it gives.
    streams = {"storage": "hdd-7200", "storage_streams": 9.0}
    kept = changed(job(workload={"sample_bytes": 120e3}, host=streams), ["sample_bytes=4e6"])
    assert kept.host.storage_streams == 9.0 and kept.workload.fetch == after.workload.fetch
    given = job(workload={"sample_bytes": 120e3, "fetch": "1 ms"}, host={"storage": "hdd-7200"})
    assert changed(given, ["sample_bytes=4e6"]).workload.fetch == Service(0.001)


def test_entries_of_a_time_change_the_time_that_is_there() -> None:
    values = job(workload={"preprocess": {"values": [1, 3], "unit": "ms", "uncertainty": 0.1}})
    found = changed(values, ["preprocess.mean=4 ms", "preprocess.uncertainty=0.2"]).workload.preprocess
    assert found.values == pytest.approx((0.002, 0.006)) and found.uncertainty == 0.2
    assert changed(job(), ["preprocess.cv=0.5"]).workload.preprocess == Service(0.005, 0.5, "lognormal")
    # A time that the scenario has not got begins with nothing.
    assert changed(job(), ["collate.values=['1 ms', '2 ms']"]).workload.collate.values == (0.001, 0.002)
    with pytest.raises(InputError, match=r"workload\.collate: mean missing"):
        changed(job(), ["collate.cv=0.5"])


def test_of_two_settings_for_one_key_the_later_one_holds() -> None:
    assert changed(job(), ["step=1 s", "step=2 s"]).accelerator.step == Service(2.0)
    assert changed(job(), ["step=1 s", "step.cv=0.5"]).accelerator.step == Service(1.0, 0.5, "lognormal")


@pytest.mark.parametrize(
    ("section", "key", "settings"),
    [
        ("workload", "batch_size", ["batch_size=4"]),
        ("workload", "preprocess", ["preprocess=5 ms"]),
        ("workload", "preprocess", ["workload.preprocess.cv=0", "workload.preprocess.mean=5 ms"]),
        ("accelerator", "step", ["accelerator.step=98 ms"]),
        ("accelerator", "step", ["step={mean='98 ms'}"]),
    ],
)
def test_a_file_may_leave_what_is_needed_to_settings(section: str, key: str, settings: list[str]) -> None:
    tables = {name: {one: value for one, value in table.items() if one != key} for name, table in SMALL.items()}
    assert scenario_of(tables, "job.toml", settings) == job()
    assert scenario_of({name: table for name, table in tables.items() if table}, "job.toml", settings) == job()
    with pytest.raises(InputError, match=rf"^job\.toml: \[?{section}"):
        scenario_of(tables if tables[section] else {**tables, section: {}}, "job.toml")


def test_what_makes_no_scenario_is_said_with_its_source() -> None:
    with pytest.raises(InputError, match=r"^job\.toml with --set: workload\.samples_per_epoch = 3: fewer than one"):
        scenario_of(SMALL, "job.toml", ["samples_per_epoch=3"])
    with pytest.raises(InputError, match=r"^job\.toml with --set: accelerator\.step = 0"):
        scenario_of(SMALL, "job.toml", ["step=0 s"])
    with pytest.raises(InputError, match=r"^--set 'stepp=0 s'"):
        scenario_of(SMALL, "job.toml", ["stepp=0 s"])


@pytest.mark.parametrize("setting", ["workload.batch_size=0", "host.storage=floppy", "loader.x=1", "step=3", "x=1"])
def test_settings_that_no_scenario_takes_are_refused_before_anything_is_measured(setting: str) -> None:
    with pytest.raises(InputError):
        check_settings([setting])


def test_an_entry_is_not_looked_at_before_there_is_a_scenario() -> None:
    check_settings(["workload.preprocess.cv=0.5", "loader.preset=tf.data", "accelerator.step=98 ms"])


@pytest.mark.parametrize(
    ("setting", "section", "key", "value"),
    [
        ("accelerator.step=98 ms", "accelerator", "step", Service(0.098)),
        ("loader.prefetch_factor=4", "loader", "prefetch_factor", 4),
        ("loader.ordered=false", "loader", "ordered", False),
        ("ordered = false", "loader", "ordered", False),
        ("preprocess.mean=3ms", "workload", "preprocess", Service(0.003, 0.4, "lognormal")),
        ("workload.collate.cv=0.5", "workload", "collate", Service(0.003, 0.5, "lognormal")),
        ('workload.preprocess={mean="3 ms",cv=0.4}', "workload", "preprocess", Service(0.003, 0.4, "lognormal")),
        ('collate="1 s"', "workload", "collate", Service(1.0)),
        ("host.speed=[1, 0.5]", "host", "speed", (1.0, 0.5)),
        ("loader.copy_mode=overlap", "loader", "copy_mode", "overlap"),
        ("memory_bytes=1e9", "host", "memory_bytes", 1e9),
    ],
)
def test_settings(setting: str, section: str, key: str, value: Any) -> None:
    before = read_scenario(example())
    scenario = changed(before, [setting])
    assert getattr(getattr(scenario, section), key) == value
    assert before == read_scenario(example())


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("accelerator.step", r"'accelerator\.step': write section\.key=value"),
        ("accelerator=3", r"accelerator is a section; write accelerator\.key=value"),
        ("preproces=3 ms", r"preproces: unknown key; did you mean 'preprocess'"),
        ("workload.preproces=3 ms", r"workload\.preproces: unknown key; did you mean 'preprocess'"),
        ("acelerator.step=3 ms", r"acelerator\.step: unknown key; did you mean 'accelerator'"),
        ("step=3", r"accelerator\.step = 3: unit missing"),
        ("step.mean.x=3", r"accelerator\.step\.mean"),
        ("=3", "unknown key"),
    ],
)
def test_bad_settings_are_named(setting: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        changed(read_scenario(example()), [setting])
    assert "\n" not in str(caught.value)


def test_a_setting_of_a_broken_document_is_named() -> None:
    with pytest.raises(InputError, match=r"workload = 3: a table is needed"):
        scenario_of(SMALL | {"workload": 3}, "job", ["workload.batch_size=4"])
