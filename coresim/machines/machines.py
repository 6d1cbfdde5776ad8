"""GPU instances and servers that one can rent or buy: what each offers, at what price, and how sure each fact is.

The rows are in ``coresim/data/machines.csv``. A fact's certainty is one word of `CERTAINTIES`; a fact that is not known
is ``None``, never 0. Bandwidth is the theoretical peak of a socket (channels x transfer rate x 8 bytes): an instance on
a shared host gets a part of it. Prices are on demand, in the region and on the day given.
"""

from __future__ import annotations

import csv
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from functools import lru_cache
from typing import Any

from coresim.errors import InputError, UnknownKeyError
from coresim.files import DATA, read_text
from coresim.machines.catalogue import chip, nearest
from coresim.model.checks import check
from coresim.model.keys import unknown_key
from coresim.units import in_bounds, short

#: Certainty of a fact; best first. ``given`` is the user's own.
CERTAINTIES = {
    "stated": "read in the source",
    "given": "from the user's own file",
    "derived": "computed from what the source states",
    "recalled": "from the document named, which was not read again",
    "assumed": "a guess from similar machines: check it",
    "unknown": "not known, or the user's file does not say",
}
_GIB = float(1 << 30)


@dataclass(frozen=True)
class Machine:
    """One kind of machine; ``certainty_*`` are keys of `CERTAINTIES`."""

    id: str
    gpu: str
    gpu_count: int
    physical_cores: int
    provider: str = "own"
    kind: str = "server"  # cloud VM, bare metal or server
    gpu_memory_gb: float | None = None
    threads_per_core: int | None = None
    sockets: int | None = None
    cpu: str | None = None
    cpu_arch: str | None = None
    memory_gib: float | None = None
    bandwidth_gb_s_per_socket: float | None = None  # theoretical
    price_usd_per_h: float | None = None
    price_region: str | None = None
    price_date: str | None = None
    certainty_gpu: str = "given"
    certainty_cores: str = "given"
    certainty_cpu: str = "given"
    certainty_memory: str = "given"
    certainty_bandwidth: str = "given"
    certainty_price: str = "given"
    source: str = "the user's own file"
    price_source: str | None = None
    notes: str | None = None

    def __post_init__(self) -> None:
        for name in _NUMBERS:
            value = getattr(self, name)
            good = value is None or (in_bounds(value) and value > 0)
            check(good, f"{name} = {short(value)}: a positive number is needed; leave it empty where it is not known")
        for name in (item.name for item in fields(self) if item.name.startswith("certainty_")):
            value = getattr(self, name)
            check(value in CERTAINTIES, f"{name} = {value!r}: use one of {', '.join(CERTAINTIES)}")
        priced = self.price_usd_per_h is None or self.price_date is not None
        check(priced, f"price_date: missing for the price of {self.id}; a price without its day misleads")

    @property
    def cores_per_gpu(self) -> float:
        """Physical cores for each GPU."""
        return self.physical_cores / self.gpu_count

    @property
    def price_per_gpu_h(self) -> float | None:
        """USD per hour for each GPU with its share of the host."""
        return None if self.price_usd_per_h is None else self.price_usd_per_h / self.gpu_count

    @property
    def memory_bytes(self) -> float | None:
        """Host memory."""
        return None if self.memory_gib is None else self.memory_gib * _GIB

    @property
    def bandwidth_gb_s(self) -> float | None:
        """Theoretical memory bandwidth of all sockets; what an instance on a shared host cannot exceed."""
        if self.bandwidth_gb_s_per_socket is None or self.sockets is None:
            return None
        return self.bandwidth_gb_s_per_socket * self.sockets


#: Annotations are texts in this module: "int", "float | None", ...
_KINDS = {item.name: str(item.type).partition(" | ")[0] for item in fields(Machine)}
_NUMBERS = {name: int if kind == "int" else float for name, kind in _KINDS.items() if kind != "str"}
_FACTS = {
    "certainty_cpu": "cpu",
    "certainty_memory": "memory_gib",
    "certainty_bandwidth": "bandwidth_gb_s_per_socket",
    "certainty_price": "price_usd_per_h",
}


@lru_cache(maxsize=1)
def load_machines() -> tuple[Machine, ...]:
    """Every machine that is shipped with the package, in file order."""
    return read_machines(DATA / "machines.csv")


def read_machines(path: str | os.PathLike[str]) -> tuple[Machine, ...]:
    """The user's own machines: a CSV file with the columns of `Machine`; id, gpu, gpu_count, physical_cores are needed.

    Raises:
        InputError, UnknownKeyError: the file, the line, the column, the value and the remedy.
    """
    return parse_machines(read_text(path), str(path))


def parse_machines(text: str, source: str) -> tuple[Machine, ...]:
    """Machines from CSV text; ``source`` begins every error."""
    try:
        return _parsed(csv.DictReader(text.lstrip("\ufeff").splitlines()), source)
    except csv.Error as error:
        raise InputError(f"{source}: not a CSV file of machines: {error}") from None


def _parsed(reader: csv.DictReader[str], source: str) -> tuple[Machine, ...]:
    columns = {item.name: item for item in fields(Machine)}
    for name in reader.fieldnames or ():
        if name not in columns:
            raise UnknownKeyError(f"{source}: {unknown_key(f'column {name}', name, columns)}")
    for name in (name for name, item in columns.items() if item.default is MISSING):
        check(name in (reader.fieldnames or ()), f"{source}: column {name}: missing; each machine needs it")
    found = tuple(_machine(record, f"{source}: line {reader.line_num}") for record in reader)
    check(bool(found), f"{source}: holds no machine; write one line for each below the column names")
    names = [machine.id for machine in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    check(twice is None, f"{source}: id {twice!r} is there twice; give each machine a name of its own")
    return found


def _machine(record: Mapping[str | None, Any], where: str) -> Machine:
    check(None not in record, f"{where}: more values than columns; put quotes around a value that holds a comma")
    given = {str(name): value.strip() for name, value in record.items() if value and value.strip()}
    unknown = {certainty: "unknown" for certainty, fact in _FACTS.items() if fact not in given}
    try:
        return Machine(**{name: _number(name, text) for name, text in (unknown | given).items()})  # type: ignore[arg-type]
    except TypeError:
        missing = [item.name for item in fields(Machine) if item.default is MISSING and item.name not in given]
        raise InputError(f"{where}: {', '.join(missing)}: missing; each machine needs it") from None
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def _number(name: str, text: str) -> str | int | float:
    kind = _NUMBERS.get(name, str)
    try:
        found: str | int | float = kind(text)
        return found
    except ValueError:
        what = "whole number" if kind is int else "number"
        raise InputError(f"{name} = {short(text)}: a {what} is needed") from None


@dataclass(frozen=True)
class Filter:
    """Which machines to keep; None: no such condition. Names match without regard to case."""

    gpu: str | None = None
    provider: str | None = None
    name: str | None = None  # a part of the id
    gpus: int | None = None  # exactly so many
    least_cores_per_gpu: float | None = None
    most_price_per_gpu_h: float | None = None
    priced: bool = False

    def keeps(self, machine: Machine) -> bool:
        """Whether the machine meets every condition; an unknown price meets no condition on the price."""
        price = machine.price_per_gpu_h
        conditions = (
            self.gpu is None or same_gpu(self.gpu, machine.gpu),
            self.provider is None or self.provider.lower() == machine.provider.lower(),
            self.name is None or self.name.lower() in machine.id.lower(),
            self.gpus is None or self.gpus == machine.gpu_count,
            self.least_cores_per_gpu is None or machine.cores_per_gpu >= self.least_cores_per_gpu,
            self.most_price_per_gpu_h is None or (price is not None and price <= self.most_price_per_gpu_h),
            not self.priced or price is not None,
        )
        return all(conditions)


def same_gpu(asked: str, name: str) -> bool:
    """Whether two names may mean one chip: ``a100`` and ``NVIDIA A100 SXM 80GB``; form and memory size do not count."""
    return chip(asked) == chip(name)


def select_machines(machines: Iterable[Machine], wanted: Filter, sort: str = "file") -> list[Machine]:
    """The machines that the filter keeps, sorted; those whose price or memory is not known come last.

    Raises:
        InputError: a GPU or provider that no machine has (nearest known ones named), or nothing left.
    """
    table = list(machines)
    _check_known("GPU", wanted.gpu, {machine.gpu for machine in table}, same_gpu)
    providers = {machine.provider for machine in table}
    _check_known("provider", wanted.provider, providers, lambda asked, name: asked.lower() == name.lower())
    found = [machine for machine in table if wanted.keeps(machine)]
    check(bool(found), "no machine meets all conditions; leave one out")
    return sorted(found, key=SORTS[sort])


def find_machine(name: str, machines: Iterable[Machine]) -> Machine:
    """The machine of that id, or of the id without its provider (``p4d.24xlarge``).

    Raises:
        InputError: unknown (nearest known ones named), or several.
    """
    table = {machine.id: machine for machine in machines}
    if name in table:
        return table[name]
    found = [machine for key, machine in table.items() if key.partition(":")[2].lower() == name.lower()]
    if len(found) == 1:
        return found[0]
    near = ", ".join(machine.id for machine in found) or nearest(name, table)
    raise InputError(f"machine {name!r}: unknown; nearest known: {near}; coresim machines lists all")


def channels_of(cpu: str | None, sockets: int | None, machines: Sequence[Machine] | None = None) -> float | None:
    """Bytes per second of all memory channels, if a known machine has this processor, otherwise None."""
    if cpu is None or sockets is None:
        return None
    words = _words(cpu)
    for machine in load_machines() if machines is None else machines:
        if machine.cpu and machine.bandwidth_gb_s_per_socket and _words(machine.cpu) <= words:
            return machine.bandwidth_gb_s_per_socket * sockets * 1e9
    return None


def _words(cpu: str) -> frozenset[str]:
    """A processor's name without what vendors write around it: ``AMD EPYC 7742 64-Core Processor``."""
    text = re.sub(r"\((r|tm)\)|\(.*|@.*|\d+-core", " ", cpu.lower())
    return frozenset(text.split()) - {"amd", "intel", "cpu", "processor", "gold", "silver", "platinum"}


def _check_known(what: str, asked: str | None, known: set[str], same: Callable[[str, str], bool]) -> None:
    if asked is None or any(same(asked, name) for name in known):
        return
    raise InputError(f"unknown {what} {asked!r}; nearest known: {nearest(asked, known)}")


#: How to sort, and by what.
SORTS: dict[str, Callable[[Machine], float]] = {
    "file": lambda machine: 0.0,
    "price": lambda machine: machine.price_usd_per_h or math.inf,
    "price-per-gpu": lambda machine: machine.price_per_gpu_h or math.inf,
    "cores-per-gpu": lambda machine: -machine.cores_per_gpu,
    "gpus": lambda machine: -machine.gpu_count,
    "memory": lambda machine: -(machine.memory_gib or 0.0),
}
