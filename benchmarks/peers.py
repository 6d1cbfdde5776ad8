"""coresim beside a sweep of real settings: ``pip install --no-deps loadtune==0.3.0 && python benchmarks/peers.py``.

Three jobs (pictures, heavy tails, waiting) are given to ``coresim recommend`` and to ``loadtune tune`` in turn, on one
machine, each with its defaults. loadtune (MIT licence, version 0.3.0) runs the job with several loader settings and
takes the fastest. Printed are what each took, what it recommends, and what that setting then really does: a plain loop
over the job's ``DataLoader``, run with both settings in turn, several times, with 95 % intervals. The step sleeps, so
that no GPU is needed. A quiet machine is needed, for twenty minutes at the most (``--minutes``): where the tools take
longer, the real runs are shorter, and a tool that leaves no time for them is ended. It is no test.
"""

# ruff: noqa: T201, PLC0415 - loadtune is imported where it is asked

from __future__ import annotations

import argparse
import importlib.metadata
import json
import math
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from coresim import stats
from coresim.errors import EXIT_ANSWERED, EXIT_NO_CORE_COUNT
from coresim.workloads.named import load_object
from coresim.workloads.registry import target_of

PEER = "0.3.0"
#: Samples of a data set: its few files over and over, so that no run comes to the end of an epoch.
SAMPLES = 100_000
#: Batches before a real run counts, beside two for each worker.
WARM_UP = 10
#: Of a real run: what its start and its warm-up take at the most, and the least that it counts, s.
START_S, LEAST_S = 12.0, 3.0
#: What the processes that both tools start read: the job's name, and the folder of its files.
JOB, FOLDER = "PEERS_JOB", "PEERS_FOLDER"


@dataclass(frozen=True)
class Job:
    """A built-in workload with a batch size and the time of its step."""

    workload: str
    batch_size: int
    step_s: float


JOBS = {
    "pictures": Job("jpeg-light", 64, 0.060),
    "heavy tails": Job("heavy-tailed", 32, 0.060),
    "waiting": Job("slow-reads", 16, 0.020),
}


@dataclass(frozen=True)
class Setting:
    """What a tool recommends for the cores that are there, what it took, and what else it answers."""

    workers: int
    prefetch_factor: int
    took_s: float
    more: str


class Samples(Dataset[Any]):
    """A data set as a training script has it: indexed, a sample is prepared when it is asked for."""

    def __init__(self, workload: Any) -> None:
        self.workload, self.rng = workload, np.random.default_rng(1)

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> Any:
        value: Any = index % len(self.workload)
        for step in self.workload.steps():
            value = step.call(value, self.rng)
        return value


def made(job: Job, folder: Path) -> Any:
    """The job's workload."""
    return load_object(target_of(job.workload), "workload")(folder)


def dataset() -> Samples:
    """The data set of the job that the environment names; coresim and `get_workload` call it."""
    return Samples(made(JOBS[os.environ[JOB]], Path(os.environ[FOLDER])))


def get_workload() -> Any:
    """The same job in the words of loadtune, which imports this file."""
    from loadtune import Workload

    job = JOBS[os.environ[JOB]]

    def train_step(*_: Any) -> Any:
        time.sleep(job.step_s)
        return torch.zeros(())

    return Workload(
        name=os.environ[JOB],
        make_dataset=dataset,
        make_model=lambda: torch.nn.Linear(1, 1),
        train_step=train_step,
        make_optimizer=lambda model: torch.optim.SGD(model.parameters(), lr=0.1),
        default_batch_size=job.batch_size,
    )


def run_within(most_s: float, words: Sequence[str], **how: Any) -> subprocess.CompletedProcess[bytes]:
    """A tool's process, ended with this benchmark where it takes longer than there is time for."""
    try:
        return subprocess.run(words, check=False, timeout=max(1.0, most_s), **how)
    except subprocess.TimeoutExpired:
        raise SystemExit(f"{' '.join(words[1:4])} took more than the {most_s:.0f} s there were for it") from None


def ask_coresim(job: Job, flags: Sequence[str], most_s: float) -> Setting:
    """Measure, and take the best setting on the cores that are there."""
    began = time.perf_counter()
    words = [*words_of(job), *flags]
    run = run_within(most_s, [sys.executable, "-m", "coresim", *words], stdout=subprocess.PIPE)
    took = time.perf_counter() - began
    if run.returncode not in (EXIT_ANSWERED, EXIT_NO_CORE_COUNT):
        raise SystemExit(f"coresim recommend ended with {run.returncode}")
    return setting_of(json.loads(run.stdout), took)


def words_of(job: Job) -> list[str]:
    """How coresim is asked."""
    words = ["recommend", "--dataset", f"{__file__}:dataset", "--batch-size", str(job.batch_size), "--options", "2"]
    return [*words, "--step-time", f"{1e3 * job.step_s:g} ms", "--set", "accelerator.sync=block", "--json"]


def setting_of(found: dict[str, Any], took: float) -> Setting:
    """The best setting on the cores that are there, of an answer; and what it says of cores that are not."""
    own, best, sure = found["own_host"], found["recommendation"], found["sure"]
    more = f"predicted idle {own['gpu_idle']:.1%} [{own['gpu_idle_low']:.1%}, {own['gpu_idle_high']:.1%}]"
    target = f"within {found['target_gpu_idle']:.0%} idle"
    if best["meets_target"]:
        more += f"; {target}: {best['cores_per_gpu']} cores, nine in ten sure {sure['cores_per_gpu'] or 'none tried'}"
    else:
        more += f"; {target}: no core count, {best['verdict']}"
    return Setting(own["workers"], own["prefetch_factor"], took, more)


def ask_loadtune(folder: Path, flags: Sequence[str], most_s: float) -> Setting:
    """Sweep, and take what loadtune calls the best, or its baseline where nothing was faster."""
    from loadtune.experiment import Trial, best_trial
    from loadtune.knobs import Knobs

    raw = folder / "loadtune.json"
    raw.unlink(missing_ok=True)
    words = ["tune", __file__, "--no-plots", "--out", str(folder / "loadtune.md"), "--save-raw", str(raw), *flags]
    began = time.perf_counter()
    run = run_within(most_s, [sys.executable, "-m", "loadtune.cli", *words], stdout=sys.stderr)
    took = time.perf_counter() - began
    if run.returncode or not raw.exists():
        raise SystemExit(f"loadtune tune ended with {run.returncode} and {'a' if raw.exists() else 'no'} result")
    told = json.loads(raw.read_text())
    trials = [Trial(Knobs.from_dict(one["knobs"]), one["reason"], one["result"]) for one in told["trials"]]
    best, base = best_trial(trials), told["baseline"]
    better = best is not None and best.throughput > base["throughput"]
    knobs = best.knobs if better else Knobs.from_dict(base["knobs"])
    rate = best.throughput if better else base["throughput"]
    return Setting(knobs.num_workers, knobs.prefetch_factor or 2, took, f"measured {rate:.0f} samples/s")


def real(name: str, workers: int, prefetch_factor: int, seconds: float) -> dict[str, float]:
    """A plain loop over the job's loader: samples/s, and the share of the time that it waited."""
    job, ahead = JOBS[name], {"prefetch_factor": prefetch_factor} if workers else {}
    with warnings.catch_warnings():  # of more workers than CPUs, which is what is tried
        warnings.simplefilter("ignore")
        loader = iter(DataLoader(dataset(), job.batch_size, shuffle=True, num_workers=workers, **ahead))  # type: ignore[arg-type]
    for _ in range(WARM_UP + 2 * workers):
        next(loader)
        time.sleep(job.step_s)
    began, waited, batches = time.perf_counter(), 0.0, 0
    while time.perf_counter() - began < seconds:
        asked = time.perf_counter()
        next(loader)
        waited, batches = waited + time.perf_counter() - asked, batches + 1
        time.sleep(job.step_s)
    span = time.perf_counter() - began
    return {"rate": batches * job.batch_size / span, "idle": waited / span}


def run_real(name: str, setting: Setting, seconds: float) -> dict[str, float]:
    """`real` in a process of its own."""
    words = [__file__, "--real", name, str(setting.workers), str(setting.prefetch_factor), "--seconds", str(seconds)]
    run = subprocess.run([sys.executable, *words], stdout=subprocess.PIPE, check=True)
    found: dict[str, float] = json.loads(run.stdout)
    return found


def around(values: Sequence[float], form: str) -> str:
    """A mean with its 95 % interval, as ``form`` writes a number."""
    low, high = stats.t_interval(values, 0.95)
    width = "" if math.isinf(high) else f" [{form.format(low)}, {form.format(high)}]"
    return form.format(stats.mean(values)) + width


def compare(name: str, args: argparse.Namespace, most_s: float) -> bool:
    """One job; whether coresim's setting is as good or better within the noise, in half of the time or less.

    All of it takes ``most_s`` at the most.
    """
    job, folder, began = JOBS[name], Path(os.environ[FOLDER]), time.perf_counter()
    least_s = 2 * args.repeats * (START_S + LEAST_S)
    made(job, folder).make()
    print(f"\n{name}: workload {job.workload}, batch {job.batch_size}, step {1e3 * job.step_s:g} ms", flush=True)
    asked = {
        "coresim": lambda left: ask_coresim(job, args.coresim.split(), left),
        "loadtune": lambda left: ask_loadtune(folder, args.loadtune.split(), left),
    }
    settings = {}
    for tool in asked:
        settings[tool] = found = asked[tool](began + most_s - least_s - time.perf_counter())
        words = f"{found.workers} workers, prefetch factor {found.prefetch_factor}"
        print(f"  {tool:9} took {found.took_s:5.1f} s: {words}; {found.more}", flush=True)
    each_s = (began + most_s - time.perf_counter()) / (2 * args.repeats) - START_S
    each_s = max(LEAST_S, min(args.seconds, each_s))
    print(f"  really: {args.repeats} runs of each setting, {each_s:.0f} s each", flush=True)
    runs: dict[str, list[dict[str, float]]] = {tool: [] for tool in settings}
    for turn in range(args.repeats):
        # In turn, and each goes first as often: what drifts meets both.
        for tool in sorted(settings, reverse=turn % 2 == 1):
            runs[tool].append(run_real(name, settings[tool], each_s))
    for tool, found in runs.items():
        rates = around([one["rate"] for one in found], "{:.0f}")
        idles = around([100 * one["idle"] for one in found], "{:.1f}")
        print(f"  {tool:9} really: {rates} samples/s, waits {idles} % of the time")
    pairs = zip(runs["coresim"], runs["loadtune"], strict=True)
    gains = [100 * (ours["rate"] / theirs["rate"] - 1) for ours, theirs in pairs]
    ratio = settings["coresim"].took_s / settings["loadtune"].took_s
    good = stats.t_interval(gains, 0.95)[1] >= 0.0
    told = "as good or better, within the noise" if good else "worse"
    print(f"  coresim against loadtune: {around(gains, '{:+.1f}')} % samples/s ({told}), in {ratio:.0%} of its time")
    return good and ratio <= 0.5


def main() -> int:
    """All jobs, or those named; 1 where coresim is worse in one, or takes more than half of the other's time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", nargs="*", help=f"of {', '.join(JOBS)} (default: all)")
    parser.add_argument("--repeats", type=int, default=5, help="real runs of each setting, two at least (default 5)")
    parser.add_argument("--seconds", type=float, default=15.0, help="that each counts at the most (default 15)")
    parser.add_argument("--minutes", type=float, default=20.0, help="that all jobs take at the most (default 20)")
    parser.add_argument("--coresim", default="", metavar="FLAGS", help="more flags, such as --coresim=--quick")
    parser.add_argument("--loadtune", default="", metavar="FLAGS", help="more flags, such as '--loadtune=--steps 20'")
    parser.add_argument("--real", nargs=3, metavar=("JOB", "WORKERS", "PREFETCH"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.repeats < 2:
        parser.error(f"--repeats {args.repeats}: one run has no interval; two at least")
    if args.real:
        name, workers, factor = args.real
        print(json.dumps(real(name, int(workers), int(factor), args.seconds)))
        return 0
    unknown = set(args.jobs) - JOBS.keys()
    if unknown:
        print(f"no job {', '.join(sorted(unknown))}; there are {', '.join(JOBS)}", file=sys.stderr)
        return 2
    try:
        there = importlib.metadata.version("loadtune")
    except importlib.metadata.PackageNotFoundError:
        there = None
    if there != PEER:
        print(f"loadtune {there or 'is not there'}: pip install --no-deps loadtune=={PEER}", file=sys.stderr)
        return 3
    print(f"Python {sys.version.split()[0]}, {len(os.sched_getaffinity(0))} CPUs, load {os.getloadavg()[0]:.1f}")
    good, names, ends = [], args.jobs or list(JOBS), time.perf_counter() + 60 * args.minutes
    for place, name in enumerate(names):
        with tempfile.TemporaryDirectory() as folder:
            os.environ |= {JOB: name, FOLDER: folder, "XDG_STATE_HOME": folder, "OMP_NUM_THREADS": "1"}
            good.append(compare(name, args, (ends - time.perf_counter()) / (len(names) - place)))
    print(f"\nas good or better in half of the time or less: {sum(good)} of {len(good)} jobs")
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
