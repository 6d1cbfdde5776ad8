"""What crowded cores do to a job: time that is lost, and sending that a free core takes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from by_hand import profile

from coresim.model.build import build
from coresim.model.crowding import on_cores
from coresim.model.option import Option
from coresim.model.scenario import Scenario, read_scenario


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
