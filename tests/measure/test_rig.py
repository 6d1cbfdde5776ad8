"""Lighter batches where one takes long, and none where a smaller batch may not cost its share."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from kit import running

from coresim.errors import CoresimError, InputError, MissingPartError
from coresim.measure import rig, server, trust
from coresim.measure.accelerator import AcceleratorConfig
from coresim.measure.calibrate import calibrate
from coresim.measure.rig import LEAST_BATCH, LIGHT_S, SMALLER, WAITING_S, Rig
from coresim.measure.server import Ask, Server
from coresim.workloads.base import default_collate
from coresim.workloads.named import WorkloadSpec

SLEEP = 0.02
#: Nobody listens.
LINK: Any = SimpleNamespace(send=lambda message: None)


class Numbers:
    def __len__(self) -> int:
        return 1000

    def __getitem__(self, index: int) -> np.ndarray:
        return np.full(3, index)


class Slow(Numbers):
    def __getitem__(self, index: int) -> np.ndarray:
        until = time.thread_time() + 1.1 * LIGHT_S / (2 * LEAST_BATCH)
        while time.thread_time() < until:
            pass
        return super().__getitem__(index)


class Sleeps(Numbers):
    def __getitem__(self, index: int) -> np.ndarray:
        time.sleep(SLEEP)
        return super().__getitem__(index)


class AtOnce(Numbers):
    def __getitems__(self, indices: list[int]) -> list[np.ndarray]:
        return [self[index] for index in indices]


class Stream:
    def __iter__(self) -> Any:
        return iter(range(1000))


def joined(samples: list[np.ndarray]) -> Any:
    return default_collate(samples)


def rig_of(name: str, batch_size: int = 256, collate: str | None = None) -> Rig:
    return Rig(WorkloadSpec(f"{__file__}:{name}", batch_size=batch_size, collate=collate))


def light_size(monkeypatch: pytest.MonkeyPatch, made: Rig, sample_s: float, waiting_s: float = 0.0) -> int:
    monkeypatch.setattr(rig, "_seconds_per_sample", lambda subject: (sample_s, sample_s + waiting_s))
    light, small = made.light_subjects()
    usual = made.subject(threads=False).batch_size
    assert (None if small is None else small.batch_size) == (
        None if light.batch_size == usual else light.batch_size // 8
    )
    return light.batch_size


@pytest.mark.parametrize(
    ("batch_size", "batches_s", "size"),
    [(256, 0.9, 256), (256, 1.1, 128), (256, 7.9, 32), (256, 1e6, LEAST_BATCH), (100, 5.0, 12), (12, 1e6, 12)],
)
def test_a_batch_is_halved_until_it_is_light(
    monkeypatch: pytest.MonkeyPatch, batch_size: int, batches_s: float, size: int
) -> None:
    made = rig_of("Numbers", batch_size)
    usual = made.subject(threads=False)
    assert light_size(monkeypatch, made, batches_s * LIGHT_S / batch_size) == size
    # The step, trials and whatever else runs keep the batch that was asked for.
    assert made.subject(threads=False) is usual and usual.batch_size == made.facts().batch_size == batch_size


@pytest.mark.parametrize(("batches_s", "size"), [(0.9, 64), (1.1, 32), (3.9, 16)])
def test_a_batch_whose_samples_wait_may_take_longer(
    monkeypatch: pytest.MonkeyPatch, batches_s: float, size: int
) -> None:
    assert light_size(monkeypatch, rig_of("Numbers", 64), 1e-6, batches_s * WAITING_S / 64) == size


def test_work_and_waits_of_a_sample_are_told_apart() -> None:
    work, whole = rig._seconds_per_sample(rig_of("Sleeps", LEAST_BATCH).subject(threads=False))
    assert work < SLEEP / 2 < SLEEP <= whole


@pytest.mark.parametrize(
    ("name", "collate"),
    [("Numbers", f"{__file__}:joined"), ("AtOnce", None), ("Stream", None)],
    ids=["own collate function", "samples all at once", "stream"],
)
def test_batches_that_may_not_cost_their_share_stay_whole(
    monkeypatch: pytest.MonkeyPatch, name: str, collate: str | None
) -> None:
    assert light_size(monkeypatch, rig_of(name, collate=collate), 1.0) == 256


def test_a_loader_by_its_name_stays_as_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(
        "from torch.utils.data import BatchSampler, DataLoader\n"
        "loader = DataLoader(range(100), batch_sampler=BatchSampler(range(100), 50, False))\n"
    )
    for size in (None, 64):
        made = Rig(WorkloadSpec(f"{tmp_path}/train.py:loader", batch_size=size))
        assert light_size(monkeypatch, made, 1.0) == made.subject(threads=False).batch_size


def test_a_loader_that_names_no_batch_size_is_refused_unless_one_is_said(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "sampled.py").write_text(
        "from torch.utils.data import DataLoader\n"
        "loader = DataLoader(range(100), batch_sampler=[list(range(50)), list(range(50, 100))])\n"
    )
    with pytest.raises(InputError, match="its batch sampler names no batch_size; say --batch-size"):
        WorkloadSpec(f"{tmp_path}/sampled.py:loader").build()
    assert WorkloadSpec(f"{tmp_path}/sampled.py:loader", batch_size=50).build().batch_size == 50


@pytest.mark.parametrize(
    ("flag", "given"), [("--collate", {"collate": "a:b"}), ("--worker-init", {"worker_init": "a:b"})]
)
def test_a_workload_has_a_collate_function_and_workers_of_its_own(flag: str, given: dict[str, str]) -> None:
    spec = WorkloadSpec("coresim.workloads.images:ImageWorkload", **given)  # type: ignore[arg-type]
    with pytest.raises(
        InputError, match=f"{flag} a:b: it goes with a data set, and ImageWorkload is a workload; leave"
    ):
        spec.build()


@pytest.mark.slow
def test_a_calibration_runs_slow_batches_smaller_and_some_much_smaller() -> None:
    with Server(WorkloadSpec(f"{__file__}:Slow", batch_size=2 * LEAST_BATCH)) as server:
        found = server.calibrate(Ask(budget_s=1.0), progress=lambda done: None)
    small = {one.name for one in found.measurements if one.name.endswith(f"@{LEAST_BATCH // SMALLER}")}
    assert found.batch_size == LEAST_BATCH and {"prepare.send@1", "receive.cpu@1"} <= small
    assert not [name for name in small if name.startswith(("prepare.sample", "scaling"))]
    # Each from three runs with new workers.
    assert {len(one.values) for one in found.measurements if one.name == "receive.cpu@1"} == {3}


@pytest.mark.parametrize(("missed", "times"), [((0.1,), 1), ((2.0, 0.1), 2), ((0.5, -0.9, 0.0), 3)])
def test_a_calibration_whose_parts_contradict_a_batch_is_made_again(
    monkeypatch: pytest.MonkeyPatch, missed: tuple[float, ...], times: int
) -> None:
    made = calibrated_with(monkeypatch, missed)
    found = server._calibrated(LINK, rig_of("Numbers", 4), Ask(budget_s=1.0))
    assert len(made) == times and found.batch_bytes == times


def test_a_calibration_whose_parts_contradict_a_batch_each_time_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    made = calibrated_with(monkeypatch, (2.0, -0.3, 0.26, 0.0))
    with pytest.raises(CoresimError, match=r"26% longer than the sum .* each of 3 calibrations; close") as told:
        server._calibrated(LINK, rig_of("Numbers", 4), Ask(budget_s=1.0))
    assert len(made) == 3 and told.value.exit_code == 1


def calibrated_with(monkeypatch: pytest.MonkeyPatch, missed: tuple[float, ...]) -> list[Any]:
    """Calibrations whose parts contradict one another by so much, one after the other."""
    made = list[Any]()

    def calibrated(subject: Any, **_: Any) -> Any:
        facts = {"sampled": 0.0, "batch_facts": (len(made) + 1, 1), "busy": False}
        made.append(SimpleNamespace(subject=subject, missed=missed[len(made)], **facts))
        return made[-1]

    monkeypatch.setattr(server, "calibrate", calibrated)
    monkeypatch.setattr(trust, "contradiction", lambda found: found.missed)
    monkeypatch.setattr(server, "warnings_of", lambda found: [])
    monkeypatch.setattr(server, "measure_senders", lambda *_: [])
    monkeypatch.setattr(
        server, "costs", SimpleNamespace(measurements=lambda found: [], usual_sampler_times=lambda found: {})
    )
    return made


IMPORTED = """
import os, numpy
with open(__file__ + ".imports", "a") as log:
    print(os.getpid(), file=log)

class Numbers:
    def __len__(self):
        return 100
    def __getitem__(self, index):
        return numpy.full(3, index, dtype=numpy.float32)

data = Numbers()

def step(batch):
    import torch
    with open(__file__ + ".steps", "a") as log:
        print(os.getpid(), len(batch), torch.get_num_threads(), file=log)
    torch.set_num_threads(7)
"""


@pytest.mark.torch
def test_a_step_timed_where_the_data_set_is_imports_its_module_no_second_time(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    ask = "import torch; print(torch.get_num_threads())"  # in this process other tests may have limited it
    usual = int(subprocess.run([sys.executable, "-c", ask], stdout=subprocess.PIPE, check=True).stdout)
    module = tmp_path / "once.py"
    module.write_text(IMPORTED)
    config = AcceleratorConfig(device="cpu", step=f"{module}:step", batch=tmp_path / "batch.pt", seconds=0.01, busy=())
    with Server(WorkloadSpec(f"{module}:data", batch_size=4)) as built:
        assert built.import_s > 0.0
        built.ask(config.batch)
        built.calibrate(Ask(budget_s=0.5), progress=lambda done: None)
        found, again = built.time_step(config), built.time_step(replace(config, processes=1))
        [importer] = Path(f"{module}.imports").read_text().split()
    steps = [line.split() for line in Path(f"{module}.steps").read_text().splitlines()]
    assert {tuple(step[:2]) for step in steps} == {(importer, "4")} and importer != str(os.getpid())
    # As many threads as torch takes by itself, and from then on as many as the step says.
    assert int(steps[0][2]) == usual and {step[2] for step in steps[1:]} == {"7"}
    assert again["accelerator.step"].values and 0.0 <= found.others < 2.0 * (os.cpu_count() or 1)
    assert len(found["accelerator.step"].values) == config.processes and found.provenance["device"] == "cpu"
    assert torch.__version__ in found.provenance["torch"]


@pytest.mark.torch
def test_a_step_that_fails_where_the_data_set_is_says_which(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    module = tmp_path / "fails.py"
    module.write_text(IMPORTED.replace("    import torch", "    raise ValueError(7)"))
    config = AcceleratorConfig(device="cpu", step=f"{module}:step", batch=tmp_path / "batch.pt")
    with Server(WorkloadSpec(f"{module}:data", batch_size=4)) as built:
        built.ask(config.batch)
        with pytest.raises(InputError, match=r"training step .*fails.py:step failed: ValueError: 7"):
            built.time_step(config)


def test_a_device_that_does_not_open_pins_nothing_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(name: str) -> Any:
        raise (RuntimeError if name == "cuda" else MissingPartError)("the device is taken")

    asked = list[Ask]()
    calibrated = SimpleNamespace(warnings=[])
    monkeypatch.setattr(server, "open_device", refused)
    monkeypatch.setattr(server, "_calibrated", lambda link, rig, ask: asked.append(ask) or calibrated)
    for name in ("cuda", "cuda:9"):
        server._pinning(None, None, Ask(pin_memory=True, device=name))  # type: ignore[arg-type]
    server._pinning(None, None, Ask())  # type: ignore[arg-type]
    assert [ask.pin_memory for ask in asked] == [False] * 3
    assert [warning.what for warning in calibrated.warnings] == ["no memory was pinned"] * 2
    assert "the device is taken" in calibrated.warnings[0].value
    assert calibrated.warnings[1].value == "torch sees no device cuda:9"


def test_lighter_batches_show_the_machine_s_speed_by_the_sample_of_the_whole_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Here one short round with one worker is a calibration."""
    monkeypatch.setattr(server, "calibrate", partial(calibrate, counts=(1,), rounds=1))
    made, link = rig_of("Slow", 2 * LEAST_BATCH), SimpleNamespace(send=lambda message: None)
    whole = made.subject(threads=False)
    assert whole.timed_sample is None
    server._calibrated(link, made, Ask(budget_s=0.1))  # type: ignore[arg-type]
    chosen = whole.timed_sample
    server._calibrated(link, made, Ask(budget_s=0.1))  # type: ignore[arg-type]
    assert chosen is not None and whole.timed_sample == chosen


TOO_LONG = r"(importing your module|building the data set) took more than 0\.5 s; .*longer with --build-timeout"


class Late(Numbers):
    def __init__(self) -> None:
        time.sleep(60.0)


def test_a_data_set_that_takes_too_long_to_build_is_given_up() -> None:
    began, late = time.monotonic(), Server(WorkloadSpec(f"{__file__}:Late"), build_timeout=0.5)
    with (
        pytest.raises(
            InputError,
            match=TOO_LONG,
        ),
        late,
    ):
        raise AssertionError
    assert time.monotonic() - began < 30.0


def test_a_sample_is_timed_in_a_worker_and_the_same_loader_runs_lighter() -> None:
    made = rig_of("Slow", 2 * LEAST_BATCH)
    light, _ = made.light_subjects()
    assert type(light) is type(made.subject(threads=False)) and light.batch_size == LEAST_BATCH
    with running(light) as pipe:
        assert [len(pipe.next()[0]) for _ in range(3)] == [LEAST_BATCH] * 3
