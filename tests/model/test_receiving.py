"""How the time to receive a batch changes with the number of workers."""

from __future__ import annotations

import pytest
from by_hand import profile

from coresim.model.load import scenario_of


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
