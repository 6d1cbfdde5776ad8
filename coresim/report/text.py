"""The sentences of a recommendation, which every form of it shares."""

from __future__ import annotations

from coresim.advise.candidates import most_workers
from coresim.advise.memory import memory_of
from coresim.advise.recommend import Recommendation
from coresim.advise.sweep import Point
from coresim.model.crowding import crowding
from coresim.model.option import Option
from coresim.model.scenario import Scenario
from coresim.model.storage import data_bytes, misses_of, tiers
from coresim.report.doubt import recorded_words, sure_words
from coresim.report.settings import crowding_text, loader_settings, memory_text, node_words, unlimited_text
from coresim.report.words import interval, option_words, percent, plural
from coresim.sim.estimate import Estimate
from coresim.units import format_bytes, format_duration


def headline(answer: Recommendation, step_provenance: str | None = None) -> tuple[str, ...]:
    """The answer; if no core count meets the target, that, and as a second text the nearest setting.

    ``step_provenance``: the provenance of the step time; a recorded step is named.
    """
    point, target = answer.point, answer.scenario.target.gpu_idle
    idle = f"GPU idle {interval(point.estimate)}"
    if not answer.meets_target:
        verdict, tried = answer.verdict, max(point.cores for option in answer.options for point in option.curve)
        short = verdict.name in ("too few cores", "too few workers")
        why = f"Limited to {plural(tried, 'core')} per GPU" if short else "More cores will not help"
        node = node_words(answer).removesuffix("; ")
        none = f"{node} come nearest: no" if node else "No"
        return (
            f"{none} core count tried keeps the GPU idle within {percent(target)}. {why}: {verdict.name}.",
            f"Nearest: {plural(point.cores, 'CPU core')} per GPU, {setting_words(point)}{_lock_words(answer)}: {idle}.",
        )
    sure = sure_words(answer)
    return (
        f"{node_words(answer)}{plural(point.cores, 'CPU core')} per GPU{recorded_words(answer, step_provenance)},"
        f" {setting_words(point)}{_lock_words(answer)}: {idle}, target {percent(target)}. {sure[0].upper()}{sure[1:]};"
        f" {core_range(answer)}.",
    )


def knows_no_lock(answer: Recommendation) -> bool:
    """Whether the answer has threads, and the share of time that they hold the interpreter's lock is not known."""
    known = answer.scenario.loader.gil or answer.scenario.preset.usual_option == Option.STAGED
    return not known and answer.point.option == Option.STAGED


def _lock_words(answer: Recommendation) -> str:
    return ", if no thread waits for Python's lock" if knows_no_lock(answer) else ""


def core_range(answer: Recommendation) -> str:
    """The interval of the core count, and the hardware threads if a core has several."""
    low, high = answer.cores_low, answer.cores_high
    span = (
        f"{100 * answer.point.estimate.level:g} % interval {low} to {high if high is not None else 'more than tried'}"
    )
    threads = answer.scenario.host.threads_per_core
    return span + (f"; {plural(answer.hardware_threads, 'hardware thread')}" if threads > 1 else "")


def setting_words(point: Point) -> str:
    """The option and its workers."""
    if point.option == Option.NO_OVERLAP:
        return f"{option_words(point.option)}, in the trainer's own process"
    return f"{option_words(point.option)} with {plural(point.workers, 'worker')}"


def provenance_lines(answer: Recommendation, step_provenance: str | None, provenance: tuple[str, ...]) -> list[str]:
    """What the answer rests on and what it leaves out, one line each."""
    scenario = answer.scenario
    step = format_duration(scenario.accelerator.step.mean)
    rate = scenario.workload.batch_size / scenario.accelerator.step.mean
    sample, source = scenario.workload.preprocess, step_provenance or "as given"
    shape = "as measured" if sample.distribution == "values" else sample.distribution
    lines = [
        f"a step of {step} for a batch of {scenario.workload.batch_size} ({rate:.0f} samples/s): {source}",
        f"{format_duration(sample.mean)} of CPU time to prepare a sample ({shape}, cv {sample.cv:.2f})",
        *provenance,
    ]
    if scenario.stages:
        lines[1] = "stages of its own: " + "; ".join(
            f"{stage.name}, {plural(stage.servers, 'server')}, {format_duration(stage.service.mean)} a {stage.grain}"
            for stage in scenario.stages
        )
    lines += storage_lines(scenario)
    times = {"launch": scenario.accelerator.launch}
    if scenario.accelerator.copies:
        times |= {"pin": scenario.workload.pin, "copy": scenario.workload.copy}
    left_out = [name for name, time in times.items() if time.is_zero]
    if left_out and not scenario.stages:
        lines.append(f"not included, because not known: the time to {', '.join(left_out)}")
    return lines


def storage_lines(scenario: Scenario) -> list[str]:
    """The storage tier that samples are read from, and the share that the page cache misses."""
    lines, fetch = [], scenario.workload.fetch
    if scenario.host.storage is not None:
        tier = tiers()[scenario.host.storage]
        lines.append(f"samples from {tier.what} ({tier.certainty}: {tier.source})")
    misses = misses_of(scenario)
    if misses is None:
        return lines
    size, memory = format_bytes(data_bytes(scenario) or 0.0), format_bytes(scenario.host.memory_bytes or 0.0)
    sizes = f"a data set of {size} in {memory}"
    if misses.share and not fetch.is_zero:
        lines.append(
            f"{sizes} of memory: {100 * misses.share:.0f} % of reads miss the page cache"
            f" (+-{200 * misses.uncertainty:.0f} points; fewer bytes are left for it when the job itself needs memory)"
        )
    elif scenario.host.storage is not None and fetch.is_zero:
        lines.append(
            f"{sizes} of memory stays there: storage is read in the first epoch only, which is not predicted; is the"
            " real set larger, set workload.dataset_bytes"
        )
    return lines


def loader_text(answer: Recommendation) -> str:
    """The settings of the preset's loader, and the memory that they need."""
    scenario = answer.scenario
    option = next((found for found in answer.options if found.option == scenario.preset.usual_option), None)
    best = None if option is None or scenario.stages else option.answer or option.knee
    if best is None:
        return ""
    if answer.point.option == best.option:
        best = answer.point
    idle = percent(best.estimate.gpu_idle)
    if answer.meets_target and best.estimate.gpu_idle > scenario.target.gpu_idle:
        idle += ", over the target"
    parts = [
        f"With {scenario.preset.system} ({plural(best.cores, 'core')}, GPU idle {idle}):"
        f" {loader_settings(scenario, best.workers, best.prefetch_factor)}"
    ]
    memory = memory_of(scenario, best.workers, best.prefetch_factor)
    if memory is not None and best.option == Option.OVERLAPPED:
        parts.append(f"memory: {memory_text(memory)}")
    crowded = crowding(scenario, best.workers, best.cores * scenario.accelerator.count)
    if crowded is not None:
        parts.append(crowding_text(crowded))
    if answer.unlimited is not None:
        parts.append(unlimited_text(answer.unlimited))
    return "; ".join(parts)


def evidence_lines(answer: Recommendation) -> list[str]:
    """The lower bound, the limit of memory bandwidth, and the rule of thumb."""
    bound, scenario = answer.lower_bound, answer.scenario
    found = f"{bound.numbers}, so no fewer than {bound.whole}"
    if bound.whole is None:
        found = f"no number of cores reaches the target{_unreachable(answer)}"
    lines = [f"Lower bound: {bound.formula}; {found}"]
    if len(scenario.host.speed) == 1:
        lines.append("Memory bandwidth: s(k) is not known; busy cores are taken not to slow one another down")
    elif answer.saturating_cores is None:
        lines.append(f"Memory bandwidth: not saturated by {len(scenario.host.speed)} cores of this work")
    else:
        lines.append(f"Memory bandwidth: saturated by {plural(answer.saturating_cores, 'core')} of this work")
    lines.append(
        f"Rule of thumb (1 per GPU + 1 per worker + 4 per node): {plural(answer.rule_of_thumb_cores, 'core')} for the"
        f" node of {plural(scenario.accelerator.count, 'GPU')}"
    )
    if answer.epoch_start is not None:
        start = answer.epoch_start
        lines.append(
            f"Every epoch starts with {format_duration(start.persistent_s)} lost; without persistent workers"
            f" {format_duration(start.respawned_s)}"
        )
    return lines


def _unreachable(answer: Recommendation) -> str:
    """Why no number of cores reaches the target: too few tasks to use them, or another bound."""
    bound, point = answer.lower_bound, answer.point
    numbers = bound.numbers.removeprefix(f"{bound.binding}: ")
    if not bound.binding.startswith("cores"):
        return f": the bound is {bound.binding}, {numbers}"
    most = most_workers(answer.scenario, point.option, point.cores)
    tasks = "in the trainer alone" if point.option == Option.NO_OVERLAP else f"with {plural(most, 'worker')}"
    return f" {tasks}, which can use no more of them: {numbers}"


def interval_sources(estimate: Estimate) -> str:
    """The width of the interval and its sources."""
    return (
        f"Interval ({percent(estimate.level)}):"
        f" {_halves(estimate.simulation_half_low, estimate.simulation_half_high)} points from simulating"
        f" {estimate.replications} x {estimate.steps} steps,"
        f" {_halves(estimate.input_half_low, estimate.input_half_high)} from uncertain inputs"
        + (f", +-{100 * estimate.model_half:.2f} from what the model itself misses" if estimate.model_half else "")
    )


def _halves(low: float, high: float) -> str:
    """How far an interval reaches below and above, in points."""
    below, above = (f"{100 * half:.2f}" for half in (low, high))
    return f"+-{above}" if below == above else f"-{below} +{above}"
