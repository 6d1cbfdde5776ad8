"""The declared grid of a validation: which trials are made, written down before any is run.

A grid is a TOML file. ``[[block]]`` tables each give lists of values; a block stands for all their combinations, for
one workload. Step times are given as ``ratio`` = preparation rate / ingestion rate at that setting, by rates alone
(`rate_period`), so that idle falls anywhere from 0 to 90 % without looking at any result.
"""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

from coresim.errors import InputError, UnknownKeyError
from coresim.files import read_text, read_toml
from coresim.model.checks import check
from coresim.model.option import Option, read_option
from coresim.units import short

#: The kinds of the keys of a block that are lists, and their defaults where a `Setting` has none.
_KINDS = {"int": int, "Option": int, "float": float, "str": str, "bool": bool}
_USUAL: dict[str, Any] = {"option": 2, "workers": 1, "cores": 2, "prefetch_factor": 2}


@dataclass(frozen=True)
class Setting:
    """One point to try; ``ratio`` = preparation rate / ingestion rate fixes the step time.

    The rate is that of ``at`` workers, or of the setting's own where ``at`` is 0: with the same ``at``, other numbers
    of workers face the same step time. ``step_s`` > 0 is the step time itself, in seconds; then the ratio is not used.
    ``model`` is what is really trained: a network, in its ``precision``, or the user's own step (``module:name``),
    whose precision is its own and ""; "" is the emulated accelerator. A model has its own step time. ``device`` is
    where it trains ("": where the run says), and the trainer launches ``run_ahead`` steps beyond the one that it waits
    for. ``limit`` says how the cores are limited: by ``affinity`` to as many CPUs, or by a CPU ``quota`` over all CPUs.
    ``ranks`` trainers, each with a loader of its own, share the cores and wait for the slowest at each step; reads of
    the first wait ``straggler`` times as long as those of the others.
    """

    workload: str
    batch_size: int
    option: Option
    workers: int
    cores: int
    prefetch_factor: int
    ratio: float
    sync: str = "block"
    ordered: bool = True
    at: int = 0
    step_s: float = 0.0
    model: str = ""
    precision: str = "fp32"
    pin_memory: bool = False
    repeats: int = 1
    limit: str = "affinity"
    ranks: int = 1
    straggler: float = 1.0
    device: str = ""
    run_ahead: int = 1

    def __post_init__(self) -> None:
        where = f"grid: {self.workload}"
        object.__setattr__(self, "option", read_option(self.option, f"{where}: option"))
        check(self.ratio > 0, f"{where}: ratio {self.ratio!r}; a positive number is needed")
        check(self.sync in ("block", "spin"), f"{where}: sync {self.sync!r}; use block or spin")
        check(self.limit in ("affinity", "quota"), f"{where}: limit {self.limit!r}; use affinity or quota")
        check(self.step_s >= 0, f"{where}: step_s {self.step_s!r}; seconds, or 0 for a ratio")
        least = {"batch_size": 1, "workers": 0, "cores": 1, "prefetch_factor": 1, "at": 0, "repeats": 1, "ranks": 1}
        least |= {"run_ahead": 0}
        for name, bound in least.items():
            check(getattr(self, name) >= bound, f"{where}: {name} {getattr(self, name)!r}; at least {bound}")
        some = self.option == Option.NO_OVERLAP or self.workers > 0
        check(some, f"{where}: option {self.option} needs at least one worker")
        pins = f"{where}: pin_memory with option {self.option}; only option 2 has a thread that pins, leave it out"
        check(self.option == Option.OVERLAPPED or not self.pin_memory, pins)
        check(self.straggler >= 1, f"{where}: straggler {self.straggler!r}; 1, or how many times as long it waits")
        alone = self.option != Option.OVERLAPPED or bool(self.model) or self.limit != "affinity"
        only = f"{where}: {self.ranks} ranks; they go with option 2, no model and cores by affinity"
        check(self.ranks == 1 or not alone, only)
        trains = bool(self.model) or (not self.device and self.run_ahead == 1)
        check(trains, f"{where}: device and run_ahead go with a model that trains; add model")
        check(self.ranks > 1 or self.straggler == 1, f"{where}: a straggler needs ranks that wait for it; add ranks")

    @property
    def trains(self) -> str:
        """What is really trained, in words; "" where the accelerator is emulated."""
        return f"{self.model} {self.precision}".strip() if self.model else ""

    @property
    def busy(self) -> int:
        """CPUs that its workers keep busy at the most."""
        return max(1, min(self.ranks * self.workers, self.cores))

    @property
    def job(self) -> tuple[object, ...]:
        """What is calibrated together: a loader in the trainer is the same loader as one with workers."""
        threads = self.option == Option.STAGED
        return self.workload, self.batch_size, threads, self.model, self.precision, self.device, self.pin_memory


@dataclass(frozen=True)
class Grid:
    """All settings in the order in which they are run, and the hash of the file that declares them."""

    name: str
    sha256: str
    settings: tuple[Setting, ...]

    @property
    def trials(self) -> int:
        """Trials in all, repeats included."""
        return sum(setting.repeats for setting in self.settings)


def load_grid(path: str | os.PathLike[str]) -> Grid:
    """The grid that a file declares.

    Raises:
        UnknownKeyError, InputError: what is wrong, with the file and the key.
    """
    document = read_toml(path)
    try:
        settings = tuple(_settings(document))
    except InputError as error:
        raise type(error)(f"{path}: {error}") from None
    return Grid(os.path.basename(path), hashlib.sha256(read_text(path).encode()).hexdigest(), settings)


def own_grid(name: str, settings: tuple[Setting, ...]) -> Grid:
    """A grid that is no file; its hash is that of its settings as text."""
    return Grid(name, hashlib.sha256(repr(settings).encode()).hexdigest(), settings)


def fixed_step(grid: Grid, step_s: float) -> Grid:
    """The grid's distinct settings at one step time."""
    settings = dict.fromkeys(replace(setting, step_s=step_s, ratio=1.0, at=1) for setting in grid.settings)
    return own_grid(f"{grid.name} at {step_s:g} s per step", tuple(settings))


def in_training(grid: Grid, model: str, precision: str, pin_memory: bool) -> Grid:
    """The grid's distinct settings with a model in training, whose step time is its own.

    ``pin_memory``: whether the loaders with worker processes pin it.
    """
    trains: dict[str, Any] = {"model": model, "precision": precision}
    settings = dict.fromkeys(
        replace(s, ratio=1.0, at=1, repeats=2, pin_memory=pin_memory and s.option == Option.OVERLAPPED, **trains)
        for s in grid.settings
    )
    return own_grid(f"{grid.name} in training", tuple(settings))


def quick_grid(workload: str, batch_size: int, cores: int) -> Grid:
    """Three points: one worker, one for each core and one more, at a step time near the knee."""
    full = max(2, cores)
    common: dict[str, Any] = {"workload": workload, "batch_size": batch_size, "prefetch_factor": 2, "cores": cores}
    common |= {"option": Option.OVERLAPPED, "at": full, "ratio": 0.95, "repeats": 2}
    settings = [Setting(workers=n, **common) for n in (1, full, full + 1)]
    return own_grid("quick", tuple(settings))


def job_grid(workload: str, batch_size: int, cores: int) -> Grid:
    """The grid of one job where none is given: 0 to cores + 1 workers, most points near the knee."""
    common: dict[str, Any] = {"workload": workload, "batch_size": batch_size, "cores": cores}
    most = sorted({1, 2, max(2, cores // 2), cores, cores + 1})
    loader = [
        Setting(option=Option.OVERLAPPED, workers=n, prefetch_factor=2, ratio=ratio, at=max(2, cores), **common)
        for ratio, n in itertools.product((0.5, 0.8, 0.95, 1.1, 1.5), most)
    ]
    others = [
        Setting(option=Option.NO_OVERLAP, workers=0, prefetch_factor=2, ratio=ratio, **common) for ratio in (0.5, 2.0)
    ]
    return own_grid("job", (*loader, *others))


def _settings(document: dict[str, Any]) -> Iterator[Setting]:
    unknown = set(document) - {"block"}
    if unknown or not isinstance(document.get("block"), list):
        raise UnknownKeyError(f"{sorted(unknown)[0] if unknown else 'block'}: write [[block]] tables and nothing else")
    for table in document["block"]:
        check(isinstance(table, dict), f"block = {short(table)}: write [[block]] with keys below it")
        yield from _block(table)


def _block(table: dict[str, Any]) -> Iterator[Setting]:
    known = {field.name: field for field in fields(Setting)}
    for name in table:
        if name not in known:
            raise UnknownKeyError(f"block.{name}: unknown key; use {', '.join(sorted(known))}")
    for name in ("workload", "batch_size", "ratio"):
        if name not in table:
            raise InputError(f"block.{name}: missing")
    for name, kind in (("workload", str), ("repeats", int)):
        check(isinstance(table.get(name, kind()), kind), f"block.{name} = {short(table.get(name))}: {kind.__name__}?")
    lists = {
        name: _list(table.get(name, _USUAL.get(name, field.default)), _KINDS[str(field.type)], name)
        for name, field in known.items()
        if name not in ("workload", "repeats")
    }
    for values in itertools.product(*lists.values()):
        combination: dict[str, Any] = dict(zip(lists, values, strict=True))
        yield Setting(workload=table["workload"], repeats=table.get("repeats", 1), **combination)


def _list(value: Any, kind: type, name: str) -> list[Any]:
    values = value if isinstance(value, list) else [value]
    if not values or not all(isinstance(v, kind) or (kind is float and isinstance(v, int)) for v in values):
        raise InputError(f"block.{name} = {short(value)}: {kind.__name__} values are needed")
    return values
