"""A fleet to plan for: workloads with their GPU-hours, and the machines or site rules that could run them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from coresim.errors import InputError, UnknownKeyError
from coresim.files import read_toml
from coresim.machines.machines import Machine, find_machine, load_machines, read_machines
from coresim.model.keys import (
    PARTS,
    POSITIVE,
    TEXT,
    Kind,
    choice,
    key,
    list_of,
    read_section,
    section_schema,
    table_of,
    unknown_key,
)
from coresim.model.load import load_input
from coresim.model.option import Option
from coresim.model.scenario import Scenario
from coresim.model.service import SERVICE, Service
from coresim.units import short

_OPTION = Kind(lambda value, where: Option(int(choice("1", "2", "3").read(short(value), where))), {"enum": [1, 2, 3]})


@dataclass(frozen=True)
class WorkloadTable:
    """``[[workload]]``."""

    path: str = key(TEXT, "path of a profile or scenario, from the fleet file's folder")
    gpu_hours: float = key(POSITIVE, "GPU-hours of work on the GPU of that file, were it never idle")
    name: str | None = key(TEXT, "what the workload is called; absent: the file's name", None)
    gpu: str | None = key(TEXT, "GPU that its step time is for; absent: accelerator.name", None)
    cpu: str | None = key(TEXT, "CPU that its CPU times are for; absent: the profile's", None)
    model: str | None = key(TEXT, "net of the step catalogue, for the step time on other GPUs", None)
    precision: str | None = key(TEXT, "precision of the catalogue's step", None)
    steps: dict[str, Service] = key(table_of(SERVICE), "step time on other GPUs, by GPU name", None)
    set: tuple[str, ...] = key(list_of(TEXT), 'overrides such as "target.gpu_idle=0.1"', ())


@dataclass(frozen=True, kw_only=True)
class Offer:
    """What a host comes with, and at what price."""

    gpu: str | None = key(TEXT, "its GPU; absent: that of each workload", None)
    cores_per_gpu: float | None = key(POSITIVE, "physical cores that come with each GPU", None)
    most_cores_per_gpu: float | None = key(POSITIVE, "most physical cores that may be asked for with each GPU", None)
    threads_per_core: int | None = key(PARTS, "hardware threads per physical core", None)
    cpu: str | None = key(TEXT, "its CPU", None)
    price_per_core_h: float | None = key(POSITIVE, "USD per physical core and hour", None)
    price_per_gpu_h: float | None = key(POSITIVE, "USD per GPU and hour", None)


@dataclass(frozen=True, kw_only=True)
class Site(Offer):
    """``[[site]]``: the rules of a place that hands out cores with its GPUs."""

    name: str = key(TEXT, "what the site is called")
    gpus: tuple[int, ...] = key(list_of(PARTS), "GPUs of one job on one host, each count a candidate", (1,))


@dataclass(frozen=True)
class FleetTable:
    """The top of a fleet file."""

    machines: tuple[str, ...] = key(list_of(TEXT), 'names of coresim machines, or ["all"]', ())
    machine_file: str | None = key(TEXT, "CSV file of your own machines, all of which are candidates", None)
    options: tuple[Option, ...] = key(
        list_of(_OPTION), "organisations of the pipeline to consider", (Option.OVERLAPPED,)
    )
    cpu_speed: dict[str, float] = key(
        table_of(POSITIVE), "speed of a core by CPU name, on any one scale; measured by you on a like job", None
    )


@dataclass(frozen=True)
class FleetWorkload:
    """One job of the fleet; ``gpu`` and ``cpu``: what its times were measured on, None where that is not known."""

    name: str
    scenario: Scenario
    gpu_hours: float
    gpu: str | None = None
    cpu: str | None = None
    model: str | None = None
    precision: str | None = None
    steps: dict[str, Service] = field(default_factory=dict)

    @property
    def samples(self) -> float:
        """Samples that the GPU-hours come to, on the input's own GPU without idle."""
        return self.gpu_hours * 3600 * self.scenario.workload.batch_size / self.scenario.accelerator.step.mean


@dataclass(frozen=True, kw_only=True)
class Candidate(Offer):
    """One kind of host for one job; without a fixed number of cores, it has as many as are asked for.

    Attributes:
        name: of the machine, or of the site with its GPU count.
        gpu_count: GPUs of the host, all for this job.
        memory_bytes: of the host.
        price_per_h: USD per hour of the host; None: by core and GPU.
    """

    name: str
    gpu_count: int
    memory_bytes: float | None = None
    price_per_h: float | None = None

    def price(self, cores_per_gpu: float) -> float | None:
        """USD per hour of the host with so many cores for each GPU, or None where it is not known."""
        if self.price_per_h is not None or (self.price_per_core_h is None and self.price_per_gpu_h is None):
            return self.price_per_h
        return self.gpu_count * ((self.price_per_gpu_h or 0.0) + (self.price_per_core_h or 0.0) * cores_per_gpu)


@dataclass(frozen=True)
class Fleet:
    """What a fleet file says, with its inputs read."""

    workloads: tuple[FleetWorkload, ...]
    candidates: tuple[Candidate, ...]
    options: tuple[Option, ...] = (Option.OVERLAPPED,)
    cpu_speed: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for what, items in (("workload", self.workloads), ("candidate", self.candidates)):
            names = [item.name for item in items]  # type: ignore[attr-defined]
            if not names:
                remedy = "[[workload]]" if items is self.workloads else 'machines = ["NAME", ...] or [[site]]'
                raise InputError(f"no {what}: write {remedy}")
            twice = next((name for name in names if names.count(name) > 1), None)
            if twice is not None:
                raise InputError(f"{what} {twice!r} is there twice; give each a name of its own")


def load_fleet(path: str | os.PathLike[str]) -> Fleet:
    """A fleet from its TOML file; the paths in it are from its folder.

    Raises:
        InputError, UnknownKeyError: what is wrong, with the file, the key, the value and the remedy.
    """
    if Path(path).suffix == ".json":
        raise InputError(
            f'{path}: a fleet file is TOML; name a profile in it, as [[workload]] path = "{Path(path).name}"'
        )
    try:
        return _read(read_toml(path), Path(path).parent)
    except InputError as error:
        raise error if str(error).startswith(f"{path}:") else type(error)(f"{path}: {error}") from None


def fleet_schema() -> dict[str, Any]:
    """JSON schema of a fleet file."""
    lists = {"workload": WorkloadTable, "site": Site}
    top = section_schema(FleetTable)
    top["properties"] |= {name: {"type": "array", "items": section_schema(kind)} for name, kind in lists.items()}
    title = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "coresim fleet"}
    return title | top | {"required": ["workload"]}


def _read(document: dict[str, Any], folder: Path) -> Fleet:
    top = FleetTable.__dataclass_fields__
    for name in document:
        if name not in top and name not in ("workload", "site"):
            raise UnknownKeyError(unknown_key(name, name, {**top, "workload": None, "site": None}))
    table = read_section(FleetTable, {name: value for name, value in document.items() if name in top}, "fleet")
    workloads = tuple(_workload(item, folder) for item in _sections(document, "workload", WorkloadTable))
    sites = _sections(document, "site", Site)
    machines = _machines(table, folder)
    candidates = (*map(candidate_of, machines), *(found for site in sites for found in candidates_of(site)))
    return Fleet(workloads, candidates, tuple(sorted(set(table.options))), dict(table.cpu_speed or {}))


def _sections(document: dict[str, Any], name: str, kind: type[Any]) -> list[Any]:
    tables = document.get(name, [])
    if not isinstance(tables, list):
        raise InputError(f"{name}: write [[{name}]] with two brackets, once for each {name}")
    return [read_section(kind, table, f"{name}[{index}]") for index, table in enumerate(tables)]


def _workload(table: WorkloadTable, folder: Path) -> FleetWorkload:
    path = folder / table.path
    scenario, profile = load_input(path, table.set)
    name, cpu = table.name or path.stem, table.cpu or (profile.host.cpu_model if profile else None)
    gpu = table.gpu or scenario.accelerator.name
    return FleetWorkload(
        name, scenario, table.gpu_hours, gpu, cpu, table.model, table.precision, dict(table.steps or {})
    )


def _machines(table: FleetTable, folder: Path) -> Sequence[Machine]:
    own = read_machines(folder / table.machine_file) if table.machine_file else ()
    known = (*own, *load_machines())
    if table.machines == ("all",):
        return known
    return (*own, *(find_machine(name, known) for name in table.machines))


def candidate_of(machine: Machine) -> Candidate:
    """A machine of the catalogue with all its GPUs and cores for one job."""
    return Candidate(
        name=machine.id,
        gpu=machine.gpu,
        gpu_count=machine.gpu_count,
        cores_per_gpu=machine.cores_per_gpu,
        threads_per_core=machine.threads_per_core,
        cpu=machine.cpu,
        memory_bytes=machine.memory_bytes,
        price_per_h=machine.price_usd_per_h,
    )


def candidates_of(site: Site) -> tuple[Candidate, ...]:
    """One candidate for each GPU count of a site.

    Raises:
        InputError: both a fixed number of cores and a limit.
    """
    if site.cores_per_gpu is not None and site.most_cores_per_gpu is not None:
        raise InputError(f"site {site.name!r}: cores_per_gpu is fixed and most_cores_per_gpu is a limit; give one")
    offer = {item.name: getattr(site, item.name) for item in fields(Offer)}
    return tuple(Candidate(name=f"{site.name} x{count}", gpu_count=count, **offer) for count in site.gpus)
