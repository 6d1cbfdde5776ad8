"""How a program or a loader runs today, as sections; answers about it begin with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from coresim.advise.own_host import OwnHost
from coresim.attaching.today import FAR_OFF, NOT_SIMULATED, THE_STEP, Checked, Term
from coresim.model.loader_settings import LoaderSettings
from coresim.model.today import CPU, Today
from coresim.report.content import Items, Section, Table, statements
from coresim.report.records import Key, Record, keys
from coresim.report.words import percent, plural, ranged
from coresim.units import format_duration

#: Starts of epochs are told where they make the device idle by so much more of the time.
NOTABLE_STARTS = 0.01


def today_section(checked: Checked) -> Section:
    """The observation and the prediction; if they differ by more than stated, a warning and the likeliest term."""
    today = checked.today
    idle = f"observed {percent(today.gpu_idle)}, predicted {ranged(checked.predicted, checked.low, checked.high)}"
    lines = [f"Today: GPU idle {idle}; {today.samples_per_s:.0f} samples/s; {settings_words(today)}."]
    lines += filter(None, [" ".join(_warning(checked))])
    whole = today.idle_with_starts
    if whole is not None and whole >= today.gpu_idle + NOTABLE_STARTS:
        lines.append(
            f"An epoch has {today.epoch_batches} batch{'es' * (today.epoch_batches != 1)}, and its first is waited for"
            f" {format_duration(today.epoch_wait or 0.0)}, which is not in these figures. With that the GPU idles"
            f" {percent(whole)}."
        )
    if not today.steady:
        lines.append("The loop was not steady yet when it was observed: its steps or waits still changed.")
    return statements(lines)


def _warning(checked: Checked) -> Iterator[str]:
    """Sentences on a miss that is larger than the interval, or large."""
    missed = f"the prediction misses today by {100 * abs(checked.miss):.1f} points"
    if checked.outside:
        yield "Warning: the observed GPU idle is outside of the predicted 95 % interval."
    elif abs(checked.miss) > FAR_OFF:
        yield f"Warning: {missed}, although its 95 % interval is wide enough for that."
    if checked.term is not None:
        yield (
            f"Not to be trusted: {missed}, and {100 * checked.allowed:.1f} are stated. Likeliest term:"
            f" {checked.term.name}: {checked.term.words}{_explained(checked.term, checked.today)}"
        )


def _explained(term: Term, today: Today) -> str:
    """The prediction with the term included, and why it differs if the net trains on the workers' cores."""
    if term.name in NOT_SIMULATED:
        return "."
    why = " The net trains on the cores that the workers use; a GPU does not."
    shared = term.name == THE_STEP and today.device == CPU and today.workers
    return f"; with that, the prediction is {percent(term.idle)}.{why if shared else ''}"


def settings_section(settings: LoaderSettings, own: OwnHost | None) -> Section:
    """The settings of a DataLoader that was named, and the prediction for them on this host's cores."""
    line = f"Today: the DataLoader that was named has {settings}"
    if own is not None and own.today is not None:
        idle = percent(own.today.estimate.gpu_idle)
        line += f"; GPU idle predicted {idle} on this host's {plural(own.cores, 'core')} per GPU"
    return statements([f"{line}."])


def waited_section(watched: Mapping[str, Any]) -> Section:
    """The waits of a loop that was only watched; the keys are those of `coresim.attaching.session`'s files."""
    span = watched.get("wait_s", 0.0) + watched.get("step_s", 0.0)
    if not span:
        return statements(["Today: no loop that trains was seen to ask a torch DataLoader for batches."])
    settings, batches = watched["settings"], watched["periods"]
    size = settings["batch_size"]
    rate = f"{batches / span:.3g} batches/s" if size is None else f"{size * batches / span:.0f} samples/s"
    line = (
        f"Today: the loop waited {percent(watched['wait_s'] / span)} of its time for the loader; {rate};"
        f" {workers_words(settings['workers'])}, {plural(len(settings['cpus']), 'hardware thread')} allowed;"
        f" a batch is waited for {format_duration(watched['wait_s'] / batches)} and worked on"
        f" {format_duration(watched['step_s'] / batches)}."
    )
    return statements([line])


def foreign_section(told: Mapping[str, Any], hook: str) -> Section:
    """What is known of a loader that is not torch's, and what is not."""
    wait, step, alone = (format_duration(told[name]) for name in ("wait_s", "step_s", "step_without_waiting_s"))
    lines = (
        f"Today: GPU idle observed {percent(told['gpu_idle_observed'])}; {plural(told['ranks'], 'rank')}; a batch is"
        f" waited for {wait} and worked on {step}; the program used {told['program_cores']:.1f} cores per rank.",
        f"Without waiting a step takes {alone}.",
        f"The loader cost {format_duration(told['loader_cpu_s'])} of CPU time a batch, so that no fewer than"
        f" {told['least_cores']:.1f} cores beside the loop's own feed such a step.",
        f"Not told: how many cores are enough. {hook} is no torch DataLoader, and coresim cannot run it apart from the"
        " loop with other numbers of workers; a scenario with your framework's preset (coresim presets) says more.",
    )
    return statements(lines)


def trials_section(today: Checked, tried: Sequence[Checked], failures: Mapping[int, str]) -> Section:
    """Predicted beside observed idle for each number of workers that ran, and the numbers that failed."""
    columns = ("workers", "GPU idle observed", "predicted", "miss", "other programs")
    rows = tuple(
        (f"{found.today.workers}", percent(found.today.gpu_idle), ranged(found.predicted, found.low, found.high),
         f"{100 * found.miss:+.1f}", f"{found.today.other_cores:.1f} cores")
        for found in tried
    )  # fmt: skip
    miss = f"{100 * _mean_miss(tried or [today]):.1f} points of GPU idle"
    table = [Table(columns, rows, note=f"mean miss {miss}")] if tried else []
    lines = [f"With {workers_words(count)} the loader failed: {why}" for count, why in failures.items()]
    if not tried:
        lines.append(f"So the prediction was checked with today's number of workers only: it misses by {miss}.")
    return Section("", (*table, Items(tuple(lines), marked=False)))


def trials_document(
    today: Checked, tried: Sequence[Checked], failures: Mapping[int, str], max_error: float
) -> dict[str, Any]:
    """The same for ``--json``; it is trusted if the mean miss is at most ``max_error``, a share.

    If the loader fails with all other numbers of workers, today's own setting is judged.
    """
    error = _mean_miss(tried or [today])
    return {
        "today": TODAY.write(today),
        "trials": [TODAY.write(one) for one in tried],
        "failed": [{"workers": count, "error": why} for count, why in failures.items()],
        "mean_absolute_error": error,
        "trusted": error <= max_error,
    }


def _mean_miss(checked: Sequence[Checked]) -> float:
    return sum(abs(one.miss) for one in checked) / len(checked)


def workers_words(count: int) -> str:
    """The number of workers in words."""
    return plural(count, "worker") if count else "no workers (num_workers=0)"


def settings_words(today: Today) -> str:
    """The settings of the program, and the behaviour of its loop."""
    words = [workers_words(today.workers)]
    if today.prefetch_factor:
        words.append(f"prefetch_factor {today.prefetch_factor}")
    if today.batches_differ:
        words.append(f"batches of {today.batch_words}")
    elif today.batch_size:
        words.append(f"batch {today.batch_size}")
    words += [f"{plural(today.threads, 'hardware thread')} allowed", plural(today.ranks, "rank")]
    if today.batches_per_step > 1.05:
        words.append(f"{today.batches_per_step:.2g} batches per step of the optimizer")
    if today.other_cores >= 0.1:
        words.append(f"other programs used {today.other_cores:.1f} cores while it trained")
    words.append(f"a batch is waited for {format_duration(today.wait)} and worked on {format_duration(today.step)}")
    if today.ranks > 1:
        words.append("idle by rank " + ", ".join(percent(1.0 - busy) for busy in today.rank_busy))
    return ", ".join(words)


#: A `Checked`: what was observed of the program and what is predicted; times in seconds, idle as shares.
TODAY = Record(
    Key("gpu_idle_observed", "share", "today.gpu_idle"),
    Key("gpu_idle_predicted", "share", "predicted"),
    Key("gpu_idle_predicted_low", "share", "low"),
    Key("gpu_idle_predicted_high", "share", "high"),
    Key("outside_interval", "truth", "outside"),
    Key("allowed_miss", "amount", "allowed"),
    Key("trusted", "truth"),
    Key("likeliest_term", Record(*keys("text", "name", "words")), "term", null=True),
    Key("program", "text", "today.program"),
    Key("samples_per_s", "amount", "today.samples_per_s"),
    *keys("whole", "workers", of="today"),
    *keys("whole?", "prefetch_factor", "batch_size", "batch_least", "batch_most", of="today"),
    Key("batch_mean", "amount?", "today.batch_mean"),
    Key("hardware_threads", "whole", "today.threads"),
    Key("ranks", "whole", "today.ranks"),
    Key("wait_s", "amount", "today.wait"),
    Key("step_s", "amount", "today.step"),
    Key("gpu_idle_by_rank", "share", lambda checked: [1.0 - busy for busy in checked.today.rank_busy], each=True),
    Key("steady", "truth", "today.steady"),
    Key("other_cores", "amount", "today.other_cores"),
    Key("epoch_batches", "whole?", "today.epoch_batches"),
    Key("epoch_wait_s", "amount?", "today.epoch_wait"),
    Key("gpu_idle_with_epoch_starts", "share?", "today.idle_with_starts"),
)
