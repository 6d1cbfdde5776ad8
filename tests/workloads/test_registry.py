"""The built-in workloads by name: same data and same work each time; how one is added and a missing package told."""

from __future__ import annotations

import json
import pickle
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from shared import arrays_in, same

import coresim.workloads
from coresim.cli.main import main
from coresim.errors import InputError, MissingPartError
from coresim.measure.campaign import Request
from coresim.workloads import pictures
from coresim.workloads.base import Workload, batch_facts, seed_everything
from coresim.workloads.folder import FolderWorkload
from coresim.workloads.named import WorkloadSpec, load_object
from coresim.workloads.registry import DEFAULT, WORKLOADS, listing, target_of
from coresim.workloads.volumes import NpyVolumeWorkload

FEW = 2


#: Their data or their samples take longest; CI tries them.
LONG = {"detection", "images-encoded", "images-heavy", "memory-bound", "tabular", "tensors", "volumes-npz"}


@pytest.fixture(
    scope="module", params=[pytest.param(name, marks=[pytest.mark.slow] * (name in LONG)) for name in WORKLOADS]
)
def spec(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkloadSpec]:
    """The workload with its data made; a few files will do."""
    entry = WORKLOADS[request.param]
    if entry.needs:
        pytest.importorskip(entry.needs)
    kind = load_object(target_of(request.param), "workload")
    with pytest.MonkeyPatch.context() as patch:
        if isinstance(kind, type) and issubclass(kind, FolderWorkload):
            # One scan serves for many samples.
            patch.setattr(kind, "count", 1 if issubclass(kind, NpyVolumeWorkload) else FEW)
        spec = WorkloadSpec(target_of(request.param), str(tmp_path_factory.mktemp("data")))
        with pytest.MonkeyPatch.context() as drawing:
            drawing.setattr(pictures, "_texture", texture_of)
            spec.make()
        yield spec


TEXTURES: dict[tuple[str, int], tuple[np.ndarray, Any]] = {}
DRAWN = pictures._texture


def texture_of(rng: np.random.Generator, side: int) -> np.ndarray:
    """Drawn once for all workloads that begin with the same seed: it takes longer than their pictures."""
    key = repr(rng.bit_generator.state), side
    if key not in TEXTURES:
        TEXTURES[key] = DRAWN(rng, side), rng.bit_generator.state
    found, rng.bit_generator.state = TEXTURES[key]
    return found


def prepare(workload: Workload, index: int, seed: int) -> Any:
    rng, value = seed_everything(seed), index
    for step in workload.steps():
        value = step.call(value, rng)
    return value


def test_a_workload_repeats_exactly_and_makes_a_batch(spec: WorkloadSpec, tmp_path: Path) -> None:
    again = WorkloadSpec(spec.target, str(tmp_path))
    again.make()
    one, other = spec.build(), pickle.loads(pickle.dumps(again)).build()
    assert len(one) == len(other) >= FEW
    for index in (0, len(one) - 1):
        assert same(prepare(one, index, 5), prepare(other, index, 5))
    assert not same(prepare(one, 0, 5), prepare(one, len(one) - 1, 5))
    batch = one.collate([prepare(one, index, index) for index in range(FEW)])
    size, count = batch_facts(batch)
    assert size > 0 and count > 0
    if spec.target.endswith(":EncodedImageWorkload"):  # files in a row, and the length of each
        row, lengths = arrays_in(batch)
        assert len(lengths) == FEW and lengths.sum() == len(row)
    else:
        assert [len(array) for array in arrays_in(batch)] == [FEW] * count
    assert {array.dtype.kind for array in arrays_in(batch)} <= {"f", "i", "u"}
    read = one.bytes_per_sample()
    assert read is not None and read > 0


def test_data_that_is_there_is_kept(spec: WorkloadSpec) -> None:
    def stamps() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in Path(spec.folder).iterdir()}

    before = stamps()
    spec.make()
    assert stamps() == before != {}


def test_the_names_are_those_that_recommend_takes() -> None:
    assert [entry.name for entry in listing()] == list(WORKLOADS) and DEFAULT in WORKLOADS
    assert Request().workload == DEFAULT
    with pytest.raises(InputError, match=r"workload 'speech' is not known; use one of images, .*tiny"):
        Request(workload="speech")
    with pytest.raises(InputError, match=r"'imges' is not known; .*, or a dataset; did you mean 'images'\?$"):
        Request(workload="imges")


def test_the_command_lists_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["workloads"]) == 0
    table = capsys.readouterr().out
    assert [line.split()[0] for line in table.splitlines()[1 : len(WORKLOADS) + 1]] == list(WORKLOADS)
    assert all(entry.purpose in table for entry in WORKLOADS.values())
    assert main(["workloads", "--json"]) == 0
    found = {row["name"]: row for row in json.loads(capsys.readouterr().out)["workloads"]}
    assert found["images"]["batch_size"] == 256
    assert found["images"]["steps"] == ["fetch", "decode", "transform", "collate"]
    assert found["volumes-hdf5"]["needs"] == "h5py" and found["images"]["needs"] == ""


def test_the_example_of_adding_one_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = str(coresim.workloads.__doc__)
    code = textwrap.dedent(text[text.index("    import numpy") : text.index("then ``coresim")])
    assert len([line for line in code.splitlines() if line]) <= 20
    monkeypatch.chdir(tmp_path)
    (tmp_path / "spectra.py").write_text(code)
    made = WorkloadSpec("spectra:Spectra", str(tmp_path)).build()
    assert (made.name, len(made), [step.name for step in made.steps()]) == (
        "spectra from CSV",
        64,
        ["fetch", "decode", "transform"],
    )
    batch = made.collate([prepare(made, index % 64, index) for index in range(made.batch_size)])
    assert batch_facts(batch)[0] == 128 * 200 * 4 and len(made.files()) == 64


@pytest.mark.parametrize("name", [name for name, entry in WORKLOADS.items() if entry.needs])
def test_a_missing_package_is_named_with_what_installs_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = WORKLOADS[name]
    monkeypatch.setitem(sys.modules, entry.needs, None)
    with pytest.raises(MissingPartError, match=rf"{entry.needs} is not installed; pip install {entry.needs}$"):
        WorkloadSpec(target_of(name), str(tmp_path)).make()
    assert name in [found.name for found in listing()]
