"""Lists of the package: recorded steps, presets, storage tiers, workloads and machines, for people and as records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from coresim.machines.catalogue import LOADER_BOUND, StepRow
from coresim.machines.machines import CERTAINTIES, Machine
from coresim.model.presets import Preset
from coresim.model.storage import Tier
from coresim.report.content import Items, Section, Table, statements
from coresim.report.plain import answer_lines, section_text
from coresim.report.words import csv_text, plural
from coresim.units import format_bytes, format_duration

if TYPE_CHECKING:
    from coresim.workloads.registry import ListedWorkload

#: A JPEG of a usual size, to compare tiers by.
_SHOWN = 120e3
#: What a machine's letters of certainty stand for, in their order.
_PARTS = ("gpu", "cores", "cpu", "memory", "bandwidth", "price")


@dataclass(frozen=True)
class Listing:
    """Rows with all of their fields in ``document``, and a table with ``notes`` for people."""

    document: dict[str, Any]
    table: Table
    notes: tuple[Section, ...]

    def __str__(self) -> str:
        return answer_lines("", Section("", (self.table,)), *self.notes)


def _document(name: str, **content: Any) -> dict[str, Any]:
    """Records, units in their keys, under a format name and version."""
    return {"format": f"coresim-{name}", "schema_version": 1, **content}


def catalogue_listing(rows: Sequence[StepRow]) -> Listing:
    """Step times per step, samples/s per GPU."""
    columns = ("model", "GPU", "precision", "batch", "step", "samples/s", "certainty", "kind", "framework", "source")
    cells = tuple(
        (row.model, row.gpu, row.precision, str(row.batch_size), format_duration(row.step_time_s),
         f"{row.throughput_samples_per_s:.4g}", row.certainty, row.kind, row.framework, row.source)
        for row in rows
    )  # fmt: skip
    counts = ", ".join(f"{count} {kind}" for kind, count in Counter(row.kind for row in rows).most_common())
    notes = (
        f"{len(rows)} rows: {counts}",
        "gpu_step: synthetic data on the GPU. gpu_bound: end to end, the GPU sets the rate.",
        "unproven: end to end, no evidence either way. estimate: scaled from another GPU.",
        f"emulated: a storage benchmark's stand-in. {LOADER_BOUND}: the loader sets the rate; never chosen.",
    )
    document = _document("catalogue", rows=[asdict(row) for row in rows])
    return Listing(document, Table(columns, cells), (statements(notes),))


def presets_listing(presets: Sequence[Preset]) -> Listing:
    """One line for each preset."""
    cells = tuple(
        (preset.name, ",".join(map(str, preset.options)), preset.framework, preset.checked,
         preset.settings.replace("{{", "{").replace("}}", "}"))
        for preset in presets
    )  # fmt: skip
    table = Table(("preset", "option", "checked against", "by", "its settings"), cells)
    note = "by probe: the real one was run; source: its code was read. coresim presets NAME says what and where."
    records = [{**vars(preset), "loader": dict(preset.loader)} for preset in presets]
    return Listing(_document("presets", presets=records), table, (statements([note]),))


def preset_text(preset: Preset) -> str:
    """One preset in full."""
    lines = [
        f"{preset.name}: {preset.system}",
        f"option: {', '.join(f'{option} ({option.label})' for option in preset.options)}",
        f"[loader]: {', '.join(f'{name} = {value!r}' for name, value in preset.loader.items())}",
        f"settings: {preset.settings}",
        f"checked against: {preset.framework}, by {preset.checked}: {preset.how}",
        f"leaves out: {preset.limits}",
    ]
    if preset.needs:
        lines.append(f"say beside it what the work then costs: {' or '.join(preset.needs)}")
    return section_text(statements(lines))


def storage_listing(rows: Sequence[Tier]) -> Listing:
    """One line for each tier, then where each is published."""
    columns = (
        "storage", "tier", "latency", "bandwidth", "reads/s", "at once", "120 kB read", "certainty", "what it is"
    )  # fmt: skip
    sources = Items(tuple(f"{tier.name}: {tier.source}. {tier.notes}." for tier in rows), marked=False)
    notes = Section("Published in, and what was taken from it", (sources,))
    table = Table(columns, tuple(map(_tier, rows)))
    return Listing(_document("storage", rows=[asdict(tier) for tier in rows]), table, (notes,))


def _tier(tier: Tier) -> tuple[str, ...]:
    low, high = format_duration(tier.latency_low_s), format_duration(tier.latency_high_s)
    rate = tier.stream_bytes_per_s or tier.bandwidth_bytes_per_s or 0.0
    streams = tier.streams(_SHOWN)
    return (
        tier.name, tier.tier, low if low == high else f"{low} to {high}",
        f"{format_bytes(rate)}/s{' each' if tier.stream_bytes_per_s else ''}",
        "" if tier.iops is None else f"{tier.iops:g}", "" if streams is None else f"{streams:.3g}",
        format_duration(tier.read_time(_SHOWN).mean), tier.certainty, tier.what,
    )  # fmt: skip


def workloads_listing(found: Sequence[ListedWorkload], default: str) -> Listing:
    """Name, samples per batch, steps, what it is for; then how to use them."""
    cells = tuple(
        (entry.name, str(entry.batch_size), ", ".join(entry.steps),
         entry.purpose + (f" (needs {entry.needs})" if entry.needs else ""))
        for entry in found
    )  # fmt: skip
    notes = (
        f"All make their own small data on the spot. Default: {default}. For example: coresim recommend --workload"
        " tiny",
        "To add one in twenty lines: python -m pydoc coresim.workloads. A dataset that you have: --dataset module:name",
    )
    records = [{**entry._asdict(), "steps": list(entry.steps)} for entry in found]
    document = _document("workloads", default=default, workloads=records)
    return Listing(document, Table(("name", "batch", "steps", "what for"), cells), (statements(notes),))


def machines_listing(machines: Sequence[Machine]) -> Listing:
    """One line for each machine; cores are physical; then what the letters of certainty mean."""
    columns = (
        "machine", "GPUs", "GPU", "cores", "cores/GPU", "threads/core", "CPU", "memory GiB", "GB/s", "USD/h",
        "USD/GPU h", "price of", "certainty",
    )  # fmt: skip
    about = (
        f"{plural(len(machines), 'machine')}. Cores are physical; GB/s is the theoretical peak of all sockets, of which"
        " an instance on a shared host gets a part; prices are on demand, on the day given, and change."
        " --json and --csv give every field, with the source of each row and price."
    )
    letters = Items(tuple(f"{name[0]} {name}: {meaning}" for name, meaning in CERTAINTIES.items()), marked=False)
    notes = (statements([about]), Section(f"Certainty of {', '.join(_PARTS)}, one letter each:", (letters,)))
    table = Table(columns, tuple(map(_machine, machines)))
    return Listing(_document("machines", machines=[asdict(machine) for machine in machines]), table, notes)


def _machine(machine: Machine) -> tuple[str, ...]:
    def shown(value: float | None) -> str:
        return "?" if value is None else f"{value:.4g}"

    return (
        machine.id, str(machine.gpu_count), machine.gpu, str(machine.physical_cores), shown(machine.cores_per_gpu),
        shown(machine.threads_per_core), machine.cpu or "?", shown(machine.memory_gib), shown(machine.bandwidth_gb_s),
        shown(machine.price_usd_per_h), shown(machine.price_per_gpu_h), machine.price_date or "?",
        "".join(getattr(machine, f"certainty_{part}")[0] for part in _PARTS),
    )  # fmt: skip


def machines_csv(machines: Sequence[Machine]) -> str:
    """The machines as `coresim.machines.machines.read_machines` reads them back; an unknown fact is empty."""
    return csv_text([item.name for item in fields(Machine)], map(asdict, machines))
