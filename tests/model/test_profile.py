"""Profiles: the file, everything that may be wrong with it, and files of an older coresim."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import made_up
import pytest
from by_hand import profile, with_steps

from coresim.errors import InputError, NewerFileError, UnknownKeyError
from coresim.files import read_json
from coresim.model.measurement import Measurement
from coresim.model.profile import (
    OLD_HANDOVER,
    OLD_PINNING,
    Profile,
    load_document,
)


def test_round_trip(tmp_path: Path) -> None:
    for made in (profile(), with_steps(), replace(profile(), samples=None, bytes_per_sample=None, warnings=())):
        made.save(tmp_path / "p.json")
        assert load_document(tmp_path / "p.json") == made
    document = profile().to_dict()
    assert document["format"] == "coresim-profile" and document["schema_version"] == 3
    assert Profile.from_dict(document) == profile()
    # The keys of version 2 had other names.
    document["cautions"], document["speed_basis"] = document.pop("warnings"), document.pop("speed_provenance")
    document["accelerator"]["basis"] = document["accelerator"].pop("provenance")
    assert Profile.from_dict(document | {"schema_version": 2}) == profile()


def test_access_by_name() -> None:
    found = profile()
    assert found["prepare.step.decode"].mean == pytest.approx(0.016) and found.get("storage.cold.read") is None
    with pytest.raises(InputError, match=r"storage\.cold\.read was not measured; there are prepare\.sample"):
        found["storage.cold.read"]


Damage = Callable[[dict[str, Any]], object]


BAD: dict[str, tuple[Damage, type[InputError], str]] = {
    "newer": (lambda d: d.update(schema_version=4), NewerFileError, "schema_version 4 is newer"),
    "older": (
        lambda d: d.update(schema_version=1),
        InputError,
        "schema_version 1 is of an older coresim, .*; measure again with coresim measure -o FILE$",
    ),
    "no version": (lambda d: d.pop("schema_version"), InputError, "schema_version is None"),
    "foreign": (lambda d: d.update(format="other"), InputError, "format is 'other'"),
    "no format": (lambda d: d.pop("format"), InputError, "format is None"),
    "unknown": (
        lambda d: d.update(batchsize=3),
        UnknownKeyError,
        "profile.batchsize: unknown key; did you mean 'batch_",
    ),
    "unknown inside": (lambda d: d["accelerator"].update(x=1), UnknownKeyError, "profile.accelerator.x: unknown"),
    "unknown host": (lambda d: d["host"].update(x=1), UnknownKeyError, "profile.host.x: unknown"),
    "unknown in one": (lambda d: d["measurements"][1].update(x=1), UnknownKeyError, r"measurements\[1\].x: unknown"),
    "missing": (lambda d: d.pop("batch_size"), InputError, "profile.batch_size: missing"),
    "missing in one": (lambda d: d["measurements"][1].pop("unit"), InputError, r"measurements\[1\].unit: missing"),
    "kind": (lambda d: d["accelerator"].update(kind="guess"), InputError, "kind = 'guess': use one of"),
    "wrong type": (lambda d: d.update(batch_size="8"), InputError, "profile.batch_size = '8'"),
    "fraction": (lambda d: d.update(batch_size=8.5), InputError, "profile.batch_size = 8.5"),
    "zero samples": (lambda d: d.update(samples=0), InputError, "profile.samples = 0"),
    "zero step": (lambda d: d["accelerator"].update(step_time_s=0), InputError, "step_time_s = 0"),
    "speed": (lambda d: d.update(speed=[1.0, 0.0]), InputError, r"profile.speed\[1\] = 0.0"),
    "no list": (lambda d: d.update(measurements={}), InputError, "profile.measurements = {}: a list"),
    "no table": (lambda d: d["measurements"].append(3), InputError, r"measurements\[12\] = 3: a table"),
    "host": (lambda d: d.update(host=3), InputError, "profile.host = 3"),
    "warning": (lambda d: d["warnings"][0].update(value=3), InputError, r"warnings\[0\].value = 3"),
    "twice": (lambda d: d["measurements"].append(d["measurements"][0]), InputError, "'prepare.sample' is there twice"),
    "no values": (
        lambda d: d["measurements"][1].update(values=[]),
        InputError,
        r"measurements\[1\].values = \[\]: a list of at least one",
    ),
    "empty": (
        lambda d: d["measurements"][1].update(values=[[1.0], []]),
        InputError,
        r"\[1\].values\[1\] = \[\]: a list of at least one",
    ),
    "negative": (lambda d: d["measurements"][1].update(values=[[-1.0]]), InputError, r"values\[0\]\[0\] = -1.0"),
    "text": (lambda d: d["measurements"][1].update(values=[["1"]]), InputError, r"values\[0\]\[0\] = '1'"),
    "flat": (lambda d: d["measurements"][1].update(values=[1.0]), InputError, r"\[1\].values\[0\] = 1.0: a list"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_one_clear_line(name: str, tmp_path: Path) -> None:
    damage, kind, words = BAD[name]
    document = copy.deepcopy(profile().to_dict())
    damage(document)
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(document))
    with pytest.raises(InputError, match=words) as caught:
        Profile.from_dict(read_json(path), str(path))
    assert type(caught.value) is kind
    assert str(caught.value).startswith(str(path)) and "\n" not in str(caught.value)


@pytest.mark.parametrize("value", ["NaN", "Infinity", "1e999"])
def test_a_value_that_is_no_number(value: str, tmp_path: Path) -> None:
    text = json.dumps(profile().to_dict())
    assert "0.017" in text
    (tmp_path / "bad.json").write_text(text.replace("0.017", value))
    with pytest.raises(InputError, match=r"bad\.json: "):
        load_document(tmp_path / "bad.json")
    bad = replace(profile(), speed_uncertainty=(math.nan,))
    with pytest.raises(ValueError, match="not JSON compliant"):
        bad.save(tmp_path / "never.json")
    assert not (tmp_path / "never.json").exists()


def test_truncated_at_any_place(tmp_path: Path) -> None:
    text = json.dumps(profile().to_dict())
    for length in range(0, len(text) - 1, 101):
        (tmp_path / "cut.json").write_text(text[:length])
        with pytest.raises(InputError, match=r"truncated|not valid JSON"):
            load_document(tmp_path / "cut.json")


def test_loading_runs_no_code(tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text("__import__('os').remove('p.json')")
    with pytest.raises(InputError, match="not valid JSON"):
        load_document(tmp_path / "p.json")


def test_what_a_path_holds_is_told_by_its_content(tmp_path: Path) -> None:
    scenario = {"workload": {"batch_size": 8, "preprocess": "1 ms"}, "accelerator": {"step": "5 ms"}}
    for name, text in {
        "a.json": json.dumps(scenario),
        "b": json.dumps(scenario),
        "c.toml": '[workload]\nbatch_size = 8\npreprocess = "1 ms"\n[accelerator]\nstep = "5 ms"\n',
    }.items():
        (tmp_path / name).write_text(text)
        assert load_document(tmp_path / name) == scenario
    profile().save(tmp_path / "profile")
    assert load_document(tmp_path / "profile") == profile()
    (tmp_path / "d.json").write_text('{"format": "other"}')
    with pytest.raises(InputError, match=r"d\.json: format is 'other'"):
        load_document(tmp_path / "d.json")
    with pytest.raises(InputError, match="no such file"):
        load_document(tmp_path / "none.json")


def test_an_older_profile_of_pinned_batches_is_read_with_a_warning():
    known = made_up.profile()
    kept = tuple(one for one in known.measurements if not one.name.startswith("receive.work"))
    measured = replace(known, measurements=kept)
    pinned = Measurement("prepare.pin", "s/batch", ((0.01,),), "test")
    state = Measurement("receive.work_free", "s/batch", ((0.005,),), "test")
    for measurements, warnings in (((pinned, state), (OLD_PINNING,)), ((pinned,), ()), ((state,), ())):
        written = replace(measured, measurements=(*measured.measurements, *measurements)).to_dict()
        read = Profile.from_dict(written)
        assert read.warnings == (*measured.warnings, *warnings)
        assert Profile.from_dict(read.to_dict()) == read


def test_an_older_profile_of_hand_overs_is_read_with_a_warning():
    known = made_up.profile()
    assert Profile.from_dict(known.to_dict()).warnings == known.warnings
    older = replace(known, measurements=tuple(m for m in known.measurements if m.name != "receive.release"))
    assert Profile.from_dict(older.to_dict()).warnings == (*known.warnings, OLD_HANDOVER)
