"""The subject and the provenance of an answer: the words of its profile, and the settings that override them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from coresim.advise.recommend import Recommendation
from coresim.model import lock
from coresim.model.build import build
from coresim.model.crowding import on_cores, receiving, time_lost
from coresim.model.handover import AFTER_SPINNING, RELEASE, UNSEEN
from coresim.model.option import Option
from coresim.model.overrides import provenance_after
from coresim.model.profile import Profile
from coresim.model.profile_scenario import WAIT
from coresim.model.rebatch import asked_batch, step_spread
from coresim.model.receiving import ALONE, FED, SENDERS
from coresim.model.scenario import Scenario
from coresim.report.words import plural

#: What the first words of a step's provenance say.
_STEP = {"catalogue": "a record of another machine", "measured": "measured", "given": "as given"}


def step_provenance(profile: Profile | None, source: str | None, settings: Sequence[str]) -> str | None:
    """The provenance of the step time: a setting, the profile's own words, or the file that gives it."""
    given = None if source is None else f"as given in {source}"
    known = given if profile is None else profile.accelerator.provenance + _rebatched(profile, settings)
    return provenance_after(settings, "accelerator.step", known)


def _rebatched(profile: Profile, settings: Sequence[str]) -> str:
    """How a step of another batch follows from the profile's."""
    batch = asked_batch(profile.batch_size, settings)
    if batch is None:
        return ""
    spread = step_spread(profile.batch_size, batch)
    return f"; taken in proportion from a batch of {profile.batch_size} to {batch}, \u00b1{200 * spread:.0f} %"


def batch_provenance(profile: Profile, settings: Sequence[str]) -> str | None:
    """How the times of a batch follow from those that ran; None if the loader ran with the batch of the answer."""
    asked, ran = asked_batch(profile.batch_size, settings), profile.batch_that_ran
    batch = asked or profile.batch_size
    if batch == ran == profile.batch_size:
        return None
    moved = ["the step and copying"] * (batch != profile.batch_size) + ["collating"] * (batch != ran)
    small = next(iter(profile.numbered("receive.cpu@")), None)
    line = "between that and no change" if small is None else f"by a straight line through those of {small} and {ran}"
    partly = f", sending and receiving {line}" if batch != ran else ""
    remedy = f"; measure with --batch-size {batch} to know the step" if batch != profile.batch_size else ""
    scaled = f"{' and '.join(moved)} in proportion to the batch{partly}{remedy}"
    return f"measured with batches of {ran}, scaled to {batch}: {scaled}"


def profile_notes(profile: Profile, settings: Sequence[str] = ()) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The warnings of a profile, and what an answer from it and ``settings`` rests on besides the times, by lines."""
    notes = tuple(f"{what}: {value}; {remedy}" for what, value, remedy in profile.warnings)
    busy = provenance_after(settings, "host.speed", profile.speed_provenance)
    lines = [f"loader that ran: {profile.loader}", *([f"busy cores: {busy}"] if busy else [])]
    provenance = batch_provenance(profile, settings)
    if provenance is not None:
        lines.append(f"times of a batch: {provenance}")
    curve = [(count, found.mean) for count, found in profile.numbered("bandwidth.triad.").items()]
    if curve:
        known = ", ".join(f"{value / 1e9:.1f} GB/s with {plural(count, 'core')}" for count, value in curve)
        lines.append(f"memory bandwidth (STREAM triad): {known}; {_saturation(curve)}")
    return notes, (*lines, *_handed_over(profile))


def _handed_over(profile: Profile) -> Iterator[str]:
    """The rate that workers that only send reach, and whether that or preparing limits the measuring host's cores."""
    fed, busy = profile.numbered(FED), profile.numbered("scaling.")
    if not fed:
        return
    many, rate = max(fed), 1.0 / min(one.mean for one in fed.values())
    line = f"handing over alone: {rate:,.0f} samples/s at most from up to {plural(many, 'worker')} that prepare nothing"
    line += f" ({fed[many].how.partition(': ')[2].partition(';')[0]})"
    cores = max(busy, default=0)
    if cores and profile.get(WAIT) is None:
        prepared = cores / busy[cores].mean
        limit = "so preparing is the limit here" if prepared < rate else "so handing over may be the limit here"
        line += f"; preparing alone: {prepared:,.0f} on {plural(cores, 'core')}, {limit}"
    yield line


def input_lines(
    answer: Recommendation, profile: Profile | None, source: str | None, settings: Sequence[str]
) -> Iterator[str]:
    """Other inputs that change the answer, each with its value and its provenance; see `answer_of`."""
    given = f"as given in {source}" if source and profile is None else "as given"
    after = partial(provenance_after, settings)
    yield from _busy_line(answer, profile, given, settings)
    workload, host, loader = answer.scenario.workload, answer.scenario.host, answer.scenario.loader
    if host.siblings:
        known = after("host.siblings", given if profile is None else None)
        # Where nothing overrides it, the profile's line on busy cores says where it is from.
        if known:
            gain = f"{100 * host.siblings:.0f} % of a core"
            yield f"a second hardware thread adds {gain} where all cores are busy: {known}"
    yield from _cores_lines(answer, after("host.machine_cores", given))
    seen = given if profile is None else "measured in the running loader"
    point, cores = answer.point, answer.point.cores * answer.scenario.accelerator.count
    if lost := time_lost(answer.scenario, point.option, point.workers, cores):
        known = after("host.sharing_loss", seen)
        yield f"workers and trainer want all of these cores, so {100 * lost:.2g} % of their time is lost: {known}"
    if workload.shared_cv and loader.grain in ("batch", "split") and not answer.scenario.stages:
        known = after("workload.shared_cv", seen)
        yield f"batches vary by {100 * workload.shared_cv:.2g} % as a whole, beyond what their samples do: {known}"
    if _sends_beside(answer):
        known = after("workload.send_overlap", seen)
        share = f"{100 * workload.send_overlap:.0f} %"
        yield f"while cores are free, other threads of a worker do {share} of sending: {known}"
    if not workload.consumer.is_zero and answer.point.option != Option.NO_OVERLAP:
        if workload.release != RELEASE and answer.point.option == Option.OVERLAPPED:
            known, share = after("workload.release", seen), f"{100 * workload.release:.0f} %"
            yield f"freeing a batch is {share} of the trainer's CPU time to receive the next: {known}"
        workers = max(1, answer.point.workers)
        if workload.consumer_growth:
            known, growth = after("workload.consumer_growth", seen), f"{100 * workload.consumer_growth:.2g} %"
            yield f"each worker beyond the first adds {growth} to the time to receive a batch: {known}"
        ranks = answer.scenario.accelerator.count
        factor = receiving(replace(workload, consumer_growth=0.0), workers, ranks)
        if factor != 1.0:
            ran, sent = (0 if profile is None else max(profile.numbered(name), default=1) for name in (SENDERS, ALONE))
            more = f" with up to {ran} workers; beyond them with a trivial data set" if ran < min(workers, sent) else ""
            known = after("workload.consumer_by_workers", seen + more)
            beside = f", beside those of {ranks - 1} other ranks," if ranks > 1 else ""
            longer = f"{factor:.2f} times as long as from one"
            yield f"receiving a batch from {workers} workers{beside} takes {longer}: {known}"
    threads = loader.in_process and answer.point.option == Option.OVERLAPPED
    if loader.gil and (threads or answer.point.option == Option.STAGED):
        doubt = f"\u00b1{200 * lock.DEVIATION:.0f} points"
        known = f"assumed, {doubt}; measured with --staged" if loader.lock_passing == lock.PASSING else given
        if profile is not None and profile.get("lock.passing") is not None:
            known = f"measured with a loop of the interpreter, {doubt} for other work"
        passing = f"{100 * loader.lock_passing:.0f} %"
        yield f"{100 * loader.gil:.0f} % of preprocessing holds the interpreter's lock: {after('loader.gil', given)}"
        yield f"passing the lock between threads adds up to {passing} to that: {after('loader.lock_passing', known)}"


def _sends_beside(answer: Recommendation) -> bool:
    """Whether workers leave a part of sending to threads on cores that are free."""
    scenario, point, loader = answer.scenario, answer.point, answer.scenario.loader
    if point.option != Option.OVERLAPPED or loader.in_process or loader.grain == "sample" or scenario.stages:
        return False
    found = on_cores(scenario, point.workers, point.cores * scenario.accelerator.count)
    return found.workload.send.mean < scenario.workload.send.mean


def _cores_lines(answer: Recommendation, known: str | None) -> Iterator[str]:
    """The limit of the answer's cores, by what is ``known``, and how long a spinning trainer waits for them."""
    scenario, point = answer.scenario, answer.point
    host, count = scenario.host, scenario.accelerator.count
    if host.machine_cores and host.machine_cores > point.cores * count:
        yield f"cores are a quota of CPU time in each 100 ms, on up to {host.machine_cores:g} cores at once: {known}"
    line = build(scenario, point.option, point.cores * count, point.workers, point.prefetch_factor)
    found, alone = on_cores(scenario, point.workers, point.cores * count), scenario.workload.handover
    is_handed = point.option == Option.OVERLAPPED and line.trainer.handover
    if is_handed and found.workload.handover.services() != alone.services():
        longer = (count + 1) / host.width(point.cores * count)
        yield (
            f"{count} trainers take batches at once, so what they wait for in a crowd that was not measured is taken to"
            f" be {longer:.1f} times as long: assumed, \u00b1{200 * UNSEEN:.0f} %;"
            " calibration/ranks-met.note.md compares it with trials"
        )
    if line.trainer.spin and line.trainer.handover and line.busiest() > line.width:
        yield (
            f"a trainer that spins waits {1e3 * AFTER_SPINNING.mean:.1f} ms longer for a batch that is ready where more"
            " want a core than there are: measured on one host by calibration/probe_spinning.py"
        )


def _busy_line(answer: Recommendation, profile: Profile | None, given: str, settings: Sequence[str]) -> Iterator[str]:
    """s(k) where all of the answer's cores are busy, and what it is beyond those that were measured."""
    host, count = answer.scenario.host, answer.scenario.accelerator.count
    cores, known = round(host.width(answer.point.cores * count)), len(host.speed)
    if known == 1 or cores == 1:
        return
    most = min(cores, known)
    value, spread = host.speed[most - 1], 2 * host.speed_uncertainty_at(most)
    line = f"each of {cores} busy cores works at {100 * value:.0f} % of its speed alone"
    line += f", \u00b1{100 * spread:.0f} %" if spread >= 0.005 else ""
    measured = 0 if profile is None else max(profile.numbered("scaling."), default=1)  # by the calibration
    from_profile = profile is not None and provenance_after(settings, "host.speed", None) is None
    if not from_profile:
        yield f"{line}: {provenance_after(settings, 'host.speed', given)}{_held(cores, known)}"
    elif cores <= measured:
        yield f"{line}: measured{_held(cores, known)}"
    else:
        lost = (host.speed[measured - 1] - value) / max(1, most - measured)
        yield (
            f"{line}: {measured} were measured; each beyond them is taken to cost {100 * lost:.1f} % of it, by what the"
            f" line on busy cores says{_held(cores, known)}"
        )


def _held(cores: int, known: int) -> str:
    return f"; s(k) is known for {known} cores, and more are taken to be no slower" if cores > known else ""


def _saturation(curve: list[tuple[int, float]]) -> str:
    """Fewest cores with 95 % of the best: saturated if they are not all that there are."""
    best = max(value for _, value in curve)
    enough = min(count for count, value in curve if value >= 0.95 * best)
    last = curve[-1][0]
    return f"saturated by {enough} of {last} cores" if enough < last else f"not saturated by the {last} measured"


def subject_of(scenario: Scenario, profile: Profile | None) -> tuple[tuple[str, str], ...]:
    """Data set, loader that ran, GPU, host and the day of measuring, as far as they are known."""
    device, host = scenario.accelerator, scenario.host
    batch = scenario.workload.batch_size
    data = f"{profile.workload}, " if profile else ""
    ran = f", measured with {profile.batch_that_ran}" if profile and profile.batch_that_ran != batch else ""
    count = f"{device.total} x " if device.total > 1 else ""
    machine = [profile.host.cpu_model] if profile and profile.host.cpu_model else []
    machine += [plural(host.cores, "core")] if host.cores is not None else []
    found = [
        ("data set", f"{data}batch of {batch}{ran}"),
        ("loader", profile.loader if profile else ""),
        ("GPU", f"{count}{device.name}" if device.name else f"{count}not named"),
        ("host", ", ".join(machine) or "not named"),
        ("measured", profile.provenance.time_utc[:10] if profile else ""),
    ]
    return tuple((name, value) for name, value in found if value)


def provenance_words(scenario: Scenario, step_provenance: str | None) -> str:
    """The provenance of the two most important numbers in one line: the step, and the cost of a sample."""
    parts = []
    if step_provenance is not None:
        words = step_provenance if len(step_provenance) < 80 else "see below"
        known = _STEP.get(step_provenance.partition(":")[0], words)
        parts.append(f"step: {known}{_range(scenario.accelerator.step.uncertainty)}")
    cost = scenario.workload.preprocess
    if not cost.is_zero:
        parts.append(f"cost of a sample: {'measured' if cost.values else 'as given'}{_range(cost.uncertainty)}")
    return "; ".join(parts)


def _range(uncertainty: float) -> str:
    """Two standard uncertainties each way; empty if there are none."""
    return f", \u00b1{200 * uncertainty:.0f} %" if uncertainty >= 0.0025 else ""


def warnings(notes: tuple[str, ...]) -> str:
    """The subject of each warning; its remedy stands in the provenance."""
    return "; ".join(note.partition(";")[0] for note in notes)


def merged(notes: Sequence[str]) -> list[str]:
    """The warnings in their order; those with the same remedy are merged into one."""
    alike: dict[str, list[str]] = {}
    cures: dict[str, str] = {}
    for note in dict.fromkeys(notes):
        what, _, cure = note.partition("; ")
        key = cure.partition(",")[0]
        alike.setdefault(key, []).append(what)
        cures[key] = max(cures.get(key, ""), cure, key=len)
    return [", ".join(whats) + (f"; {cures[key]}" if cures[key] else "") for key, whats in alike.items()]
