"""The facts of one host: the terms of "usable cores", memory, topology, and warnings about facts that mislead.

Facts only: :mod:`coresim.measure.host` reads them from the operating system. A fact that could not be read is
``None``, never 0.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from coresim.errors import InputError
from coresim.model.keys import FLAG, LARGE, NOT_NEGATIVE, TEXT, key, list_of, read_section, section, table_of
from coresim.model.warning import HostWarning
from coresim.units import format_bytes, short

# A fraction of time that is worth a warning: below it the counters themselves are noise.
NOTABLE_FRACTION = 0.03
# Two clock ticks in the default 0.2 s load sample: one tick alone is any passing daemon.
NOTABLE_LOAD_CORES = 0.07
SMALL_SHM_BYTES = 1 << 30
_GIB = 1 << 30
_CORES = replace(NOT_NEGATIVE, read=lambda value, where: None if value is None else NOT_NEGATIVE.read(value, where))


@dataclass(frozen=True)
class CoreTerm:
    """One term of "usable cores"."""

    name: str = key(TEXT, "affinity, quota or physical")
    value_cores: float | None = key(_CORES, "the limit, null where there is none or it is not known")
    explanation: str = key(TEXT, "what the value means and where it was read")

    @property
    def words(self) -> str:
        """Name and value for people, such as ``quota none``."""
        missing = "none" if self.name == "quota" else "unknown"
        return f"{self.name} {missing if self.value_cores is None else format(self.value_cores, '.4g')}"


@dataclass(frozen=True)
class OptionalPart:
    """An optional part (torch, a CUDA device, ...): whether it is here, and how to get it when it is not."""

    name: str
    present: bool
    version: str | None
    detail: str
    remedy: str


@dataclass(frozen=True)
class HostFacts:
    """A host as one process sees it; None: the fact could not be read."""

    terms: tuple[CoreTerm, ...] = key(
        list_of(section(CoreTerm), "a list", least=0), "the limits whose least is the usable cores"
    )
    logical_cpus: int | None = key(LARGE, "online hardware threads of the machine (vCPUs of a virtual one)", None)
    affinity_cpus: int | None = key(LARGE, "hardware threads that this process may run on", None)
    affinity_cores: int | None = key(LARGE, "physical cores that those threads cover", None)
    physical_cores: int | None = key(LARGE, "physical cores of the machine", None)
    threads_per_core: int | None = key(LARGE, "hardware threads per physical core", None)
    sockets: int | None = key(LARGE, "packages of the machine", None)
    numa_nodes: int | None = key(LARGE, "memory nodes", None)
    numa_cpus: tuple[str, ...] = key(list_of(TEXT, least=0), "CPUs of each memory node, such as 0-3,8", ())
    cpuset_cpus: str | None = key(TEXT, "CPUs that the control group allows, in the same form", None)
    cpu_model: str | None = key(TEXT, "the processor", None)
    last_level_cache_bytes: int | None = key(LARGE, "size of one last-level cache", None)
    last_level_caches: int | None = key(LARGE, "how many of them the machine has", None)
    memory_bytes: int | None = key(LARGE, "memory of the machine", None)
    memory_available_bytes: int | None = key(LARGE, "memory that is not in use", None)
    memory_limit_bytes: int | None = key(LARGE, "least memory limit of the control groups; absent: none found", None)
    shm_bytes: int | None = key(LARGE, "size of /dev/shm", None)
    shm_free_bytes: int | None = key(LARGE, "what of it is free", None)
    clock_base_hz: int | None = key(LARGE, "clock that a core is promised (cpufreq)", None)
    clock_max_hz: int | None = key(LARGE, "the most that one core alone may run at (cpufreq)", None)
    hypervisor: bool | None = key(FLAG, "whether the CPU says that it is virtual", None)
    hints: Mapping[str, str] = field(
        default_factory=dict,
        hash=False,
        metadata={"kind": table_of(TEXT), "doc": "what scheduler, container and thread-binding variables say"},
    )
    other_load_cores: float | None = key(
        NOT_NEGATIVE, "cores, among those of the affinity, kept busy by other processes", None
    )
    throttled_fraction: float | None = key(
        NOT_NEGATIVE, "share of quota periods, since the control group began, that were cut short", None
    )
    steal_fraction: float | None = key(
        NOT_NEGATIVE, "share of wanted CPU time, since boot, that the hypervisor gave to others", None
    )

    @property
    def usable_cores(self) -> float:
        """Cores that this process can keep busy: the least known term; a fractional quota stays fractional.

        Raises:
            InputError: no term is known.
        """
        known = [term.value_cores for term in self.terms if term.value_cores is not None]
        if not known:
            raise InputError("host.terms: no term of usable cores is known; measure on the host itself")
        return min(known)

    @property
    def fingerprint(self) -> str:
        """Tells this kind of machine from another: CPU model, cores, threads per core, memory class; no names."""
        kind = (self.cpu_model, self.physical_cores, self.threads_per_core, _memory_class(self.memory_bytes))
        return hashlib.sha256(repr(kind).encode()).hexdigest()[:16]

    @property
    def warnings(self) -> tuple[HostWarning, ...]:
        """What about this host misleads or slows, with remedies; derived from the facts."""
        return (*_core_warnings(self), *_room_warnings(self))

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready facts, units in the keys, with the derived usable cores, fingerprint and warnings."""
        document = asdict(self) | {"hints": dict(self.hints), "numa_cpus": list(self.numa_cpus)}
        document["terms"] = list(document["terms"])
        derived = {"usable_cores": self.usable_cores, "fingerprint": self.fingerprint}
        return derived | document | {"warnings": [warning._asdict() for warning in self.warnings]}

    @classmethod
    def from_dict(cls, document: Any, where: str = "host") -> HostFacts:
        """Facts from :meth:`to_dict`'s form; an absent fact is None, and warnings are derived again.

        Raises:
            UnknownKeyError: a key that this version does not know.
            InputError: a value of the wrong type, or a derived value that the facts contradict.
        """
        if not isinstance(document, Mapping):
            raise InputError(f"{where} = {short(document)}: a table of host facts is needed; measure again")
        known = {name: value for name, value in document.items() if value is not None}
        body = {name: value for name, value in known.items() if name not in (*_DERIVED, "warnings")}
        facts = read_section(cls, {"hints": {}, **body}, where)
        for name in _DERIVED:
            if name in document and document[name] != (found := getattr(facts, name)):
                raise InputError(f"{where}.{name} = {short(document[name])}: the facts beside it give {found!r}")
        return facts


_DERIVED = ("usable_cores", "fingerprint")


def _memory_class(memory_bytes: int | None) -> float | None:
    """The next installed size, 1 or 1.5 times a power of two GiB: what the kernel keeps for itself varies."""
    if memory_bytes is None:
        return None
    power = 2.0 ** max(0, math.ceil(math.log2(max(memory_bytes, 1) / _GIB)))
    return power * 0.75 if memory_bytes <= power * 0.75 * _GIB else power


def _core_warnings(facts: HostFacts) -> Iterator[HostWarning]:
    threads, machine, cores = facts.affinity_cpus, facts.logical_cpus, facts.affinity_cores
    if threads and machine and machine >= 4 and (threads == 1 or threads * 8 <= machine):
        remedy = (
            "if this is not what you were given: unset OMP_PROC_BIND, GOMP_CPU_AFFINITY and KMP_AFFINITY, request "
            "--cpus-per-task from Slurm (srun does not inherit it from sbatch), or start under taskset -c"
        )
        yield HostWarning("affinity is far below the machine", f"{threads} of {machine} hardware threads", remedy)
    if threads and cores and cores < threads:
        yield HostWarning(
            "hardware threads are counted as cores by most tools",
            f"{threads} threads on {cores} physical cores",
            "size by physical cores; a second thread on a core adds a fraction of a core, which coresim measures",
        )
    if facts.hypervisor and facts.threads_per_core == 1:
        yield HostWarning(
            "the hypervisor shows one thread per core",
            f"{facts.physical_cores} vCPUs shown as cores",
            "a vCPU may be half a core: look up the instance type, and trust the measured scaling, not the count",
        )
    yield from _slurm_warnings(facts)


def _slurm_warnings(facts: HostFacts) -> Iterator[HostWarning]:
    text = facts.hints.get("SLURM_CPUS_PER_TASK", "")
    if not text.isdecimal() or not facts.affinity_cpus:
        return
    # Slurm hands out whole cores, so an odd request is rounded up to the siblings.
    whole = math.ceil(int(text) / (facts.threads_per_core or 1)) * (facts.threads_per_core or 1)
    if facts.affinity_cpus not in (int(text), whole):
        yield HostWarning(
            "Slurm's hint and the affinity differ",
            f"SLURM_CPUS_PER_TASK={text}, affinity {facts.affinity_cpus} hardware threads",
            "coresim uses the affinity; start with srun --cpus-per-task (it is not inherited) so that both agree",
        )


def _room_warnings(facts: HostFacts) -> Iterator[HostWarning]:
    quota = next((term.value_cores for term in facts.terms if term.name == "quota"), None)
    if quota is not None and facts.affinity_cpus and quota < facts.affinity_cpus:
        yield HostWarning(
            "the quota is below the CPUs that os.cpu_count() shows",
            f"quota {quota:.4g} cores, affinity {facts.affinity_cpus} hardware threads",
            "size workers and OMP_NUM_THREADS by the quota, or raise the container's CPU limit",
        )
    if facts.throttled_fraction is not None and facts.throttled_fraction > NOTABLE_FRACTION:
        yield HostWarning(
            "the quota stops running threads",
            f"{facts.throttled_fraction:.0%} of periods throttled since the control group began",
            "use fewer workers and threads than the quota, or raise the container's CPU limit",
        )
    if facts.other_load_cores is not None and facts.other_load_cores > NOTABLE_LOAD_CORES:
        yield HostWarning(
            "other processes keep these cores busy",
            f"{facts.other_load_cores:.2g} cores",
            "stop them and measure again, or take them off the cores that you count on",
        )
    if facts.steal_fraction is not None and facts.steal_fraction > NOTABLE_FRACTION:
        yield HostWarning(
            "the hypervisor gives CPU time to others",
            f"{facts.steal_fraction:.0%} of wanted CPU time stolen since boot (a paused machine counts too)",
            "watch 'st' in top under load; if it stays, use an instance with dedicated CPUs",
        )
    if facts.shm_bytes is not None and facts.shm_bytes < SMALL_SHM_BYTES:
        yield HostWarning(
            "/dev/shm is small: loader workers die with 'Bus error' when it fills",
            format_bytes(facts.shm_bytes),
            "docker run --shm-size=8g or --ipc=host; in Kubernetes mount an emptyDir of medium Memory on /dev/shm",
        )
