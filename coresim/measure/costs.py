"""Turn the runs of a calibration into measurements with names and units, which a profile keeps."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from coresim import stats
from coresim.measure.calibrate import ROUNDS, Calibration, CalibrationRun
from coresim.measure.handover import LEAST_SEEN, LEAST_SENT, overlap, pickled, pinning, sending, waits_by_state
from coresim.measure.machine_speed import shared_cv
from coresim.measure.notes import Note
from coresim.measure.pacing import PACED_STEP, STREAMED, UNUSUAL
from coresim.measure.scaling import speeds
from coresim.measure.subject import Layout
from coresim.measure.waits import HOW, busiest, waits_of
from coresim.model.handover import THREADS
from coresim.model.measurement import Measurement
from coresim.model.rebatch import RELEASED

#: Values that are kept of one round; and of its waits, because the longest hold up an ordered loader or a barrier.
MOST_VALUES, MOST_WAITS = 400, 2000
#: A worker's wait without a core until its first batch is reported from this on, s; built-in jobs showed 5 ms of noise.
NOTABLE_START_S = 0.05


def measurements(found: Calibration) -> list[Measurement]:
    """All that the runs show; each inner tuple is one round, which had new workers.

    Times are CPU seconds at the calibration's usual machine speed; waits and starts are wall seconds.
    """
    lone, waits, runs = _telling(found)
    parts = (_samples(found, runs, waits), _batches(found, runs), _receiving(found, runs), speeds(found, _most(found)))
    used = () if waits else _used(found)  # workers that wait leave CPUs to rest
    return [*itertools.chain.from_iterable(parts), *used, *_workers(found, lone), *_machine(found)]


def usual_sampler_times(found: Calibration) -> Mapping[int, float]:
    """CPU seconds of the sampler's work at the machine's speed that the costs refer to, by the number of busy CPUs.

    If samples wait, it is one time for any number: that of the runs which the costs come from.
    """
    lone, _, telling = _telling(found)
    return found.usual_sampler_s if telling == lone else {1: found.usual_sampler_s[telling[0].workers]}


def _telling(found: Calibration) -> tuple[list[CalibrationRun], list[list[float]], list[CalibrationRun]]:
    """The runs with the fewest workers, how long their samples wait, and the runs that the costs of work come from."""
    lone = found.of(min(found.counts))
    waits = waits_of(found, lone)
    return lone, waits, busiest(found, lone) if waits and not found.subject.threads else lone


def _most(found: Calibration) -> int:
    """The most workers that are no crowd: as many as CPUs, or the fewest if the loader runs with no fewer."""
    return max(found.cpus, min(found.counts))


def _machine(found: Calibration) -> Iterator[Measurement]:
    """How the machine's speed changed, and how much of it other programs took."""
    rounds = [tuple(runs) for _, runs in itertools.groupby(found.runs, lambda run: run.round)]
    speeds = tuple(tuple(1.0 / found.slower(run) for run in runs) for runs in rounds)
    text = "by the same few samples, prepared again and again on each CPU during every run; 1 is the calibration's mean"
    yield Measurement("machine.speed", "relative", speeds, text)
    used = tuple((stats.mean([run.others for run in runs]) / found.cpus,) for runs in rounds)
    yield Measurement("machine.others", "relative", used, "share of all CPUs that other programs used meanwhile")


def _who(found: Calibration, runs: Sequence[CalibrationRun]) -> str:
    count = runs[0].workers
    return f"{found.subject.loader}, {count} worker{'' if count == 1 else 's'}"


def _samples(
    found: Calibration, runs: Sequence[CalibrationRun], waits: Sequence[Sequence[float]]
) -> Iterator[Measurement]:
    how = f"{_who(found, runs)}; per sample, in the worker"
    threads = found.subject.threads
    values = [
        [value / found.slower(run) for note in run.later for value in (note.wall if threads else note.cpu)]
        for run in runs
    ]
    yield Measurement("prepare.sample", "s/sample", _kept(values), f"{how}; {'wall' if threads else 'CPU'} time")
    if cv := shared_cv(runs):
        text = f"{_who(found, runs)}; of a batch's samples together, beyond what they vary independently"
        yield Measurement("prepare.shared_cv", "relative", ((cv,),), text)
    if waits:
        yield Measurement("prepare.wait", "s/sample", _kept(waits, MOST_WAITS), f"{how}; {HOW}")
    yield from _steps(found, runs, how)


def _steps(found: Calibration, runs: Sequence[CalibrationRun], how: str) -> Iterator[Measurement]:
    """The steps of a sample if the data set shows them: its CPU time, in the proportions of the split samples."""
    names = found.subject.steps
    if len(names) < 2:
        return
    totals = [
        [sum(note.steps[place] for note in run.later if note.steps) for place in range(len(names))] for run in runs
    ]
    cpu = [stats.mean([value for note in run.later for value in note.cpu]) / found.slower(run) for run in runs]
    for place, name in enumerate(names):
        shares = [spent[place] / sum(spent) * mean for spent, mean in zip(totals, cpu, strict=True) if sum(spent) > 0]
        if shares:
            text = f"{how}; its share of prepare.sample, from every eighth sample"
            yield Measurement(f"prepare.step.{name}", "s/sample", tuple((share,) for share in shares), text)


def _batches(found: Calibration, runs: Sequence[CalibrationRun]) -> Iterator[Measurement]:
    who = _who(found, runs)
    collate = [[note.collate / found.slower(run) for note in run.later] for run in runs]
    yield Measurement("prepare.collate", "s/batch", _kept(collate), f"{who}; CPU seconds per batch, collation")
    if found.inline:
        told = [zip(run.trial.steps, run.trial.notes, strict=True) for run in found.inline]
        # So the loader itself and freeing the batch before are in it.
        alone = [[max(0.0, step.cpu - float(sum(note.cpu))) for step, note in pairs] for pairs in told]
        text = f"{found.subject.loader}, no worker; CPU seconds of the trainer per batch beyond its samples: collation"
        yield Measurement("inline.collate", "s/batch", _kept(alone), text)
    if found.subject.threads:
        return
    send = [[value / found.slower(run) for value in sending(run)] for run in runs]
    text = "time of a worker without a pause, or of all its threads, per batch beyond samples and collation: sending it"
    yield Measurement("prepare.send", "s/batch", _kept(send), f"{who}; {text}")
    if runs[0].workers < found.cpus and (share := overlap(runs)):
        text = "share of sending that other threads of a worker do while it prepares, on a core that is free"
        yield Measurement("prepare.send_overlap", "share", ((share,),), f"{who}; {text}")


def _receiving(found: Calibration, telling: Sequence[CalibrationRun]) -> Iterator[Measurement]:
    if found.subject.threads:
        copies = [[note.copy / found.slower(run) for note in run.later] for run in found.of(found.counts[0])]
        yield Measurement("receive.cpu", "s/batch", _kept(copies), "CPU seconds of a thread of its own to copy a batch")
        how = f"{found.subject.loader}; wall seconds of the trainer to take a batch that is ready, after a step"
        taken = _often(seen := _taken(found), 1) or seen
        yield from (Measurement(f"receive.{state}", "s/batch", _kept(taken[state]), how) for state in taken)
        return
    how = f"{found.subject.loader}; per batch, in the trainer"
    for count in found.counts:
        runs = found.of(count)
        values = [[step.cpu / found.slower(run) for step in run.received] for run in runs]
        name = "receive.cpu" if count == 1 else f"receive.cpu.{count}"
        yield Measurement(name, "s/batch", _kept(values), f"{_who(found, runs)}; per batch, in the trainer; CPU time")
        if count == min(found.counts):
            freed = [[step.freed / found.slower(run) for step in run.received] for run in runs]
            yield Measurement(RELEASED, "s/batch", _kept(freed), f"{how}; the part that frees the batch before")
    # Without a step in between, the trainer asks before the maker's sending thread gets the interpreter's lock from the
    # next samples. The wait then includes sending: up to three times as long as in a training (docs/frameworks.md).
    seen = _seen(found)
    often = partial(_often, least_rounds=min(ROUNDS, len({run.round for run in found.runs})))
    for state, rounds in ({**often(seen), **often(_seen(found, paced=True))} or seen).items():
        text = f"{how}; waiting for a batch that is ready, beyond the trainer's CPU time, its state {state}"
        yield Measurement(f"receive.{state}", "s/batch", _kept(rounds), text)
    if pages := [[value / found.slower(run) for value in run.pages[1:]] for run in telling if run.pages[1:]]:
        yield Measurement("receive.pages", "s/batch", _kept(pages), f"{how}; CPU seconds to map its pages")
    pinned = [(run, batches) for run in telling if (batches := pinning(run.trial, run.later))]
    if pinned:
        how = f"{found.subject.loader}; per batch, of the thread that pins"
        pins = [[cpu / found.slower(run) for cpu, _ in batches] for run, batches in pinned]
        yield Measurement("prepare.pin", "s/batch", _kept(pins), f"{how}; CPU seconds")
        waits = tuple((max(0.0, stats.mean([wait for _, wait in batches])),) for _, batches in pinned)
        yield Measurement("receive.pin", "s/batch", waits, f"{how}; wall seconds beyond them")


def _often(seen: Mapping[str, list[list[float]]], least_rounds: int) -> dict[str, list[list[float]]]:
    """The states that were seen often, and in so many rounds at least."""
    least = {state: LEAST_SENT if state.startswith("send") else LEAST_SEEN for state in seen}
    enough = {state for state, rounds in seen.items() if sum(map(len, rounds)) >= least[state]}
    return {state: seen[state] for state in seen if state in enough and len(seen[state]) >= least_rounds}


def _seen(found: Calibration, paced: bool = False) -> dict[str, list[list[float]]]:
    """The waits for hand-overs, by state and round; ``paced``: only those with a step before them."""
    states: dict[str, dict[int, list[float]]] = {}
    pickling = pickled(found)[1]
    for run in (run for count in found.counts for run in found.of(count)):
        others = run.others if found.disturbed(run) else 0.0
        steps = run.trial.steps
        wanted = [not paced, *(not paced or before.end > before.start for before in steps[:-1])]
        if run.later:
            wanted = [one and kind not in UNUSUAL for one, kind in zip(wanted, run.kinds, strict=True)]
        seen = waits_by_state(run.trial, run.workers, Layout.prefetch_factor, found.cpus, others, pickling, wanted)
        for state, values in seen.items():
            states.setdefault(state, {}).setdefault(run.round, []).extend(values)
    return {state: list(rounds.values()) for state, rounds in states.items()}


def _taken(found: Calibration) -> dict[str, list[list[float]]]:
    """How long a trainer whose threads make the batches waits for a batch that is ready, by state and round."""
    states: dict[str, dict[int, list[float]]] = {}
    for run in (run for count in found.counts for run in found.of(count)):
        for kind, step in zip(run.kinds, run.trial.steps[1:], strict=False):
            if kind == PACED_STEP:  # before this one, so the threads had worked meanwhile
                state = THREADS[step.ready > step.asked]
                taken = step.got - max(step.asked, step.ready)
                states.setdefault(state, {}).setdefault(run.round, []).append(taken)
    return {state: list(rounds.values()) for state, rounds in states.items()}


def _used(found: Calibration) -> Iterator[Measurement]:
    """The share of the CPUs' time that the job had while it wanted all of them; with few batches it may exceed 1.

    A CPU rests until the scheduler moves a task to it, other programs run, and a hypervisor takes turns.
    """
    counts = [count for count in found.counts if count >= found.cpus > 1 and not found.subject.threads]
    rounds: dict[int, list[float]] = {}
    for run in (run for count in counts for run in found.of(count) if not found.disturbed(run)):
        if (share := _used_share(run, found)) is not None:
            rounds.setdefault(run.round, []).append(share)
    if len(rounds) >= ROUNDS:
        how = f"{found.subject.loader}, as many workers as CPUs, or more, without a pause; share of the CPUs' time"
        yield Measurement("cores.used", "share", tuple(map(tuple, rounds.values())), f"{how} that its tasks had")


def _used_share(run: CalibrationRun, found: Calibration) -> float | None:
    """The share of the CPUs' time of workers, trainer and sampler; None if a worker made fewer than two batches."""
    streamed = [number for number, kind in enumerate(run.kinds) if kind == STREAMED]
    steps, notes = [run.trial.steps[number] for number in streamed], [run.trial.notes[number] for number in streamed]
    made: dict[int, list[Note]] = {}
    for note in notes:
        made.setdefault(note.worker, []).append(note)
    if len(made) < run.workers or min(map(len, made.values())) < 2:
        return None
    used = sum((own[-1].process - own[0].process) / (own[-1].began - own[0].began) for own in made.values())
    # The trainer receives, its thread may pin, and it may read; its very first batch is no step of the trial.
    trainer = [step.cpu for step in steps[1:]] + [cpu for cpu, _ in pinning(run.trial, notes[1:])]
    trainer += [run.pages[number + 1] for number in streamed[1:]] if run.pages else []
    return (used + sum(trainer) / (steps[-1].end - steps[0].end)) / found.cpus + found.sampled


def _workers(found: Calibration, lone: Sequence[CalibrationRun]) -> Iterator[Measurement]:
    if found.subject.threads:
        return
    how = f"{found.subject.loader}, new workers"
    most = found.of(max(count for count in found.counts if count <= _most(found)))
    starts = tuple((run.start_s / run.workers,) for run in most)
    yield Measurement("worker.start", "s/worker", starts, f"{how}; wall seconds of the trainer, one after the other")
    first = tuple((max(0.0, _first(run)) / found.slower(run),) for run in lone)
    text = f"{how}; CPU seconds until the first batch, and what its first calls add"
    yield Measurement("worker.first", "s/worker", first, text)
    waits = tuple((_start_wait(run),) for run in lone)
    if all(wait for (wait,) in waits):
        text = f"{how}; wall seconds without a core until the first batch is made, beyond what later ones wait"
        yield Measurement("worker.wait", "s/worker", waits, text)
    for part in ("private", "shared"):
        sizes = [[float(getattr(memory, part)) for memory in run.memory] for run in most if run.memory]
        if sizes:
            yield Measurement(
                f"worker.{part}", "B/worker", tuple(map(tuple, sizes)), f"{how}; {part} memory, no batches"
            )
    threads = [run.threads for run in lone if run.threads is not None]
    if threads:
        text = f"{how}; threads with at least a tenth of the CPU time of the busiest"
        yield Measurement("threads.worked", "threads", tuple((float(count),) for count, _ in threads), text)
        text = f"{how}; CPU time of all threads over that of the busiest"
        yield Measurement("threads.spread", "threads", tuple((spread,) for _, spread in threads), text)


def _first(run: CalibrationRun) -> float:
    note = run.trial.warm_up[0]
    usual = [sum(one.cpu) + one.collate for one in run.later]
    return float(note.process + sum(note.cpu) + note.collate - stats.mean(usual))


def _start_wait(run: CalibrationRun) -> float:
    """Seconds that the first worker neither worked nor queued for a core, until its first batch and in its samples.

    Later batches' waits are taken off. It is 0 unless it is notable, because waits of samples vary by chance.
    """
    note = run.trial.warm_up[0]
    if note.waited is None or note.queued is None:
        return 0.0
    first, *later = (float(sum(one.wall) - sum(one.cpu) - (one.queued or 0.0)) for one in (note, *run.later))
    wait = note.began - run.started - note.process - note.waited + first - stats.mean(later)
    return wait if wait > NOTABLE_START_S + max(0.0, stats.mean(later)) else 0.0


def _kept(rounds: Sequence[Sequence[float]], most: int = MOST_VALUES) -> tuple[tuple[float, ...], ...]:
    """At most so many of each round, with the same mean and about the same spread."""
    return tuple(_fewer(values, most) for values in rounds if values)


def _fewer(values: Sequence[float], most: int) -> tuple[float, ...]:
    """Means of neighbours in size. To pick one of them instead would let chance decide whether the largest is kept."""
    ordered, size = sorted(values), math.ceil(len(values) / most)
    ends = range(len(ordered) % size or size, len(ordered) + 1, size)  # the least values may have fewer neighbours
    found = [stats.mean(ordered[max(0, end - size) : end]) for end in ends] if size > 1 else list(values)
    scale = stats.mean(values) / stats.mean(found) if stats.mean(found) > 0 else 1.0
    return tuple(value * scale for value in found)
