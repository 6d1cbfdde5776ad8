"""A scenario: a job, an accelerator and a host in the user's own terms, validated once, frozen."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

from coresim.errors import InputError, UnknownKeyError, said_of
from coresim.model.checks import kept_hash
from coresim.model.handover import NO_HANDOVER, RELEASE, Handover
from coresim.model.keys import (
    COUNT,
    DURATION,
    FLAG,
    FRACTION,
    LOST,
    PARTS,
    PARTS_OR_NONE,
    POSITIVE,
    TABLE,
    TEXT,
    UNCERTAINTIES,
    choice,
    key,
    read_section,
    section,
    section_schema,
    unknown_key,
    write_section,
)
from coresim.model.lock import PASSING
from coresim.model.presets import PRESETS, Preset, preset_of
from coresim.model.service import SERVICE, ZERO, Service
from coresim.model.storage import from_storage, tiers, without_tier

HANDOVER = section(Handover)


@dataclass(frozen=True)
class WorkloadCosts:
    """``[workload]``: what one batch costs to prepare and to hand over; times in seconds."""

    batch_size: int = key(COUNT, "samples per batch and GPU")
    preprocess: Service = key(SERVICE, 'CPU time to prepare one sample on an unshared core, such as "5.2 ms"', ZERO)
    shared_cv: float = key(FRACTION, "relative deviation that samples of a batch share, beyond independent ones", 0.0)
    fetch: Service = key(SERVICE, "time to fetch one sample; holds no core", ZERO)
    collate: Service = key(SERVICE, "CPU time to collate one batch, in the worker", ZERO)
    in_process_collate: float = key(POSITIVE, "collating in the trainer or a thread over that in a worker process", 1.0)
    send: Service = key(SERVICE, "CPU time of a worker process to hand one batch over, beyond collating", ZERO)
    send_overlap: float = key(FRACTION, "share of send that takes none of a worker's time where a core is free", 0.0)
    consumer: Service = key(SERVICE, "CPU time of the trainer to receive one batch from a worker, serial", ZERO)
    consumer_growth: float = key(FRACTION, "share of it that each worker beyond the first adds", 0.0)
    consumer_by_workers: tuple[float, ...] = key(TABLE, "factor on it with 1, 2, ... workers; last holds on", (1.0,))
    release: float = key(FRACTION, "share of consumer that frees the batch before, at this batch's own turn", RELEASE)
    handover: Handover = key(HANDOVER, "waiting for a batch that is ready, beyond consumer; holds no core", NO_HANDOVER)
    pin: Service = key(SERVICE, "CPU time to copy one batch to pinned memory, in the pin thread", ZERO)
    pin_wait: Service = key(SERVICE, "what the pin thread waits for the worker that sends a batch", ZERO)
    pages: Service = key(SERVICE, "CPU time of a trainer that does not pin to map a batch that it reads", ZERO)
    copy: Service = key(SERVICE, "time to copy one batch from host to device", ZERO)
    samples_per_epoch: int | None = key(COUNT, "samples in the dataset; absent: one endless epoch", None)
    startup: float = key(DURATION, "time to start one worker, serial, in the trainer", 0.0)
    worker_startup: float = key(DURATION, "CPU time that a new worker needs before its first batch", 0.0)
    worker_wait: float = key(DURATION, "time that a new worker waits without a core before its first batch", 0.0)
    batch_bytes: float | None = key(POSITIVE, "bytes of one collated batch, for the memory estimate", None)
    worker_bytes: float | None = key(POSITIVE, "private bytes of one worker process, for the memory estimate", None)
    sample_bytes: float | None = key(POSITIVE, "bytes of one stored sample, to price storage and caching", None)
    dataset_bytes: float | None = key(POSITIVE, "bytes of the stored set; else samples_per_epoch x sample_bytes", None)
    device_preprocess: float = key(DURATION, "accelerator time to preprocess one batch, added to each step", 0.0)
    decode_share: float | None = key(FRACTION, "share of preprocess that decodes, for other decoders' prices", None)


@dataclass(frozen=True)
class Accelerator:
    """``[accelerator]``: what one training step costs on each device."""

    step: Service = key(SERVICE, 'time of one training step on resident data, such as "98 ms"')
    launch: Service = key(SERVICE, "CPU time to launch one step", ZERO)
    lead: float = key(FRACTION, "share of launch before which an idle device cannot begin the step", 0.0)
    sync: str = key(
        choice("spin", "block"), "waiting for the device holds the trainer's core (spin) or frees it", "spin"
    )
    run_ahead: int = key(PARTS_OR_NONE, "steps that the trainer may launch before it waits; 0: it waits for each", 0)
    cpu_step: Service | None = key(SERVICE, "time of the same step on all of the job's cores, without a GPU", None)
    count: int = key(PARTS, "accelerators on the host, data-parallel", 1)
    hosts: int = key(COUNT, "identical hosts, data-parallel; all of them take part in every step", 1)
    allreduce: float = key(DURATION, "time of the all-reduce after each data-parallel step", 0.0)
    slowdown: tuple[float, ...] = key(
        TABLE, "relative step time beside 0, 1, 2, ... other busy cores; the last holds on", (1.0,)
    )
    copies: bool = key(FLAG, "whether batches are copied to it, as pinned memory needs; a CPU takes them as is", True)
    name: str | None = key(TEXT, "what the device is called", None)

    @property
    def total(self) -> int:
        """Accelerators on all hosts."""
        return self.count * self.hosts


@dataclass(frozen=True)
class HostResources:
    """``[host]``: what the stages share."""

    cores: float | None = key(POSITIVE, "physical cores that the job may use, on the whole host", None)
    machine_cores: float | None = key(POSITIVE, "physical cores of the machine, of which cores are a CPU quota", None)
    threads_per_core: int = key(PARTS, "hardware threads per physical core", 1)
    speed: tuple[float, ...] = key(TABLE, "s(k): speed of each of k = 1, 2, ... busy cores; the last holds on", (1.0,))
    speed_uncertainty: tuple[float, ...] = key(UNCERTAINTIES, "relative, of each s(k), or one for all k > 1", (0.0,))
    siblings: float = key(FRACTION, "share of a core that a second hardware thread adds where all cores are busy", 0.0)
    sharing_loss: float = key(LOST, "share of the time of several cores that is lost while all are wanted", 0.0)
    storage_streams: float | None = key(POSITIVE, "fetches that run at once at full speed; absent: no limit", None)
    memory_bytes: float | None = key(POSITIVE, "memory that the job may use", None)
    shm_bytes: float | None = key(POSITIVE, "size of /dev/shm", None)
    storage: str | None = key(
        choice(*tiers()), "a recorded tier that samples are read from; workload.fetch wins where it is given", None
    )

    def width(self, cores: float) -> float:
        """Cores on which tasks run: more than ``cores`` where these are a quota."""
        return max(cores, self.machine_cores or 0.0)

    def speed_uncertainty_at(self, cores: float) -> float:
        """The relative standard uncertainty of s(k) with so many cores."""
        known = self.speed_uncertainty
        return known[min(max(1, math.ceil(cores)), len(known)) - 1]


@dataclass(frozen=True)
class Loader:
    """``[loader]``: how the input pipeline is organised."""

    preset: str = key(choice(*PRESETS), "a framework's loader; its fields can be given instead", "pytorch")
    dispatch: str = key(choice("round_robin", "shared"), "which worker gets which batch", "round_robin")
    ordered: bool = key(FLAG, "whether batches are delivered in order", True)
    workers: int | None = key(PARTS_OR_NONE, "loader workers per GPU, where a simulation is not told", None)
    prefetch_factor: int = key(PARTS, "batches out per worker (credits)", 2)
    fetchers: int = key(PARTS, "option 3: fetches in flight", 16)
    buffer: int = key(PARTS, "option 3: batches that each queue holds", 2)
    split: int = key(PARTS, "threads that share the preprocessing of one batch", 1)
    grain: str = key(
        choice("batch", "sample", "in_place", "split"),
        "what a worker prepares: whole batches; samples, which wait in its place; samples, written into their batch at"
        " once; or a part of each batch",
        "batch",
    )
    credits: str = key(
        choice("per_worker", "queue"),
        "what prefetch_factor counts: batches out per worker, or those that one queue holds beside those in work",
        "per_worker",
    )
    more_queued: int = key(PARTS_OR_NONE, "batches that other queues of the loader hold, with credits = queue", 0)
    max_workers: int | None = key(PARTS, "the most workers per GPU that the loader can have", None)
    in_process: bool = key(
        FLAG, "whether workers are threads of the trainer's process: nothing to start or to receive", False
    )
    gil: float = key(FRACTION, "of threads: share of preprocessing that holds the lock of the interpreter", 0.0)
    lock_passing: float = key(FRACTION, "share of that time that passing the lock between threads adds", PASSING)
    library_threads: int = key(PARTS, "threads that a library (OpenMP, OpenCV, torch) runs in every worker", 1)
    default_threads: int = key(PARTS, "the same where nothing limits them: warned of, not predicted with", 1)
    copy_mode: str = key(
        choice("sync", "stream", "overlap", "thread", "worker"), "how batches reach the device", "sync"
    )
    pin_memory: bool = key(FLAG, "whether a pin thread copies batches to pinned memory", False)
    persistent_workers: bool = key(FLAG, "whether workers live from epoch to epoch", True)


@dataclass(frozen=True)
class Target:
    """``[target]``: what is good enough."""

    gpu_idle: float = key(FRACTION, "largest acceptable share of time in which the GPU idles", 0.05)


@dataclass(frozen=True)
class StageTable:
    """``[[stage]]``: one stage of a pipeline of the user's own; the accelerator comes last."""

    name: str = key(TEXT, "what the stage is called")
    service: Service = key(SERVICE, "time per item (sample or batch, as grain says)")
    servers: int = key(PARTS, "items served at once", 1)
    grain: str = key(choice("sample", "batch"), "what an item is", "batch")
    buffer: int = key(PARTS, "items that may stand ready behind the stage", 2)
    holds_core: bool = key(FLAG, "whether serving holds a core", True)
    ordered: bool = key(FLAG, "whether items leave in order", True)


@dataclass(frozen=True)
class Scenario:
    """All that a prediction needs."""

    workload: WorkloadCosts
    accelerator: Accelerator
    host: HostResources = field(default_factory=HostResources)
    loader: Loader = field(default_factory=Loader)
    target: Target = field(default_factory=Target)
    stages: tuple[StageTable, ...] = ()

    __hash__ = kept_hash

    def __post_init__(self) -> None:
        if self.accelerator.step.is_zero:
            raise InputError("accelerator.step = 0: a step must take time; measure it or look it up")
        if self.workload.samples_per_epoch is not None and self.batches_per_epoch == 0:
            raise InputError(
                f"workload.samples_per_epoch = {self.workload.samples_per_epoch}: fewer than one batch for each"
                f" accelerator ({self.workload.batch_size} x {self.accelerator.total}); lower batch_size,"
                " accelerator.count or accelerator.hosts"
            )

    @property
    def preset(self) -> Preset:
        """The row of the preset that the loader names."""
        return PRESETS[self.loader.preset]

    @property
    def batches_per_epoch(self) -> int | None:
        """Whole batches of each accelerator in an epoch (the rest is dropped), or None for an endless one."""
        samples = self.workload.samples_per_epoch
        return None if samples is None else samples // (self.workload.batch_size * self.accelerator.total)

    def to_dict(self, defaults: bool = False) -> dict[str, Any]:
        """The document that `read_scenario` reads back to an equal scenario.

        It leaves out what follows from the rest: defaults, the keys of the preset, and fetching from a recorded tier;
        unless ``defaults``, for files that must not change their meaning with a later default.
        """
        own = self if defaults else without_tier(self)
        document = {name: write_section(getattr(own, name), defaults) for name in SECTIONS}
        # Both have to be there even if they are 0, the second one where a tier stands beside it.
        needed = ["preprocess"] * (not self.stages) + ["fetch"] * (self.host.storage is not None and own is self)
        document["workload"] |= {name: getattr(self.workload, name).to_table() for name in needed}
        if not defaults:
            usual = write_section(replace(Loader(), **self.preset.loader), defaults=True)
            loader = write_section(self.loader, defaults=True)
            document["loader"] = {name: value for name, value in loader.items() if value != usual.get(name)}
        if self.stages:
            document["stage"] = [write_section(stage) for stage in self.stages]  # type: ignore[assignment]
        return {name: table for name, table in document.items() if table}


SECTIONS: dict[str, Any] = {
    "workload": WorkloadCosts, "accelerator": Accelerator, "host": HostResources, "loader": Loader, "target": Target,
}  # fmt: skip
_TIMES = ("fetch", "preprocess", "collate", "send", "consumer", "pin", "pin_wait", "pages", "copy")


def read_scenario(document: dict[str, Any], source: str = "scenario") -> Scenario:
    """A scenario from its tables.

    Raises:
        UnknownKeyError, InputError: what is wrong, with the file, the key, the value and the remedy.
    """
    with said_of(source):
        for name in document:
            if name not in SECTIONS and name != "stage":
                raise UnknownKeyError(unknown_key(name, name, {**SECTIONS, "stage": None}))
        if preset := preset_of(document):
            document = {**document, "loader": {**preset.loader, **document["loader"]}}
        for name, needed in (("workload", "batch_size and preprocess"), ("accelerator", "step")):
            if name not in document:
                raise InputError(f"[{name}]: missing; it needs {needed}")
        sections = {name: read_section(kind, document.get(name, {}), name) for name, kind in SECTIONS.items()}
        if not isinstance(stages := document.get("stage", []), list):
            raise InputError("stage: write [[stage]] with two brackets, once for each stage")
        if not stages and "preprocess" not in document["workload"]:
            raise InputError('workload.preprocess: missing; CPU time to prepare one sample, such as "5.2 ms"')
        scenario = Scenario(**sections, stages=_read_stages(stages))
        return scenario if "fetch" in document["workload"] else from_storage(scenario)


def _read_stages(tables: list[Any]) -> tuple[StageTable, ...]:
    stages = tuple(read_section(StageTable, item, "stage") for item in tables)
    names = [stage.name for stage in stages]
    for name in names:
        if names.count(name) > 1 or name in ("trainer", "accelerator"):
            raise InputError(f"stage.name = {name!r}: taken already; give each stage a name of its own")
    return stages


def scenario_schema() -> dict[str, Any]:
    """JSON schema of a scenario."""
    properties = {name: section_schema(kind) for name, kind in SECTIONS.items()}
    properties["stage"] = {"type": "array", "items": section_schema(StageTable)}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "coresim scenario",
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
        "required": ["workload", "accelerator"],
    }


def with_services(scenario: Scenario, factor: float, *names: str, spread: float = 0.0) -> Scenario:
    """The named times of the workload (or ``step``, ``launch``) times ``factor``, with its relative ``spread``."""
    workload = {name: getattr(scenario.workload, name).scaled(factor, spread) for name in names if name in _TIMES}
    device = {name: getattr(scenario.accelerator, name).scaled(factor, spread) for name in names if name not in _TIMES}
    return replace(
        scenario, workload=replace(scenario.workload, **workload), accelerator=replace(scenario.accelerator, **device)
    )
