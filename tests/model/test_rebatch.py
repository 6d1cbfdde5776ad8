"""A profile's times for another batch size than the one it was measured with."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_up import profile

import coresim
from coresim.cli.main import main
from coresim.errors import InputError
from coresim.model.load import scenario_of
from coresim.model.measurement import Measurement
from coresim.model.profile import Profile
from coresim.model.rebatch import whole
from coresim.model.scenario import Scenario
from coresim.report.provenance import batch_provenance

OWN = 256


def scenario(*settings: str, ran: int | None = None) -> Scenario:
    """Of a profile whose loader ran with batches of ``ran``, or of 256 as its step."""
    made = profile(measured_batch=ran)
    return scenario_of(made, "profile", settings)


@pytest.mark.parametrize("batch", [64, 512, 1000])
def test_every_time_of_a_batch_follows_it(batch: int) -> None:
    before, after, ratio = scenario(), scenario(f"workload.batch_size={batch}"), batch / OWN
    assert (before.workload.batch_size, after.workload.batch_size) == (OWN, batch)
    assert after.accelerator.step.mean == pytest.approx(ratio * before.accelerator.step.mean)
    assert after.workload.collate.mean == pytest.approx(ratio * before.workload.collate.mean)
    assert after.workload.batch_bytes == pytest.approx(ratio * (before.workload.batch_bytes or 0.0))
    # Parts that do not depend on the size of a batch: between no change and proportion.
    own, other = before.workload, after.workload
    waits = [(own.handover.rest_free, other.handover.rest_free), (own.handover.work_shared, other.handover.work_shared)]
    for was, now in [(own.send, other.send), *waits]:
        assert was is not None and now is not None
        assert now.mean == pytest.approx(math.sqrt(ratio) * was.mean)
        ends = sorted((was.mean, ratio * was.mean))
        added = math.sqrt(now.uncertainty**2 - was.uncertainty**2)
        # Two standard uncertainties reach both ends.
        assert math.log(now.mean / ends[0]) == pytest.approx(2 * added)
        assert math.log(ends[1] / now.mean) == pytest.approx(2 * added)
    # What is of a sample stays.
    assert own.preprocess == other.preprocess and own.worker_bytes == other.worker_bytes


@pytest.mark.parametrize(("batch", "ran"), [(256, 32), (512, 32), (32, 32)])
def test_what_ran_with_smaller_batches_is_carried_to_those_of_the_answer(batch: int, ran: int) -> None:
    own, other = scenario().workload, scenario(f"workload.batch_size={batch}", ran=ran)
    ratio, carried = batch / ran, other.workload
    assert carried.batch_size == batch and carried.preprocess == own.preprocess
    assert carried.collate.mean == pytest.approx(ratio * own.collate.mean)
    assert carried.send.mean == pytest.approx(math.sqrt(ratio) * own.send.mean)
    added = math.sqrt(carried.send.uncertainty**2 - own.send.uncertainty**2)
    assert added == pytest.approx(math.log(ratio) / 4, abs=1e-6)
    # The step and the bytes are of the batch that was asked for, whatever the loader ran with.
    assert other.accelerator.step == scenario(f"workload.batch_size={batch}").accelerator.step
    assert carried.batch_bytes == pytest.approx(batch / OWN * (own.batch_bytes or 0.0))


def with_small(made: Profile, **seconds: float) -> Profile:
    """The profile with what batches of 4 took, s, by the name of the measurement with ``_`` for the dot."""
    times = {"receive_cpu": 0.0001} | seconds
    small = [Measurement(f"{name.replace('_', '.', 1)}@4", "s/batch", ((s,),), "made up") for name, s in times.items()]
    return replace(made, measurements=(*made.measurements, *small))


@pytest.mark.parametrize(
    ("least", "grown"),
    # Of 11 ms at 32 samples: nothing for every batch; 2.5 ms for every batch; and noise on either side of the line.
    [(0.011 / 8, 8.0), (0.0035625, 1 + 7 * 0.0085 / 0.011), (0.012, 1.0), (0.0, 8.0)],
)
def test_small_batches_tell_what_every_batch_costs(least: float, grown: float) -> None:
    made = with_small(profile(measured_batch=32), prepare_send=least)
    own, carried = scenario().workload, scenario_of(made, "profile").workload
    assert carried.send.mean == pytest.approx(grown * own.send.mean)
    assert math.sqrt(carried.send.uncertainty**2 - own.send.uncertainty**2) == pytest.approx(0.15)
    # A state in which no small batch was seen is between.
    assert carried.handover.rest_free.mean == pytest.approx(math.sqrt(8) * own.handover.rest_free.mean)
    # Carried as a whole profile, its times are the same.
    assert scenario_of(whole(made), "profile").workload.send.mean == pytest.approx(carried.send.mean)
    assert whole(made).batch_that_ran == OWN and whole(made)["prepare.collate"].mean == pytest.approx(8 * 0.062)
    assert not [one.name for one in whole(made).measurements if "@" in one.name]


@pytest.mark.parametrize("small", [{}, {"receive_cpu": 0.0003, "receive_release": 0.00005}])
def test_freeing_grows_with_the_batch_and_the_rest_of_receiving_partly(small: dict[str, float]) -> None:
    """Of 0.43 ms to receive 32 samples 0.1 frees; of 0.3 with 4 samples 0.05, which says little of freeing."""
    made = profile(measured_batch=32)
    made = with_small(made, **small) if small else made
    own, carried = scenario().workload, scenario_of(made, "profile").workload
    freed, rest = 0.1e-3, own.consumer.mean - 0.1e-3
    assert own.release == pytest.approx(freed / own.consumer.mean)
    grown = 0.25e-3 + (rest - 0.25e-3) * 252 / 28 if small else math.sqrt(8) * rest
    assert carried.consumer.mean == pytest.approx(8 * freed + grown)
    assert carried.release == pytest.approx(8 * freed / carried.consumer.mean)
    again = scenario_of(whole(made), "profile").workload
    assert (again.consumer.mean, again.release) == pytest.approx((carried.consumer.mean, carried.release))


def test_a_wait_for_the_interpreter_s_lock_does_not_depend_on_the_batch() -> None:
    wait = Measurement("receive.thread_begin", "s/batch", ((0.002,),), "made up")
    made = profile(measured_batch=32, measurements=(*profile().measurements, wait))
    found = []
    for batch in (32, 256, 512):
        found.append(made.scenario(batch=batch).workload.handover.thread_begin)
    assert found[0] == found[1] == found[2]
    assert found[0] is not None and found[0].mean == pytest.approx(0.002)
    assert whole(made)["receive.thread_begin"].mean == pytest.approx(0.002)
    assert whole(made)["receive.rest_free"].mean > made["receive.rest_free"].mean


def test_a_copy_was_measured_with_the_step_s_batch() -> None:
    copy = Measurement("copy.pinned", "s/batch", ((0.004,),), "made up")
    made = profile(measured_batch=32, measurements=(*profile().measurements, copy))
    for batch, seconds in ((256, 0.004), (512, 0.008)):
        assert made.scenario(batch=batch).workload.copy.mean == pytest.approx(seconds)


def test_a_step_of_another_batch_is_less_certain_by_doublings() -> None:
    before, after = scenario().accelerator.step, scenario("batch_size=1024").accelerator.step
    assert after.uncertainty**2 == pytest.approx(before.uncertainty**2 + 0.1**2)


def test_a_lead_is_of_the_step_s_own_batch() -> None:
    timed = {"step": 0.1, "step.alone": 0.101, "launch": 0.01}
    more = [Measurement(f"accelerator.{name}", "s/step", ((seconds,),), "made up") for name, seconds in timed.items()]
    source = replace(profile().accelerator, kind="measured", step_time_s=None)
    made = profile(accelerator=source, measurements=(*profile().measurements, *more))
    for batch, lead in ((OWN, 0.1), (2 * OWN, 0.0)):
        assert made.scenario(batch=batch).accelerator.lead == pytest.approx(lead)
    # A step that was given is another than that which was launched on an idle device.
    given = replace(made, accelerator=replace(source, step_time_s=0.05))
    assert scenario_of(given, "profile").accelerator.lead == 0.0


def test_what_is_set_beside_the_batch_stays_as_it_is_set() -> None:
    found = scenario("workload.batch_size=512", "accelerator.step=98 ms", "workload.collate=1 ms")
    assert found.accelerator.step.mean == pytest.approx(0.098)
    assert found.workload.collate.mean == pytest.approx(0.001)


def test_the_same_batch_changes_nothing() -> None:
    assert scenario(f"workload.batch_size={OWN}") == scenario()


@pytest.mark.parametrize("value", ["0", "-3", "many", "1.5", "true"])
def test_a_batch_that_is_none_is_refused(value: str) -> None:
    with pytest.raises(InputError, match="batch_size"):
        scenario(f"workload.batch_size={value}")


@pytest.mark.slow
def test_cores_do_not_depend_on_the_batch_where_cores_bind() -> None:
    work = "workload.preprocess=2 ms"
    few, many = (coresim.recommend(profile(), settings=[f"batch_size={size}", work]) for size in (256, 512))
    # The work of a sample and the samples per second are the same.
    assert many.result.per_rate.cores == pytest.approx(few.result.per_rate.cores, rel=0.05)
    assert abs(many.cores_per_gpu - few.cores_per_gpu) <= 0.1 * few.cores_per_gpu


def test_the_answer_says_what_was_taken_in_proportion(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "profile.json"
    profile().save(path)
    few = ["--options", "2", "--max-cores", "4"]
    main(["recommend", str(path), "--set", "workload.batch_size=512", "--verbose", *few])
    told = " ".join(capsys.readouterr().out.split())
    assert "taken in proportion from a batch of 256 to 512, ±10 %" in told
    said = (
        "measured with batches of 256, scaled to 512: the step and copying and collating in proportion to the batch,"
        " sending and receiving between that and no change; measure with --batch-size 512 to know the step"
    )
    assert said in told


def test_a_saved_first_look_says_what_ran(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    usual, first = tmp_path / "usual.json", tmp_path / "first.json"
    profile().save(usual)
    profile(measured_batch=32).save(first)
    assert "measured_batch" not in json.loads(usual.read_text())
    few = ["--options", "2", "--max-cores", "4"]
    said = "measured with batches of 32, scaled to 256"
    main(["recommend", str(first), *few, "--verbose"])
    told = " ".join(capsys.readouterr().out.split())
    assert said in told and "batch of 256, measured with 32;" in told and f"loader that ran: {profile().loader}" in told
    for path, batch, provenance in ((usual, 256, None), (first, 256, said), (first, 512, said.replace("256", "512"))):
        main(["recommend", str(path), *few, "--json", "--set", f"workload.batch_size={batch}"])
        about = json.loads(capsys.readouterr().out)["metadata"]
        told = about["batch_provenance"]
        assert about["loader"] == profile().loader
        assert told is None if provenance is None else told.startswith(provenance)


def whatif(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    # So little work that few cores do.
    little = ("--set", "workload.preprocess=1 ms", "--set", "host.speed=[1.0]")
    main(["whatif", *arguments, *little, "--remedy", "more-cores", "--json"])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_whatif_follows_the_batch_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "profile.json"
    profile().save(path)
    own = whatif(capsys, str(path))["today"]
    other = whatif(capsys, str(path), "--set", "batch_size=512")["today"]
    # Samples/s and idle are about the same; a step that kept its time would halve the idle.
    assert other["gpu_idle"] == pytest.approx(own["gpu_idle"], abs=0.03)


def test_what_is_carried_is_said_and_nothing_else() -> None:
    first = profile(measured_batch=32)
    assert batch_provenance(profile(), ()) is None
    assert batch_provenance(first, ()) == (
        "measured with batches of 32, scaled to 256: collating in proportion to the batch, sending and receiving"
        " between that and no change"
    )
    assert batch_provenance(with_small(first), ()) == (
        "measured with batches of 32, scaled to 256: collating in proportion to the batch, sending and receiving by a"
        " straight line through those of 4 and 32"
    )
    assert batch_provenance(first, ["workload.batch_size=32"]) == (
        "measured with batches of 32, scaled to 32: the step and copying in proportion to the batch; measure with"
        " --batch-size 32 to know the step"
    )
