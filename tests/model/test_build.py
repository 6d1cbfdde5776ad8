"""From a scenario to a pipeline: the three options in cases that a pencil can do, pinning, sending, several hosts."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

import coresim
from coresim.errors import InputError
from coresim.model.build import build
from coresim.model.crowding import on_cores
from coresim.model.handover import (
    AFTER_SPINNING,
    CROWDS,
    EVENED_OUT_S,
    RELEASE,
    STATES,
    Handover,
)
from coresim.model.load import scenario_of
from coresim.model.option import Option
from coresim.model.pipeline import Pipeline
from coresim.model.presets import PRESETS
from coresim.model.scenario import (
    Accelerator,
    HostResources,
    Loader,
    Scenario,
    WorkloadCosts,
    read_scenario,
)
from coresim.model.service import Service
from coresim.sim.draws import draw
from coresim.sim.fast import simulate
from coresim.sim.run import RunLength

#: Per batch: fetch 4 x 1 ms, preprocess 4 x 5 ms, collate 2 ms: 26 ms in a worker.
STEADY = read_scenario({
    "workload": {"batch_size": 4, "fetch": "1 ms", "preprocess": "5 ms", "collate": "2 ms", "consumer": "3 ms",
                 "copy": "1 ms"},
    "accelerator": {"step": "8 ms", "launch": "2 ms"},
    "loader": {"fetchers": 2},
})  # fmt: skip


def period(pipeline: Pipeline) -> float:
    """Elapsed time per step in the long run."""
    steps = 120
    (trace,) = simulate(pipeline, draw(pipeline, steps, 1), RunLength(steps, trace=True)).traces
    return (trace.end[-1] - trace.end[59]) / (steps - 60)


def with_times(**times: str) -> Scenario:
    return scenario_of(STEADY, "steady", [f"{name}={time}" for name, time in times.items()])


@pytest.mark.parametrize(("step", "launch", "longer"), [("8 ms", "2 ms", 0.008), ("3 ms", "7 ms", 0.007)])
def test_without_overlap_the_times_add_up(step: str, launch: str, longer: float) -> None:
    pipeline = build(with_times(step=step, launch=launch), option=1, cores=4.0)
    assert period(pipeline) == pytest.approx(0.004 + 0.020 + 0.002 + 0.001 + longer)


def test_without_overlap_nothing_is_received_from_a_worker() -> None:
    assert build(STEADY, 1, 4.0).trainer.consumer.service.is_zero
    assert not build(STEADY, 2, 4.0).trainer.consumer.service.is_zero
    assert period(build(with_times(consumer="500 ms"), 1, 4.0)) == period(build(STEADY, 1, 4.0))


@pytest.mark.parametrize(
    ("workers", "cores", "expected"),
    [
        (1, 8.0, 0.026),  # the worker
        (2, 8.0, 0.013),  # two workers
        (3, 8.0, 0.012),  # the trainer: receive 3, copy 1, step 8
        (9, 8.0, 0.012),
        (2, 1.0, None),
    ],
)
def test_overlapped_the_slower_of_workers_and_trainer_paces(workers: int, cores: float, expected: float | None) -> None:
    found = period(build(STEADY, option=2, cores=cores, workers=workers))
    if expected is None:
        # One core: 22 ms of the workers' and 3 ms of the trainer's CPU at least, and it spins besides.
        assert 0.025 < found < 0.04
    else:
        assert found == pytest.approx(expected)


@pytest.mark.parametrize(
    ("mode", "expected"), [("sync", 0.012), ("stream", 0.012), ("overlap", 0.012), ("thread", 0.008)]
)
def test_overlapped_by_copy_mode(mode: str, expected: float) -> None:
    # Receive 3, copy 1, step 8: a trainer that waits for each step waits for its copy too. A thread is ahead.
    assert period(build(with_times(copy_mode=mode), option=2, cores=16.0, workers=6)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("times", "workers", "expected"),
    [
        ({}, 1, 0.022),  # preprocess and collate: fetching has a stage of its own
        ({}, 2, 0.011),
        ({}, 4, 0.008),  # the step; the copy thread takes 3 + 1
        ({"fetch": "10 ms"}, 4, 0.020),  # 4 samples of 10 ms by 2 fetchers
        ({"fetch": "10 ms", "fetchers": "8"}, 4, 0.008),
        ({"copy": "9 ms"}, 4, 0.012),  # the copy thread: 3 + 9
        ({"launch": "15 ms"}, 4, 0.015),
    ],
)
def test_staged_the_slowest_stage_paces(times: dict[str, str], workers: int, expected: float) -> None:
    assert period(build(with_times(**times), option=3, cores=16.0, workers=workers)) == pytest.approx(expected)


def test_stages_of_ones_own_replace_the_options() -> None:
    tables = [
        {"name": "read", "service": "2 ms", "holds_core": False, "grain": "sample", "servers": 2},
        {"name": "decode", "service": "6 ms", "grain": "sample", "servers": 2},
        {"name": "join", "service": "5 ms"},
    ]
    own = read_scenario({**STEADY.to_dict(), "stage": tables})
    # Samples leave decode at 2 per 6 ms, so a batch of 4 each 12 ms; the trainer takes 3 + 1 + 8 too.
    assert [period(build(own, option, cores=16.0)) for option in (1, 2, 3)] == pytest.approx([0.012] * 3)
    slow = scenario_of(own, "own", ["step=30 ms"])
    assert period(build(slow, 2, cores=16.0)) == pytest.approx(0.034)


def test_stages_of_ones_own_draw_apart() -> None:
    spread = {"mean": "2 ms", "distribution": "exponential"}
    own = read_scenario({**STEADY.to_dict(), "stage": [{"name": name, "service": spread} for name in ("one", "two")]})
    pipeline = build(own, 2, cores=4.0)
    one, two = (
        drawn_times
        for key, drawn_times in draw(pipeline, 50, 1).service_times.items()
        if key.split(".")[0] in ("one", "two")
    )
    assert (one != two).all()


@pytest.mark.parametrize("option", [0, 4, "2"])
def test_there_are_three_options(option: Any) -> None:
    with pytest.raises(InputError, match=r"use 1 \(no overlap\), 2 \(overlapped\) or 3 \(staged\)"):
        build(STEADY, option, 4.0)


def hosts_of(**accelerator: object) -> dict:
    work = {"batch_size": 8, "preprocess": {"mean": "5 ms", "cv": 0.5, "distribution": "gamma"}}
    return {"workload": work, "accelerator": {"step": "20 ms"} | accelerator, "host": {"cores": 4}}


def test_hosts_wait_for_one_another():
    pipeline = build(read_scenario(hosts_of(hosts=4, allreduce="3 ms")), 2, 4, 2)
    assert (pipeline.hosts, pipeline.ranks, pipeline.barrier, pipeline.allreduce) == (4, 1, True, 0.003)
    alone = coresim.simulate(hosts_of(), workers=2, cores=4).result
    many = coresim.simulate(hosts_of(hosts=16), workers=2, cores=4).result
    # The slowest of sixteen decides how fast all are.
    assert many.gpu_idle > alone.gpu_idle + 0.01
    assert many.throughput_samples_per_s > 10 * alone.throughput_samples_per_s


# Pinning, and reading what is not pinned

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


def test_with_one_batch_out_its_worker_waits_until_the_trainer_that_waits_for_it_has_it():
    """Before it is dealt the next one, the trainer is woken: not the time of a batch that is there."""
    table = {"rest_free": "1 ms", "begin_free": "9 ms", "send_free": "3 ms"}
    tables = {"workload": {**WORKLOAD, "handover": table}, "accelerator": {"step": "20 ms"}, "loader": {}}
    for pins, wait_s in ((False, 0.003), (True, 0.009)):
        tables["loader"] = {"pin_memory": pins, "prefetch_factor": 1}
        found = build(read_scenario(tables), Option.OVERLAPPED, 8.0, 1)
        dealt = next(phase for phase in found.stages[0].phases if phase.name == "dispatch")
        assert dealt.service.mean == pytest.approx(wait_s + (1 - RELEASE) * 0.002)


# What a worker needs to hand a batch over beyond collating


def test_a_trainer_that_prepares_sends_nothing_however_many_cores_are_free():
    workload = WorkloadCosts(batch_size=4, preprocess=Service(0.001), send=Service(0.002), send_overlap=0.5)
    scenario = Scenario(workload, Accelerator(Service(0.1)), HostResources(), Loader())
    assert on_cores(scenario, 0, 4.0) is scenario
    assert on_cores(scenario, 1, 4.0).workload.send.mean < 0.002
    assert build(scenario, 1, 4.0, 0).total_ranks == 1


def collate_of(option: int, in_process_collate: float = 1.0, **loader: object) -> float:
    costs = {"preprocess": Service(0.001), "collate": Service(0.002), "send": Service(0.003)}
    workload = WorkloadCosts(batch_size=4, in_process_collate=in_process_collate, **costs)
    scenario = Scenario(workload, Accelerator(Service(0.1)), loader=Loader(**loader))  # type: ignore[arg-type]
    phases = {phase.name: phase for _, phase, _ in build(scenario, option, 4, 2).phases()}
    return phases["collate"].service.mean


def test_worker_processes_send_and_nobody_else():
    assert collate_of(1) == pytest.approx(0.002)
    assert collate_of(2) == pytest.approx(0.005)
    assert collate_of(3) == pytest.approx(0.002)
    assert collate_of(2, in_process=True) == pytest.approx(0.002)


def test_only_worker_processes_collate_into_new_shared_memory():
    assert collate_of(2, 0.1) == pytest.approx(0.005)
    assert collate_of(1, 0.1) == collate_of(3, 0.1) == collate_of(2, 0.1, in_process=True) == pytest.approx(0.0002)


#: Seconds that a hand-over takes in the states in which its maker rests.
FREE, SHARED, CROWDED = 0.004, 0.006, 0.02


def line_of(
    prefetch_factor: int = 1,
    workers: int = 2,
    cores: float = 4.0,
    machine: float | None = None,
    sync: str = "block",
    count: int = 1,
    **loader: object,
) -> Pipeline:
    """Batches of 4 samples of 1 ms, which the trainer receives in 10 ms; calibrated on so many cores of a machine."""
    waits = {f"rest_{crowd}": Service(wait) for crowd, wait in zip(CROWDS, (FREE, SHARED, CROWDED), strict=True)}
    handover = Handover(**waits)
    workload = WorkloadCosts(batch_size=4, preprocess=Service(0.001), consumer=Service(0.01), handover=handover)
    device, host = Accelerator(Service(0.1), sync=sync, count=count), HostResources(cores=machine)
    scenario = Scenario(workload, device, host, Loader(**loader))  # type: ignore[arg-type]
    return build(scenario, 2, cores, workers, prefetch_factor)


def deal_of(**settings: Any) -> float:
    """Seconds for which a worker waits for its next batch, less the trainer's own part."""
    phases = {phase.name: phase for _, phase, _ in line_of(**settings).phases()}
    return phases["dispatch"].service.mean - (1 - RELEASE) * 0.01 if "dispatch" in phases else math.nan


def test_with_one_batch_out_a_worker_waits_until_the_trainer_has_received_it():
    assert deal_of() == pytest.approx(FREE)
    in_queue = {"credits": "queue", "dispatch": "shared"}
    for loader in ({"prefetch_factor": 2}, {"in_process": True}, in_queue, {"grain": "split"}):
        assert math.isnan(deal_of(**loader))


def test_that_wait_is_of_the_state_in_which_all_other_workers_are_at_work():
    assert deal_of(workers=3) == pytest.approx(FREE)  # with the maker and the trainer, four want the four cores
    assert deal_of(workers=4) == pytest.approx(SHARED)
    assert deal_of(workers=7) == pytest.approx(CROWDED)
    assert deal_of(workers=1, cores=1.0) == pytest.approx(CROWDED)
    assert deal_of(workers=2, count=2) == pytest.approx(SHARED)  # three other workers, two trainers, the maker


@pytest.mark.parametrize("sync", ["block", "spin"])
def test_worker_and_trainer_wait_for_the_same_hand_over(sync: str):
    line = line_of(workers=4, machine=4.0, sync=sync)
    [wait] = [phase.service.mean for phase in line.trainer.handover if phase.name == "handover.send_shared"]
    assert deal_of(workers=4, machine=4.0, sync=sync) == pytest.approx(wait)
    assert wait > SHARED


def test_before_the_deal_a_maker_shares_no_core_with_the_trainer():
    """Where more want a core than there are, the calibration took off a core's share of the trainer's 10 ms."""
    late, usual = (
        {phase.name: phase.service.mean for phase in line_of(factor, machine=2.0).trainer.handover} for factor in (1, 2)
    )
    for name, wait in usual.items():
        assert late[name] == pytest.approx(wait if name.endswith("free") else wait + (1 - RELEASE) * 0.01 / 2)
    assert late != usual


def test_what_a_trainer_frees_it_frees_at_the_batch_s_own_turn():
    """And so it maps the pages of a batch that it reads."""
    tables: dict[str, Any] = {
        "workload": {"batch_size": 4, "preprocess": "1 ms", "consumer": "10 ms", "release": 0.3, "pages": "5 ms"},
        "accelerator": {"step": "20 ms", "copies": False}, "loader": {"pin_memory": False},
    }  # fmt: skip
    trainer = build(read_scenario(tables), 2, 4.0, 2).trainer
    assert trainer.consumer.service.mean == pytest.approx(0.015)
    assert trainer.release == pytest.approx((0.3 * 10 + 5) / 15)
    tables["workload"].pop("pages")
    assert build(read_scenario(tables), 2, 4.0, 2).trainer.release == pytest.approx(0.3)
    assert {build(read_scenario(tables), option, 4.0, 2).trainer.release for option in (1, 3)} == {0.0}


def test_the_wait_for_a_dispatch_lengthens_the_time_of_a_batch_and_holds_no_core():
    workload = {"preprocess": "1 ms", "batch_size": 10}
    times = {}
    for consumer in ("0 ms", "10 ms"):
        tables = {"workload": workload | {"consumer": consumer}, "accelerator": {"step": "1 ms"}}
        found = coresim.simulate(tables, option=2, workers=1, cores=4, prefetch_factor=1, steps=200)
        times[consumer] = 10 / found.result.throughput_samples_per_s
    assert times["0 ms"] == pytest.approx(0.010, rel=0.02)
    assert times["10 ms"] == pytest.approx(0.0156, rel=0.02)


# Waits for a hand-over


def test_only_a_loader_s_trainer_that_launches_waits_for_turns():
    tables: dict[str, Any] = {"workload": {"batch_size": 4, "preprocess": "1 ms"}, "accelerator": {"step": "20 ms"}}
    launching = read_scenario({**tables, "accelerator": {"step": "20 ms", "launch": "5 ms"}})
    assert build(launching, Option.OVERLAPPED, 2.0, 2).trainer.settling == EVENED_OUT_S
    assert build(launching, Option.STAGED, 2.0, 2).trainer.settling == 0
    assert build(read_scenario(tables), Option.OVERLAPPED, 2.0, 2).trainer.settling == 0


def test_a_line_of_ranks_has_their_hand_overs():
    tables = {
        "workload": {"batch_size": 4, "preprocess": "1 ms", "handover": {"rest_free": "1 ms"}},
        "accelerator": {"step": "20 ms", "sync": "block"},
    }
    eight = {**tables, "accelerator": {**tables["accelerator"], "count": 8}}
    names = [f"handover.{state}" for state in STATES]

    def waits(tables, cores):
        phases = build(read_scenario(tables), Option.OVERLAPPED, cores, 2).trainer.handover
        return {phase.name: phase.service.mean for phase in phases}

    assert waits(tables, 2.0) == dict.fromkeys(names, 0.001) == waits(eight, 9.0)
    # A thread that pins waits for the makers, and of it no trial tells.
    pinned = {"preset": "pytorch", "pin_memory": True}
    pins = {**eight, "loader": pinned, "workload": {**eight["workload"], "pin": "1 ms"}}
    assert waits(pins, 2.0) == dict.fromkeys(names, 0.001)
    # Of fewer cores than the machine has: these count.
    crowd = waits({**eight, "host": {"cores": 64}}, 2.0)
    assert {name: round(crowd[name], 6) for name in names} == {
        name: 0.001 if "free" in name else 0.0045 for name in names
    }


def test_a_trainer_that_spun_waits_for_the_turns_of_others():
    tables = {
        "workload": {"batch_size": 4, "preprocess": "1 ms", "handover": {"rest_free": "2 ms", "begin_free": "3 ms"}},
        "accelerator": {"step": "20 ms", "sync": "block"},
    }
    asleep, spun = (
        build(replace(one, accelerator=replace(one.accelerator, sync=sync)), Option.OVERLAPPED, 2.0, 2)
        for one in [read_scenario(tables)]
        for sync in ("block", "spin")
    )
    more = [
        after.service.mean - before.service.mean
        for before, after in zip(asleep.trainer.handover, spun.trainer.handover, strict=True)
    ]
    # In the order of STATES; one that waited for its batch slept, and free cores need no turns.
    late = AFTER_SPINNING.mean
    assert more == pytest.approx([0, 0, 0, 0, late, 0, late, 0, late, 0, late, 0])
    # A batch that a thread has pinned is there, and the trainer does not wait for anyone's turn.
    pinned = {**tables, "workload": {**tables["workload"], "pin": "1 ms"}, "loader": {"pin_memory": True}}
    pinned["accelerator"] = {"step": "20 ms", "sync": "spin"}
    spun = build(read_scenario(pinned), Option.OVERLAPPED, 2.0, 2)
    assert [phase.service for phase in spun.trainer.handover] == [phase.service for phase in asleep.trainer.handover]
