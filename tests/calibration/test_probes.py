"""What the probes of real frameworks recorded, replayed: the model dispatches and delivers batch by batch alike."""

from __future__ import annotations

import json
import statistics
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coresim.model import lock
from coresim.model.build import build
from coresim.model.handover import EVENED_OUT_S, RELEASE
from coresim.model.pipeline import Pipeline
from coresim.model.scenario import read_scenario
from coresim.sim.draws import Draws, draw
from coresim.sim.reference import simulate
from coresim.sim.run import RunLength, Trace

PROBES = Path(__file__).resolve().parents[2] / "calibration" / "probes"
#: The nearest that two events of an order may be, s: a busy machine is later than this only rarely.
APART = 0.08


def runs(name: str, what: str) -> list[Any]:
    document = json.loads((PROBES / f"{name}.json").read_text())
    assert document["format"] == "coresim-probe" and document["framework"] and document["time_utc"]
    return [run for run in document["runs"] if run["what"] == what]


def pipeline(preset: str, run: dict[str, Any], step: str = "9 s", **loader: Any) -> Pipeline:
    tables = {
        "workload": {"batch_size": run.get("batch_size", 1), "preprocess": "5 ms"},
        "accelerator": {"step": step, "sync": "block"},
        "loader": {"preset": preset, **loader},
    }
    prefetch = run.get("prefetch_factor", run.get("prefetch", 1))
    return build(read_scenario(tables), 1 if run["workers"] == 0 else 2, 99.0, run["workers"], prefetch)


def trace(line: Pipeline, draws: Draws, steps: int) -> Trace:
    return simulate(line, draws, RunLength(steps, trace=True)).traces[0]


def started(line: Pipeline, taken: int) -> list[int]:
    """Items started before the next batch is taken, after 1, 2, ... ``taken`` were."""
    steps = taken + 40
    found = trace(line, draw(line, steps, seed=1), steps)
    starts = [time for time in found.taken[0] if time is not None]
    return [sum(time < found.pick_up[count] for time in starts) for count in range(1, taken + 1)]


@pytest.mark.parametrize("run", runs("pytorch", "credits"), ids=str)
def test_pytorch_returns_a_credit_at_each_pick_up(run: dict[str, Any]) -> None:
    if run["workers"] == 0:
        assert run["before"] == 0 and run["started"] == [1, 2, 3, 4, 5]
        assert pipeline("pytorch-inline", run).stages == ()
        return
    line = pipeline("pytorch" if run["ordered"] else "pytorch-unordered", run)
    assert run["before"] == line.credits
    assert run["started"] == started(line, len(run["started"]))


@pytest.mark.parametrize("run", runs("pytorch", "order"), ids=str)
def test_pytorch_deals_and_delivers_in_the_model_s_order(run: dict[str, Any]) -> None:
    line = pipeline("pytorch" if run["ordered"] else "pytorch-unordered", run, step="0.1 ms")
    times = np.array([*run["times_s"], *([9.0] * 20)])[:, None]
    service_times = dict(draw(line, len(times), seed=1).service_times) | {"loader.preprocess": times}
    found = trace(line, Draws(service_times), len(run["batch"]))
    assert list(found.batch) == run["batch"]
    servers = [found.server[0][batch] for batch in found.batch]
    assert servers == run["worker"]
    ends = sorted(time for time in found.done[0] if time is not None)
    assert run["ordered"] or min(after - before for before, after in pairwise(ends)) > APART


@pytest.mark.parametrize("run", runs("threads", "credits"), ids=str)
def test_a_bounded_queue_of_threads(run: dict[str, Any]) -> None:
    assert run["started"] == started(pipeline("threads-free", run), len(run["started"]))


@pytest.mark.parametrize("run", runs("tfdata", "credits"), ids=str)
def test_tf_data_runs_ahead_as_far_as_the_model(run: dict[str, Any]) -> None:
    workers, size = run["workers"], run["batch_size"]
    line = pipeline("tf.data", run, grain="in_place" if run["fused"] else "sample", ordered=run["ordered"])
    found = started(line, len(run["started"]))
    beyond = [real - model for real, model in zip(run["started"], found, strict=True)]
    if not run["fused"]:
        # The last samples do not fill a batch; the model starts whole batches only.
        assert beyond == [workers % size] * len(beyond)
    elif workers <= 2 * size:
        assert beyond == [0] * len(beyond)
    else:
        assert all(-2 * size <= gap <= 0 for gap in beyond)


@pytest.mark.parametrize("run", runs("spdl", "credits"), ids=str)
def test_spdl_runs_ahead_as_far_as_the_model(run: dict[str, Any]) -> None:
    found = started(pipeline("spdl", run), len(run["started"]))
    beyond = [real - model for real, model in zip(run["started"], found, strict=True)]
    whole = run["workers"] // run["batch_size"] * run["batch_size"]
    assert beyond == [run["workers"] + 2 - whole] * len(beyond)


def test_the_share_of_receiving_before_the_next_index_is_dealt_is_the_probe_s() -> None:
    *each, summary = json.loads((PROBES / "dispatch.json").read_text())["runs"]
    middle = statistics.median(share for run in each for share in run["share"])
    assert middle == pytest.approx(1 - RELEASE, abs=5e-3)
    assert summary["share"] == pytest.approx(1 - RELEASE, abs=5e-3)


@pytest.mark.parametrize(("before", "most"), [("asleep", 0.06), ("spinning", 0.16)])
@pytest.mark.parametrize("burst_ms", [15, 60, 120])
def test_a_thread_that_begins_to_work_shares_one_core_until_the_scheduler_has_evened_out(
    burst_ms: int, before: str, most: float
) -> None:
    """The model's stretch beside as many busy processes as there are CPUs, and beside more."""
    first, *runs = json.loads((PROBES / "turns.json").read_text())["runs"]
    [run] = [run for run in runs if run["what"] == f"{burst_ms} ms of work, {before} before"]
    cpus, work = int(first["what"].split()[0]), burst_ms / 1e3
    for busy, stretch in run["stretch"].items():
        share = (int(busy) + 1) / cpus
        turns = min(work, EVENED_OUT_S) * (2 - share) if 1 < share < 2 else 0.0
        assert stretch == pytest.approx(max(1.0, share) + turns / work, rel=0.2 if share == 2 else most)


@pytest.mark.parametrize("run", json.loads((PROBES / "finished.json").read_text())["runs"], ids=lambda run: run["what"])
def test_a_hand_over_waits_no_longer_than_its_maker_works(run: dict[str, Any]) -> None:
    assert min(run["hand_overs"]) >= 20 and run["left_s"] == sorted(run["left_s"])
    for left, waited in zip(run["left_s"], run["waited_s"], strict=True):
        assert waited < left + run["rest_s"] + 0.001


def test_a_job_that_holds_the_lock_waits_as_long_as_its_maker_works() -> None:
    [run] = [run for run in json.loads((PROBES / "finished.json").read_text())["runs"] if "python" in run["what"]]
    most = max(run["waited_s"])
    for left, waited in zip(run["left_s"], run["waited_s"], strict=True):
        if left < most:
            assert waited == pytest.approx(left, abs=run["rest_s"] + 0.0005)


def test_a_batch_that_was_there_is_handed_over_sooner_and_freeing_grows_with_it() -> None:
    found = {run["what"]: run for run in json.loads((PROBES / "waited.json").read_text())["runs"]}
    small, large = (found[f"images, batches of {size}"] for size in (32, 256))
    for run in (small, large):
        assert min(run["hand_overs"].values()) >= 6 and 5 * run["waited_s"]["there"] < run["waited_s"]["waited"]
    assert large["freed_s"] == pytest.approx(8 * small["freed_s"], rel=0.25)
    assert large["received_s"] < 2 * small["received_s"]
    assert 5 * small["waited_s"]["waited"] < large["waited_s"]["waited"]


@pytest.mark.parametrize("run", [*runs("pinned", "calibration"), *runs("pinned", "training")], ids=str)
def test_a_pinned_batch_is_there_or_the_trainer_is_woken_for_it(run: dict[str, Any]) -> None:
    """On an H200, from when it was pinned. torch's thread then lets go of what was sent: milliseconds."""
    assert run["there"]["median"] < 0.1
    # Of trainers that are bound by their launches none waits.
    assert ("woken" in run) == (run["what"] == "calibration" or run["workers"] == 6)
    if "woken" in run:
        assert run["woken"]["least"] > 2.0 and run["woken"]["median"] > 4.0


@pytest.mark.parametrize("run", runs("pinned-emulated", "calibration"), ids=str)
def test_where_a_core_is_free_a_trainer_has_a_pinned_batch_at_once(run: dict[str, Any]) -> None:
    """Two cores: with one worker one of them is free, with two a trainer that is woken may have to wait for one."""
    assert run["there"]["median"] < 0.05
    assert run["woken"]["most"] < 0.5 if run["workers"] == 1 else run["woken"]["most"] > 1.0


@pytest.mark.parametrize("what", ["1.5 MB in 2 tensors", "26 kB of numbers that are no tensors"])
def test_receiving_takes_no_longer_from_many_senders(what: str) -> None:
    """So a profile keeps the cost that was measured with the most workers for more of them."""
    [run] = runs("senders", what)
    alone, most = (statistics.median(run["cpu_s"][count]) for count in ("1", "64"))
    assert most < alone and run["growth"] < 2 * run["deviation"]


def test_what_passing_the_lock_costs_is_assumed_near_what_was_measured() -> None:
    for what in ("A loop of the interpreter alone.", "A call into C that keeps the lock."):
        [run] = runs("lock", what)
        assert abs(run["passing"] - lock.PASSING) < 2 * lock.DEVIATION
        alone, many = run["turn_s"]["1"], run["turn_s"]["16"]
        assert many / alone == pytest.approx(lock.longer(16), abs=lock.DEVIATION)
