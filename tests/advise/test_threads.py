"""Threads that libraries run inside workers: priced, and said with the cure."""

from __future__ import annotations

from dataclasses import replace

import pytest
from made_up import profile

import coresim
from coresim.advise.threads import unlimited
from coresim.model.crowding import CURE
from coresim.model.measurement import Measurement
from coresim.model.scenario import Scenario, read_scenario


def job(**loader: object) -> Scenario:
    return read_scenario(
        {
            "workload": {"batch_size": 32, "preprocess": "6 ms"},
            "accelerator": {"step": "60 ms"},
            "loader": loader,
        }
    )


def test_the_answer_counts_on_one_thread_and_says_what_more_would_do() -> None:
    plain = coresim.recommend(job(), options=(2,))
    found = coresim.recommend(job(default_threads=8), options=(2,))
    assert plain.result.unlimited is None
    assert found.result.point == plain.result.point
    left = found.result.unlimited
    assert left is not None
    assert left.crowding.threads == 8 * found.result.point.workers
    assert left.estimate.gpu_idle > found.result.point.estimate.gpu_idle
    told = " ".join(str(found).split())
    assert CURE in told and "8 threads in every worker" in told
    assert "threads in every worker" not in str(plain)


def test_where_the_cores_have_room_for_all_nothing_is_said() -> None:
    answer = coresim.recommend(job(default_threads=2), options=(2,)).result
    roomy = type(answer.point)(2, 64, 2, 2, answer.point.estimate)
    assert unlimited(job(default_threads=2), roomy, None) is None  # type: ignore[arg-type]


@pytest.mark.parametrize(("threads", "spread", "told"), [(4, 3.0, 4), (4, 1.1, 1), (1, 1.5, 1)])
def test_a_profile_tells_of_threads_that_share_the_work(threads: int, spread: float, told: int) -> None:
    measured = profile()
    more = (
        Measurement("threads.worked", "threads", ((float(threads),),), "test"),
        Measurement("threads.spread", "threads", ((spread,),), "test"),
    )
    others = tuple(found for found in measured.measurements if not found.name.startswith("threads."))
    scenario = replace(measured, measurements=(*others, *more)).scenario()
    assert (scenario.loader.default_threads, scenario.loader.library_threads) == (told, 1)
