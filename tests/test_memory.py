"""Memory: what does not fit is not recommended."""

from __future__ import annotations

import pytest

from coresim import recommend
from coresim.advise.memory import memory_of
from coresim.model.scenario import Scenario, read_scenario


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
    small = recommend(job(shm_bytes=9e9), options=(2,), max_cores=12).result
    assert roomy.workers > 4
    # Two batches out per worker and one in the trainer's hands: 4 workers need 9 GB.
    assert small.point.workers <= 4
    assert not small.meets_target
    for option in small.options:
        for point in option.curve:
            memory = memory_of(small.scenario, point.workers, point.prefetch_factor)
            assert memory is not None and memory.fits


def test_memory_counts_as_well_as_shared_memory():
    small = recommend(job(memory_bytes=7e9), options=(2,), max_cores=12).result
    assert small.point.workers <= 3


def test_where_nothing_fits_the_answer_says_so():
    answer = recommend(job(shm_bytes=1e6), options=(2,), max_cores=4)
    assert answer.result.point.workers == 1
    assert "NOT fit" in str(answer)


@pytest.mark.parametrize(("workers", "factor", "batches"), [(4, 2, 9), (1, 1, 2)])
def test_batches_out_and_one_in_hand(workers: int, factor: int, batches: int):
    memory = memory_of(job(), workers, factor)
    assert memory is not None and memory.batches == batches * 1e9
