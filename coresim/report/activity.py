"""A watched job as sections, and its lines while it is watched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from coresim.advise.activity import Activity
from coresim.model.activity import Tick
from coresim.report.content import Items, Section, statements
from coresim.report.words import percent, plural


def tick_line(tick: Tick) -> str:
    """One line per tick, printed while the job is watched."""
    gpu = " ".join(f"{100 * share:3.0f}%" for share in tick.gpus) or "-"
    workers = [process for process in tick.workers if process.cores > 0.01 or process.state in "RD"]
    states = "".join(process.state for process in workers) or "-"
    return (
        f"{tick.second:7.1f} s  GPU {gpu}  trainer {tick.main_cores:4.2f}  workers"
        f" {sum(p.cores for p in workers):5.2f} cores ({states})  host {tick.host_cores:5.2f}"
        f"  I/O wait {tick.io_wait_cores:4.2f}"
    )


def activity_sections(found: Activity, waits: Mapping[int, float]) -> tuple[Section, ...]:
    """The verdict, the numbers, what they cannot show, and how long each rank's loop waited (``waits``)."""
    gpu = "no GPU was read" if found.gpu is None else f"GPU utilisation {percent(found.gpu)}"
    gpu += _stretches("of zero utilisation", found.zero_runs)
    pairs = zip(found.worker_cores, found.worker_states, strict=True)
    workers = ", ".join(f"{cores:.2f} ({_states(states)})" for cores, states in pairs) or "none"
    if found.generations > 1:
        workers += f", started anew {plural(found.generations - 1, 'time')}"
    work = found.seconds - found.start_s - found.end_s
    apart = (
        f" (start-up {found.start_s:.1f} s, work {work:.1f} s, end {found.end_s:.1f} s)" if found.worker_cores else ""
    )
    trainer = "trainer" if found.trainers < 2 else f"each of {found.trainers} trainers"
    events = _stretches("with all its cores busy", found.busy_runs)
    events += _stretches("of waiting for a device", found.wait_runs)
    numbers = (
        f"cores{' at work' if apart else ''}: the job used {found.job_cores:.2f} of {found.usable_cores:g};"
        f" {trainer} {found.main_cores:.2f}; workers {workers}; whole host {found.host_cores:.2f}",
        f"waiting for a device in {percent(found.io_wait)} of the ticks; {found.faults:.0f} page faults/s",
        f"events{events or ': none'}",
    )
    advice = (f"What to do: {found.advice}.",)
    return (
        Section(f"Verdict: {found.verdict} ({found.why}).", (Items(advice, marked=False),)),
        Section(f"Watched {found.seconds:.1f} s{apart}: {gpu}.", (Items(numbers, marked=False),)),
        Section("What counters cannot tell:", (Items(found.blind),)),
        statements(f"Seen from inside: {line}" for line in waiting(waits)),
    )


def _stretches(what: str, runs: tuple[int, ...]) -> str:
    """Stretches in words; `nvidia-smi dmon` shows them as columns of zeros, `glances` as events with a duration."""
    if not runs:
        return ""
    count = f"{len(runs)} stretch{'' if len(runs) == 1 else 'es'}"
    return f"; {count} {what}, the longest {plural(max(runs), 'tick')}, {sum(runs)} in all"


def _states(states: dict[str, float]) -> str:
    return " ".join(f"{state} {100 * share:.0f} %" for state, share in states.items())


def activity_document(found: Activity, ticks: list[Tick]) -> dict[str, Any]:
    """The same as one JSON object; shares, seconds, cores."""
    return {
        "activity": asdict(found),
        "ticks": [asdict(tick) | {"processes": [p._asdict() for p in tick.processes]} for tick in ticks],
    }


def waiting(shares: Mapping[int, float]) -> list[str]:
    """How long each rank's loop waits for its loader, as a part of a line; empty if no loop was seen."""
    if not shares:
        return []
    if len(shares) == 1:
        return [f"waits for the loader {percent(next(iter(shares.values())))}"]
    return ["waits for the loader " + ", ".join(f"rank {rank} {percent(share)}" for rank, share in shares.items())]
