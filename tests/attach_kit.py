"""The programs of ``tests/attaching/programs``, run with hooks in them for a short time."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from coresim.advise.recommend import Recommendation, recommend
from coresim.attaching.assemble import profile_of
from coresim.attaching.conduct import AttachRequest, attach
from coresim.cli.common import study_of
from coresim.model.handover import NO_HANDOVER
from coresim.model.profile import Profile, load_document
from coresim.model.service import Service
from coresim.sim.estimate import Plan

PROGRAMS = Path(__file__).resolve().parent / "attaching" / "programs"
BATCH = 32
#: A sample's CPU time and a step's wait, s: 3.2 cores feed a step.
SAMPLE_S, STEP_S = 0.005, 0.050
#: Workers make 3.2 batches' worth of a core's work in a step, and the trainer next to nothing, for its step waits.
NEED = BATCH * SAMPLE_S / STEP_S
ENVIRON = {"SAMPLE_S": str(SAMPLE_S), "STEP_S": str(STEP_S), "OMP_NUM_THREADS": "1"}
#: What every process that is started here inherits.
os.environ["CORESIM_TESTS"] = str(os.getpid())
OURS = f"CORESIM_TESTS={os.getpid()}"
#: Where this Python's own commands are.
BIN = Path(sys.executable).parent
TORCHRUN = (str(BIN / "torchrun"),) if (BIN / "torchrun").exists() else (sys.executable, "-m", "torch.distributed.run")
#: Two ranks, each with a loader of one worker.
RANKS = (*TORCHRUN, "--nproc-per-node=2", "--standalone", str(PROGRAMS / "ranks.py"))
TIMES = {"settle_s": 0.5, "watch_s": 1.0, "kept_s": 1.0, "budget_s": 1.5}


@dataclass(frozen=True)
class Seen:
    """What a program's ranks found, what the program said, and the profile of its job."""

    ranks: list[dict[str, Any]]
    said: str
    phases: list[str]
    profile: Profile


def script(name: str, *flags: str) -> tuple[str, ...]:
    """The command of a program."""
    return (sys.executable, str(PROGRAMS / name), *flags)


def run(command: tuple[str, ...], **options: Any) -> Seen:
    """Attach to a program through all phases."""
    said, phases = bytearray(), []
    request = AttachRequest(command, **{**TIMES, **options})
    ranks = attach(request, said.extend, lambda label, _: phases.append(label))
    profile = profile_of(ranks, command, "coresim measure", "2026-01-01T00:00:00+00:00")
    return Seen(ranks, said.decode(), phases, profile)


def least_period(cost_s: float, workers: int, batches: int) -> float:
    """Seconds from batch to batch at the least, of so many that were watched, each of so much CPU time.

    Workers that had nobody to give their batches to, while the trainer had to wait for a core, have two each ready.
    """
    ready = 2 * workers
    return 0.98 * cost_s / max(1, workers) * (1.0 - ready / max(batches, ready + 1))


def speeds(profile: Profile) -> tuple[float, float]:
    """The machine's least and greatest speed while the loader was run; 1 is the usual one."""
    found = next(measured for measured in profile.measurements if measured.name == "machine.speed")
    return min(1.0, *found.flat), max(1.0, *found.flat)


def answer(profile: Profile) -> Recommendation:
    """What is recommended for the job by what its loader costs, however busy the machine is.

    Other programs draw out steps, and keep the trainer waiting for batches that are ready, so the step is the known one
    and those waits are left out.
    """
    measured = profile.scenario()
    scenario = replace(
        measured,
        accelerator=replace(measured.accelerator, step=Service(STEP_S)),
        workload=replace(measured.workload, handover=NO_HANDOVER),
    )
    with study_of(Plan(), "fast", lambda *_: None) as study:
        return recommend(scenario, study, (2,), None)


def profile_in(path: Path) -> Profile:
    """What a verb wrote."""
    found = load_document(path)
    assert isinstance(found, Profile)
    return found


def left_behind(needle: str) -> list[str]:
    """Command lines with ``needle`` in them of processes that still run and descend from this process.

    Tests in another process run the same programs meanwhile.
    """
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal() and int(folder.name) != os.getpid():
            try:
                words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
                ours = OURS.encode() in (folder / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if needle in words and ours and state != "Z":
                found.append(words)
    return found
