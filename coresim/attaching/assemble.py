"""From what the ranks of an attached program found to a `Profile`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from coresim import __version__, stats
from coresim.attaching.observe import batch_size
from coresim.measure.host import read_host
from coresim.measure.speed import speed_table
from coresim.model.caution import Caution
from coresim.model.host import HostFacts
from coresim.model.measurement import Measurement
from coresim.model.profile import AcceleratorSource, Profile, Provenance
from coresim.model.profile_tables import relative_error
from coresim.model.today import Today
from coresim.units import format_duration

#: A loop that computes for more than this share of its step holds its core meanwhile.
COMPUTES = 0.5
STEP = "the program's loop, fed with batches kept in memory: from a batch to the next ask for one"

Found = Sequence[dict[str, Any]]


def profile_of(found: Found, command: Sequence[str], said: str, began: str) -> Profile:
    """The profile of an attached job.

    Args:
        found: what each rank told, by rank.
        command: the program.
        said: coresim's own command line.
        began: when, ISO 8601.
    """
    first = found[0]
    cpus = set(chain.from_iterable(told["settings"]["cpus"] for told in found))
    host = read_host(affinity=lambda: cpus)
    step = _step(found)
    measured = [step, *_costs(first["loader"])]
    speed = speed_table(measured, host)
    return Profile(
        workload=name_of(command),
        loader=first["loader"]["loader"],
        batch_size=size_of(first),
        samples=first["settings"]["samples"],
        bytes_per_batch=first["step"]["batch_bytes"],
        arrays_per_batch=first["step"]["batch_arrays"],
        host=host,
        accelerator=_source(found, step),
        provenance=_provenance(first, host, said, began),
        speed=speed.values,
        speed_uncertainty=speed.uncertainties,
        speed_basis="; ".join(speed.basis),
        cautions=(*_cautions(found), *(Caution(*caution) for caution in first["loader"]["cautions"])),
        today=today_of(found, command, len(cpus)),
        measurements=tuple(measured),
    )


def name_of(command: Sequence[str]) -> str:
    """What the job is called: its script or module, or the command itself."""
    for before, word in zip(["", *command], command, strict=False):
        if before == "-m" and "torch" not in word and "accelerate" not in word:
            return word
        if word.endswith((".py", ".sh")):
            return Path(word).name
    return Path(command[0]).name


def size_of(told: dict[str, Any]) -> int:
    """Samples of a rank's batch."""
    return batch_size(told["settings"], told["step"])


def trials_of(found: Found, command: Sequence[str], threads: int) -> list[Today]:
    """The loop with other numbers of workers, one after the other, each as if it were today's."""
    tried = []
    for number, trial in enumerate(found[0]["trials"]):
        own = {"workers": trial["workers"]}
        seen = [told | {"today": told["trials"][number], "settings": told["settings"] | own} for told in found]
        tried.append(today_of(seen, command, threads))
    return tried


def today_of(found: Found, command: Sequence[str], threads: int) -> Today:
    """The first phase, all ranks together."""
    settings = found[0]["settings"]
    waits = [stats.mean(told["today"]["waits"]) for told in found]
    steps = [stats.mean(told["today"]["steps"]) for told in found]
    batches = sum(len(told["today"]["waits"]) for told in found)
    optimizer_steps = sum(told["today"]["optimizer_steps"] for told in found)
    pairs = list(zip(waits, steps, strict=True))
    busy = [_busy(told, wait, step) for told, (wait, step) in zip(found, pairs, strict=True)]
    rates = [size_of(told) / (wait + step) for told, (wait, step) in zip(found, pairs, strict=True)]
    return Today(
        program=shlex.join(command),
        gpu_idle=1.0 - stats.mean(busy),
        samples_per_s=sum(rates),
        wait=stats.mean(waits),
        step=stats.mean(steps),
        batches=batches,
        workers=settings["workers"],
        threads=threads,
        ranks=len(found),
        sync="spin" if computes(found) else "block",
        device="cuda" if settings["cuda"] else "cpu",
        prefetch_factor=settings["prefetch_factor"],
        pin_memory=settings["pin_memory"],
        persistent_workers=settings["persistent_workers"],
        in_order=settings["in_order"],
        steady=all(told["steady"] for told in found),
        batches_per_step=batches / max(1, optimizer_steps),
        rank_busy=tuple(busy),
        other_cores=max(0.0, found[0]["today"]["cores"][2] - sum(sum(told["today"]["cores"][:2]) for told in found)),
        worker_cpu=sum(told["today"]["cores"][1] for told in found) / sum(1 / (w + s) for w, s in pairs),
    )


def _busy(told: dict[str, Any], wait: float, step: float) -> float:
    """Share of the time in which one rank's device works.

    On the CPU it works between fetches. A CUDA device works behind the loop's back, and a rank of several waits for the
    others within its step: there the work is the step without waiting.
    """
    if told["settings"]["cuda"] or told["local_world"] > 1:
        return min(1.0, stats.mean(told["step"]["steps"]) / (wait + step))
    return step / (wait + step)


def computes(found: Found) -> bool:
    """Whether the loop's own thread works for most of a step."""
    return stats.mean(_flat(found, "cpu")) > COMPUTES * stats.mean(_flat(found, "steps"))


def _flat(found: Found, name: str) -> list[float]:
    return [value for told in found for value in told["step"][name]]


def _step(found: Found) -> Measurement:
    return Measurement("accelerator.step", "s/step", tuple(tuple(told["step"]["steps"]) for told in found), STEP)


def _source(found: Found, step: Measurement) -> AcceleratorSource:
    device = "its CUDA device" if found[0]["settings"]["cuda"] else "the CPU: what the loop does with a batch"
    error = relative_error(step.values)
    return AcceleratorSource(
        kind="measured",
        basis=f"the program's own loop without waiting, {len(step.flat)} batches, on {device}",
        uncertainty=error,
        synchronises=not found[0]["settings"]["cuda"],
        name=None,
    )


def _costs(loader: dict[str, Any]) -> list[Measurement]:
    return [Measurement(m["name"], m["unit"], tuple(map(tuple, m["values"])), m["how"]) for m in loader["measurements"]]


def _provenance(told: dict[str, Any], host: HostFacts, said: str, began: str) -> Provenance:
    return Provenance(
        tool_version=__version__,
        command=said,
        time_utc=began,
        host_fingerprint=host.fingerprint,
        python_version=told["settings"]["python"],
        torch_version=told["settings"]["torch"],
    )


def _cautions(found: Found) -> list[Caution]:
    cautions = []
    if not found[0]["settings"]["cuda"]:
        step = format_duration(stats.mean(_flat(found, "steps")))
        cautions.append(
            Caution(
                "the program trains without CUDA",
                f"the step is what its loop does with a batch: {step}",
                "a GPU changes it: --gpu takes a recorded step, --step-time one that you know",
            )
        )
    return cautions
