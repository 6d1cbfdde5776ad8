"""Profiles: the file and everything that may be wrong with it, and the scenario that follows from the raw values."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coresim.errors import InputError, NewerFileError, UnknownKeyError
from coresim.files import read_json
from coresim.model.build import build
from coresim.model.crowding import on_cores
from coresim.model.handover import Handover
from coresim.model.host import CoreTerm, HostFacts
from coresim.model.load import scenario_of
from coresim.model.measurement import Measurement
from coresim.model.option import Option
from coresim.model.page_cache import miss_share
from coresim.model.profile import (
    AcceleratorSource,
    Profile,
    Provenance,
    load_document,
)
from coresim.model.profile_scenario import HANDOVER, MODEL, MOST_VALUES, scatter, service_of, slowdown_table
from coresim.model.scenario import Scenario, read_scenario
from coresim.model.warning import HostWarning

HOST = HostFacts(
    terms=(CoreTerm("affinity", 6.0, "six"), CoreTerm("quota", 3.5, "a quota")),
    threads_per_core=2,
    memory_bytes=8_000_000,
    memory_limit_bytes=6_000_000,
    shm_bytes=64_000,
    hints={"SLURM_CPUS_PER_TASK": "6"},
)
GIVEN = AcceleratorSource(kind="given", provenance="given: 50 ms", uncertainty=0.0, step_time_s=0.05)
TIMED = AcceleratorSource(kind="measured", provenance="measured: here", uncertainty=0.02, name="some GPU")
STEPS = {"accelerator.step": ((0.10, 0.12),), "accelerator.launch": ((0.01,),), "copy.pinned": ((0.003,),)}


def taken(name: str, values: tuple[tuple[float, ...], ...], unit: str = "s") -> Measurement:
    return Measurement(name, unit, values, "by hand")


def profile(source: AcceleratorSource = GIVEN, **more: tuple[tuple[float, ...], ...]) -> Profile:
    values: dict[str, tuple[tuple[float, ...], ...]] = {
        "prepare.sample": ((0.015, 0.025), (0.017, 0.027)),
        "prepare.step.fetch": ((0.0015,), (0.0015,)),
        "prepare.step.decode": ((0.015,), (0.017,)),
        "prepare.collate": ((0.005,), (0.007,)),
        "prepare.send": ((0.003,), (0.003,)),
        "receive.cpu": ((0.002, 0.004), (0.002, 0.004)),
        "receive.release": ((0.001,), (0.001,)),
        "receive.rest_free": ((0.001,), (0.003,)),
        "worker.start": ((0.02,), (0.04,)),
        "worker.first": ((0.2,), (0.4,)),
        "worker.private": ((5e6,), (7e6,)),
        "machine.speed": ((1.0, 1.0), (1.0, 1.0)),
    } | {name.replace("__", "."): found for name, found in more.items()}
    return Profile(
        workload="by hand",
        loader="a loader",
        batch_size=8,
        samples=100,
        bytes_per_sample=1000.0,
        bytes_per_batch=4096,
        arrays_per_batch=2,
        host=HOST,
        accelerator=source,
        provenance=Provenance(
            "0.1", "coresim measure", "2024-01-01T00:00:00+00:00", HOST.fingerprint, 0, "3.11", "2.0", "2.13"
        ),
        speed=(1.0, 0.9, 0.8),
        speed_uncertainty=(0.05,),
        speed_provenance="nothing",
        warnings=(HostWarning("busy", "1 core", "stop it"),),
        measurements=tuple(taken(name, found) for name, found in values.items()),
    )


def test_receiving_with_more_workers_is_interpolated_by_their_logarithm() -> None:
    assert profile().scenario().workload.consumer_by_workers == (1.0,)
    made = profile(receive__cpu__2=((0.006,),), receive__cpu__8=((0.012, 0.012),))
    found = made.scenario().workload.consumer_by_workers
    assert [found[k - 1] for k in (1, 2, 4, 8)] == pytest.approx([1, 2, 3, 4]) and len(found) == 8


def test_receiving_from_more_workers_than_ran_changes_as_where_workers_only_send() -> None:
    only = {f"handover__cpu__{count}": ((seconds,),) for count, seconds in ((1, 0.02), (2, 0.022), (8, 0.026))}
    made = profile(receive__cpu__2=((0.006,),), **only)  # 3 ms from one, so 4 ms more is 4/3 of that
    found = made.scenario().workload.consumer_by_workers
    assert [found[k - 1] for k in (1, 2, 4, 8)] == pytest.approx([1, 2, 2 + 2 / 3, 2 + 4 / 3]) and len(found) == 8
    # What the job's own loader showed is kept, and nothing becomes negative.
    seen = profile(receive__cpu__8=((0.012,),), **only).scenario().workload.consumer_by_workers
    assert seen[-1] == pytest.approx(4.0) and len(seen) == 8
    # It falls by no larger a share than there: 10 of 90 ms.
    fewer = profile(receive__cpu__1=((0.003,),), handover__cpu__1=((0.09,),), handover__cpu__4=((0.01,),))
    assert fewer.scenario().workload.consumer_by_workers[-1] == pytest.approx(1 / 9)


def test_what_more_workers_add_in_seconds_does_not_grow_with_the_batch() -> None:
    only = {"handover__cpu__1": ((0.02,),), "handover__cpu__4": ((0.023,),)}
    made = profile(**only)
    for batch in (8, 64):
        workload = scenario_of(made, "job.json", settings=[f"workload.batch_size={batch}"]).workload
        added = (workload.consumer_by_workers[3] - 1.0) * workload.consumer.mean
        assert added == pytest.approx(0.003)


def with_steps(source: AcceleratorSource = TIMED, **more: tuple[tuple[float, ...], ...]) -> Profile:
    found = profile(source, **STEPS, **more)
    assert all(name in {m.name for m in found.measurements} for name in STEPS)
    return found


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


def test_collating_in_the_trainer_is_told_as_a_share_of_that_in_a_worker() -> None:
    assert profile().scenario().workload.in_process_collate == 1.0
    found = profile(inline__collate=((0.001,), (0.002,))).scenario()
    assert found.workload.in_process_collate == pytest.approx(0.25)


def test_batches_that_vary_as_a_whole_do_so_in_the_scenario() -> None:
    assert profile().scenario().workload.shared_cv == 0.0
    found = profile(prepare__shared_cv=((0.12,),)).scenario()
    stage = build(found, Option.OVERLAPPED, 4, 2, 2).stages[0]
    assert found.workload.shared_cv == 0.12 == stage.phases[0].shared_cv


@pytest.mark.parametrize(
    ("used", "host", "share"),
    [
        ((0.98, 0.96), {}, 0.03),
        ((0.98, 1.04), {}, 0.0),  # less than nothing cannot be lost
        ((0.1, 0.1), {}, 0.25),
        ((0.98, 0.96), {"terms": (CoreTerm("affinity", 2.0, ""), CoreTerm("quota", 1.5, ""))}, 0.0),  # by the quota
        ((0.98, 0.96), {"terms": (CoreTerm("affinity", 1.0, ""),)}, 0.0),  # two threads of one core
    ],
)
def test_time_lost_is_known_where_each_cpu_that_ran_is_a_core(used: Any, host: Any, share: float) -> None:
    made = profile(cores__used=tuple((value,) for value in used))
    terms = (CoreTerm("affinity", 2.0, ""),)
    found = replace(made, host=replace(made.host, **{"terms": terms, "affinity_cpus": 2} | host)).scenario()
    assert found.host.sharing_loss == pytest.approx(share)
    line = build(found, Option.OVERLAPPED, 2.0, 2)
    assert line.core_rate(2) == pytest.approx((1.0 - share) * line.speed[1])


def test_more_cores_do_no_less_where_some_of_their_time_is_lost() -> None:
    found = replace(scenario := profile().scenario(), host=replace(scenario.host, sharing_loss=0.25))
    lines = [build(found, Option.OVERLAPPED, cores / 8, 9) for cores in range(4, 40)]
    work = [9 * line.core_rate(9) for line in lines]
    assert work == sorted(work) and lines[4].sharing_loss == 0.0


@pytest.mark.parametrize(
    ("workers", "ranks", "split", "cores", "share"),
    [
        (1, 1, 1, 2.0, 0.0),
        (2, 1, 1, 2.0, 0.25),
        (3, 1, 1, 2.0, 0.25),
        (2, 1, 1, 2.5, 0.125),
        (1, 2, 1, 3.0, 0.25),  # two workers and two trainers
        (1, 2, 1, 4.0, 0.0),
        (2, 1, 4, 8.0, 0.25),  # four threads of each worker
    ],
)
def test_no_time_is_lost_where_each_worker_and_trainer_has_a_core(
    workers: int, ranks: int, split: int, cores: float, share: float
) -> None:
    found = profile().scenario()
    found = replace(found, host=replace(found.host, sharing_loss=0.25), loader=replace(found.loader, split=split))
    found = replace(found, accelerator=replace(found.accelerator, count=ranks))
    assert build(found, Option.OVERLAPPED, cores, workers).sharing_loss == share


def test_a_trainer_that_splits_its_work_over_all_cores_loses_time_too() -> None:
    found = profile().scenario()
    found = replace(found, host=replace(found.host, sharing_loss=0.25), loader=replace(found.loader, split=4))
    assert [build(found, Option.NO_OVERLAP, 4.0, workers).sharing_loss for workers in (0, 1)] == [0.25, 0.25]


def test_a_free_core_takes_its_share_of_sending() -> None:
    """Beside two workers a third core is free, unless the trainer spins on it or there is a second job."""
    found = profile(prepare__send=((0.04,),), prepare__send_overlap=((0.75,),)).scenario()
    spins = replace(found, accelerator=replace(found.accelerator, sync="spin"))
    found = replace(found, accelerator=replace(found.accelerator, sync="block"))
    twice = replace(found, accelerator=replace(found.accelerator, count=2))

    def batch_s(scenario: Scenario, cores: float) -> float:
        return sum(
            phase.repeats * phase.service.mean
            for phase in build(scenario, Option.OVERLAPPED, cores, 2, 2).stages[0].phases
        )

    whole = batch_s(found, 2)
    assert batch_s(found, 3) == pytest.approx(whole - 0.03) == pytest.approx(batch_s(spins, 4))
    assert batch_s(spins, 3) == batch_s(twice, 4) == whole
    assert batch_s(twice, 5) == pytest.approx(whole - 0.03)
    quota = replace(found, host=replace(found.host, machine_cores=8.0))
    assert batch_s(quota, 2) == whole


def test_few_free_cores_take_no_more_of_sending_than_they_can() -> None:
    """Ten workers whose other threads send for 30 ms of each 70 ms want 4.3 cores, and one is free."""
    times = {"preprocess": "10 ms", "fetch": "5 ms", "send": "40 ms", "send_overlap": 0.75, "collate": "0 ms"}
    found = read_scenario({"workload": {"batch_size": 4, **times}, "accelerator": {"step": "50 ms", "sync": "block"}})

    def sent_s(cores: float) -> float:
        return on_cores(found, 10, cores).workload.send.mean

    assert sent_s(10) == 0.04
    assert sent_s(11) == pytest.approx(0.04 - 0.03 * 70 / 300)
    assert sent_s(14) == pytest.approx(0.04 - 0.03 * 280 / 300)
    assert sent_s(15) == sent_s(64) == pytest.approx(0.01)
    # A library's second thread in every worker has a core of its own first.
    found = replace(found, loader=replace(found.loader, library_threads=2))
    assert sent_s(20) == 0.04
    assert sent_s(21) == pytest.approx(0.04 - 0.03 * 70 / 300)


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


def test_the_scenario_of_a_given_step() -> None:
    scenario = profile().scenario()
    work, device, host = scenario.workload, scenario.accelerator, scenario.host
    assert work.preprocess.values == (0.015, 0.025, 0.017, 0.027)
    assert work.fetch.is_zero and work.copy.is_zero and work.pin.is_zero
    assert work.collate.values == (0.005, 0.007) and work.send.values == (0.003, 0.003)
    assert work.consumer.values == (0.002, 0.004, 0.002, 0.004)
    assert work.handover.rest_free is not None and work.handover.rest_free.values == (0.001, 0.003)
    assert [item.name for item in fields(work.handover) if getattr(work.handover, item.name)] == ["rest_free"]
    assert (work.batch_size, work.batch_bytes, work.worker_bytes) == (8, 4096, 6e6)
    assert (work.startup, work.worker_startup, work.worker_wait) == (pytest.approx(0.03), pytest.approx(0.3), 0.0)
    assert work.decode_share == pytest.approx(0.016 / 0.021)
    assert (device.step.mean, device.step.uncertainty, device.run_ahead) == (0.05, 0.0, 1)
    assert device.launch.is_zero and device.slowdown == (1.0,) and device.name is None
    assert (host.cores, host.threads_per_core, host.memory_bytes, host.shm_bytes) == (3.5, 2, 6e6, 64e3)
    assert (host.speed, host.speed_uncertainty, host.storage_streams) == ((1.0, 0.9, 0.8), (0.05,), None)


def test_a_cost_is_as_uncertain_as_one_more_round_would_show() -> None:
    work = profile().scenario().workload
    # Two rounds, 20 and 22 ms, are 1 ms from their median of 21 each: the deviation of one more is sqrt(2) of 21.
    assert work.preprocess.uncertainty == pytest.approx(math.hypot(2**0.5 / 21, MODEL))
    assert work.collate.uncertainty == pytest.approx(math.hypot(2**0.5 / 6, MODEL))
    assert work.send.uncertainty == pytest.approx(MODEL)  # rounds that agree leave what the model misses
    # Whether the maker rests is seen, how long it then takes less so.
    assert work.handover.rest_free is not None
    assert work.handover.rest_free.uncertainty == pytest.approx(math.hypot(2**0.5 / 2, HANDOVER, MODEL))


def test_what_the_machine_did_meanwhile_makes_work_less_certain() -> None:
    def send(**machine: tuple[tuple[float, ...], ...]) -> float:
        return profile(**machine).scenario().workload.send.uncertainty

    changing, beside = ((0.9,), (1.1,), (1.0,)), ((0.1, 0.3),)
    assert send(machine__speed=changing) == pytest.approx(math.hypot(2.3 * (0.02 / 3) ** 0.5, MODEL))
    assert send(machine__others=beside) == pytest.approx(math.hypot(0.2, MODEL))
    assert send(machine__speed=changing, machine__others=beside) == pytest.approx(
        math.hypot(2.3 * (0.02 / 3) ** 0.5, 0.2, MODEL)
    )
    assert send(machine__others=((5.0,),)) == pytest.approx(math.hypot(1.0, MODEL))  # no more than all of it


def test_the_scatter_of_rounds_is_that_of_one_around_the_median() -> None:
    assert scatter([[1.0], [1.0, 3.0], [3.0]]) == pytest.approx((0.25 / 1) ** 0.5)  # means 1, 2 and 3 around 2
    assert scatter([[1.0], [1.0], [100.0]]) == 1.0  # no more than all of it
    assert scatter([[5.0, 9.0]]) == scatter([[0.0], [0.0]]) == 0.0
    assert scatter([[1.0], [], [1.0]]) == 0.0


def test_the_scenario_of_a_measured_step() -> None:
    busy = {"accelerator.step.busy.1": ((0.121,),), "accelerator.step.busy.3": ((0.132, 0.132),)}
    found = with_steps(**busy)
    device = found.scenario().accelerator
    assert device.step.values == (0.10, 0.12) and device.step.uncertainty == 0.02
    assert device.launch.values == (0.01,) and device.run_ahead == 1 and device.name == "some GPU"
    # Alone 0.11 (median): 1.1 with one busy core, 1.2 with three, half way between with two.
    assert device.slowdown == pytest.approx((1.0, 1.1, 1.15, 1.2))
    assert found.scenario().workload.copy.values == (0.003,)


def test_a_step_that_waits_has_no_launch_of_its_own() -> None:
    device = with_steps(replace(TIMED, synchronises=True)).scenario().accelerator
    assert device.run_ahead == 0 and device.launch.is_zero


def test_a_catalogue_step_keeps_its_uncertainty() -> None:
    source = AcceleratorSource(kind="catalogue", provenance="", uncertainty=0.15, step_time_s=0.1234567890123)
    step = profile(source).scenario().accelerator.step
    assert (step.mean, step.uncertainty) == (0.1234567890123, 0.15)


def test_slowdown_below_one_is_noise() -> None:
    step = taken("accelerator.step", ((0.1,),))
    assert slowdown_table(step, [taken("accelerator.step.busy.2", ((0.09,),))]) == (1.0, 1.0, 1.0)


def test_what_waits_holds_no_core() -> None:
    """The wait is measured apart from the work; it is in the profile only where it is notable."""
    work = profile(prepare__wait=((0.005, 0.010), (0.006, 0.009))).scenario().workload
    assert work.fetch.values == (0.005, 0.010, 0.006, 0.009)
    assert work.fetch.uncertainty == pytest.approx(MODEL)  # no CPU time: the machine's speed is not in it
    assert work.preprocess.values == (0.015, 0.025, 0.017, 0.027)


def cold_reads(samples: int) -> Profile:
    found = profile(storage__cold__read=((0.008,), (0.012,)))
    bandwidth = taken("storage.cold.bandwidth", ((400e3,),), "B/s")
    return replace(found, samples=samples, measurements=(*found.measurements, bandwidth))


def test_a_data_set_larger_than_the_memory_is_read_cold() -> None:
    # 6000 samples of 1000 B are the 6 MB of memory; of twice as many it holds a half.
    warm, cold = (cold_reads(samples).scenario() for samples in (6000, 12000))
    assert warm.workload.fetch.is_zero and warm.workload.preprocess.mean == pytest.approx(0.021)
    assert warm.host.storage_streams is None
    misses = miss_share(12e6, 6e6)
    assert 0.5 < misses.share < 1.0
    assert cold.workload.fetch.mean == pytest.approx(0.01 * misses.share)
    assert set(np.round(cold.workload.fetch.values, 3)) == {0.0, 0.008, 0.012}
    # Copying out of the page cache is made for a read that missed it, too.
    assert cold.workload.preprocess.mean == warm.workload.preprocess.mean
    # One reader gets 1000 B in 10 ms, eight 400 kB/s together: four times as much.
    assert cold.host.storage_streams == pytest.approx(4.0)
    asked = cold_reads(10).scenario(cold=True).workload
    assert asked.fetch.values == (0.008, 0.012)
    assert asked.preprocess.mean == pytest.approx(0.0195)  # without the 1.5 ms of the step that fetches
    with pytest.raises(InputError, match=r"storage\.cold\.read was not measured"):
        profile().scenario(cold=True)


def test_a_dataset_with_one_step() -> None:
    found = replace(profile(), measurements=(taken("prepare.sample", ((0.01, 0.03),)),))
    work = found.scenario().workload
    assert work.preprocess.values == (0.01, 0.03) and work.decode_share == 0.0
    assert work.collate.is_zero and work.consumer.is_zero and work.handover == Handover()
    assert work.preprocess.uncertainty == pytest.approx(MODEL)  # one round says nothing of the next


def test_long_lists_are_thinned_evenly_and_keep_their_mean() -> None:
    many = tuple(float(value) for value in range(3 * MOST_VALUES))
    chosen = service_of((many,)).values
    assert sum(chosen) / len(chosen) == pytest.approx(sum(many) / len(many))
    assert [value / chosen[1] for value in chosen] == pytest.approx([float(i) for i in range(MOST_VALUES)])
    assert service_of(((0.0,) * (MOST_VALUES + 1),)).values == (0.0,) * MOST_VALUES
    assert service_of((many[:MOST_VALUES],)).values == many[:MOST_VALUES]


def test_settings_change_the_scenario_of_a_profile() -> None:
    settings = ["accelerator.step=7 ms", "workload.preprocess.mean=2 ms", "cores=9"]
    scenario = scenario_of(profile(), "job.json", settings)
    assert scenario.accelerator.step.mean == 0.007 and scenario.host.cores == 9
    assert scenario.workload.preprocess.mean == pytest.approx(0.002) and len(scenario.workload.preprocess.values) == 4


def test_what_a_profile_lacks_is_said_with_its_file() -> None:
    bare = replace(profile(), measurements=())
    with pytest.raises(InputError, match=r"^job\.json: prepare\.sample was not measured"):
        scenario_of(bare, "job.json")


def test_for_how_long_threads_hold_the_lock_is_the_loader_s_where_it_was_seen() -> None:
    seen, unseen = (one.scenario().loader for one in (profile(lock__share=((0.2,),)), profile()))
    assert seen.gil == 0.2 and unseen.gil == 0.0


def test_what_passing_the_lock_adds_is_the_loader_s_where_it_was_measured() -> None:
    made = profile(lock__passing=((0.1,), (0.2,)))
    assert made.scenario().loader.lock_passing == pytest.approx(0.15)
    assert profile(lock__passing=((0.0,),)).scenario().loader.lock_passing == 0.0
