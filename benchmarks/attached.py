"""How near attaching comes to what is known: ``python benchmarks/attached.py [name ...]``.

Each program of ``tests/attaching/programs`` (a plain loop, Lightning, transformers, accelerate, torchrun, a stream) is
run unchanged. Its samples burn 5 ms of CPU time, its batches have 32 of them, and its step waits for 50 ms, so that a
rank needs 3.2 cores beside its trainer's. Printed are the recommended cores beside that need, and the GPU idle of its
own setting and of four other numbers of workers, observed beside predicted; of those nothing but the number goes into
the prediction. A quiet machine is needed, and one to two minutes for each program. It is no test.
"""

# ruff: noqa: T201

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from coresim import stats
from coresim.advise.recommend import recommend
from coresim.attaching.assemble import profile_of, trials_of
from coresim.attaching.conduct import AttachRequest, attach
from coresim.attaching.today import Checked, check, check_today
from coresim.cli.common import study_of
from coresim.model.profile import profile_tables
from coresim.model.scenario import read_scenario
from coresim.sim.estimate import Plan

PROGRAMS = Path(__file__).resolve().parents[1] / "tests" / "attaching" / "programs"
BATCH, SAMPLE_S, STEP_S = 32, 0.005, 0.050
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone")
COMMANDS = {
    "plain": (sys.executable, "plain.py"),
    "inline": (sys.executable, "plain.py", "--workers=0"),
    "lightning": (sys.executable, "lit.py"),
    "transformers": (sys.executable, "trainer.py"),
    "accelerate": (sys.executable, "accelerated.py"),
    "torchrun": (*TORCHRUN, "ranks.py"),
    "stream": (sys.executable, "stream.py"),
}
#: The numbers of workers that each loop is run with beside its own.
WORKERS = (0, 1, 2, 3, 4)


def main(names: Sequence[str]) -> int:
    """Run the named programs, or all."""
    unknown = set(names) - COMMANDS.keys()
    if unknown:
        print(f"no program {', '.join(sorted(unknown))}; there are {', '.join(COMMANDS)}", file=sys.stderr)
        return 2
    os.environ |= {"SAMPLE_S": str(SAMPLE_S), "STEP_S": str(STEP_S), "OMP_NUM_THREADS": "1"}
    os.chdir(PROGRAMS)
    misses: list[float] = []
    for name in names or COMMANDS:
        found = _program(name)
        misses += [abs(checked.miss) for checked in found]
    print(f"\nmean miss of all: {100 * stats.mean(misses):.1f} points; largest {100 * max(misses):.1f}")
    return 0


def _program(name: str) -> list[Checked]:
    command = COMMANDS[name]
    ranks = attach(AttachRequest(command, trials=WORKERS), lambda _: None)
    profile = profile_of(ranks, command, "benchmarks/attached.py", "")
    assert profile.today is not None
    scenario = read_scenario(profile_tables(profile, name))
    with study_of(Plan(), "fast", lambda *_: None) as study:
        answer = recommend(scenario, study, (2,), None)
        today = check_today(profile, study)
        assert today is not None
        others = trials_of(ranks, command, profile.today.threads)
        tried = [check(scenario, seen, study) for seen in others if seen.workers != profile.today.workers]
    need = 1 + BATCH * SAMPLE_S / STEP_S  # the trainer's, and 3.2 beside it
    print(f"\n{name}: {answer.point.cores} cores recommended, {need:.1f} needed (met: {answer.meets_target})")
    print("workers   observed  predicted               miss  other programs")
    for checked in (today, *tried):
        print(
            f"{checked.today.workers:>7}  {checked.today.gpu_idle:>8.1%}  {checked.predicted:>9.1%}"
            f" [{checked.low:.1%}, {checked.high:.1%}]".ljust(46)
            + f"{100 * checked.miss:+6.1f}  {checked.today.other_cores:.1f} cores",
            flush=True,
        )
    return [today, *tried]


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
