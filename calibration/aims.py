"""What the page of the ledgers holds each of them to, and whether it keeps that."""

from __future__ import annotations

import re
from collections.abc import Sequence

from accuracy import grouped, headline, kind_of, near_knee
from choosing import (
    CHEAP,
    NEAR,
    NEAR_SHARE,
    choices_of_rules,
    choices_of_sweeps,
    core_choices,
    cost_text,
    spent,
    within_deviation,
)
from pages import table

from coresim import stats
from coresim.report.validation import points
from coresim.report.words import percent
from coresim.validate.ledger import Ledger, RecordedPoint
from coresim.validate.score import HELD, Choice, choices, score

#: What the declared grid is held to, on a two-core machine with an emulated accelerator; shares.
BOUNDS = (
    ("GPU idle, mean error", "idle_mean", 0.02),
    ("GPU idle, 95th percentile", "idle_p95", 0.06),
    ("throughput, median error", "throughput_median", 0.02),
    ("throughput, 90th percentile", "throughput_p90", 0.06),
)
#: The worst workload's mean error, and the bias; shares.
WORKLOAD_BOUND, BIAS_BOUND = 0.035, 0.005
#: A kind of setting counts as covered where its 80 % interval holds so many of its trials.
COVERED = (0.65, 0.95)
#: The same for real training on a CUDA device.
CUDA_BOUNDS = (
    ("GPU idle, mean error", "idle_mean", 0.03),
    ("GPU idle, 95th percentile", "idle_p95", 0.08),
)
#: Where repeats of one setting differ by more than the bound, so many times that difference is what the errors may be.
NOISY = 1.15
#: Share of the jobs whose recommended cores are near the measured optimum, at least; and too few, at most.
CORES_AGREE, CORES_TOO_FEW = 0.95, 0.02
BOUNDS_TEXT = (
    "Predicted ahead: from the calibration alone, as it was written before the trials. At the sampled speed: the same"
    " costs times what a fixed piece of the same kind of work cost during the trial on the CPUs that its workers were"
    " on, over what it cost in the calibration. It is sampled by a process of its own; of the trial it takes only when"
    " its workers were on which CPU."
)

NOISE_TEXT = (
    f"Within the noise: numbers of workers that are in truth equally good would count so in {HELD:.0%} of the scans."
    " Within one deviation, or one point, is nearly how pages before this one counted. Where repeats differ by a point"
    " or more, equally good numbers fail that in a quarter of the scans, because the best measured is the luckiest of"
    " several. More idle: than the best measured."
)


def on_cuda(ledger: Ledger) -> bool:
    """Whether it tells of real training on a CUDA device."""
    return bool(re.search(r"training .* on cuda", ledger.accelerator))


def bounds(ledger: Ledger, seen_by: dict[str, tuple[RecordedPoint, ...]]) -> str:
    """Every bound beside the predictions made ahead, and beside those for the speed that was sampled."""
    seen = list(seen_by.values())
    both = [score(headline(found)) for found in seen]
    held_to = CUDA_BOUNDS if on_cuda(ledger) else BOUNDS
    rows = [_bound(name, [getattr(found, key) for found in both], most) for name, key, most in held_to]
    rows.append(_bound("GPU idle, worst workload's mean error", [_worst(found) for found in seen], WORKLOAD_BOUND))
    rows.append(_bound("GPU idle, bias", [abs(found.bias) for found in both], BIAS_BOUND))
    what = "stated 80 % interval covers, in every kind of setting"
    rows.append([what, f"{COVERED[0]:.0%} to {COVERED[1]:.0%}", *map(_coverage, seen)])
    near = [score(found) for these in seen if (found := near_knee(these, ledger.jobs))]
    if near:
        rival = min(near[0].rate_mean, near[0].buffer_mean)
        shown = [f"{_points(found.idle_mean)} {_met(found.idle_mean <= rival / 2)}" for found in near]
        what = f"near the knee ({near[0].points} points), mean error"
        rows.append([what, f"half of the better field model's {_points(rival)}", *shown])
    scans = [choices(found) for found in seen]
    if scans[0]:
        shares = [sum(scan.agrees for scan in found) / len(found) for found in scans]
        what = f"recommended workers best, or within the noise ({len(scans[0])} scans)"
        rows.append([what, "95 %", *(f"{percent(share)} {_met(share >= 0.95)}" for share in shares)])
    rows += _cores(seen)
    notes = [text for text in (_repeats(ledger.scored, [most for *_, most in held_to[:2]]), rules_of(ledger)) if text]
    if cost := spent(ledger):
        share = cost.answer_s / cost.sweep_s
        what = f"the answers' cost, over the scans' own {cost.sweep_s:.0f} s"
        rows.append([what, f"{CHEAP:.2f}", f"{cost.answer_s:.0f} s, {share:.2f} {_met(share <= CHEAP)}"])
        notes.append(f"Cost: {cost_text(cost)}")
    return "\n\n".join(["### Bounds", BOUNDS_TEXT, table(["what", "bound", *seen_by], rows), *notes])


def _repeats(found: Sequence[RecordedPoint], most: Sequence[float]) -> str:
    """What repeats of one setting differ by, beside the errors of the same settings; "" without repeats.

    ``most``: what the mean and the 95th percentile of the errors are held to.
    """
    repeated = [point for point in headline(found) if point.spread is not None]
    if not repeated:
        return ""
    spreads, errors, whole = [point.spread or 0.0 for point in repeated], score(repeated), score(headline(found))
    allowed = NOISY * stats.mean(spreads), NOISY * stats.quantile(spreads, 0.95)
    return (
        f"Repeats: of the {len(repeated)} settings that ran more than once, the largest and the smallest idle differ by"
        f" {_points(stats.mean(spreads))} on average and {_points(stats.quantile(spreads, 0.95))} at the 95th"
        f" percentile; the errors of these settings are {_points(errors.idle_mean)} and {_points(errors.idle_p95)}."
        f" {NOISY:g} times these differences is {_points(allowed[0])} and {_points(allowed[1])}. Where that is more"
        f" than the bound, it is what all settings may be held to: mean {_points(whole.idle_mean)}"
        f" {_met(whole.idle_mean <= max(most[0], allowed[0]))}, 95th percentile {_points(whole.idle_p95)}"
        f" {_met(whole.idle_p95 <= max(most[1], allowed[1]))}."
    )


def _worst(found: Sequence[RecordedPoint]) -> float:
    """The mean error of the workload that is missed most."""
    return max(s.idle_mean for s in grouped(headline(found), lambda p: p.setting.workload).values())


def _coverage(found: Sequence[RecordedPoint]) -> str:
    """The kinds of setting that are covered least and most, and whether both are within bounds."""
    kinds = {name: s.covered for name, s in grouped(found, kind_of).items()}
    least, most = min(kinds, key=kinds.__getitem__), max(kinds, key=kinds.__getitem__)
    holds = COVERED[0] <= kinds[least] and kinds[most] <= COVERED[1]
    return f"{percent(kinds[least])} ({least}) to {percent(kinds[most])} ({most}) {_met(holds)}"


def rules_of(ledger: Ledger) -> str:
    """The recommendation beside what a child would choose: how often each is right, what it loses; "" without scans."""
    rules = {"recommended, predicted ahead": choices(ledger.scored)} | choices_of_rules(ledger.scored, ledger.cpus)
    if not all(rules.values()):
        return ""
    if sweeps := choices_of_sweeps(ledger.scored):
        rules["one pass of the sweep itself, judged by another"] = sweeps
    rows = [
        [rule, *map(str, (len(made), sum(c.agrees for c in made), sum(map(within_deviation, made)))), _lost(made)]
        for rule, made in rules.items()
    ]
    head = ["workers", "scans", "best measured, or within the noise", "within one deviation", "more idle, mean"]
    return f"{table(head, rows)}\n\n{NOISE_TEXT}"


def _lost(made: Sequence[Choice]) -> str:
    return points(sum(choice.lost for choice in made) / len(made))


def _cores(seen: Sequence[Sequence[RecordedPoint]]) -> list[list[str]]:
    """How often as many cores are recommended as measured best, where jobs were tried with several counts."""
    found = [core_choices(these) for these in seen]
    if not found[0]:
        return []
    near = [sum(choice.agrees for choice in these) / len(these) for these in found]
    few = [sum(choice.too_few for choice in these) / len(these) for these in found]
    agree = [f"{percent(share)} {_met(share >= CORES_AGREE)}" for share in near]
    lack = [f"{percent(share)} {_met(share <= CORES_TOO_FEW)}" for share in few]
    what = f"recommended cores within {NEAR}, or {NEAR_SHARE:.0%}, of the measured optimum ({len(found[0])} jobs)"
    return [[what, f"{CORES_AGREE:.0%}", *agree], ["too few cores recommended", f"{CORES_TOO_FEW:.0%}", *lack]]


def _bound(name: str, seen: Sequence[float], most: float) -> list[str]:
    return [name, _points(most), *(f"{_points(x)} {_met(x <= most)}" for x in seen)]


def _points(share: float) -> str:
    return f"{100 * share:.2f} %"


def _met(holds: bool) -> str:
    return "(met)" if holds else "**(not met)**"
