"""How sure an answer is, in its first lines: the surer number, cores for a rate of samples, and what to measure."""

from __future__ import annotations

from coresim.advise.recommend import Recommendation
from coresim.advise.sweep import Point
from coresim.advise.uncertain import PerRate
from coresim.units import format_duration

#: What each input is, and what makes it better known.
_CURES = {
    "step": (
        "the step time",
        "time yours on that GPU (--step MODULE:NAME), or give it (--set 'accelerator.step=98 ms')",
    ),
    "speed": (
        "how busy cores slow one another, s(k) beyond the cores that were measured",
        "measure on a host with as many cores (coresim measure)",
    ),
    "preprocess": ("the cost of preparing a sample", "measure for longer (--budget '2 min') on a quiet machine"),
    "consumer": ("what being handed a batch takes", "measure where torch is installed, on a quiet machine"),
}
_OTHER = "measure for longer (--budget '2 min') on a quiet machine"


def sureness(confidence: float) -> str:
    """A probability in words: ``nine in ten sure``."""
    return "nine in ten sure" if abs(confidence - 0.9) < 1e-9 else f"{100 * confidence:g} % sure"


def sure_words(answer: Recommendation) -> str:
    """The fewest cores that surely meet the target, beside those that do as likely as not."""
    words = sureness(answer.confidence)
    if answer.sure is None:
        return f"no core count tried is {words}"
    if answer.sure.cores == answer.point.cores:
        return words
    return f"{answer.sure.cores} to be {words}"


def rate_words(rate: PerRate) -> str:
    """Cores for each 1,000 samples/s, with their interval."""
    span = f" ({rate.low:.3g} to {rate.high:.3g})" if rate.high > rate.low else ""
    return f"{rate.cores:.3g} cores per 1,000 samples/s{span}"


def doubt_lines(answer: Recommendation, basis: str | None) -> list[str]:
    """Cores for a rate of samples, which no step time changes; and where the answer is wide, what to measure first."""
    scenario = answer.scenario
    samples = scenario.workload.batch_size / scenario.accelerator.step.mean
    step = format_duration(scenario.accelerator.step.mean) + (f", {_brief(basis)}" if basis else "")
    lines = [f"{rate_words(answer.per_rate)}, whatever the step; here {samples:,.0f} samples/s: a step of {step}."]
    cause = answer.doubt
    if cause is not None:
        what, cure = _CURES.get(cause.name, (f"the time to {cause.name}", _OTHER))
        lines.append(f"{100 * cause.share:.0f} % of the doubt is {what} (+-{100 * cause.uncertainty:.0f} %): {cure}.")
    return lines


def _brief(basis: str) -> str:
    """Its first clause, without brackets: all of it stands under what the answer rests on."""
    return basis.partition(";")[0].partition(" (")[0]


def today_lines(answer: Recommendation) -> list[str]:
    """What the loader's own setting does on the cores that are there, and what the best one there would gain."""
    own = answer.own_host
    if own is None or own.today is None or own.gain is None:
        return []
    now, best = own.today, own.point
    if (now.option, now.workers, now.prefetch_factor) == (best.option, best.workers, best.prefetch_factor):
        return [f"Today's setting is the best on the {own.cores:g} cores per GPU that are there: {_words(now)}."]
    return [
        f"Without another core, of {own.cores:g} per GPU: {_words(best)} instead of {_words(now)}:"
        f" {100 * own.gain:+.1f} % samples/s."
    ]


def _words(point: Point) -> str:
    loader = "no workers" if point.option == 1 else f"{point.workers} workers, prefetch factor {point.prefetch_factor}"
    return f"{loader} (GPU idle {100 * point.estimate.gpu_idle:.1f} %)"
