"""Memory: what does not fit is not recommended."""

from __future__ import annotations

import tomllib
from dataclasses import replace

import pytest
from made_up import profile as made_up_profile
from shared import SIZED_JOB

from coresim import recommend
from coresim.advise.memory import memory_of
from coresim.advise.sweep import Point, Study
from coresim.advise.what_if import what_if
from coresim.model.load import scenario_of
from coresim.model.measurement import Measurement
from coresim.model.option import Option
from coresim.model.scenario import Scenario, read_scenario
from coresim.report.content import Table
from coresim.report.document import RECOMMENDATION
from coresim.report.plan import plan_report
from coresim.sim.estimate import Plan
from coresim.sim.fast import simulate


def job(**host: object) -> Scenario:
    return read_scenario(
        {
            "workload": {"batch_size": 64, "preprocess": "5 ms", "batch_bytes": 1e9},
            "accelerator": {"step": "40 ms"},
            "host": {"cores": 12} | host,
        }
    )


def test_workers_that_do_not_fit_in_shared_memory_are_not_recommended():
    roomy = recommend(job(), options=(2,), max_cores=12).result.point
    small = recommend(job(shm_bytes=5e9), options=(2,), max_cores=12).result
    assert roomy.workers > 4
    # A batch out per worker and one in the trainer's hands: 4 workers need 5 GB.
    assert (small.point.workers, small.point.prefetch_factor) == (4, 1)
    assert not small.meets_target
    for option in small.options:
        for point in option.curve:
            memory = memory_of(small.scenario, point.workers, point.prefetch_factor)
            assert memory is not None and memory.fits


def test_memory_counts_as_well_as_shared_memory():
    small = recommend(job(memory_bytes=7e9), options=(2,), max_cores=12).result
    memory = memory_of(small.scenario, small.point.workers, small.point.prefetch_factor)
    assert memory is not None and memory.batches <= 7e9


def test_where_nothing_fits_the_answer_says_so():
    answer = recommend(job(shm_bytes=1e6), options=(2,), max_cores=4)
    assert answer.result.point.workers == 1
    assert "NOT fit" in str(answer)


@pytest.mark.parametrize(("workers", "factor", "batches"), [(4, 2, 9), (1, 1, 2)])
def test_batches_out_and_one_in_hand(workers: int, factor: int, batches: int):
    memory = memory_of(job(), workers, factor)
    assert memory is not None and memory.batches == batches * 1e9


def test_a_saved_profile_carries_the_limits_and_is_held_to_them():
    profile = made_up_profile()
    batch = profile.bytes_per_batch
    private = Measurement("worker.private", "B/worker", ((4.0 * batch,),), "test")
    others = tuple(found for found in profile.measurements if found.name != "worker.private")
    profile = replace(profile, measurements=(*others, private))

    def answer(**limits: int) -> tuple[Point, str]:
        found = recommend(replace(profile, host=replace(profile.host, **limits)), options=(2,), max_cores=8)
        return found.result.point, str(found)

    plenty = {"shm_bytes": 10**12, "memory_bytes": 10**12, "memory_limit_bytes": None}
    free, _ = answer(**plenty)
    assert free.workers > 3
    # At the least a batch out per worker and one in hand: 6 workers take 7 of 7.5.
    small, said = answer(**plenty | {"shm_bytes": int(7.5 * batch)})
    assert small.workers * small.prefetch_factor <= 6 and "--shm-size" in said
    # With 4 batches' worth of memory of its own, a worker takes 5: 3 of them 16 of 20, and a control group says so.
    limited, _ = answer(**plenty | {"memory_limit_bytes": 20 * batch})
    assert limited.workers <= 3


def test_an_option_that_memory_stops_says_so_everywhere():
    answer = recommend(job(shm_bytes=5e9), max_cores=12)
    cap = next(option.capped for option in answer.result.options if option.option == 2)
    # 4 workers take 5 of 5 GB, with a batch out each; eight cores want more.
    assert cap is not None and cap.workers == 4 and cap.wanted > 8
    needed = cap.memory.batches
    said = "option 2 stops at 4 workers per GPU: /dev/shm of the host that was measured or given, 5 GB;"
    said += f" {cap.wanted} per GPU need {needed / 1e9:g} GB"
    assert f"{said} (of another machine: --set host.shm_bytes=...)" in " ".join(str(answer).split())
    options = RECOMMENDATION.write(answer.result, metadata={}, today=None)["options"]
    assert [option["workers_capped"] is None for option in options] == [True, False, True]
    assert options[1]["workers_capped"] == {
        "workers": 4, "by": "/dev/shm", "size_bytes": 5e9, "workers_wanted": cap.wanted, "needed_bytes": needed,
    }  # fmt: skip
    blocks = [block for section in plan_report(answer, simulate, {}).sections for block in section.blocks]
    assert any(said in block.note for block in blocks if isinstance(block, Table))
    # Whoever has room enough hears nothing, and one that memory stops is not told to raise the workers.
    assert "stops at" not in str(recommend(job(shm_bytes=1e12), options=(2,), max_cores=12))
    assert "raise num_workers" not in str(recommend(job(shm_bytes=5e9), options=(2,), max_cores=12))


def test_a_remedy_for_a_trainer_that_prepares_needs_no_shared_memory():
    """With option 1 the one batch lies in the trainer's own memory, however small /dev/shm is."""
    study = Study(simulate, Plan(steps=50, least=2, most=2, inputs=2))
    found = what_if(job(shm_bytes=1e6), study, ["more-cores"], Option.NO_OVERLAP)
    assert all(each.memory and each.memory.batches == 1e9 for each in (found.today, *found.outcomes))
    assert all(each.memory and each.memory.fits for each in (found.today, *found.outcomes))


@pytest.mark.parametrize(
    ("option", "settings", "per_gpu"),
    [
        (1, [], 1e6),  # the batch in the trainer's hands; no worker process
        (2, ["loader.in_process=true"], (3 * 2 + 1) * 1e6),
        (3, [], (3 + 2 + 1) * 1e6 + 3 * 2e6),  # three at work, two that wait, one that is copied
        (3, ["workload.fetch=1 ms"], None),  # how large what is fetched is, nobody said
        (3, ["workload.fetch=1 ms", "workload.sample_bytes=1e5"], 6e6 + 3 * 10 * 1e5 + 3 * 2e6),
        (3, ["loader.gil=0.1", "loader.in_process=true"], (3 + 2 + 1 + 2 + 1) * 1e6),  # what holds the lock, its queue
    ],
)
def test_memory_of_every_option(option: int, settings: list[str], per_gpu: float | None) -> None:
    scenario = scenario_of(tomllib.loads(SIZED_JOB), "job", [*settings, "accelerator.count=4"])
    found = memory_of(scenario, 3, 2, option)
    assert (None if found is None else found.total) == (None if per_gpu is None else pytest.approx(4 * per_gpu))
