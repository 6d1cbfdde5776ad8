"""Regenerate calibration/README.md and its figures from the ledgers beside it: ``python calibration/state.py``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from accuracy import at_pace, by_chance, grouped, headline, kind_of, near_knee, repredict, wandering, with_own_costs
from choosing import NEAR, NEAR_SHARE, choices_of_rules, core_choices
from effects import worth
from pages import table

from coresim.model.profile_tables import DRIFT
from coresim.report.figures import plot_validation, save_figure
from coresim.report.validation import cost_text, label, misses, points, sweeps_agree
from coresim.report.words import percent
from coresim.sim.fast import simulate
from coresim.validate.ledger import Ledger, RecordedPoint, load_ledger
from coresim.validate.score import CHEAP, Score, choices, score, spent

HERE = Path(__file__).parent
LEAST_MISS = 0.05
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
#: Share of the jobs whose recommended cores are near the measured optimum, at least; and too few, at most.
CORES_AGREE, CORES_TOO_FEW = 0.95, 0.02
BOUNDS_TEXT = (
    "Predicted ahead: from the calibration alone, as it was written before the trials. At the sampled pace: the same"
    " costs times what a fixed piece of the same kind of work cost during the trial on the CPUs that its workers were"
    " on, over what it cost in the calibration. It is sampled by a process of its own; of the trial it takes only when"
    " its workers were on which CPU."
)
HEAD = """# The state of the truth

Predicted beside measured, misses first. Everything here is written by `python calibration/state.py` from the ledgers
in this folder; a ledger holds every point's setting, raw step times, predictions, code version, host and load.

{proven}

{all_runs}

{wandering}

To add a machine: `coresim validate --grid calibration/grid.toml -o calibration/NAME.ledger.json`, then this script.
"""
UNPROVEN = """**GPU accuracy is unproven**: no ledger here was recorded on a CUDA device yet.
`calibration/cuda_campaign.py` records one on a machine that has a device; until then only the loader and the cores are
proven, against an emulated accelerator that blocks for the step time."""
PROVEN = """Real training on a CUDA device: {names}. In all others the accelerator is emulated, or trains on a CPU. With
a device, `calibration/cuda_campaign.py` records one."""


def main() -> None:
    """Write the README and one figure for each ledger."""
    paths = sorted(HERE.glob("*.ledger.json"))
    ledgers = {path.name: load_ledger(path) for path in paths}
    parts = [head(ledgers)]
    for path, (name, ledger) in zip(paths, ledgers.items(), strict=True):
        save_figure(plot_validation(ledger), str(HERE / picture_of(name)))
        # What a person has to say of a ledger stands beside it.
        note = path.with_name(name.replace(".ledger.json", ".note.md"))
        parts.append(section(name, ledger, note.read_text() if note.exists() else ""))
    (HERE / "README.md").write_text("\n".join(parts), encoding="utf-8")


def head(ledgers: Mapping[str, Ledger]) -> str:
    """What the page begins with; ``ledgers`` by the names of their files."""
    names = ", ".join(name for name, ledger in ledgers.items() if on_cuda(ledger))
    proven = PROVEN.format(names=names) if names else UNPROVEN
    return HEAD.format(proven=proven, all_runs=all_runs(ledgers), wandering=speed_wanders(ledgers))


def speed_wanders(ledgers: Mapping[str, Ledger]) -> str:
    """How far the machine's speed was off after its calibration: what `DRIFT` rests on."""
    count, factor = wandering(ledgers.values())
    return (
        f"A shared machine changes its speed. After {count} calibrations it was off by {factor:.1f} times what the runs"
        " of the calibration themselves differed by (eight of ten trials are within 1.28 such deviations). Profiles and"
        f" predictions take it as {DRIFT:g} times as uncertain; ledgers that were recorded before took it once or"
        " twice, and the intervals of those that took it once hold too few trials in most of them."
    )


def all_runs(ledgers: Mapping[str, Ledger]) -> str:
    """No ledger is chosen: the mean over all of them, and the best and the worst by name."""
    errors = {name: score(headline(ledger.scored)).idle_mean for name, ledger in ledgers.items() if ledger.scored}
    if not errors:
        return "No run has an undisturbed trial."
    best, worst = min(errors, key=errors.__getitem__), max(errors, key=errors.__getitem__)
    mean = sum(errors.values()) / len(errors)
    if len(errors) == 1:
        return f"One run is here, {best}: the mean error of GPU idle is {points(mean)}."
    return (
        f"Over all {len(errors)} runs here, those that were stopped or disliked included, the mean error of GPU idle is"
        f" {points(mean)}: {points(errors[best])} in the best ({best}), {points(errors[worst])} in the worst ({worst})."
    )


def on_cuda(ledger: Ledger) -> bool:
    """Whether it tells of real training on a CUDA device."""
    return bool(re.search(r"training .* on cuda", ledger.accelerator))


def picture_of(name: str) -> str:
    """The figure's name of a ledger's; `cuda_campaign.py` calls it the same."""
    return f"{name.removesuffix('.ledger.json')}.svg"


def section(name: str, ledger: Ledger, note: str) -> str:
    """All that is to be said of one ledger."""
    if not ledger.scored:
        return "\n\n".join(part for part in (_about(name, ledger), note.strip()) if part) + "\n"
    seen_by = _predicted(ledger)
    parts = [
        _about(name, ledger),
        note.strip(),
        _misses(ledger),
        f"![predicted over measured]({picture_of(name)})",
        _bounds(ledger, seen_by),
    ]
    parts += [_own_costs(ledger, seen_by), _kinds(ledger), _worth(ledger), _noise(ledger)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _about(name: str, ledger: Ledger) -> str:
    lost = len(ledger.points) - len(ledger.scored)
    dirty = sum(bool(trial.dirty) for point in ledger.points for trial in point.trials)
    return (
        f"## {name}\n\n{ledger.cpu_model}, {ledger.cpus} CPUs; accelerator {ledger.accelerator}; {ledger.time_utc};"
        f" coresim {ledger.tool_version}; {', '.join(f'{k} {v}' for k, v in ledger.versions.items())}.\n"
        f"Grid {ledger.grid}, sha256 {ledger.grid_sha256}, declared {ledger.grid_trials} trials;"
        f" {len(ledger.scored)} points count, {dirty} trials were disturbed, {lost} points never ran undisturbed."
    )


def _misses(ledger: Ledger) -> str:
    found = misses(ledger, LEAST_MISS)
    if not found:
        return f"No point misses by more than {points(LEAST_MISS)}."
    rows = [
        [p.setting.workload, label(p), percent(p.idle), percent(p.prediction.idle), f"{100 * p.error:+.1f}",
         "yes" if p.covered else "no", why]
        for p, why in found
    ]  # fmt: skip
    head = ["workload", "setting", "measured idle", "predicted", "error, points", "in its interval", "cause"]
    return f"### Misses: {len(found)} points by more than {points(LEAST_MISS)}\n\n{table(head, rows)}"


def _bounds(ledger: Ledger, seen_by: dict[str, tuple[RecordedPoint, ...]]) -> str:
    """Every bound beside the predictions made ahead, and beside those for the pace that was sampled."""
    seen = list(seen_by.values())
    both = [score(headline(found)) for found in seen]
    bounds = CUDA_BOUNDS if on_cuda(ledger) else BOUNDS
    rows = [_bound(name, [getattr(found, key) for found in both], most) for name, key, most in bounds]
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
    notes = [rules] if (rules := _rules(ledger)) else []
    if sweeps := sweeps_agree(ledger.scored):
        notes.append(f"Recommended workers best, or within the noise, in {sweeps}.")
    if cost := spent(ledger):
        share = cost.answer_s / cost.sweep_s
        what = f"the answers' cost, over the scans' own {cost.sweep_s:.0f} s"
        rows.append([what, f"{CHEAP:.2f}", f"{cost.answer_s:.0f} s, {share:.2f} {_met(share <= CHEAP)}"])
        notes.append(f"Cost: {cost_text(cost)}")
    return "\n\n".join(["### Bounds", BOUNDS_TEXT, table(["what", "bound", *seen_by], rows), *notes])


def _worst(found: Sequence[RecordedPoint]) -> float:
    """The mean error of the workload that is missed most."""
    return max(s.idle_mean for s in grouped(headline(found), lambda p: p.setting.workload).values())


def _coverage(found: Sequence[RecordedPoint]) -> str:
    """The kinds of setting that are covered least and most, and whether both are within bounds."""
    kinds = {name: s.covered for name, s in grouped(found, kind_of).items()}
    least, most = min(kinds, key=kinds.__getitem__), max(kinds, key=kinds.__getitem__)
    holds = COVERED[0] <= kinds[least] and kinds[most] <= COVERED[1]
    return f"{percent(kinds[least])} ({least}) to {percent(kinds[most])} ({most}) {_met(holds)}"


def _rules(ledger: Ledger) -> str:
    """The recommendation beside what a child would choose: how often each is right, what it loses; "" without scans."""
    rules = {"recommended, predicted ahead": choices(ledger.scored)} | choices_of_rules(ledger.scored, ledger.cpus)
    if not all(rules.values()):
        return ""
    rows = [
        [rule, str(len(made)), str(sum(c.agrees for c in made)), points(sum(c.lost for c in made) / len(made))]
        for rule, made in rules.items()
    ]
    return table(["workers", "scans", "best measured, or within the noise", "more idle than the best, mean"], rows)


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


def _predicted(ledger: Ledger) -> dict[str, tuple[RecordedPoint, ...]]:
    """The points with the predictions made ahead, and with those at the sampled pace."""
    return {"predicted ahead": ledger.scored, "at the sampled pace": at_pace(ledger, simulate)}


def _bound(name: str, seen: Sequence[float], most: float) -> list[str]:
    return [name, _points(most), *(f"{_points(x)} {_met(x <= most)}" for x in seen)]


def _own_costs(ledger: Ledger, seen_by: dict[str, tuple[RecordedPoint, ...]]) -> str:
    """How much of the error is the model's structure, and how much the machine."""
    fed = {f"from what recommend measures, {name}": found for name, found in seen_by.items()} | {
        "ahead, by today's model from the same calibrations": repredict(ledger, simulate).scored,
        "from the costs that each trial noted": with_own_costs(ledger, simulate),
    }
    rows = [
        [name, str(s.points), points(s.idle_mean), points(s.idle_p95), f"{100 * s.bias:+.1f}"]
        for name, s in ((name, score(found)) for name, found in fed.items())
    ]
    text = (
        "### Structure and machine\n\nWhat was predicted ahead stands as it was written before the trials, by the"
        " coresim of that day; all other rows are by today's. The last row feeds the simulation what each trial's own"
        " workers noted. It is no prediction; what it misses is the model's structure, and the difference is what the"
        " machine's changing pace and unmodelled contention did between the calibration and the trial.\n\n"
    )
    least = points(by_chance(ledger, simulate))
    least = (
        f"\n\nChance alone: samples differ, so that one trial is {least} from its expectation on average, by the"
        " simulation. No prediction is nearer to single trials."
    )
    return text + table(["fed with", "points", "mean error", "95th percentile", "bias"], rows) + least


def _kinds(ledger: Ledger) -> str:
    columns = ["points", "mean", "95th pct", "worst", "bias", "min(F, P, G)", "M/M/1/K", "covered"]
    tables = [
        table([title, *columns], [_kind_row(name, found) for name, found in grouped(ledger.scored, of).items()])
        for title, of in (("Workload", lambda p: p.setting.workload), ("Kind of setting", kind_of))
    ]
    return "### Error of GPU idle by kind, in points\n\n" + "\n\n".join(tables)


def _kind_row(name: str, s: Score) -> list[str]:
    values = (s.idle_mean, s.idle_p95, s.idle_max, s.bias, s.rate_mean, s.buffer_mean)
    return [name, str(s.points), *(f"{100 * value:.1f}" for value in values), percent(s.covered)]


def _worth(ledger: Ledger) -> str:
    found = worth(ledger, simulate)
    groups = next(iter(found.values()))
    rows = [[effect, *(f"{100 * value:+.2f}" for value in values.values())] for effect, values in found.items()]
    text = (
        "### What each effect of the model is worth\n\nMean error of GPU idle without it, less with it, in points: over"
        " all, and over each workload's.\n\n"
    )
    return text + table(["effect", *groups], rows)


def _noise(ledger: Ledger) -> str:
    found = score(ledger.scored)
    if found.noise_median is None or found.noise_p90 is None:
        return ""
    return (
        f"Noise floor: repeats of one point differ by {points(found.noise_median)} in the median and"
        f" {points(found.noise_p90)} at the 90th percentile."
    )


def _points(share: float) -> str:
    return f"{100 * share:.2f} %"


def _met(holds: bool) -> str:
    return "(met)" if holds else "**(not met)**"


if __name__ == "__main__":
    main()
