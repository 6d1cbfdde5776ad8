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
from typing import Any, NamedTuple

from coresim.errors import UnknownKeyError, said_of
from coresim.files import read_text, read_toml
from coresim.model.checks import check
from coresim.model.keys import COUNT, COUNT_OR_NONE, FLAG, NOT_NEGATIVE, POSITIVE, TEXT, Kind, choice, key, read_section
from coresim.model.option import Option, read_option
from coresim.units import short

#: Keys of a `Setting` that a block may leave out.
_USUAL: dict[str, Any] = {"option": 2, "workers": 1, "cores": 2, "prefetch_factor": 2}


@dataclass(frozen=True)
class Setting:
    """One point to try.

    The step time follows from ``ratio`` with ``at`` workers, or with the setting's own where ``at`` is 0: with the same
    ``at``, other numbers of workers face the same step time. With ``model`` something is really trained, which has a
    step time of its own; without, the accelerator is emulated. Each of several ``ranks`` has a loader of its own; they
    share the cores and wait for the slowest at each step.
    """

    workload: str = key(TEXT, "the job that prepares samples")
    batch_size: int = key(COUNT_OR_NONE, "samples per batch; 0, in no file: those of --dataset's own loader")
    option: Option = key(Kind(read_option, {"enum": list(Option)}), "how the work before a step is organised")
    workers: int = key(COUNT_OR_NONE, "worker processes, or threads that preprocess")
    cores: int = key(COUNT, "cores that may be used")
    prefetch_factor: int = key(COUNT, "batches out per worker")
    ratio: float = key(POSITIVE, "preparation rate / ingestion rate")
    sync: str = key(choice("block", "spin"), "how the trainer waits for an emulated accelerator", "block")
    ordered: bool = key(FLAG, "whether batches are delivered in order", True)
    at: int = key(COUNT_OR_NONE, "the workers whose preparation rate the ratio is of; 0: the setting's own", 0)
    step_s: float = key(NOT_NEGATIVE, "the step time itself, s, where it is above 0; then no ratio counts", 0.0)
    model: str = key(TEXT, "a network to train, or the user's own step (module:name)", "")
    precision: str = key(TEXT, "of the network; a step of the user's own has its own, and this is empty", "fp32")
    pin_memory: bool = key(FLAG, "whether a thread copies batches to pinned memory", False)
    repeats: int = key(COUNT, "trials of this setting", 1)
    limit: str = key(choice("affinity", "quota"), "cores by affinity, or by a CPU quota over all CPUs", "affinity")
    ranks: int = key(COUNT, "trainers on this host", 1)
    straggler: float = key(POSITIVE, "how many times as long reads of the first rank wait", 1.0)
    device: str = key(TEXT, "where a model trains; empty: where the run says", "")
    run_ahead: int = key(COUNT_OR_NONE, "steps launched beyond the one that a model's trainer waits for", 1)

    def __post_init__(self) -> None:
        where = f"grid: {self.workload}"
        for item in fields(self):
            value = item.metadata["kind"].read(getattr(self, item.name), f"{where}: {item.name}")
            object.__setattr__(self, item.name, value)
        check(self.straggler >= 1, f"{where}: straggler = {self.straggler!r}; at least 1")
        some = self.option == Option.NO_OVERLAP or self.workers > 0
        check(some, f"{where}: option {self.option} needs at least one worker")
        pins = f"{where}: pin_memory with option {self.option}; only option 2 has a thread that pins, leave it out"
        check(self.option == Option.OVERLAPPED or not self.pin_memory, pins)
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
    def is_emulated(self) -> bool:
        """Whether it trains on an emulated device."""
        return self.device.startswith("emulated")

    @property
    def busy(self) -> int:
        """CPUs that its workers keep busy at the most."""
        return max(1, min(self.ranks * self.workers, self.cores))

    @property
    def job(self) -> tuple[object, ...]:
        """The key of settings that are calibrated together: a loader in the trainer counts as the one with workers."""
        threads = self.option == Option.STAGED
        return self.data_set, threads, self.pin_memory

    @property
    def data_set(self) -> tuple[object, ...]:
        """The key of settings that one process runs, with one built data set: one batch size, one training if any."""
        return self.workload, self.batch_size, self.model, self.precision, self.device


class Grid(NamedTuple):
    """All settings in the order in which they are run, and the hash of the file that declares them."""

    name: str
    sha256: str
    settings: tuple[Setting, ...]


def load_grid(path: str | os.PathLike[str]) -> Grid:
    """The grid that a file declares.

    Raises:
        UnknownKeyError, InputError: what is wrong, with the file and the key.
    """
    document = read_toml(path)
    with said_of(str(path)):
        settings = tuple(_settings(document))
    return Grid(os.path.basename(path), hashlib.sha256(read_text(path).encode()).hexdigest(), settings)


def own_grid(name: str, settings: tuple[Setting, ...]) -> Grid:
    """A grid that is no file; its hash is that of its settings as text."""
    return Grid(name, hashlib.sha256(repr(settings).encode()).hexdigest(), settings)


def fixed_step(grid: Grid, step_s: float) -> Grid:
    """The grid's distinct settings at one step time."""
    settings = dict.fromkeys(replace(setting, step_s=step_s, ratio=1.0, at=1) for setting in grid.settings)
    return own_grid(f"{grid.name} at {step_s:g} s per step", tuple(settings))


def in_training(grid: Grid, model: str, precision: str, pin_memory: bool, device: str = "") -> Grid:
    """The grid's distinct settings with a model in training, whose step time is its own.

    ``pin_memory``: whether the loaders with worker processes pin it. ``device``: an emulated one, by its name.
    """
    trains: dict[str, Any] = {"model": model, "precision": precision, "device": device}
    settings = dict.fromkeys(
        replace(s, ratio=1.0, at=1, repeats=2, pin_memory=pin_memory and s.option == Option.OVERLAPPED, **trains)
        for s in grid.settings
    )
    return own_grid(f"{grid.name} in training", tuple(settings))


def quick_grid(workload: str, batch_size: int, cores: int) -> Grid:
    """Three points: one worker, one for each core and one more, at a step time near the knee."""
    full = max(2, cores)
    usual = Setting(workload, batch_size, Option.OVERLAPPED, 1, cores, 2, ratio=0.95, at=full, repeats=2)
    return own_grid("quick", tuple(replace(usual, workers=n) for n in (1, full, full + 1)))


def job_grid(workload: str, batch_size: int, cores: int) -> Grid:
    """The grid of one job where none is given: 0 to cores + 1 workers, most points near the knee."""
    usual = Setting(workload, batch_size, Option.OVERLAPPED, 1, cores, 2, ratio=1.0, at=max(2, cores))
    most = sorted({1, 2, max(2, cores // 2), cores, cores + 1})
    ratios = itertools.product((0.5, 0.8, 0.95, 1.1, 1.5), most)
    loader = [replace(usual, workers=n, ratio=ratio) for ratio, n in ratios]
    others = [replace(usual, option=Option.NO_OVERLAP, workers=0, ratio=ratio, at=0) for ratio in (0.5, 2.0)]
    return own_grid("job", (*loader, *others))


def _settings(document: dict[str, Any]) -> Iterator[Setting]:
    unknown = set(document) - {"block"}
    if unknown or not isinstance(document.get("block"), list):
        raise UnknownKeyError(f"{sorted(unknown)[0] if unknown else 'block'}: write [[block]] tables and nothing else")
    for table in document["block"]:
        check(isinstance(table, dict), f"block = {short(table)}: write [[block]] with keys below it")
        yield from _block(table)


def _block(table: dict[str, Any]) -> Iterator[Setting]:
    """All combinations of a table's lists; workload and repeats are none."""
    given = _USUAL | table
    varied = [item.name for item in fields(Setting) if item.name in given and item.name not in ("workload", "repeats")]
    lists = [given[name] if isinstance(given[name], list) else [given[name]] for name in varied]
    for name, values in zip(varied, lists, strict=True):
        check(bool(values), f"block.{name} = []: at least one value is needed")
        check(name != "batch_size" or 0 not in values, "block.batch_size = 0: at least 1 is needed")
    for combination in itertools.product(*lists):
        yield read_section(Setting, given | dict(zip(varied, combination, strict=True)), "block")
