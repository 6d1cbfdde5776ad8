"""How near attaching comes to what is known: ``python benchmarks/attached.py [--quick] [name ...]``.

Each program of ``tests/attaching/programs`` (a plain loop, one without workers, Lightning, transformers, accelerate,
torchrun with two ranks, a stream) is run unchanged. Its samples burn 5 ms of CPU time, its batches have 32 of them, and
its step waits for 50 ms and holds no core. So a rank needs 3.2 cores, and what its trainer works beside the waiting.

Printed are the recommended cores beside that need, and the GPU idle of its own setting and of four other numbers of
workers, observed beside predicted; of those nothing but the number goes into the prediction, and what other programs
used meanwhile. Beside it stands what a simple model says of the same costs: workers or cores, whichever are fewer,
divide the work of a batch, and the step hides it or does not. The claim is a miss of at most three points.

A pure Python sample keeps the interpreter's lock, so that handing a batch over takes 0 to 170 ms here: a short look, at
the loader or at the loop, is several points off by chance. So the loader runs for three times as long as it does by
default (``recommend --budget "60 s"``), and each loop is watched for ten seconds. A quiet machine is needed, and about
140 s for each program, 17 min for all; ``--quick`` is to see that it works. It is no test.
"""

# ruff: noqa: T201

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from coresim import stats
from coresim.advise.recommend import recommend
from coresim.attaching.assemble import profile_of, trials_of
from coresim.attaching.conduct import AttachRequest, attach
from coresim.attaching.today import Checked, check, check_today, free_cores
from coresim.cli.common import study_of
from coresim.model.load import scenario_of
from coresim.model.scenario import Scenario
from coresim.model.today import Today
from coresim.sim.estimate import Plan

PROGRAMS = Path(__file__).resolve().parents[1] / "tests" / "attaching" / "programs"
BATCH, SAMPLE_S, STEP_S = 32, 0.005, 0.050
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone")
#: How each is started, and how many workers it has.
COMMANDS: dict[str, tuple[tuple[str, ...], int]] = {
    "plain": ((sys.executable, "plain.py"), 2),
    "inline": ((sys.executable, "plain.py", "--workers=0"), 0),
    "lightning": ((sys.executable, "lit.py"), 2),
    "transformers": ((sys.executable, "trainer.py"), 2),
    "accelerate": ((sys.executable, "accelerated.py"), 2),
    "torchrun": ((*TORCHRUN, "ranks.py"), 1),
    "stream": ((sys.executable, "stream.py"), 2),
}
#: Numbers of workers; each loop is run with the four that are not its own.
WORKERS = (0, 1, 2, 3, 4)
#: Seconds of watching, of the step without waiting, and of the loader alone.
TIMES = {"watch_s": 10.0, "kept_s": 4.0, "budget_s": 60.0}
QUICK = {"settle_s": 0.5, "watch_s": 1.0, "kept_s": 1.0, "budget_s": 4.0}
#: What the prediction may miss by, as a share of the time.
CLAIM = 0.03


class Row(NamedTuple):
    """One setting: what was observed and predicted, and the simple model's GPU idle."""

    checked: Checked
    simple: float

    @property
    def simple_miss(self) -> float:
        """What that is off."""
        return self.simple - self.checked.today.gpu_idle


class Result(NamedTuple):
    """One program."""

    name: str
    cores: int
    need: float
    rows: list[Row]


def main(words: Sequence[str]) -> int:
    """Run the named programs, or all."""
    names = [word for word in words if word != "--quick"]
    unknown = set(names) - COMMANDS.keys()
    if unknown:
        print(f"no program {', '.join(sorted(unknown))}; there are {', '.join(COMMANDS)}", file=sys.stderr)
        return 2
    os.environ |= {"SAMPLE_S": str(SAMPLE_S), "STEP_S": str(STEP_S), "OMP_NUM_THREADS": "1"}
    os.chdir(PROGRAMS)
    found = [_program(name, QUICK if "--quick" in words else TIMES) for name in names or COMMANDS]
    _summary(found)
    return 0


def _program(name: str, times: dict[str, float]) -> Result:
    command, own = COMMANDS[name]
    trials = tuple(count for count in WORKERS if count != own)
    ranks = attach(AttachRequest(command, trials=trials, **times), lambda _: None)  # type: ignore[arg-type]
    result = result_of(name, command, ranks)
    _table(result)
    return result


def result_of(name: str, command: tuple[str, ...], ranks: Sequence[dict[str, Any]]) -> Result:
    """What is recommended and predicted from what the ranks of a program told."""
    profile = profile_of(ranks, command, "benchmarks/attached.py", "")
    assert profile.today is not None
    scenario = scenario_of(profile, name)
    with study_of(Plan(), "fast", lambda *_: None) as study:
        answer = recommend(scenario, study, (2,), None)
        today = check_today(profile, study)
        assert today is not None
        others = trials_of(ranks, command, profile.today.threads)
        tried = [today, *(check(scenario, seen, study) for seen in others)]
    rows = [Row(checked, _simple(scenario, checked.today)) for checked in tried]
    return Result(name, answer.point.cores, BATCH * SAMPLE_S / STEP_S + _trainer(ranks), rows)


def _trainer(ranks: Sequence[dict[str, Any]]) -> float:
    """Cores that a rank's own process works on beside the loader's, of a step that is never kept waiting."""
    return stats.mean([stats.mean(told["step"]["busy"]) / stats.mean(told["step"]["steps"]) for told in ranks])


def _simple(scenario: Scenario, today: Today) -> float:
    """GPU idle where workers or cores divide the work of a batch, and nothing else costs anything."""
    workload, step = scenario.workload, scenario.accelerator.step.mean
    work = workload.batch_size * workload.preprocess.mean + workload.collate.mean + workload.send.mean
    if not today.workers:
        return work / (work + step)
    return max(0.0, 1.0 - step * min(today.workers, free_cores(scenario, today)) / work)


def _table(result: Result) -> None:
    print(f"\n{result.name}: {result.cores} cores recommended per rank, {result.need:.1f} needed")
    print("workers   observed  predicted               miss   simple   miss  other programs")
    for number, (checked, simple) in enumerate(result.rows):
        today = checked.today
        print(
            f"{today.workers:>7}  {today.gpu_idle:>8.1%}  {checked.predicted:>9.1%}"
            f" [{checked.low:.1%}, {checked.high:.1%}]".ljust(46)
            + f"{100 * checked.miss:+6.1f}  {simple:>7.1%} {100 * result.rows[number].simple_miss:+6.1f}"
            + f"  {today.other_cores:.1f} cores"
            + ("" if number else "  (its own setting)"),
            flush=True,
        )


def _summary(found: Sequence[Result]) -> None:
    """All programs, each with its own setting and the four others."""
    print("\nprogram       cores  needed  mean miss  largest  within 3 points   simple: mean  largest")
    rows = []
    for result in found:
        rows += result.rows
        print(f"{result.name:<12}  {result.cores:>5}  {result.need:>6.1f}  {_misses(result.rows)}")
    print(f"{'all':<27}  {_misses(rows)}")


def _misses(rows: Sequence[Row]) -> str:
    ours = [abs(row.checked.miss) for row in rows]
    simple = [abs(row.simple_miss) for row in rows]
    within = f"{sum(miss <= CLAIM for miss in ours)} of {len(ours)}"
    return (
        f"{100 * stats.mean(ours):>9.1f}  {100 * max(ours):>7.1f}  {within:>15}"
        f"  {100 * stats.mean(simple):>13.1f}  {100 * max(simple):>7.1f}"
    )


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
