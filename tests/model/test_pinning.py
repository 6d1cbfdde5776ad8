"""Pinning, and reading what is not pinned: where in the line they stand, and what a profile says of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from made_up import profile

from coresim.model.build import build
from coresim.model.handover import RELEASE
from coresim.model.measurement import Measurement
from coresim.model.option import Option
from coresim.model.pipeline import Pipeline
from coresim.model.presets import PRESETS
from coresim.model.profile import OLD_HANDOVER, OLD_PINNING, Profile
from coresim.model.scenario import read_scenario

WORKLOAD = {
    "batch_size": 4, "preprocess": "1 ms", "consumer": "2 ms", "pages": "3 ms", "pin": "5 ms", "pin_wait": "7 ms",
}  # fmt: skip


def line(option: Option = Option.OVERLAPPED, copy: str = "0 s", **loader: Any) -> Pipeline:
    tables = {"workload": {**WORKLOAD, "copy": copy}, "accelerator": {"step": "20 ms"}, "loader": loader}
    return build(read_scenario(tables), option, 4.0, 2)


def test_a_pin_thread_waits_for_workers_and_copies_on_a_core() -> None:
    stage = line(pin_memory=True).stages[1]
    assert (stage.name, stage.servers, stage.ordered) == ("pin", 1, True)
    found = [(phase.resource, phase.service.mean) for phase in stage.phases]
    assert found == [("wait", pytest.approx(0.007)), ("cores", pytest.approx(0.005))]
    assert [stage.name for stage in line().stages] == ["loader"]


@pytest.mark.parametrize(
    ("loader", "copy", "consumer_s", "copy_s"),
    [
        # The step is the first to read the batch where nothing copies it, else the copy is.
        ({}, "0 s", 0.005, 0.0),
        ({}, "10 ms", 0.002, 0.013),
        # A copy beside the steps takes the trainer nothing, but the trainer's process maps the batch.
        ({"copy_mode": "stream"}, "10 ms", 0.005, 0.010),
        # The thread that pins has read it, and its CPU time is that thread's.
        ({"pin_memory": True}, "10 ms", 0.002, 0.010),
    ],
)
def test_who_reads_a_batch_first_maps_its_pages(
    loader: dict[str, Any], copy: str, consumer_s: float, copy_s: float
) -> None:
    trainer = line(copy=copy, **loader).trainer
    assert trainer.consumer.service.mean == pytest.approx(consumer_s)
    assert trainer.copy.service.mean == pytest.approx(copy_s)


def test_a_thread_that_copies_maps_what_it_is_the_first_to_read() -> None:
    stage = line(copy="10 ms", copy_mode="thread").stages[-1]
    assert [(phase.name, phase.service.mean) for phase in stage.phases] == [
        ("consumer", pytest.approx(0.005)), ("copy", pytest.approx(0.010)),
    ]  # fmt: skip


@pytest.mark.parametrize("name", PRESETS)
def test_only_loaders_of_processes_have_a_thread_that_pins(name: str) -> None:
    """A profile of a DataLoader says that it pins, and a loader of threads has it in its table too."""
    preset = PRESETS[name]
    found = line(preset=name, pin_memory=True)
    assert ("pin" in [stage.name for stage in found.stages]) == (not preset.loader.get("in_process", False))


@pytest.mark.parametrize("option", [Option.NO_OVERLAP, Option.STAGED])
def test_a_batch_of_the_trainer_s_own_process_is_mapped_already(option: Option) -> None:
    trainer = line(option).trainer
    assert trainer.consumer.service.is_zero and trainer.copy.service.is_zero


def test_a_profile_that_was_measured_with_pinning_says_so() -> None:
    measured = profile()
    pinned = [Measurement(name, "s/batch", ((0.01,), (0.012,)), "test") for name in ("prepare.pin", "receive.pin")]
    scenario = replace(measured, measurements=(*measured.measurements, *pinned)).scenario()
    assert scenario.loader.pin_memory and not measured.scenario().loader.pin_memory
    assert scenario.workload.pin.mean == scenario.workload.pin_wait.mean == pytest.approx(0.011)


def test_an_older_profile_of_pinned_batches_is_read_with_a_warning():
    known = profile()
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
    known = profile()
    assert Profile.from_dict(known.to_dict()).warnings == known.warnings
    older = replace(known, measurements=tuple(m for m in known.measurements if m.name != "receive.release"))
    assert Profile.from_dict(older.to_dict()).warnings == (*known.warnings, OLD_HANDOVER)


def test_with_one_batch_out_its_worker_waits_until_the_trainer_that_waits_for_it_has_it():
    """Before it is dealt the next one, the trainer is woken: not the time of a batch that is there."""
    table = {"rest_free": "1 ms", "begin_free": "9 ms", "send_free": "3 ms"}
    tables = {"workload": {**WORKLOAD, "handover": table}, "accelerator": {"step": "20 ms"}, "loader": {}}
    for pins, wait_s in ((False, 0.003), (True, 0.009)):
        tables["loader"] = {"pin_memory": pins, "prefetch_factor": 1}
        found = build(read_scenario(tables), Option.OVERLAPPED, 8.0, 1)
        dealt = next(phase for phase in found.stages[0].phases if phase.name == "dispatch")
        assert dealt.service.mean == pytest.approx(wait_s + (1 - RELEASE) * 0.002)
