"""Data sets by their names: of any script, as an object or a loader, and what turns out to train."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from attach_kit import ENVIRON, PROGRAMS, TIMES, left_behind

from coresim.attaching.instrument import calibrate
from coresim.cli import attach as cli
from coresim.cli.main import main
from coresim.errors import CoresimError, InputError, MissingPartError
from coresim.measure.rig import Rig, loader_of
from coresim.measure.server import Ask, Server
from coresim.measure.stand_in import StandInSubject
from coresim.measure.subject import Layout
from coresim.model.loader_settings import LoaderSettings
from coresim.workloads.base import DatasetWorkload
from coresim.workloads.named import TrainsError, WorkloadSpec

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

SCRIPT, TRAINS = str(PROGRAMS / "named-train.py"), str(PROGRAMS / "just-train.py")


@pytest.fixture(autouse=True)
def own_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short samples; and the script's modules are imported anew."""
    monkeypatch.setenv("SAMPLE_S", "0.0001")
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("named-train", "just-train", "my-train", "work"):
        monkeypatch.delitem(sys.modules, name, raising=False)


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


def test_an_object_of_any_script_is_a_data_set_with_the_scripts_folder_on_the_path() -> None:
    made = build("instance", batch_size=4)
    assert (len(made), made.batch_size, made.loader) == (3200, 4, None)
    assert first_batch(made)[0].shape == (4, 3, 8, 8)


def test_a_class_is_called() -> None:
    assert type(build("Data").dataset).__name__ == "Data"


def test_a_loader_is_run_with_its_own_settings() -> None:
    made = build("loader")
    assert made.batch_size == 16
    assert made.loader.dataset is made.dataset
    assert (made.collate([made.dataset[0]] * 2)[0].shape, made.has_own_collate) == ((2, 3, 8, 8), True)
    assert made.worker_init is made.loader.worker_init_fn
    assert first_batch(made)[0].shape == (16, 3, 8, 8)


def test_flags_beside_a_loader_win() -> None:
    made = build("loader", batch_size=5, worker_init=f"{SCRIPT}:begin")
    assert (made.batch_size, made.loader) == (5, None)
    assert made.has_own_collate
    assert first_batch(made)[0].shape == (5, 3, 8, 8)


def test_a_data_module_gives_its_training_loader() -> None:
    made = build("Module")
    assert (made.batch_size, len(made)) == (8, 3200)
    assert made.loader is not None


def test_a_data_module_with_several_loaders_is_told() -> None:
    with pytest.raises(InputError, match="train_dataloader gives a list; name what gives one DataLoader"):
        build("Several")


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


def test_without_torch_no_worker_calls_an_init_function() -> None:
    with pytest.raises(MissingPartError, match="--worker-init: only torch's DataLoader calls one"):
        StandInSubject(DatasetWorkload(range(8), "mine", worker_init=print))


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


def test_a_name_that_trains_is_stopped_at_its_first_loader() -> None:
    iterator = torch.utils.data.dataloader._BaseDataLoaderIter
    begin = iterator.__init__
    with pytest.raises(TrainsError, match="iterates a DataLoader: it trains; give your program after --"):
        WorkloadSpec(f"{TRAINS}:train").build()
    assert iterator.__init__ is begin


def test_a_script_that_trains_when_it_is_imported_is_stopped_too(tmp_path: Path) -> None:
    (tmp_path / "no-guard.py").write_text(
        "from torch.utils.data import DataLoader\nfor batch in DataLoader(range(8)): pass\nraise SystemExit(9)\n"
    )
    with pytest.raises(TrainsError):
        WorkloadSpec(f"{tmp_path}/no-guard.py:main").build()


def test_a_name_that_trains_is_answered_as_a_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "job.json"
    for name, value in {**ENVIRON, "SAMPLE_S": "0.0005", "STEP_S": "0.005"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(cli, "_QUICK", TIMES)
    assert main(["measure", "--quick", "--dataset", f"{TRAINS}:train", "-o", str(path)]) == 0
    said = capsys.readouterr().err
    assert "importing your module ..." in said
    assert "iterates a DataLoader, so it trains: it is run as a program" in said
    profile = json.loads(path.read_text())
    assert profile["workload"] == f"{TRAINS}:train"
    assert (profile["today"]["workers"], profile["batch_size"]) == (1, 32)
    assert not left_behind("coresim.cli.called")


def test_the_settings_of_a_loader_are_kept_beside_flags_that_win() -> None:
    own = {
        "workers": 3, "prefetch_factor": 4, "pin_memory": False, "can_pin": torch.accelerator.is_available(),
        "persistent_workers": True, "in_order": True, "context": "spawn",
    }  # fmt: skip
    assert build("tuned").settings == build("tuned", batch_size=5).settings == own
    assert Rig(WorkloadSpec(f"{SCRIPT}:tuned")).facts().settings == LoaderSettings(**own)  # type: ignore[arg-type]
    assert Rig(WorkloadSpec(f"{SCRIPT}:instance")).facts().settings is None


def test_memory_that_is_not_pinned_without_a_device_is_shown_as_that(monkeypatch: pytest.MonkeyPatch) -> None:
    accelerator = torch.accelerator
    for there, words in ((False, "pin_memory=True (no device here: torch pins nothing)"), (True, "pin_memory=True")):
        monkeypatch.setattr(accelerator, "is_available", lambda there=there: there)
        own = build("pinned").settings
        assert str(LoaderSettings(**own)) == f"num_workers=1, prefetch_factor=2, {words}, persistent_workers=False"  # type: ignore[arg-type]
    monkeypatch.undo()
    if not accelerator.is_available():
        assert not iter(build("pinned").loader)._pin_memory  # torch's own word for what it does


class OneReader(torch.utils.data.IterableDataset[Any]):
    """A stream of one file: a second worker has none."""

    def __iter__(self) -> Any:
        worker = torch.utils.data.get_worker_info()
        if worker is not None and worker.num_workers > 1:
            raise ValueError("fewer files than workers")
        return iter(range(10**6))


def test_a_program_s_loader_whose_parts_contradict_its_batches_is_run_again_and_then_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from coresim.measure import calibrate as measuring
    from coresim.measure import costs, trust

    ran, kept, usual = [], [], measuring.calibrate
    loader = torch.utils.data.DataLoader(torch.zeros(512, 4), 4)

    def calibrated(*given: Any, **named: Any) -> Any:
        ran.append(usual(*given, **named))
        return ran[-1]

    monkeypatch.setattr(measuring, "calibrate", calibrated)
    monkeypatch.setattr(costs, "measurements", lambda found: kept.append(found) or [])
    for missed, times in ((0.2, 1), (0.9, 2), (-0.3, 2)):
        ran.clear()
        monkeypatch.setattr(trust, "contradiction", lambda found, missed=missed: missed if found is ran[0] else 0.1)
        calibrate(loader, workers=1, pin_memory=False, budget_s=0.3)
        assert len(ran) == times and kept[-1] is ran[-1]
    ran.clear()
    monkeypatch.setattr(trust, "contradiction", lambda found: 0.9)
    with pytest.raises(CoresimError, match="90% longer than the sum of their parts"):
        calibrate(loader, workers=1, pin_memory=False, budget_s=0.3)
    assert len(ran) == trust.TIMES


def test_a_stream_that_takes_no_more_workers_is_run_with_those_that_it_has() -> None:
    loader = torch.utils.data.DataLoader(OneReader(), 4)
    found = calibrate(loader, workers=1, pin_memory=False, budget_s=0.5)
    assert {measured["name"] for measured in found["measurements"]} >= {"prepare.sample", "scaling.1"}
    what, value, _ = found["warnings"][0]
    assert what == "the loader failed with more workers than the program's 1" and "fewer files than workers" in value
    with pytest.raises(InputError, match="fewer files than workers"):
        calibrate(loader, workers=0, pin_memory=False, budget_s=0.5)
