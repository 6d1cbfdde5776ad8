"""The first part of an answer, the same in every format: the headline, the facts, and a summary in a few sentences."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from coresim.advise.recommend import Recommendation
from coresim.advise.verdict import GPU_BOUND
from coresim.report import doubt, text
from coresim.report.provenance import merged, provenance_words, warnings
from coresim.report.words import interval, percent, plural

if TYPE_CHECKING:
    from coresim.report.answer import Answer

#: The beginnings of warnings that change the answer; other warnings at most widen its interval.
CHANGING = (
    "a recorded step stands in",
    "a built-in step was timed",
    "the CUDA device here was not measured",
    "libraries run threads",
    "the quota stops",
    "affinity is far below",
    "the machine was busy while costs were measured",
    "the loop takes batches from several loaders",
    "/dev/shm is small",
)
#: Two standard uncertainties of a step from which on nothing is gained by measuring anything else.
VAGUE = 0.1
#: What the verdict is called.
HOLDS_BACK = "What holds the GPU back"
#: How the entry of a warning begins.
WARNING = "Warning: "


def short_headline(result: Recommendation) -> str:
    """The answer in a few words."""
    if result.meets_target:
        return f"{plural(result.point.cores, 'CPU core')} per GPU"
    if result.verdict.name in ("too few cores", "too few workers"):
        return "Not enough CPU cores"
    return f"More CPU cores will not help: {result.verdict.name}"


def facts(answer: Answer) -> Iterator[tuple[str, str]]:
    """The answer as facts, in the order in which readers ask."""
    result, point = answer.result, answer.result.point
    if answer.today_section.blocks:
        yield "Today", answer.today_section.words.removeprefix("Today: ")
    if not result.meets_target:
        yield "Answer", text.headline(result)[0]
        yield "What would help", result.verdict.advice
        yield "Nearest", plural(point.cores, "CPU core") + " per GPU"
    target = f"target {percent(result.scenario.target.gpu_idle)}, met with probability {result.probability:.2f}"
    yield "Predicted GPU idle", f"{interval(point.estimate)}, {target}"
    sources = provenance_words(result.scenario, answer.step_provenance)
    if sources:
        yield "Provenance", sources
    if answer.notes:
        yield "Warnings", warnings(answer.notes)
    if result.meets_target:
        yield "Cores per GPU", f"{point.cores} ({text.core_range(result)}); {doubt.sure_words(result)}"
    yield "Settings", text.setting_words(point)
    loader = text.loader_text(result)
    if loader:
        yield "DataLoader", loader.removeprefix("With a DataLoader ")
    yield HOLDS_BACK, _bottleneck(result)
    yield "One core short", one_short(result)
    count = result.scenario.accelerator.count
    together = f", {plural(count, 'GPU')} together" if count > 1 else ""
    yield "Throughput", f"{point.estimate.throughput_samples_per_s:.0f} samples/s{together}"
    own = result.own_host
    if own is not None:
        rate = own.point.estimate.throughput_samples_per_s
        words = f"{own.verdict.name}, GPU idle {interval(own.point.estimate)}, {rate:.0f} samples/s"
        if own.verdict.name != "GPU-bound" and own.cores != point.cores:
            words += f"; what would help there: {own.verdict.advice}"
        yield f"On the host's {own.cores:g} cores per GPU", words


def one_short(result: Recommendation) -> str:
    """The cost of one core fewer than recommended, from the curve of the recommended option."""
    point = result.point
    less = next((found for found in result.chosen.curve if found.cores == point.cores - 1), None)
    if less is None:
        return "no fewer cores than this were simulated" if point.cores > 1 else "there is no fewer than one core"
    lost = 1.0 - less.estimate.throughput_samples_per_s / point.estimate.throughput_samples_per_s
    # Two points of a flat curve differ by their noise alone.
    change = f"{100 * lost:.1f} % fewer samples/s" if lost >= 0.0005 else "no fewer samples/s"
    return f"with {less.cores}: GPU idle {interval(less.estimate)}, {change}"


def summary(told: Answer) -> list[str]:
    """The whole answer in entries: what changes it, the answer, the job, how sure, settings, the bottleneck, and next.

    An entry is a sentence, or a subject with clauses that semicolons separate.
    """
    answer = told.result
    *before, last = text.headline(answer, told.step_provenance)
    measure_first = doubt.doubt_line(answer)
    known = [(name, value) for name, value in told.subject if name not in ("measured", "loader")]
    about = "; ".join(f"GPU {value}" if name == "GPU" else value for name, value in known)
    settings = text.loader_text(answer)
    if answer.point.option == answer.scenario.preset.usual_option:
        settings = re.sub(r" \([^)]*\):", ":", settings, count=1)  # the first line says so already
    entries = [f"{WARNING}{note}" for note in merged(told.notes) if note.startswith(CHANGING)]
    entries += [*before, f"{last.removesuffix('.')}; {doubt.rate_words(answer.per_rate)}."]
    entries += [measure_first] if measure_first else []
    entries += [f"On: {about}"] if about else []
    entries.append(f"How sure: {_sure(told)}")
    entries += [settings] if settings else []
    entries.append(f"{HOLDS_BACK}: {'; '.join(filter(None, [_bottleneck(answer), doubt.own_words(answer)]))}")
    return entries if measure_first else [*entries, f"Next: {next_step(answer)}"]


def _sure(told: Answer) -> str:
    answer = told.result
    checked = next((line for line in told.provenance if line.startswith("validated here")), None)
    parts = [f"{percent(answer.point.estimate.level)[:-4]} % interval {interval(answer.point.estimate)}"]
    if answer.meets_target:
        parts = [f"within the target with probability {answer.probability:.2f}"]
    parts.append(provenance_words(answer.scenario, told.step_provenance))
    parts.append("not checked against a real run here" if checked is None else checked.partition(",")[0])
    return "; ".join(part for part in parts if part)


def _bottleneck(answer: Recommendation) -> str:
    """The verdict, and the next bottleneck."""
    verdict = answer.verdict
    bound = verdict.name == GPU_BOUND
    words = "nothing, the job is GPU-bound" if bound else verdict.name
    if not verdict.next_bottleneck or verdict.next_bottleneck == verdict.name:
        return words
    following = "nothing" if verdict.next_bottleneck == GPU_BOUND else verdict.next_bottleneck
    return f"{words}; {'on a GPU twice as fast' if bound else 'without it'}: {following}"


def next_step(answer: Recommendation) -> str:
    """The next thing to do: meet the target, make the answer surer, or use it and check it."""
    step, own = answer.scenario.accelerator.step, answer.own_host
    if not answer.meets_target:
        return f"{answer.verdict.advice} (GPU idle would then be {percent(answer.verdict.idle_without)} at best)"
    if 2 * step.uncertainty >= VAGUE:
        return f"{doubt.CURES['step']}: it moves the answer most"
    if own is not None and own.point.estimate.gpu_idle > answer.scenario.target.gpu_idle:
        return f"coresim whatif shows what would help on this host's {plural(own.cores, 'core')}"
    if text.knows_no_lock(answer):
        share = "--set loader.gil=0.2 where they hold Python's lock for a fifth of the work"
        return f"--options 1,2 answers for worker processes; for threads, {share}"
    return "use these settings; coresim validate runs the real loader beside the prediction"
