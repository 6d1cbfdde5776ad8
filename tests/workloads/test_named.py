"""Data sets by their names: of any script, as an object or a loader, and what turns out to train."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from attach_kit import PROGRAMS
from kit import needs_torch

from coresim.errors import InputError, MissingPartError
from coresim.measure.rig import Rig, loader_of
from coresim.measure.server import Ask, Server
from coresim.measure.stand_in import StandInSubject
from coresim.measure.subject import Layout
from coresim.model.loader_settings import LoaderSettings
from coresim.workloads.base import (
    DatasetWorkload,
)
from coresim.workloads.named import TrainsError, WorkloadSpec, load_object

DATASETS = """
import numpy as np

def good(): return [(np.full(3, index, dtype=np.float32), index) for index in range(10)]
def empty(): return []
def no_dataset(): return 42
def needs_argument(path): return good()
def fails(): raise ValueError("bad folder")
constant = 3
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a module of datasets in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "user_data", raising=False)
    (tmp_path / "user_data.py").write_text(DATASETS)
    (tmp_path / "broken.py").write_text("import not_installed_at_all\n")
    (tmp_path / "explodes.py").write_text("raise ValueError('at import')\n")
    return tmp_path


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("user_data", ["package.module:name", "'user_data'"]),
        (":good", ["package.module:name"]),
        ("nowhere.at_all:make", ["no module 'nowhere'", "run from the folder"]),
        ("broken:make", ["ModuleNotFoundError", "not_installed_at_all"]),
        ("explodes:make", ["ValueError: at import"]),
        ("user_data:missing", ["has no 'missing'", "check the name"]),
        ("user_data:constant", ["of type int, which cannot be called; name a function"]),
    ],
)
def test_a_name_that_cannot_be_loaded_gives_one_line(here: Path, spec: str, words: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        load_object(spec, "dataset")
    assert_one_line(caught.value, [spec, *words])


def test_a_good_dataset_is_a_workload(here: Path) -> None:
    made = WorkloadSpec("user_data:good", batch_size=5).build()
    assert (made.name, made.batch_size, len(made)) == ("user_data:good", 5, 10)
    assert made.bytes_per_sample() is None and made.files() == ()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("empty", ["empty", "len 0"]),
        ("no_dataset", ["gives an object of type int", "__getitem__"]),
        ("needs_argument", ["TypeError", "without arguments"]),
        ("fails", ["ValueError: bad folder"]),
    ],
)
def test_a_dataset_that_cannot_be_built_gives_one_line(here: Path, name: str, words: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        WorkloadSpec(f"user_data:{name}").build()
    assert_one_line(caught.value, [f"user_data:{name}", *words])


def test_a_batch_size_below_one_is_refused(here: Path) -> None:
    with pytest.raises(InputError, match="batch size = 0"):
        WorkloadSpec("user_data:good", batch_size=0).build()


def assert_one_line(error: BaseException, words: list[str]) -> None:
    text = str(error)
    assert "\n" not in text
    assert [word for word in words if word not in text] == [], text


SCRIPT, TRAINS = str(PROGRAMS / "named-train.py"), str(PROGRAMS / "just-train.py")


def with_torch(test: Callable[..., None]) -> Any:
    """A test that needs torch, and the scripts of programs imported anew."""
    return pytest.mark.torch(pytest.mark.usefixtures("own_modules")(needs_torch(test)))


def build(name: str, **options: Any) -> DatasetWorkload:
    made = WorkloadSpec(f"{SCRIPT}:{name}", **options).build()
    assert isinstance(made, DatasetWorkload)
    return made


def first_batch(workload: DatasetWorkload) -> Any:
    pipe = loader_of(workload).open(Layout(workers=1), seed=0)
    try:
        return pipe.next()[0]
    finally:
        pipe.close()


@with_torch
def test_an_object_of_any_script_is_a_data_set_with_the_scripts_folder_on_the_path() -> None:
    made = build("instance", batch_size=4)
    assert (len(made), made.batch_size, made.loader) == (3200, 4, None)
    assert first_batch(made)[0].shape == (4, 3, 8, 8)


@with_torch
def test_a_class_is_called() -> None:
    assert type(build("Data").dataset).__name__ == "Data"


@with_torch
def test_a_loader_is_run_with_its_own_settings() -> None:
    made = build("loader")
    assert made.batch_size == 16
    assert made.loader.dataset is made.dataset
    assert (made.collate([made.dataset[0]] * 2)[0].shape, made.has_own_collate) == ((2, 3, 8, 8), True)
    assert made.worker_init is made.loader.worker_init_fn
    assert first_batch(made)[0].shape == (16, 3, 8, 8)


@with_torch
def test_flags_beside_a_loader_win() -> None:
    made = build("loader", batch_size=5, worker_init=f"{SCRIPT}:begin")
    assert (made.batch_size, made.loader) == (5, None)
    assert made.has_own_collate
    assert first_batch(made)[0].shape == (5, 3, 8, 8)


@with_torch
def test_a_data_module_gives_its_training_loader() -> None:
    made = build("Module")
    assert (made.batch_size, len(made)) == (8, 3200)
    assert made.loader is not None


@with_torch
def test_a_data_module_with_several_loaders_is_told() -> None:
    with pytest.raises(InputError, match="train_dataloader gives a list; name what gives one DataLoader"):
        build("Several")


@with_torch
def test_each_worker_calls_the_init_function(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import os, torch\nfrom torch.utils.data import Dataset\nstarted = []\n\n"
        "def begin(worker):\n    started.append(worker)\n\n"
        "class Data(Dataset):\n    def __len__(self): return 8\n"
        "    def __getitem__(self, i): return torch.tensor(len(started))\n"
    )
    made = WorkloadSpec(f"{tmp_path}/mine.py:Data", batch_size=2, worker_init=f"{tmp_path}/mine.py:begin").build()
    assert isinstance(made, DatasetWorkload)
    assert first_batch(made).tolist() == [1, 1]


@with_torch
def test_a_sample_may_ask_which_worker_prepares_it(tmp_path: Path) -> None:
    (tmp_path / "asks.py").write_text(
        "import torch\nfrom torch.utils.data import Dataset, get_worker_info\n"
        "class Data(Dataset):\n    def __len__(self): return 8\n"
        "    def __getitem__(self, i): return torch.tensor(get_worker_info().num_workers)\n"
    )
    spec = WorkloadSpec(f"{tmp_path}/asks.py:Data", batch_size=2)
    made = spec.build()
    assert isinstance(made, DatasetWorkload)
    assert first_batch(made).tolist() == [1, 1]
    # Outside of a worker there is none to ask, so nothing else prepares a sample.
    with Server(spec) as server:
        found = server.calibrate(Ask(budget_s=0.5, pressure_s=0.5), lambda done: None)
    names = {measured.name for measured in found.measurements}
    assert {"prepare.sample", "scaling.1", "machine.speed"} <= names
    assert not [name for name in names if name.startswith("pressure.")]


@with_torch
def test_a_loader_that_is_made_anew_keeps_the_way_its_workers_start(tmp_path: Path) -> None:
    """Workers that are spawned import the script, whose name no import statement could say."""
    (tmp_path / "my-train.py").write_text(
        "import multiprocessing\nimport torch\nfrom torch.utils.data import DataLoader, Dataset\n"
        "class Data(Dataset):\n    def __len__(self): return 8\n"
        "    def __getitem__(self, i): return torch.tensor(multiprocessing.get_start_method(True) == 'spawn')\n"
        "def join(samples): return torch.stack(samples)\n"
        "loader = DataLoader(Data(), 4, num_workers=1, collate_fn=join, multiprocessing_context='spawn')\n"
    )
    for size in (None, 2):
        made = WorkloadSpec(f"{tmp_path}/my-train.py:loader", batch_size=size).build()
        assert isinstance(made, DatasetWorkload) and (made.loader is None) == (size == 2)
        assert first_batch(made).tolist() == [True] * (size or 4)


@with_torch
def test_without_torch_no_worker_calls_an_init_function() -> None:
    with pytest.raises(MissingPartError, match="--worker-init: only torch's DataLoader calls one"):
        StandInSubject(DatasetWorkload(range(8), "mine", worker_init=print))


@with_torch
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("named-train.py:nothing", "has no 'nothing'; check the name after the colon"),
        ("no-such.py:data", "no file .*no-such.py' here; check the path before the colon"),
        ("named-train.py:SAMPLES", "of type int; name a data set, or a function or class that gives one"),
    ],
)
def test_a_bad_name_is_one_line(name: str, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        WorkloadSpec(str(PROGRAMS / name)).build()
    assert "\n" not in str(caught.value)


@with_torch
def test_a_name_that_trains_is_stopped_at_its_first_loader() -> None:
    torch = pytest.importorskip("torch")
    iterator = torch.utils.data.dataloader._BaseDataLoaderIter
    begin = iterator.__init__
    with pytest.raises(TrainsError, match="iterates a DataLoader: it trains; give your program after --"):
        WorkloadSpec(f"{TRAINS}:train").build()
    assert iterator.__init__ is begin


@with_torch
def test_a_script_that_trains_when_it_is_imported_is_stopped_too(tmp_path: Path) -> None:
    (tmp_path / "no-guard.py").write_text(
        "from torch.utils.data import DataLoader\nfor batch in DataLoader(range(8)): pass\nraise SystemExit(9)\n"
    )
    with pytest.raises(TrainsError):
        WorkloadSpec(f"{tmp_path}/no-guard.py:main").build()


@with_torch
def test_the_settings_of_a_loader_are_kept_beside_flags_that_win() -> None:
    torch = pytest.importorskip("torch")
    own = {
        "workers": 3, "prefetch_factor": 4, "pin_memory": False, "can_pin": torch.accelerator.is_available(),
        "persistent_workers": True, "in_order": True, "context": "spawn",
    }  # fmt: skip
    assert build("tuned").settings == build("tuned", batch_size=5).settings == own
    assert Rig(WorkloadSpec(f"{SCRIPT}:tuned")).facts().settings == LoaderSettings(**own)  # type: ignore[arg-type]
    assert Rig(WorkloadSpec(f"{SCRIPT}:instance")).facts().settings is None


@with_torch
def test_memory_that_is_not_pinned_without_a_device_is_shown_as_that(monkeypatch: pytest.MonkeyPatch) -> None:
    accelerator = pytest.importorskip("torch").accelerator
    for there, words in ((False, "pin_memory=True (no device here: torch pins nothing)"), (True, "pin_memory=True")):
        monkeypatch.setattr(accelerator, "is_available", lambda there=there: there)
        own = build("pinned").settings
        assert str(LoaderSettings(**own)) == f"num_workers=1, prefetch_factor=2, {words}, persistent_workers=False"  # type: ignore[arg-type]
    monkeypatch.undo()
    if not accelerator.is_available():
        assert not iter(build("pinned").loader)._pin_memory  # torch's own word for what it does
