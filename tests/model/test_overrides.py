"""Settings over a written scenario: units and keys that were given stay; presets and tiers replace all others."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from by_hand import profile
from shared import SCENARIO

from coresim.errors import InputError, UnknownKeyError
from coresim.model.load import check_overrides, scenario_of
from coresim.model.loader_settings import LoaderSettings
from coresim.model.presets import PRESETS
from coresim.model.scenario import Scenario, read_scenario
from coresim.model.service import Service
from coresim.model.storage import tiers

SMALL: dict[str, Any] = {"workload": {"batch_size": 4, "preprocess": "5 ms"}, "accelerator": {"step": "98 ms"}}


def example() -> dict[str, Any]:
    return tomllib.loads(SCENARIO)


def tables(**sections: dict[str, Any]) -> dict[str, Any]:
    return {name: SMALL.get(name, {}) | sections.get(name, {}) for name in {*SMALL, *sections}}


def job(**sections: dict[str, Any]) -> Scenario:
    return read_scenario(tables(**sections))


def changed(document: Any, *settings: str, storage: str | None = None) -> Scenario:
    return scenario_of(document, "job.toml", settings, storage=storage)


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
    document = example()
    # The same of tables as they are in a file, and of the scenario that was read from them.
    for given in (document, read_scenario(document)):
        assert getattr(getattr(changed(given, setting), section), key) == value
    assert document == example()


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
    for given in (example(), read_scenario(example())):
        with pytest.raises(InputError, match=message) as caught:
            changed(given, setting)
        assert "\n" not in str(caught.value)


def test_a_setting_of_a_broken_document_is_named() -> None:
    with pytest.raises(InputError, match=r"workload = 3: a table is needed"):
        changed({"workload": 3}, "workload.batch_size=4")


def test_entries_of_a_time_change_the_time_that_is_there() -> None:
    values = tables(workload={"preprocess": {"values": [1, 3], "unit": "ms", "uncertainty": 0.1}})
    for given in (values, read_scenario(values)):
        found = changed(given, "preprocess.mean=4 ms", "preprocess.uncertainty=0.2").workload.preprocess
        assert found.values == pytest.approx((0.002, 0.006)) and found.uncertainty == 0.2
    assert changed(job(), "preprocess.cv=0.5").workload.preprocess == Service(0.005, 0.5, "lognormal")
    assert changed(tables(workload={"preprocess": "0 ms"}), "preprocess.cv=0.5").workload.preprocess.is_zero
    # A time that the scenario has not got begins with nothing.
    assert changed(job(), "collate.values=['1 ms', '2 ms']").workload.collate.values == (0.001, 0.002)
    with pytest.raises(InputError, match=r"workload\.collate: mean missing"):
        changed(job(), "collate.cv=0.5")


def test_values_keep_the_unit_of_the_file() -> None:
    values = tables(workload={"preprocess": {"values": [5, 6], "unit": "ms"}})
    assert changed(values, "preprocess.values=[7, 8]").workload.preprocess.values == (0.007, 0.008)
    assert changed(values, "preprocess.unit=us").workload.preprocess.values == pytest.approx((5e-6, 6e-6))
    with pytest.raises(InputError, match="unit missing"):
        changed(tables(workload={"preprocess": {"values": ["5 ms"]}}), "preprocess.values=[7, 8]")


def test_of_two_settings_for_one_key_the_later_one_holds() -> None:
    assert changed(job(), "step=1 s", "step=2 s").accelerator.step == Service(2.0)
    assert changed(job(), "step=1 s", "step.cv=0.5").accelerator.step == Service(1.0, 0.5, "lognormal")


@pytest.mark.parametrize(
    ("document", "setting"),
    [
        ({"workload": {"batch_size": 4, "preprocess": "5 ms"}}, "accelerator.step=98 ms"),
        (tables(workload={"preprocess": "0 ms"}), "preprocess=5 ms"),
        (tables(workload={"batch_size": 64, "samples_per_epoch": 32}), "batch_size=4"),
        (tables(accelerator={"step": "0 s"}), "step=98 ms"),
        (tables(host={"storage": "s3"}), "workload.fetch=2 ms"),
    ],
)
def test_what_a_file_lacks_or_has_wrong_may_be_set(document: dict[str, Any], setting: str) -> None:
    found = changed(document, setting)
    assert (found.workload.batch_size, found.workload.preprocess) == (4, Service(0.005))
    assert found.accelerator.step == Service(0.098)


def test_a_new_preset_replaces_what_the_one_before_stood_for() -> None:
    before = job(loader={"preset": "pytorch-unordered", "prefetch_factor": 7})
    assert changed(before, "loader.preset=pytorch") == job(loader={"prefetch_factor": 7})
    for name, preset in PRESETS.items():
        if not preset.needs:
            assert changed(job(), f"loader.preset={name}") == job(loader={"preset": name})
            assert changed(job(loader={"preset": name}), "preset=pytorch") == job()


def test_a_new_preset_leaves_what_was_given() -> None:
    given = {"ordered": True, "prefetch_factor": 2, "copy_mode": "sync"}
    after = changed(tables(loader=given), "loader.preset=pytorch-unordered").loader
    assert (after.ordered, after.prefetch_factor, after.copy_mode) == (True, 2, "sync")
    # A profile's DataLoader was seen: its settings are given, even if they are the default ones.
    seen = LoaderSettings(workers=3, prefetch_factor=2)
    measured = type(profile())(**{**vars(profile()), "settings": seen})
    after = changed(measured, "loader.preset=pytorch-unordered").loader
    assert (after.workers, after.ordered, after.prefetch_factor) == (3, True, 2)
    for settings in (("ordered=true", "preset=pytorch-unordered"), ("preset=pytorch-unordered", "ordered=true")):
        assert changed(job(), *settings).loader.ordered is True


def test_another_tier_replaces_the_tier_before_and_no_time_that_was_given() -> None:
    sizes = {"sample_bytes": 120e3}
    expected = job(workload=sizes, host={"storage": "s3"})
    for host in ({}, {"storage": "hdd-7200"}):
        for given in (tables(workload=sizes, host=host), job(workload=sizes, host=host)):
            assert changed(given, "host.storage=s3") == expected
            assert changed(given, storage="s3") == expected
            assert changed(given, "host.storage=s3", storage="hdd-7200") == expected
    own = tables(workload=sizes | {"fetch": "1 ms"})
    assert changed(own, "host.storage=s3").workload.fetch == Service(0.001)
    assert changed(own, storage="s3") == expected


def test_a_time_that_is_set_wins_over_the_tier() -> None:
    for host in ({}, {"storage": "hdd-7200"}):
        given = job(workload={"sample_bytes": 120e3}, host=host)
        for storage in (None, "s3"):
            found = changed(given, "workload.fetch=3 ms", storage=storage)
            assert found.workload.fetch == Service(0.003) and found.host.storage_streams is None


def test_what_a_tier_says_follows_the_size_of_a_sample() -> None:
    before = job(workload={"sample_bytes": 120e3}, host={"storage": "hdd-7200"})
    after = changed(before, "sample_bytes=4e6")
    assert after == job(workload={"sample_bytes": 4e6}, host={"storage": "hdd-7200"})
    assert after.workload.fetch == tiers()["hdd-7200"].read_time(4e6) != before.workload.fetch
    # Streams that the scenario gives itself stay, and so does a time that it gives.
    streams = {"storage": "hdd-7200", "storage_streams": 9.0}
    kept = changed(job(workload={"sample_bytes": 120e3}, host=streams), "sample_bytes=4e6")
    assert kept.host.storage_streams == 9.0 and kept.workload.fetch == after.workload.fetch
    for fetch in ("1 ms", "0 s"):
        given = job(workload={"sample_bytes": 120e3, "fetch": fetch}, host={"storage": "hdd-7200"})
        assert changed(given, "sample_bytes=4e6").workload.fetch == given.workload.fetch


def test_what_makes_no_scenario_is_said_with_its_source() -> None:
    for given in (SMALL, job()):
        with pytest.raises(InputError, match=r"^job\.toml with --set: workload\.samples_per_epoch = 3: fewer than one"):
            changed(given, "samples_per_epoch=3")
        with pytest.raises(InputError, match=r"^job\.toml with --set: accelerator\.step = 0"):
            changed(given, "step=0 s")


@pytest.mark.parametrize(
    ("setting", "kind"),
    [
        ("workload.batch_size=0", InputError),
        ("host.storage=floppy", InputError),
        ("loader.x=1", UnknownKeyError),
        ("workload.x.mean=1 ms", UnknownKeyError),
        ("step=3", InputError),
        ("loader.preset=dali", InputError),  # which does other work than was measured
    ],
)
def test_settings_that_no_scenario_takes_are_refused_before_anything_is_measured(
    setting: str, kind: type[InputError]
) -> None:
    with pytest.raises(kind):
        check_overrides([setting], None)


def test_an_entry_is_not_looked_at_before_there_is_a_scenario() -> None:
    check_overrides(["workload.preprocess.cv=0.5", "loader.preset=tf.data", "step=98", "step=98 ms"], "s3")
