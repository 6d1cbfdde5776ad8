"""How sure an answer is, in its first lines: the surer number, cores for a rate of samples, and what to measure."""

from __future__ import annotations

from coresim.advise.recommend import Recommendation
from coresim.advise.sweep import Point
from coresim.advise.uncertain import PerRate
from coresim.model.option import Option
from coresim.report.words import option_words, percent, plural

_LONGER = "measure again, for longer and on a quiet machine (--budget '2 min')"
#: What makes each input better known.
CURES = {
    "step": "give the step's time (--set 'accelerator.step=98 ms') or measure with your own step (--step)",
    "speed": "measure on a host with more cores (how busy cores slow one another)",
}
#: From this gain in samples/s on another setting is worth the change.
WORTH = 0.02


def sureness(confidence: float) -> str:
    """A probability in words: ``nine in ten sure``."""
    return "nine in ten sure" if abs(confidence - 0.9) < 1e-9 else f"{100 * confidence:g} % sure"


def sure_words(answer: Recommendation) -> str:
    """The fewest cores that surely meet the target, with their option if it is not the recommended one."""
    words, sure = sureness(answer.confidence), answer.sure
    if sure is None:
        return f"no core count tried is {words}"
    other = [] if sure.cores == answer.point.cores else [plural(sure.cores, "core")]
    other += [] if sure.option == answer.point.option else [option_words(sure.option)]
    return f"{words} with {', '.join(other)}" if other else words


def recorded_words(answer: Recommendation, step_provenance: str | None) -> str:
    """The recorded job whose samples/s the answer is for, if the step is a record of another machine; else empty."""
    if step_provenance is None or not step_provenance.startswith("catalogue:"):
        return ""
    # "catalogue: ResNet-50 v1.5 on NVIDIA A100 80GB, mixed, batch 256: ..."
    what = step_provenance.removeprefix("catalogue:").strip().partition(",")[0].partition(" (")[0]
    rate = answer.scenario.workload.batch_size / answer.scenario.accelerator.step.mean
    return f" for the {rate:,.0f} samples/s recorded of {what}"


def rate_words(rate: PerRate) -> str:
    """Cores for each 1,000 samples/s, with their interval."""
    span = f" ({rate.low:.3g} to {rate.high:.3g})" if rate.high > rate.low else ""
    return f"{rate.cores:.3g} cores per 1,000 samples/s{span}"


def doubt_line(answer: Recommendation) -> str | None:
    """The input to measure if the two core counts are more than a quarter apart; otherwise None."""
    cause = answer.doubt
    if cause is None:
        return None
    cure = CURES.get(cause.name, f"{_LONGER}: the cost to {cause.name}")
    return f"Next: {cure}; \u00b1{200 * cause.uncertainty:.0f} %, {100 * cause.share:.0f} % of the doubt"


def own_words(answer: Recommendation) -> str | None:
    """The result of the host's own cores with the best loader settings, and the gain over today's settings."""
    own = answer.own_host
    if own is None or (own.cores == answer.point.cores and own.today is None):
        return None
    there = f"on this host's {plural(own.cores, 'core')} per GPU: {own.verdict.name}"
    if own.today is None or own.gain is None:
        return f"{there}, {_words(own.point)}"
    if own.gain < WORTH:
        return f"{there}, today's setting is as good as any, {_words(own.today)}"
    return f"{there}, {_words(own.point)}, today {_words(own.today)}: {100 * own.gain:+.1f} % samples/s"


def _words(point: Point) -> str:
    count = plural(point.workers, "worker")
    loader = "no workers" if point.option == Option.NO_OVERLAP else f"{count}, prefetch {point.prefetch_factor}"
    return f"{loader}, idle {percent(point.estimate.gpu_idle)}"
