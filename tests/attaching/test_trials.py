"""The loop with other numbers of workers, where the program's loader cannot be run with some of them."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from attach_kit import ENVIRON, NEED, SAMPLE_S, TIMES, answer, left_behind, profile_in, run, script, speeds

from coresim.attaching import conduct, instrument, trials
from coresim.attaching.conduct import AttachRequest
from coresim.attaching.instrument import as_of_one, calibrate, fallbacks
from coresim.attaching.today import Checked
from coresim.attaching.trials import AttachedTrial
from coresim.cli import attach as cli
from coresim.cli.main import main
from coresim.errors import InputError
from coresim.model.today import Today
from coresim.report.answer import answer_of
from coresim.report.plain import section_text
from coresim.report.today import trials_document, trials_section

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")
data = torch.utils.data

BASE = data.dataloader._BaseDataLoaderIter


class Readers(data.IterableDataset[Any]):
    """A stream that ``least`` to ``most`` workers can read, and nothing else can."""

    def __init__(self, least: int, most: int, length: int = 10**6) -> None:
        self.least, self.most, self.length = least, most, length

    def __iter__(self) -> Iterator[int]:
        count = data.get_worker_info().num_workers
        if not self.least <= count <= self.most:
            raise ValueError(f"{count} workers, where {self.least} to {self.most} can read")
        return iter(range(self.length))


def refused(worker: int) -> None:
    raise OSError("no more connections")


def dies(worker: int) -> None:
    os._exit(3)


@pytest.mark.parametrize(
    ("dataset", "begin", "workers", "words"),
    [
        (Readers(1, 2), None, 3, "where 1 to 2 can read"),
        (Readers(1, 2), None, 0, "AttributeError: 'NoneType' object has no attribute 'num_workers'"),
        (Readers(1, 2, length=0), None, 1, "it gave no batch"),
        (range(8), refused, 2, "OSError: no more connections"),
        (range(8), dies, 1, "exited unexpectedly"),
    ],
)
def test_a_loader_that_fails_gives_no_batch_and_says_why(dataset: Any, begin: Any, workers: int, words: str) -> None:
    loader = data.DataLoader(dataset, 4, num_workers=1, worker_init_fn=begin)
    trial = AttachedTrial(loader, workers, None, BASE.__next__)
    assert trial.failed is None
    assert trial.next() is None and trial.next() is None
    assert trial.failed is not None and words in trial.failed and "\n" not in trial.failed
    trial.close()


class Holes(data.Dataset[int]):
    """Every fourth sample is broken."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        if index % 4 == 0:
            raise ValueError(f"broken {index}")
        return index


@pytest.mark.parametrize("workers", [0, 2])
def test_a_trial_goes_on_after_errors_where_the_program_does(workers: int) -> None:
    loader = data.DataLoader(Holes(), 2, num_workers=1)
    for skips in (True, False):
        trial = AttachedTrial(loader, workers, None, BASE.__next__, skips)
        given = [trial.next() for _ in range(9)]
        trial.close()
        if skips:
            assert trial.failed is None
            assert [found[0].tolist() for found in given if found] == [[2, 3], [6, 7]] * 4 + [[2, 3]]
        else:
            assert trial.failed == "ValueError: broken 0" and given == [None] * 9
    trial = AttachedTrial(data.DataLoader(Readers(1, 2), 4, num_workers=1), 3, None, BASE.__next__, skips=True)
    assert trial.next() is None and trial.failed == "ValueError: 3 workers, where 1 to 2 can read"


@pytest.mark.parametrize("workers", [0, 2])
def test_a_trial_has_no_epochs_where_the_data_set_is_read_by_index(workers: int) -> None:
    loader = data.DataLoader(range(8), 4, num_workers=1)
    trial = AttachedTrial(loader, workers, None, BASE.__next__)
    given = [trial.next() for _ in range(6)]
    trial.close()
    assert [(batch.tolist(), began) for batch, began in given if batch is not None] == [
        ([0, 1, 2, 3] if number % 2 == 0 else [4, 5, 6, 7], number == 0) for number in range(6)
    ]
    assert len(loader) == 2 and len(list(loader)) == 2  # the program's own has


def test_a_trial_of_single_samples_has_none_either() -> None:
    trial = AttachedTrial(data.DataLoader(range(3), batch_size=None), 0, None, BASE.__next__)
    given = [trial.next() for _ in range(5)]
    assert [found[1] for found in given if found] == [True, False, False, False, False]


def test_a_loader_with_a_time_out_is_run_without_workers_too() -> None:
    trial = AttachedTrial(data.DataLoader(range(8), 4, num_workers=1, timeout=60), 0, None, BASE.__next__)
    found = [trial.next() for _ in range(3)]
    assert [(batch.tolist(), began) for batch, began in found] == [  # type: ignore[misc]
        ([0, 1, 2, 3], True), ([4, 5, 6, 7], False), ([0, 1, 2, 3], False)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("workers", "cpus", "expected"),
    [
        (0, 2, []),
        (1, 2, [(1,)]),
        (2, 2, [(1, 2), (2,)]),
        (3, 2, [(3,)]),
        (3, 4, [(1, 2, 3), (3,)]),
        (8, 2, [(1, 2, 8), (8,)]),
        (8, 4, [(1, 2, 4, 8), (8,)]),
    ],
)
def test_a_loader_that_fails_is_calibrated_with_its_own_number(
    workers: int, cpus: int, expected: list[tuple[int, ...]]
) -> None:
    usual = (1, 2, 3) if cpus == 2 else (1, 2, 4, 5)
    assert list(fallbacks(usual, workers, cpus)) == expected


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two workers have two CPUs")
def test_what_two_workers_cost_stands_for_one_where_one_cannot_be_run() -> None:
    found = calibrate(data.DataLoader(Readers(2, 2), 4), workers=2, pin_memory=False, budget_s=0.5)
    costs = {measured["name"]: measured for measured in found["measurements"]}
    # A loop whose loader does not pin reads every batch itself.
    assert costs.keys() >= {"prepare.sample", "scaling.1", "receive.cpu", "receive.pages"}
    assert costs["scaling.1"]["how"].endswith("taken for 1 worker, with which the loader fails")
    what, value, _ = found["warnings"][0]
    assert what == "the loader failed with fewer workers than the program's 2" and "where 2 to 2 can read" in value
    with pytest.raises(InputError, match="where 3 to 3 can read"):
        calibrate(data.DataLoader(Readers(3, 3), 4), workers=2, pin_memory=False, budget_s=0.5)


def test_a_program_is_answered_whose_loader_runs_with_its_own_workers_alone_and_they_are_more_than_the_cpus(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With fewer it fails, and so it does with a worker more than there are CPUs."""
    cpus = len(os.sched_getaffinity(0))
    for name, value in {**ENVIRON, "WORKERS": str(cpus + 2)}.items():
        monkeypatch.setenv(name, value)
    seen = run(script("own_number.py"))
    costs = {measured.name: measured for measured in seen.profile.measurements}
    # CPU time, however many share a CPU; a sample ends when it has spent so much, however fast the machine was.
    slow, fast = speeds(seen.profile)
    assert 0.98 * slow * SAMPLE_S <= costs["prepare.sample"].mean <= 1.25 * fast * SAMPLE_S
    assert costs["scaling.1"].how.endswith("taken for 1 worker, with which the loader fails")
    assert "prepare.wait" not in costs  # for the turns of the others a sample does not wait
    assert seen.profile.today is not None and seen.profile.today.workers == cpus + 2
    recommended = answer(seen.profile)
    assert math.ceil(slow * NEED) - 1 <= recommended.point.cores <= math.ceil(fast / slow * NEED) + 1
    told = " ".join(answer_of(recommended, seen.profile).text().split())
    assert f"the loader failed with fewer workers than the program's {cpus + 2}" in told
    assert f"one worker is taken to cost what each of {cpus + 2} did, at once on {cpus} CPU" in told
    assert not left_behind("own_number.py")


def test_what_the_costs_of_a_loader_rest_on_that_failed_with_another_number_of_workers() -> None:
    def told(*counts: int) -> tuple[str, str]:
        return instrument._failed(InputError("no such file"), counts, cpus=2)[:2]

    assert told(1, 2) == ("the loader failed with more workers than the program's 2", "no such file")
    assert told(1, 2, 8) == ("the loader failed with other numbers of workers than 1, 2, 8", "no such file")
    what, value = told(8)
    assert what == "the loader failed with fewer workers than the program's 8"
    assert value == "no such file; one worker is taken to cost what each of 8 did, at once on 2 CPUs"


def test_only_what_was_measured_with_that_number_is_renamed() -> None:
    kept = {"name": "prepare.step.2x", "how": "so"}
    assert as_of_one(kept, 2) is kept
    assert as_of_one({"name": "scaling.4", "how": "so"}, 2)["name"] == "scaling.4"
    assert as_of_one({"name": "receive.cpu.2", "how": "so"}, 2)["name"] == "receive.cpu"


def test_validate_goes_on_after_a_number_of_workers_that_the_loader_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, attached = tmp_path / "job.json", conduct.attach
    for name, value in {**ENVIRON, "SAMPLE_S": "0.001", "STEP_S": "0.010"}.items():
        monkeypatch.setenv(name, value)

    def short(request: AttachRequest, *others: Any) -> list[dict[str, Any]]:
        return attached(replace(request, **TIMES), *others)

    monkeypatch.setattr(conduct, "attach", short)
    monkeypatch.setattr(cli, "_worker_counts", lambda: (0, 1, 3))
    assert main(["validate", "--json", "--max-error", "100%", "-o", str(path), "--", *script("files.py")]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [trial["workers"] for trial in told["trials"]] == [1]
    assert told["failed"] == [
        {"workers": 0, "error": "AttributeError: 'NoneType' object has no attribute 'id'"},
        {"workers": 3, "error": "ValueError: 2 files cannot feed 3 workers"},
    ]
    assert told["mean_absolute_error"] == pytest.approx(
        abs(told["trials"][0]["gpu_idle_predicted"] - told["trials"][0]["gpu_idle_observed"])
    )
    assert profile_in(path).today is not None
    assert not left_behind("files.py")


def checked(workers: int, observed: float, predicted: float) -> Checked:
    seen = Today(
        program="python train.py", gpu_idle=observed, samples_per_s=400.0, wait=0.03, step=0.05, batches=60,
        workers=workers, threads=2,
    )  # fmt: skip
    return Checked(seen, predicted, predicted - 0.01, predicted + 0.01)


def test_those_that_failed_are_named_and_the_others_are_judged() -> None:
    today, tried = checked(2, 0.4, 0.4), [checked(1, 0.5, 0.52), checked(4, 0.1, 0.14)]
    failures = {0: "AttributeError: no worker", 8: "ValueError: 4 files"}
    text = section_text(trials_section(today, tried, failures))
    assert "mean miss 3.0 points of GPU idle" in text
    assert text.splitlines()[-2:] == [
        "With no workers (num_workers=0) the loader failed: AttributeError: no worker",
        "With 8 workers the loader failed: ValueError: 4 files",
    ]
    document = trials_document(today, tried, failures, 0.05)
    assert document["failed"] == [{"workers": count, "error": why} for count, why in failures.items()]
    assert (document["mean_absolute_error"], document["trusted"]) == (pytest.approx(0.03), True)
    assert trials_document(today, tried, {}, 0.02)["trusted"] is False


def test_where_all_others_failed_todays_own_number_is_judged() -> None:
    today, failures = checked(2, 0.4, 0.47), {1: "ValueError: two are needed"}
    text = section_text(trials_section(today, [], failures))
    assert text.splitlines()[0] == "With 1 worker the loader failed: ValueError: two are needed"
    assert "today's number of workers only: it misses by 7.0 points" in " ".join(text.split())
    document = trials_document(today, [], failures, 0.05)
    assert (document["trials"], document["mean_absolute_error"], document["trusted"]) == (
        [],
        pytest.approx(0.07),
        False,
    )


def test_workers_of_an_iterator_that_began_before_start_as_they_did() -> None:
    method = SimpleNamespace(_start_method="spawn")
    for workers, told in (
        ([method], "spawn"),
        ([SimpleNamespace(_start_method=None)], None),
        ([object()], None),
        ([], None),
    ):
        context = trials._context(SimpleNamespace(_workers=workers))
        assert (context and context.get_start_method()) == told
    assert trials._context(SimpleNamespace()) is None
