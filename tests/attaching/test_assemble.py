"""What today was, from what the ranks of a program told: exact, for the ranks are made up."""

from __future__ import annotations

from typing import Any

import pytest

from coresim.attaching.assemble import _beside, costs_of, failures_of, size_of, today_of, trials_of
from coresim.attaching.program_warnings import program_warnings

COMMAND = ("python", "train.py")
NO_LOADER: dict[str, Any] = {"loader": {"broken": None, "warnings": []}}


def told(wait: float = 0.75, step: float = 0.25, cpu: float = 0.0, alone: float = 0.25, **other: Any) -> dict[str, Any]:
    """A rank whose batches are waited for and worked on so long; ``alone``: what a step takes without waiting."""
    settings = {
        "workers": 2, "prefetch_factor": 2, "pin_memory": False, "persistent_workers": True, "in_order": True,
        "context": None, "batch_size": 16, "batched": True, "cuda": False,
    }  # fmt: skip
    return {
        "settings": settings | other.pop("settings", {}),
        "today": {"waits": [wait] * 4, "steps": [step] * 4, "optimizer_steps": 4, "cores": [0.25, 1.5, 2.0]}
        | {"starts": [], "epoch": 0, "epoch_period": 1.0}
        | other.pop("epochs", {}),
        "step": {"steps": [alone] * 3, "cpu": [cpu] * 3, "device": [], "batch_length": 16} | other.pop("alone_too", {}),
        "sizes": None,
        "steady": True,
        "local_world": 1,
        **other,
    }


def test_today_is_what_the_loop_waited_and_did() -> None:
    today = today_of([told()], COMMAND, threads=8)
    assert (today.program, today.gpu_idle, today.wait, today.step) == ("python train.py", 0.75, 0.75, 0.25)
    assert (today.samples_per_s, today.batch_size, today.batches, today.batches_per_step) == (16.0, 16, 4, 1.0)
    assert (today.workers, today.prefetch_factor, today.persistent_workers, today.threads) == (2, 2, True, 8)
    # All that was busy less the program's own; a batch comes every second.
    assert (today.other_cores, today.worker_cpu) == (0.25, 1.5)


def test_starts_of_epochs_stand_beside_what_is_observed_between_them() -> None:
    today = today_of([told(epochs={"starts": [2.5, 3.5], "epoch": 4, "epoch_period": 0.5})], COMMAND, 8)
    assert (today.epoch_batches, today.epoch_wait, today.gpu_idle) == (4, 3.0, 0.75)
    # Four steps of 0.25 s: three periods of 0.5 s, for some were prepared ahead, and a wait of 3 s and a step.
    assert today.idle_with_starts == pytest.approx(1 - 1 / 4.75)
    # Two workers prepare two each while the first is waited for.
    for batches, short in ((4, True), (8, True), (9, False)):
        assert today_of([told(epochs={"starts": [3.0], "epoch": batches})], COMMAND, 8).epochs_are_short == short
    long = today_of([told()], COMMAND, 8)
    assert (long.epoch_batches, long.epoch_wait, long.idle_with_starts) == (None, None, None)
    assert not long.epochs_are_short


def test_a_step_that_computes_holds_the_trainers_core() -> None:
    assert today_of([told(cpu=0.05)], COMMAND, 8).sync == "block"
    assert today_of([told(cpu=0.2)], COMMAND, 8).sync == "spin"


def test_a_devices_work_is_the_step_without_waiting_by_its_own_time() -> None:
    # The loop only launches, for 0.05 of each second, and the device works for 0.4 of it.
    rank = told(wait=0.95, step=0.05, settings={"cuda": True}, alone_too={"device": [0.4] * 3})
    today = today_of([rank], COMMAND, 8)
    assert (today.device, today.gpu_idle) == ("cuda", pytest.approx(0.6))


def test_a_launch_is_work_of_all_threads_and_no_longer_than_the_step() -> None:
    # Autograd launches the backward pass from a thread of its own; the last step has another busy thread beside it.
    alone = {
        "device": [0.3] * 3,
        "steps": [0.25, 0.25, 0.25],
        "cpu": [0.05] * 3,
        "busy": [0.15, 0.2, 0.4],
        "copies": [],
    }
    launch = _beside([told(settings={"cuda": True}, alone_too=alone)])[0]
    assert (launch.name, launch.values) == ("accelerator.launch", ((0.15, 0.2, 0.25),))


def test_ranks_that_wait_for_one_another_idle_by_what_a_step_takes_alone() -> None:
    ranks = [told(local_world=2), told(wait=0.25, step=0.75, local_world=2)]
    today = today_of(ranks, COMMAND, 8)
    assert (today.ranks, today.rank_busy, today.gpu_idle) == (2, (0.25, 0.25), 0.75)
    assert (today.samples_per_s, today.batches) == (32.0, 8)


def test_a_batch_whose_size_the_loader_does_not_know_is_as_long_as_its_first_tensor() -> None:
    assert size_of(told(settings={"batch_size": None})) == 16
    assert size_of(told(settings={"batch_size": None}, alone_too={"batch_length": None})) == 1
    # Many more were seen than are kept.
    sizes = {"least": 0, "most": 100, "mean": 18.7}
    assert size_of(told(settings={"batch_size": None}, sizes=sizes)) == 19
    assert size_of(told(sizes=sizes)) == 16


def test_batches_of_different_sizes_are_told_with_what_the_answer_takes_them_for() -> None:
    first = told(settings={"batch_size": None}, sizes={"least": 4, "most": 100, "mean": 18.7}, **NO_LOADER)
    first["step"] |= {"loaders": 1, "changed_in_place": False}
    second = told(sizes={"least": 8, "most": 60, "mean": 19.3})
    today = today_of([first, second], COMMAND, 8)
    assert (today.batch_least, today.batch_most, today.batch_mean, today.batch_size) == (4, 100, 19.0, 19)
    assert today.batches_differ
    *_, warning = program_warnings([first, second], today)
    assert warning.what == "the program's batches differ in size"
    assert warning.value == (
        "4 to 100 samples, 19 on average; the answer takes each for one of 19, with a step as the kept batches took,"
        " which have 16 on average"
    )
    alike = today_of([told(sizes={"least": 4, "most": 16, "mean": 15.8})], COMMAND, 8)
    assert (alike.batch_least, alike.batches_differ) == (4, False)  # one is the last of an epoch
    assert not today_of([told()], COMMAND, 8).batches_differ
    assert [warning.what for warning in program_warnings([first], alike)] == ["the program trains without CUDA"]


@pytest.mark.parametrize(
    ("errors", "remedy"), [(0, "a program that does not catch this ends there"), (7, "went on after 7 such errors")]
)
def test_samples_that_were_left_out_are_counted_in_one_line(errors: int, remedy: str) -> None:
    broken = {"count": 3, "of": 800, "first": "ValueError: broken sample 4"}
    first = told(errors=errors, loader={"broken": broken, "warnings": []})
    first["step"] |= {"loaders": 1, "changed_in_place": False}
    *_, warning = program_warnings([first], today_of([first], COMMAND, 8))
    assert warning[:2] == (
        "samples that cannot be prepared were left out",
        "3 of 800, the first with ValueError: broken sample 4",
    )
    assert remedy in warning.remedy


def test_a_number_of_workers_that_failed_in_one_rank_is_no_trial() -> None:
    ran, failed = told()["today"], {"workers": 4, "failed": "ValueError: 2 files"}
    first = told(trials=[{"workers": 1, **ran}, {"workers": 4, **ran}])
    second = told(trials=[{"workers": 1, **ran}, failed])
    assert failures_of([first, second]) == {4: "ValueError: 2 files"}
    (tried,) = trials_of([first, second], COMMAND, 8)
    assert (tried.workers, tried.ranks, tried.gpu_idle) == (1, 2, 0.75)
    assert failures_of([first]) == {} and len(trials_of([first], COMMAND, 8)) == 2


def test_a_data_set_that_gives_whole_batches_costs_a_sample_its_part_of_one() -> None:
    measurements = [
        {"name": "prepare.sample", "unit": "s/sample", "values": [[0.32, 0.48], [0.16]], "how": "run"},
        {"name": "prepare.collate", "unit": "s/batch", "values": [[0.002]], "how": "run"},
    ]
    loader = {"measurements": measurements}
    sample, collate = costs_of(told(settings={"batched": False, "batch_size": None}, loader=loader))
    assert sample.values == ((0.02, 0.03), (0.01,)) and "each of the 16 samples" in sample.how
    assert collate.values == ((0.002,),)
    sample, collate = costs_of(told(loader=loader))
    assert sample.values == ((0.32, 0.48), (0.16,)) and collate.values == ((0.002,),)
