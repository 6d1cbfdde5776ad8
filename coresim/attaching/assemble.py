"""Make a `Profile` from what the ranks of an attached program found."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from coresim import __version__, stats
from coresim.attaching.program_warnings import program_warnings
from coresim.files import as_record
from coresim.measure.host import read_host
from coresim.measure.speed_evidence import speed_table
from coresim.model.loader_settings import LoaderSettings
from coresim.model.measurement import Measurement
from coresim.model.profile import AcceleratorSource, Profile, Provenance
from coresim.model.profile_scenario import relative_error
from coresim.model.today import Today
from coresim.model.warning import HostWarning

#: A loop that computes for more than this share of its step holds its core meanwhile.
COMPUTES = 0.5
DEVICE = "the device's own time of a step, by events, while the program's loop is fed with batches kept in memory"
STEP = "the program's loop, fed with batches kept in memory: from a batch to the next ask for one"

Found = Sequence[dict[str, Any]]


def profile_of(
    found: Found, command: Sequence[str], said: str, began: str, warnings: Sequence[HostWarning] = ()
) -> Profile:
    """The profile of an attached job, from what each rank ``found``.

    ``said`` is coresim's own command line; ``began``: its start, ISO 8601. ``warnings`` are added to those of the
    ranks.
    """
    first = found[0]
    samples: int | None = first["settings"]["samples"]
    cpus = set(chain.from_iterable(told["settings"]["cpus"] for told in found))
    host = read_host(affinity=lambda: cpus)
    how = DEVICE if first["step"]["device"] else STEP
    step = Measurement("accelerator.step", "s/step", tuple(tuple(step_seconds(told)) for told in found), how)
    measured = [step, *_beside(found), *costs_of(first)]
    speed = speed_table(measured, host)
    today = today_of(found, command, len(cpus))
    return Profile(
        workload=name_of(command),
        loader=first["loader"]["loader"],
        batch_size=size_of(first),
        samples=None if samples is None else samples * items_of(first),
        bytes_per_batch=first["step"]["batch_bytes"],
        arrays_per_batch=first["step"]["batch_arrays"],
        host=host,
        accelerator=_source(found, step),
        provenance=Provenance(
            tool_version=__version__,
            command=said,
            time_utc=began,
            host_fingerprint=host.fingerprint,
            python_version=first["settings"]["python"],
            torch_version=first["settings"]["torch"],
        ),
        speed=speed.values,
        speed_uncertainty=speed.uncertainties,
        speed_provenance="; ".join(speed.provenance),
        warnings=(*warnings, *program_warnings(found, today)),
        today=today,
        measurements=tuple(measured),
    )


def name_of(command: Sequence[str]) -> str:
    """What the job is called: its script or module, or the command itself."""
    for before, word in zip(["", *command], command, strict=False):
        if before == "-m" and "torch" not in word and "accelerate" not in word:
            return word
        if word.endswith((".py", ".sh")):
            return Path(word).name
    return " ".join([Path(command[0]).name, *(word for word in command if word in ("-c", "-"))])


def size_of(told: dict[str, Any]) -> int:
    """Samples of a rank's batch: the loader's; where the program makes its own batches, the mean of those seen."""
    sizes, kept = told["sizes"], told["step"]["batch_length"]
    return told["settings"]["batch_size"] or max(1, round(sizes["mean"] if sizes else kept or 1))


def failures_of(found: Found) -> dict[int, str]:
    """Why the loader of some rank failed, by the number of workers that it was tried with."""
    return {trial["workers"]: trial["failed"] for told in found for trial in told["trials"] if "failed" in trial}


def trials_of(found: Found, command: Sequence[str], threads: int) -> list[Today]:
    """The loop with each other number of workers that its loader runs with, as if it were today's."""
    tried, failures = [], failures_of(found)
    for number, trial in enumerate(found[0]["trials"]):
        if trial["workers"] in failures:
            continue
        own = {"workers": trial["workers"]}
        seen = [told | {"today": told["trials"][number], "settings": told["settings"] | own} for told in found]
        tried.append(today_of(seen, command, threads))
    return tried


def today_of(found: Found, command: Sequence[str], threads: int) -> Today:
    """The first phase, all ranks together."""
    first, settings = found[0], found[0]["settings"]
    waits = [stats.mean(told["today"]["waits"]) for told in found]
    steps = [stats.mean(told["today"]["steps"]) for told in found]
    batches = sum(len(told["today"]["waits"]) for told in found)
    optimizer_steps = sum(told["today"]["optimizer_steps"] for told in found)
    pairs = list(zip(waits, steps, strict=True))
    busy = [_busy(told, wait, step) for told, (wait, step) in zip(found, pairs, strict=True)]
    sizes = [told["sizes"]["mean"] if told["sizes"] else size_of(told) for told in found]
    rates = [size / (wait + step) for size, (wait, step) in zip(sizes, pairs, strict=True)]
    return Today(
        program=shlex.join(command),
        gpu_idle=1.0 - stats.mean(busy),
        samples_per_s=sum(rates),
        wait=stats.mean(waits),
        step=stats.mean(steps),
        batches=batches,
        batch_size=size_of(first),
        **_sizes(found),
        threads=threads,
        ranks=len(found),
        sync="spin" if computes(found) else "block",
        device="cuda" if settings["cuda"] else "cpu",
        **{name: settings[name] for name in settings.keys() & LoaderSettings.__dataclass_fields__},
        steady=all(told["steady"] for told in found),
        batches_per_step=batches / max(1, optimizer_steps),
        rank_busy=tuple(busy),
        **_epochs(first["today"]),
        other_cores=max(0.0, found[0]["today"]["cores"][2] - sum(sum(told["today"]["cores"][:2]) for told in found)),
        worker_cpu=sum(told["today"]["cores"][1] for told in found) / sum(1 / (w + s) for w, s in pairs),
    )


def _sizes(found: Found) -> dict[str, Any]:
    """Of all ranks' batches; nothing where those of one do not tell."""
    sizes = [told["sizes"] for told in found]
    if None in sizes:
        return {}
    return {
        "batch_least": min(size["least"] for size in sizes),
        "batch_most": max(size["most"] for size in sizes),
        "batch_mean": stats.mean([size["mean"] for size in sizes]),
    }


def _epochs(told: dict[str, Any]) -> dict[str, Any]:
    """Of one rank; nothing where no epoch was seen to end and the next to begin."""
    if not told["epoch"] or not told["starts"]:
        return {}
    return {
        "epoch_batches": told["epoch"],
        "epoch_wait": stats.mean(told["starts"]),
        "epoch_period": told["epoch_period"],
    }


def _busy(told: dict[str, Any], wait: float, step: float) -> float:
    """Share of the time in which one rank's device works.

    The CPU works between fetches. A CUDA device works asynchronously, and one of several ranks waits for the others
    within its step: in both cases the work is the step without waiting.
    """
    if told["settings"]["cuda"] or told["local_world"] > 1:
        return min(1.0, stats.mean(step_seconds(told)) / (wait + step))
    return step / (wait + step)


def foreign_of(found: Found) -> dict[str, Any]:
    """The facts of ranks whose loader cannot run without its loop; times in seconds per batch.

    The loader's CPU time is that of all processes of the program beyond the loop's own step: what it costs to feed one.
    """
    waits = [stats.mean(told["today"]["waits"]) for told in found]
    steps = [stats.mean(told["today"]["steps"]) for told in found]
    alone = stats.mean(_flat(found, "steps"))
    period = stats.mean(waits) + stats.mean(steps)
    used = stats.mean([sum(told["today"]["cores"][:2]) for told in found])
    cost = max(0.0, used * period - stats.mean(_flat(found, "busy")))
    return {
        "gpu_idle_observed": stats.mean([wait / (wait + step) for wait, step in zip(waits, steps, strict=True)]),
        "ranks": len(found),
        "wait_s": stats.mean(waits),
        "step_s": stats.mean(steps),
        "step_without_waiting_s": alone,
        "program_cores": used,
        "loader_cpu_s": cost,
        "least_cores": cost / alone,
    }


def computes(found: Found) -> bool:
    """Whether the loop's own thread works for most of a step."""
    return stats.mean(_flat(found, "cpu")) > COMPUTES * stats.mean(_flat(found, "steps"))


def _flat(found: Found, name: str) -> list[float]:
    return [value for told in found for value in told["step"][name]]


def step_seconds(told: dict[str, Any]) -> list[float]:
    """A rank's steps without waiting: the device's own time where it has one, else the loop's."""
    found: list[float] = told["step"]["device"] or told["step"]["steps"]
    return found


def _beside(found: Found) -> list[Measurement]:
    """With a device: the CPU time of the process for a step, the loop's time for it, and the copy that is in the step.

    Autograd launches the backward pass from a thread of its own, and the loop's thread waits for it. The CPU time of
    both is the launch, which is no longer than the step.
    """
    if not found[0]["step"]["device"]:
        return []
    launches = tuple(tuple(map(min, told["step"]["busy"], told["step"]["steps"])) for told in found)
    how = "CPU time of the process per step, all threads, at most the loop's step; fed from memory"
    steps, copies = (tuple(tuple(told["step"][name]) for told in found) for name in ("steps", "copies"))
    copying = "a kept batch copied to the device, by events; the step has it too"
    return [
        Measurement("accelerator.launch", "s/step", launches, how),
        Measurement("loop.step", "s/batch", steps, STEP),
        Measurement("loop.copy", "s/batch", copies, copying),
    ]


def _source(found: Found, step: Measurement) -> AcceleratorSource:
    device = "its CUDA device" if found[0]["settings"]["cuda"] else "the CPU: what the loop does with a batch"
    return AcceleratorSource(
        kind="measured",
        provenance=f"the program's own loop without waiting, {len(step.flat)} batches, on {device}",
        uncertainty=relative_error(step.values),
        synchronises=found[0]["step"]["synchronises"],
    )


def costs_of(told: dict[str, Any]) -> list[Measurement]:
    """What a rank's loader costs.

    A data set that gives whole batches ran item by item: the samples in an item share its time.
    """
    size, costs = items_of(told), []
    for table in told["loader"]["measurements"]:
        cost: Measurement = as_record(Measurement, table)
        if size > 1 and cost.unit == "s/sample":
            values = tuple(tuple(value / size for value in each) for each in cost.values)
            cost = replace(
                cost, values=values, how=f"{cost.how}; of each of the {size} samples in what the data set gives"
            )
        costs.append(cost)
    return costs


def items_of(told: dict[str, Any]) -> int:
    """Samples of what the data set gives for one index."""
    return 1 if told["settings"]["batched"] else size_of(told)
