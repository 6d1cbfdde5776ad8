"""What changes an answer stands in what it rests on, with where it comes from."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_up import profile as made_up_profile

import coresim
from coresim.model import lock
from coresim.model.measurement import Measurement
from coresim.report.answer import answer_of

JOB = """
[workload]
batch_size = 10
preprocess = "3 ms"
consumer = "1 ms"
[accelerator]
step = "20 ms"
[host]
speed = [1.0, 0.95, 0.9, 0.85]
speed_uncertainty = 0.02
"""


def provenance(source: Any, *settings: str, **request: Any) -> list[str]:
    """The lines, of option 2 unless another is asked for."""
    asked = {"options": (2,), "max_cores": 4} | request
    return list(coresim.recommend(source, settings=list(settings), **asked).provenance)


def test_nothing_is_said_of_what_changes_nothing() -> None:
    found = provenance(tomllib.loads(JOB), "host.speed=[1.0]")
    assert found == []


def test_growth_of_receiving_is_named_with_its_origin() -> None:
    line = "each worker beyond the first adds 2 % to the time to receive a batch: "
    tables = tomllib.loads(JOB)
    tables["workload"]["consumer_growth"] = 0.02
    assert f"{line}as given" in provenance(tables)
    given = "given by the setting workload.consumer_growth=0.02 (--set)"
    assert f"{line}{given}" in provenance(tomllib.loads(JOB), "workload.consumer_growth=0.02")
    tables["workload"] |= {"consumer": "1 ms", "consumer_by_workers": [0.5]}
    assert any(found.endswith("workers takes 0.50 times as long as from one: as given") for found in provenance(tables))
    # Without workers nothing is received.
    assert not any("receive" in found for found in provenance(tables, options=(1,)))


def test_what_workers_feed_that_only_send_is_named_beside_what_they_prepare() -> None:
    """Two cores prepare 2 / 8 ms = 250 samples/s."""
    made = made_up_profile()
    how = "a loader of a trivial data set: each sends copies of one batch of 4; wall seconds per sample of it"
    sent = [Measurement(f"handover.fed.{count}", "s/sample", ((cap,),), how) for count, cap in ((1, 0.002), (8, 0.001))]
    own = [one for one in made.measurements if not one.name.startswith("scaling.")]
    own.append(Measurement("scaling.2", "s/sample", ((0.008,),), "by hand"))
    line = "handing over alone: 1,000 samples/s at most from up to 8 workers that prepare nothing (each sends copies of"
    line += " one batch of 4)"
    found = provenance(replace(made, measurements=(*own, *sent)))
    assert f"{line}; preparing alone: 250 on 2 cores, so preparing is the limit here" in found
    slow = [replace(one, values=((0.005,),)) for one in sent]
    found = provenance(replace(made, measurements=(*own, *slow)))
    assert any(told.endswith("250 on 2 cores, so handing over may be the limit here") for told in found)
    # Where samples wait, the cores do not say how fast they come.
    waits = Measurement("prepare.wait", "s/sample", ((0.01,),), "by hand")
    assert line in provenance(replace(made, measurements=(*own, *sent, waits)))


def test_receiving_from_more_workers_than_ran_is_told_apart() -> None:
    made = made_up_profile()
    own = [one for one in made.measurements if not one.name.startswith("receive.cpu.")]
    more = [Measurement("receive.cpu.2", "s/batch", ((made["receive.cpu"].mean,),), "by hand")]
    more += [
        Measurement(f"handover.cpu.{count}", "s/batch", ((cpu,),), "by hand") for count, cpu in ((1, 0.01), (8, 0.03))
    ]
    found = provenance(replace(made, measurements=(*own, *more)), max_cores=64)
    words = "measured in the running loader with up to 2 workers; beyond them with a trivial data set"
    assert any(told.startswith("receiving a batch from") and told.endswith(words) for told in found)
    # Where workers did not only send, nothing else is said of more of them.
    alone = provenance(replace(made, measurements=(*own, replace(more[0], values=((0.5,),)))), max_cores=64)
    assert any(told.startswith("receiving a batch from") and told.endswith("in the running loader") for told in alone)


def test_what_frees_the_batch_before_is_named_where_it_is_known() -> None:
    tables = tomllib.loads(JOB)
    tables["workload"]["release"] = 0.7
    line = "freeing a batch is 70 % of the trainer's CPU time to receive the next: as given"
    assert line in provenance(tables) and line not in provenance(tables, options=(3,))


def test_sending_beside_a_free_core_is_named_where_one_is_free() -> None:
    """Two workers do the job: with three cores one of them is free, with two none."""
    line = "while cores are free, other threads of a worker do 50 % of sending: as given"
    tables = tomllib.loads(JOB)
    tables["accelerator"]["sync"] = "block"
    tables["workload"] |= {"send": "4 ms", "send_overlap": 0.5}
    tables["loader"] = {"max_workers": 2}
    free = coresim.recommend(tables, options=(2,), max_cores=4)
    assert (free.result.point.workers, free.result.point.cores) == (2, 3) and line in free.provenance
    tables["target"] = {"gpu_idle": 0.5}
    few = coresim.recommend(tables, options=(2,), max_cores=4)
    assert few.result.point.workers >= few.result.point.cores and line not in few.provenance


def test_hand_overs_of_ranks_at_once_are_named_where_their_crowd_was_not_measured() -> None:
    line = "2 trainers take batches at once, so what they wait for in a crowd that was not measured is taken to be"
    tables = tomllib.loads(JOB)
    tables["accelerator"]["count"] = 2
    tables["workload"]["handover"] = {"rest_free": "1 ms"}
    # One core for each: two trainers and a maker on two cores.
    few = [found for found in provenance(tables, max_cores=1) if found.startswith(line)]
    assert few == [f"{line} 1.5 times as long: assumed, ±100 %; calibration/ranks-met.note.md compares it with trials"]
    assert not any(
        found.startswith("2 trainers") for found in provenance(tables, "loader.in_process=true", max_cores=1)
    )
    # A thread that copies receives, and the trainer waits for no maker.
    assert not any(
        found.startswith("2 trainers") for found in provenance(tables, "loader.copy_mode=thread", max_cores=1)
    )
    assert not any(found.startswith("2 trainers") for found in provenance(tables, options=(3,), max_cores=1))


def test_batches_that_vary_as_a_whole_are_named_where_workers_make_batches() -> None:
    line = "batches vary by 10 % as a whole, beyond what their samples do: as given"
    tables = tomllib.loads(JOB)
    tables["workload"]["shared_cv"] = 0.1
    assert line in provenance(tables)
    assert line not in provenance(tables, "loader.preset=tf.data")


def test_the_locks_passing_is_named_as_assumed_or_as_given() -> None:
    threads = ["loader.in_process=true", "loader.gil=0.2"]
    line = f"passing the lock between threads adds up to {100 * lock.PASSING:.0f} % to that: assumed, ±20 points"
    assert any(found.startswith(line) for found in provenance(tomllib.loads(JOB), *threads))
    found = provenance(tomllib.loads(JOB), *threads, "loader.lock_passing=0.3")
    assert "passing the lock between threads adds up to 30 % to that: given by the setting loader.lock_passing=0.3" in (
        line.partition(" (--set)")[0] for line in found
    )
    assert "20 % of preprocessing holds the interpreter's lock: given by the setting loader.gil=0.2 (--set)" in found
    # Worker processes have a lock each.
    assert not any("lock" in found for found in provenance(tomllib.loads(JOB), "loader.gil=0.2"))


def test_what_passing_the_lock_adds_is_named_as_measured_where_it_was() -> None:
    made = made_up_profile()
    seen = Measurement("lock.passing", "share", ((0.1,), (0.12,)), "by hand")
    threads = ["loader.in_process=true", "loader.gil=0.2"]
    found = provenance(replace(made, measurements=(*made.measurements, seen)), *threads)
    known = "measured with a loop of the interpreter, ±20 points for other work"
    assert f"passing the lock between threads adds up to 11 % to that: {known}" in found


def test_siblings_are_named() -> None:
    found = provenance(tomllib.loads(JOB), "host.siblings=0.12")
    assert any(line.startswith("a second hardware thread adds 12 % of a core") and "(--set)" in line for line in found)


def test_time_lost_on_busy_cores_is_named() -> None:
    line = "workers and trainer want all of these cores, so 2.5 % of their time is lost: given by the setting"
    found = provenance(tomllib.loads(JOB), "host.sharing_loss=0.025", max_cores=2)
    assert any(one.startswith(line) for one in found)
    # Two workers and the trainer on three cores.
    assert not any("lost" in one for one in provenance(tomllib.loads(JOB), "host.sharing_loss=0.025"))


def test_a_quota_is_named_where_the_cores_are_fewer_than_its_cpus() -> None:
    line = "cores are a quota of CPU time in each 100 ms, on up to 16 cores at once: given by the setting"
    assert any(found.startswith(line) for found in provenance(tomllib.loads(JOB), "host.machine_cores=16"))
    assert not any("quota" in found for found in provenance(tomllib.loads(JOB), "host.machine_cores=1"))


def test_waits_after_spinning_are_named_where_a_trainer_spins_in_a_crowd() -> None:
    tables = tomllib.loads(JOB)
    tables["workload"]["handover"] = {"rest_free": "1 ms"}
    line = "a trainer that spins waits 1.3 ms"  # on one core, beside a worker at least
    assert any(found.startswith(line) for found in provenance(tables, max_cores=1))
    assert not any("spins" in found for found in provenance(tables, "accelerator.sync=block", max_cores=1))
    assert not any("spins" in found for found in provenance(tomllib.loads(JOB), max_cores=1))


def test_what_is_assumed_of_cores_beyond_the_table_is_said() -> None:
    inside, beyond = (provenance(tomllib.loads(JOB), f"accelerator.count={count}")[0] for count in (1, 4))
    assert inside.startswith("each of ") and inside.endswith("of its speed alone, ±4 %: as given")
    assert "s(k) is known for 4 cores, and more are taken to be no slower" in beyond


def test_the_assumed_loss_per_core_beyond_the_measured_is_said(tmp_path: Path) -> None:
    profile = replace(made_up_profile(), speed=tuple(1.0 - 0.01 * k for k in range(32)), speed_uncertainty=(0.05,))
    result = coresim.recommend(profile, settings=["accelerator.count=4"], options=(2,), max_cores=4).result
    line = next(found for found in answer_of(result, profile).provenance if found.startswith("each of "))
    names = [found.name for found in profile.measurements if found.name.startswith("scaling.")]
    measured = max(int(name.removeprefix("scaling.")) for name in names)
    assert f"{measured} were measured; each beyond them is taken to cost 1.0 % of it" in line
    other = answer_of(result, profile, settings=["host.speed=[1.0, 0.9]"]).provenance
    assert any("given by the setting host.speed=" in found for found in other)


@pytest.mark.parametrize("option", [1, 2])
def test_the_lines_stand_in_the_text(option: int) -> None:
    answer = coresim.recommend(tomllib.loads(JOB), settings=["accelerator.count=2"], options=(option,), max_cores=3)
    assert answer.provenance[-1][:30] in answer.text(verbose=True)
