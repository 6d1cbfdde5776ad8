"""Settings that are worth trying: many workers where samples wait, and only what fits."""

from __future__ import annotations

from advise_kit import answer, job

from coresim.advise.candidates import FACTORS, candidates, fits, most_workers


def test_where_samples_wait_many_workers_are_tried() -> None:
    waiting = job(8, "0.5 ms", 0, "10 ms", workload={"fetch": "50 ms"})
    assert most_workers(waiting, 2, 1) >= 64
    assert most_workers(job(8, "0.5 ms", 0, "10 ms"), 2, 3) == 12
    found = answer(waiting)
    assert found.meets_target and found.point.cores == 1 and found.point.workers >= 41


def test_all_that_is_tried_fits_and_one_setting_is_left_where_none_does() -> None:
    tight = job(8, "5 ms", 0, "10 ms", workload={"batch_bytes": 1e6}, host={"shm_bytes": 20e6})
    tried = candidates(tight, 2, 8)
    assert tried == sorted(tried) and all(map(fits, tried))
    assert {one.prefetch_factor for one in tried} == set(FACTORS)
    none = job(8, "5 ms", 0, "10 ms", workload={"batch_bytes": 1e9}, host={"shm_bytes": 1e6})
    assert [(one.workers, one.prefetch_factor) for one in candidates(none, 2, 8)] == [(1, 1)]
