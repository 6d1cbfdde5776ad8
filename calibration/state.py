"""Regenerate calibration/README.md and its figures from the ledgers beside it: ``python calibration/state.py``."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from accuracy import at_sampled_speed, by_chance, grouped, headline, kind_of, repredict, wandering, with_own_costs
from aims import bounds, on_cuda
from effects import worth
from pages import table

from coresim.model.profile_scenario import DRIFT
from coresim.report.figures import plot_validation, save_figure
from coresim.report.validation import label, points
from coresim.report.words import percent
from coresim.sim.fast import simulate
from coresim.validate.ledger import Ledger, RecordedPoint, load_ledger
from coresim.validate.score import Score, cause, score

HERE = Path(__file__).parent
LEAST_MISS = 0.05
HEAD = """# The state of the truth

Predicted beside measured, misses first. Everything here is written by `python calibration/state.py` from the ledgers
in this folder; a ledger holds every point's setting, raw step times, predictions, code version, host and load.

{proven}

{all_runs}

{wandering}

All notes but those of `trainer-fork`, `device-fork`, `trainer-staged` and `device-staged` say that more is missed "with
each trial's own costs" than the tables do, by up to 0.8 points. CPU times that a trial noted were then held against
calibrated ones that included what sampling takes of a CPU. Until 08:30 UTC on 27 November 2026 a trainer's samples and
collation without workers were held against all that it does for a batch. That made these settings miss 1 point more,
and all settings of a recording 0.1 points at the most.

Until 17:00 UTC on 28 November 2026 time was lost with fewer workers than cores, too. Tables that simulate the trials of
earlier recordings again are of that model: with each trial's own costs they say up to 0.04 points more.

GPU idle is the share of the time that steps alone do not need: 1 less the accelerator utilisation of MLPerf Storage.
In recordings of real training, on emulated devices too, from before 21:50 UTC on 26 November 2026 it was the share that
no step covers, by the device's events. Notes of that time have figures of that kind. Their tables here have today's,
and their files were converted to today's format, in which the events' share is `uncovered`; what was predicted
was counted anew, and the intervals moved with it, since nobody knows how wide they would have been.

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
    # A section takes up to a minute, because all of its trials are predicted again several times.
    with ProcessPoolExecutor() as pool:
        sections = pool.map(shown, paths)
        parts = [head({path.name: load_ledger(path) for path in paths}), *sections]
    (HERE / "README.md").write_text("\n".join(parts), encoding="utf-8")


def shown(path: Path) -> str:
    """The section of one ledger; its figure is written."""
    ledger = load_ledger(path)
    save_figure(plot_validation(ledger), str(HERE / picture_of(path.name)))
    # What a person has to say of a ledger stands beside it.
    note = path.with_name(path.name.replace(".ledger.json", ".note.md"))
    return section(path.name, ledger, note.read_text() if note.exists() else "")


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
        f" predictions take it as {DRIFT:g} times as uncertain; ledgers that were recorded before took it once, twice"
        " or 2.7 times, and the intervals of those that took it once hold too few trials in most of them."
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
        bounds(ledger, seen_by),
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
    found = sorted((p for p in ledger.scored if abs(p.error) > LEAST_MISS), key=lambda point: -abs(point.error))
    if not found:
        return f"No point misses by more than {points(LEAST_MISS)}."
    rows = [
        [p.setting.workload, label(p), percent(p.idle), percent(p.prediction.idle), f"{100 * p.error:+.1f}",
         "yes" if p.covered else "no", cause(p, ledger.job_of(p))]
        for p in found
    ]  # fmt: skip
    head = ["workload", "setting", "measured idle", "predicted", "error, points", "in its interval", "cause"]
    return f"### Misses: {len(found)} points by more than {points(LEAST_MISS)}\n\n{table(head, rows)}"


def _predicted(ledger: Ledger) -> dict[str, tuple[RecordedPoint, ...]]:
    """The points with the predictions made ahead, and with those at the sampled speed."""
    return {"predicted ahead": ledger.scored, "at the sampled speed": at_sampled_speed(ledger, simulate)}


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
        " coresim of that day, or as it was converted (see the head); all other rows are by today's. The last row feeds"
        " the simulation what each trial's own workers noted. It is no prediction; what it misses is the model's"
        " structure, and the difference is what the machine's changing speed and unmodelled contention did between the"
        " calibration and the trial.\n\n"
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


if __name__ == "__main__":
    main()
