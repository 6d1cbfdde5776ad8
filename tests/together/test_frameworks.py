"""Attaching, measure and advise: programs of real frameworks, unchanged, are found, measured and answered."""

from __future__ import annotations

import importlib.util
import math
import os
import sys
from typing import Any, NamedTuple

import pytest
from attach_kit import (
    BATCH,
    BIN,
    ENVIRON,
    NEED,
    PROGRAMS,
    RANKS,
    SAMPLE_S,
    STEP_S,
    Seen,
    answer,
    least_period,
    left_behind,
    run,
    script,
    speeds,
)  # fmt: skip

# The programs' samples burn a known CPU time and their steps wait for a known one, so that the true need is known. They
# are started in all the usual ways: a script, a module, ``torchrun``, ``accelerate launch``, a shell script. What is
# asserted holds on a busy machine; `benchmarks/attached.py` prints how near the predictions come on a quiet one.

pytestmark = pytest.mark.torch
pytest.importorskip("torch")

PLAIN = ("--sample", str(SAMPLE_S), "--step", str(STEP_S))
ACCELERATE = (str(BIN / "accelerate"), "launch", "--cpu", "--num_processes=1")


class Case(NamedTuple):
    """A program, the package that it needs, and what is known of it."""

    command: tuple[str, ...]
    needs: str = "torch"
    workers: int = 2
    ranks: int = 1
    dataset: str = "Data"
    samples: int | None = 3200
    batches_per_step: float = 1.0
    environ: dict[str, str] = {}  # noqa: RUF012 (nobody changes it)
    slow: bool = False


CASES = {
    "a plain loop in main()": Case(script("plain.py", *PLAIN)),
    "no workers, batches changed in place": Case(script("plain.py", *PLAIN, "--workers=0", "--in-place"), workers=0),
    "Lightning": Case(script("lit.py"), "lightning"),
    "transformers": Case(script("trainer.py"), "transformers", dataset="Texts"),
    "accelerate launch": Case((*ACCELERATE, str(PROGRAMS / "accelerated.py")), "accelerate", batches_per_step=2.0),
    "torchrun": Case(RANKS, workers=1, ranks=2),
    "an iterable data set, by a shell script": Case(
        (str(PROGRAMS / "start.sh"), "stream.py"),
        dataset="Stream",
        samples=None,
        environ={"PATH": os.pathsep.join([str(BIN), os.environ["PATH"]])},
    ),
    "a data set that gives whole batches": Case(script("whole.py"), dataset="Batches", samples=100),
    "a data set that is slow to build, in a module": Case(
        (sys.executable, "-m", "slow_build"),
        dataset="Built",
        environ={"BUILD_S": "2", "PYTHONPATH": str(PROGRAMS)},
    ),
    "a data set that takes 40 s to build": Case(
        (sys.executable, "-m", "slow_build"), dataset="Built", environ={"PYTHONPATH": str(PROGRAMS)}, slow=True
    ),
    "a loop for each task of an outer loader": Case(script("tasks.py"), workers=1, dataset="Subset", samples=384),
    "a sitecustomize of its own": Case(
        script("own_site/train.py", *PLAIN), environ={"PYTHONPATH": str(PROGRAMS / "own_site")}
    ),
}


PARAMETERS = [
    pytest.param(case, id=name, marks=[pytest.mark.slow] if case.slow else []) for name, case in CASES.items()
]


@pytest.fixture(scope="module", params=PARAMETERS)
def seen(request: Any) -> Any:
    """One run for all that is asserted of a case."""
    case: Case = request.param
    if importlib.util.find_spec(case.needs) is None:
        pytest.skip(f"{case.needs} is not installed")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**ENVIRON, **case.environ}.items():
            patch.setenv(name, value)
        yield case, run(case.command)


def test_the_loop_that_trains_is_found_with_its_settings(seen: tuple[Case, Seen]) -> None:
    case, found = seen
    today = found.profile.today
    assert today is not None
    assert (today.workers, today.ranks, len(found.ranks)) == (case.workers, case.ranks, case.ranks)
    told = found.ranks[0]["settings"]
    assert (told["loader"], told["dataset"], told["samples"]) == ("DataLoader", case.dataset, case.samples)
    assert found.profile.batch_size == BATCH
    # Of few batches the last step may be under way.
    steps = today.batches / today.batches_per_step
    assert abs(steps - today.batches / case.batches_per_step) <= case.ranks
    assert found.profile.bytes_per_batch == BATCH * (3 * 8 * 8 * 4 + 8)
    assert found.ranks[0]["step"]["changed_in_place"] == ("--in-place" in case.command)


def test_the_program_is_run_once_and_ended(seen: tuple[Case, Seen]) -> None:
    case, found = seen
    assert found.phases[0] == "your program starts" and "the loader without the step" in found.phases
    assert not left_behind(next(word for word in case.command if word.endswith((".py", "slow_build"))))
    assert found.said.count("built by process") == (case.dataset == "Built")
    assert "python ended" not in found.said


def test_what_is_known_is_measured(seen: tuple[Case, Seen]) -> None:
    case, found = seen
    today, profile = found.profile.today, found.profile
    assert today is not None
    costs = {measured.name: measured for measured in profile.measurements}
    # CPU time at the machine's usual speed: a sample ends when it has spent so much, however fast the machine was. A
    # step only gets longer, because it waits.
    slow, fast = speeds(profile)
    assert 0.98 * slow * SAMPLE_S <= costs["prepare.sample"].mean <= 1.25 * fast * SAMPLE_S
    assert all(step >= STEP_S for step in costs["accelerator.step"].flat)
    assert today.step >= STEP_S
    # Two workers or fewer need at least this for a batch, and the device idles for what the step is shorter.
    assert today.wait + today.step >= least_period(BATCH * SAMPLE_S, case.workers, today.batches // case.ranks)
    assert today.gpu_idle > 0.1
    # Its step is a sleep, which holds no core, and no GPU's.
    assert (today.device, today.sync) == ("cpu", "block")
    told = next(warning for warning in profile.warnings if warning.what == "the program trains without CUDA")
    assert "--gpu" in told.remedy and "--step-time" in told.remedy


def test_the_recommended_cores_are_those_needed(seen: tuple[Case, Seen]) -> None:
    _, found = seen
    slow, fast = speeds(found.profile)  # costs are as far off as these, and those with one and with all cores apart
    assert math.ceil(slow * NEED) - 1 <= answer(found.profile).point.cores <= math.ceil(fast / slow * NEED) + 1
