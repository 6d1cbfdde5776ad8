"""A validation: for each portion of a job calibrate, predict, and only then run it at the declared settings.

One fresh process per data set does all measuring and forks the loader's workers; this process never forks.
"""

from __future__ import annotations

import contextlib
import math
import os
import random
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from coresim.measure.bandwidth import measure_bandwidth
from coresim.measure.calibrate import BUDGET_S
from coresim.measure.campaign import Progress, assemble
from coresim.measure.host import read_host
from coresim.measure.protocol import Context
from coresim.measure.server import Ask, Server
from coresim.measure.system_root import check_proc
from coresim.model.measurement import Measurement
from coresim.model.option import Option
from coresim.model.profile import AcceleratorSource
from coresim.model.profile_scenario import DRIFT, speed_spread
from coresim.sim.estimate import Engine
from coresim.validate.grid import Grid, Setting
from coresim.validate.ledger import Ledger, MeasuredTrial, RecordedJob, RecordedPoint
from coresim.validate.limits import QuotaGroup
from coresim.validate.predict import Costs, by_buffer, by_rates, long_enough, predict, step_time, trial_length
from coresim.validate.trials import REST, TRIAL_S, Order, Train, Trials, barrier_cost
from coresim.workloads.named import WorkloadSpec

#: Share of the machine's cores that other programs may use before a trial does not count.
MOST_OTHERS = 0.025
#: A trial whose workers needed so much more CPU time per batch than in the best trial of the same setting, each beside
#: what the sampler's work cost meanwhile, was disturbed.
MOST_SLOWER = 0.25
#: Share of the emulated step by which its timer may be late: what is taken out of the moments must stay small.
MOST_LATE = 0.1
#: Declared trials per calibration, about a minute of them, because a shared machine changes its speed.
FRESH = 12
#: Trials of one setting at the most, beyond its repeats.
ATTEMPTS = 2
BANDWIDTH_S = 3.0
#: A profile needs a step time; every trial has its own.
NO_STEP = AcceleratorSource(kind="given", provenance="each trial's own", uncertainty=0.0, step_time_s=1.0)


def validate(
    grid: Grid,
    specs: dict[str, WorkloadSpec],
    ledger: Ledger,
    engine: Engine,
    *,
    device: str = "cuda",
    trial_s: float = TRIAL_S,
    seconds: float | None = None,
    build_timeout: float | None = None,
    save: Callable[[Ledger], None] = lambda ledger: None,
    progress: Progress = lambda what, done: None,
    notice: Callable[[str], None] = lambda line: None,
) -> Ledger:
    """Make all trials of the grid that the ledger does not hold yet.

    Args:
        grid: what to run; settings with more cores than there are CPUs are left out.
        specs: how to build each workload that the grid names; its data are made.
        device: where models train, if their settings do not say.
        trial_s: wall seconds of a trial.
        ledger: an empty one, or that of an interrupted validation; its unsettled settings are made anew.
        seconds: begin no trial after so many seconds; None: no limit.
        build_timeout: the longest that building one data set may take, s; None: no limit.
        save: called with the ledger after each trial, so that an interruption loses one trial at most.
        progress: called with what is going on, and the fraction done.
        notice: called with one line on what of the grid cannot run here.

    Raises:
        InputError: a workload cannot be built or fails.
        MissingPartError: /proc cannot be read.
        CoresimError: a measuring process died or hangs.
    """
    check_proc()
    until = float("inf") if seconds is None else time.monotonic() + seconds
    left = fitting(unsettled(grid, ledger), notice)
    # The process that makes a control group outlives those in it and removes it.
    quota = QuotaGroup.make() if any(setting.limit == "quota" for setting in left) else None
    with quota or contextlib.nullcontext() as group:
        if group is None and (barred := [setting for setting in left if setting.limit == "quota"]):
            notice(f"no CPU control group may be written here: {len(barred)} settings with a quota are left out")
            left = [setting for setting in left if setting.limit != "quota"]
        bandwidth = measure_bandwidth(Context(BANDWIDTH_S)) if left else []
        maker = _TrialMaker(engine, device, trial_s, until, build_timeout, save, group, bandwidth)
        return maker.run(left, specs, ledger, progress)


def unsettled(grid: Grid, ledger: Ledger) -> list[Setting]:
    """The settings of the grid for which the ledger has too few trials; it has the batch sizes that were run."""
    done = {point.setting for point in ledger.points if settled(point)}
    own = {replace(setting, batch_size=0) for setting in done}
    return [setting for setting in grid.settings if setting not in (done if setting.batch_size else own)]


def fitting(settings: Sequence[Setting], notice: Callable[[str], None] = lambda line: None) -> list[Setting]:
    """The settings that need no more CPUs than there are; ``notice`` is called with how many do."""
    cpus = len(os.sched_getaffinity(0))
    found = [setting for setting in settings if setting.cores <= cpus]
    if wider := len(settings) - len(found):
        notice(f"{cpus} CPUs may be used here: {wider} settings with more cores are left out")
    return found


def portions(settings: Sequence[Setting]) -> list[list[Setting]]:
    """The settings by job, in the portions that are calibrated one by one: whole scans, of about `FRESH` trials.

    Where something is really trained, cores belong to a scan too: its step time is one calibration's.
    """
    found = []
    for job in dict.fromkeys(setting.job for setting in settings):
        kinds: dict[Setting, list[Setting]] = {}
        for setting in settings:
            if setting.job == job:
                cores = 1 if setting.model else setting.cores
                kinds.setdefault(replace(setting, workers=1, cores=cores, repeats=1), []).append(setting)
        scans = list(kinds.values())
        random.Random(1).shuffle(scans)  # so that a portion has settings of all kinds
        # A process that has prepared samples itself, as a trainer without workers does, forks workers that are faster.
        scans.sort(key=lambda scan: bool(scan[0].model) and scan[0].option == Option.NO_OVERLAP)
        left = sum(map(_trials, scans))
        portion = left / math.ceil(left / FRESH)
        found.append(list[Setting]())
        for scan in scans:
            if found[-1] and _trials(found[-1]) + _trials(scan) / 2 > portion and left > portion / 2:
                found.append([])
            found[-1] += scan
            left -= _trials(scan)
    return found


def _trials(settings: Sequence[Setting]) -> int:
    return sum(setting.repeats for setting in settings)


def _tell(progress: Progress, name: str, total: int, before: int, trials: int, what: str) -> None:
    progress(f"{name}: {what}", (before + trials) / total)


@dataclass(frozen=True)
class _TrialMaker:
    """Makes the trials of one job after the other; see `validate`."""

    engine: Engine
    device: str
    trial_s: float
    until: float
    build_timeout: float | None
    save: Callable[[Ledger], None]
    group: QuotaGroup | None
    bandwidth: Sequence[Measurement]

    def run(self, left: list[Setting], specs: Mapping[str, WorkloadSpec], ledger: Ledger, say: Progress) -> Ledger:
        """The ledger with the trials of these settings: one process for each data set, which builds it once."""
        total, made = _trials(left), 0
        # Threads prepare samples in the process that forks workers, and workers that it forks later would be faster.
        left = sorted(left, key=lambda setting: setting.option == Option.STAGED)
        for data_set in dict.fromkeys(setting.data_set for setting in left):
            settings, began = [setting for setting in left if setting.data_set == data_set], time.monotonic()
            if began > self.until:
                break
            spec = replace(specs[settings[0].workload], batch_size=settings[0].batch_size or None)
            said = partial(_tell, say, settings[0].workload, total)
            with Server(spec, build_timeout=self.build_timeout, more=Trials(), tell=partial(said, made, 0)) as server:
                settings = [replace(setting, batch_size=server.facts.batch_size) for setting in settings]
                took = 0.0
                for alike in portions(settings):
                    if began + took > self.until:  # no trial could follow the calibration
                        break
                    # Drop an interrupted validation's trials of these settings: they belong to another calibration.
                    ledger = self._run(server, alike, ledger.without(alike), began, partial(said, made))
                    took, made, began = ledger.jobs[-1].seconds, made + _trials(alike), time.monotonic()
        return ledger

    def _run(
        self, server: Server, settings: Sequence[Setting], base: Ledger, began: float, tell: Callable[[int, str], None]
    ) -> Ledger:
        """Calibrate, predict all of the settings, then let the same process make their trials, each kept at once."""
        server.ask(REST)
        ranks = sorted({setting.ranks for setting in settings if setting.ranks > 1})
        job, usual = self._calibrated(server, settings[0], ranks, partial(tell, 0))
        points = [self._predicted(len(base.jobs), job.costs, setting) for setting in settings]
        job = replace(job, seconds=time.monotonic() - began)
        self.save(ledger := base.with_job(job, points))
        turns = deque(place for place, setting in enumerate(settings) for _ in range(setting.repeats))
        random.Random(1).shuffle(turns)  # so that the machine's drift favours none
        trials = len(turns)
        while turns and time.monotonic() < self.until:
            place = turns.popleft()
            made = sum(len(point.trials) for point in points)
            # Disturbed trials are made again, so there may be more trials than declared.
            tell(made, f"running the real pipeline, {min(100, 10 * (10 * made // trials))} %")
            points[place] = _attempt(server, points[place], usual, self.group)
            self.save(ledger := base.with_job(job, points))
            if place not in turns and not settled(points[place]):
                turns.append(place)
        return ledger

    def _calibrated(
        self, server: Server, first: Setting, ranks: Sequence[int], tell: Callable[[str], None]
    ) -> tuple[RecordedJob, Mapping[int, float]]:
        """The job's costs, as a profile of it has them, and the usual CPU times of the sampler's work.

        ``ranks``: how many ranks its settings have, where there are several.
        """
        device, training = "", None
        if first.model:
            tell("timing the training step")
            device, training = server.ask(Train(first, first.device or self.device))
        tell("calibrating")
        staged, reads = first.option == Option.STAGED, bool(first.model) and not first.pin_memory
        # A new seed each time, as in the trials, so that one recording's chance is not repeated in the next.
        seed = time.perf_counter_ns() % 2**32
        ask = Ask(staged, BUDGET_S, pin_memory=first.pin_memory, reads=reads and not staged, seed=seed)
        found = server.calibrate(ask, lambda done: tell(f"running the loader, {20 * int(5 * done)} %"))
        if training is not None:  # launches once more, at another moment than before the calibration
            tell("timing the training step again")
            device, training = server.ask(Train(first, device, again=training))
        if ranks:
            tell("timing the barrier of the ranks")
        barriers = tuple((count, float(server.ask(partial(barrier_cost, count)))) for count in ranks)
        host = read_host(load_window=0.0)
        profile = assemble(server.facts, found, host, NO_STEP, [*found.measurements, *self.bandwidth], ())
        tables = profile.scenario().to_dict(defaults=True)
        costs = Costs(tables, found.sampled, training, spread=speed_spread(profile), drift=DRIFT, barriers=barriers)
        warned = tuple(f"{warning.what}: {warning.value}" for warning in found.warnings)
        return RecordedJob(first.workload, server.facts.name, costs, device, warnings=warned), found.usual_sampler_s

    def _predicted(self, job: int, costs: Costs, setting: Setting) -> RecordedPoint:
        length = long_enough(costs, setting, trial_length(costs, setting, self.trial_s), self.engine)
        return RecordedPoint(
            job=job,
            setting=setting,
            step_s=step_time(costs, setting),
            steps=length.steps - length.warm_up,
            warm_up=length.warm_up,
            prediction=predict(costs, setting, length, self.engine),
            rate_idle=by_rates(costs, setting),
            buffer_idle=by_buffer(costs, setting),
        )


def settled(point: RecordedPoint) -> bool:
    """Whether the setting has as many undisturbed trials as it wants, or as many attempts as it gets."""
    wanted = point.setting.repeats
    return len(point.clean) >= wanted or len(point.trials) >= wanted + ATTEMPTS


def _attempt(
    server: Server, point: RecordedPoint, usual: Mapping[int, float], group: QuotaGroup | None
) -> RecordedPoint:
    """The point with one more trial; which trials are disturbed is judged anew."""
    limit = group if point.setting.limit == "quota" else None
    # The usual time is that beside as many busy CPUs as the setting has, or the most below that was seen.
    usual_s = usual[max((count for count in usual if count <= point.setting.busy), default=min(usual))]
    order = Order(point.setting, point.step_s, point.length, usual_s, limit)
    measured: MeasuredTrial = server.ask(order, "running the real pipeline")
    return judged(replace(point, trials=(*point.trials, measured)))


def judged(point: RecordedPoint) -> RecordedPoint:
    """The point with its disturbed trials marked; they stay in the ledger and do not count."""
    least = min(_work(point, trial) for trial in point.trials)
    trials = (replace(t, dirty=disturbance(t, _work(point, t) / least - 1.0, point.step_s)) for t in point.trials)
    return replace(point, trials=tuple(trials))


def _work(point: RecordedPoint, trial: MeasuredTrial) -> float:
    """CPU seconds of a worker per batch, at the speed of the calibration."""
    return (trial.sample_s * point.setting.batch_size + trial.collate_s) / trial.slowdown


def disturbance(measured: MeasuredTrial, slower: float, step_s: float) -> str:
    """Why a trial with that emulated step does not count, or nothing.

    ``slower``: its work per batch over that of the setting's best, less 1.
    """
    if measured.lateness_s > MOST_LATE * step_s:
        return f"the timer of the emulated step was {1e3 * measured.lateness_s:.1f} ms late on average"
    if measured.others_cores > MOST_OTHERS * (os.cpu_count() or 1):
        return f"other programs used {measured.others_cores:.2f} cores"
    if slower > MOST_SLOWER:
        return f"the same work took {slower:.0%} more CPU time than in this setting's best trial"
    return ""
