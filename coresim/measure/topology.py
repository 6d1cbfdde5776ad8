"""Which hardware threads share a core, a package, a cache or a memory node: from /sys, else from /proc/cpuinfo."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from coresim.measure.system_root import SystemRoot, cpu_list, whole

_CPUS = "sys/devices/system/cpu"


@dataclass(frozen=True)
class Topology:
    """Online CPUs, and the (package, core) of each; no cores when the machine does not say."""

    online: tuple[int, ...]
    cores: Mapping[int, tuple[str, str]]
    cpu_model: str | None
    hypervisor: bool | None

    def count_cores(self, cpus: Collection[int]) -> int | None:
        """Physical cores that these hardware threads cover."""
        if not cpus or not self.cores.keys() >= set(cpus):
            return None
        return len({self.cores[cpu] for cpu in cpus})

    @property
    def threads_per_core(self) -> int | None:
        """The most hardware threads that share a core."""
        cores = list(self.cores.values())
        return max((cores.count(core) for core in set(cores)), default=None)

    @property
    def sockets(self) -> int | None:
        """Packages of the machine."""
        return len({package for package, _ in self.cores.values()}) or None


def read_topology(system: SystemRoot) -> Topology:
    """The topology in /sys, else what /proc/cpuinfo says of it."""
    blocks = _cpuinfo(system)
    listed = tuple(cpu for cpu in (whole(block.get("processor")) for block in blocks) if cpu is not None)
    online = cpu_list(system.text(f"{_CPUS}/online")) or listed
    first = blocks[0] if blocks else {}
    arm = " ".join(first[key] for key in ("CPU implementer", "CPU part") if key in first)
    flags = first.get("flags")
    return Topology(
        online=online,
        cores=_cores_of_sys(system, online) or _cores_of_cpuinfo(blocks, online),
        cpu_model=first.get("model name") or first.get("cpu") or arm or None,
        hypervisor=None if flags is None else "hypervisor" in flags.split(),
    )


def allowed_cores(system: SystemRoot) -> list[list[int]]:
    """The hardware threads on which this process may run, lowest first, by core; each is its own where none is told."""
    cores: dict[str, list[int]] = {}
    for cpu in sorted(os.sched_getaffinity(0)):
        siblings = system.text(f"{_CPUS}/cpu{cpu}/topology/thread_siblings_list")
        cores.setdefault(siblings or str(cpu), []).append(cpu)
    return list(cores.values())


def last_level_cache(system: SystemRoot, online: Iterable[int]) -> tuple[int | None, int | None]:
    """Size in bytes of one cache of the highest level, and how many of them the machine has."""
    found: dict[tuple[int, str], int] = {}
    for cpu in online:
        for index in itertools.count():
            folder = f"{_CPUS}/cpu{cpu}/cache/index{index}"
            level, shared = system.number(f"{folder}/level"), system.text(f"{folder}/shared_cpu_list")
            size = re.fullmatch(r"(\d{1,12})K", system.text(f"{folder}/size") or "")
            if level is None or shared is None or size is None:
                break
            found[level, shared] = int(size[1]) * 1024
    highest = max((level for level, _ in found), default=None)
    top = [size for (level, _), size in found.items() if level == highest]
    return (max(top), len(top)) if top else (None, None)


def clock_range(system: SystemRoot, online: Iterable[int]) -> tuple[int | None, int | None]:
    """The clock that a core is promised and the highest of one alone, in Hz; of the first CPU that tells both."""
    for cpu in online:
        folder = f"{_CPUS}/cpu{cpu}/cpufreq"
        base, most = system.number(f"{folder}/base_frequency"), system.number(f"{folder}/cpuinfo_max_freq")
        if base and most and 0 < base <= most:
            return 1000 * base, 1000 * most
    return None, None


def numa_cpus(system: SystemRoot) -> tuple[str, ...]:
    """Each memory node's CPUs in Linux's list form."""
    nodes = [
        path for path in system.glob("sys/devices/system/node/node*/cpulist") if re.search(r"node\d+/cpulist", path)
    ]
    nodes.sort(key=lambda path: int(re.findall(r"node(\d+)/", path)[-1]))
    return tuple(system.text(path) or "" for path in nodes)


def _cpuinfo(system: SystemRoot) -> list[dict[str, str]]:
    blocks = (system.text("proc/cpuinfo") or "").split("\n\n")
    pairs = [[line.partition(":") for line in block.splitlines() if ":" in line] for block in blocks]
    return [{key.strip(): value.strip() for key, _, value in block} for block in pairs if block]


def _cores_of_sys(system: SystemRoot, online: Iterable[int]) -> dict[int, tuple[str, str]]:
    """The kernel's sibling list names a core: core_id repeats across the dies of some packages."""
    cores = {}
    for cpu in online:
        folder = f"{_CPUS}/cpu{cpu}/topology"
        package, siblings = system.text(f"{folder}/physical_package_id"), system.text(f"{folder}/thread_siblings_list")
        if not package or not siblings:
            return {}
        cores[cpu] = (package, siblings)
    return cores


def _cores_of_cpuinfo(blocks: list[dict[str, str]], online: Iterable[int]) -> dict[int, tuple[str, str]]:
    cores = {
        int(block["processor"]): (block["physical id"], block["core id"])
        for block in blocks
        if whole(block.get("processor")) is not None and {"physical id", "core id"} <= block.keys()
    }
    return cores if cores.keys() >= set(online) else {}
