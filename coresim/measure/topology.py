"""Which hardware threads share a core, a package, a cache or a memory node: from /sys, else from /proc/cpuinfo.

`on_cpus` keeps this process on some of them.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from coresim.measure.system_root import SystemRoot, cpu_list, whole

_CPUS = "sys/devices/system/cpu"


class Topology(NamedTuple):
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


def allowed_cores(root: Path = Path("/")) -> list[list[int]]:
    """The hardware threads on which this process may run, by core, lowest first; one each if the cores are unknown."""
    system = SystemRoot(root)
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
    """The base clock of a core and the highest clock of one alone, in Hz, from the first CPU that tells both."""
    for cpu in online:
        folder = f"{_CPUS}/cpu{cpu}/cpufreq"
        base, most = system.number(f"{folder}/base_frequency"), system.number(f"{folder}/cpuinfo_max_freq")
        if base and most and 0 < base <= most:
            return 1000 * base, 1000 * most
    return None, None


def numa_cpus(system: SystemRoot) -> tuple[str, ...]:
    """Each memory node's CPUs in Linux's list form."""
    paths = system.glob("sys/devices/system/node/node*/cpulist")
    return tuple(system.text(path) or "" for path in sorted(paths, key=lambda path: (len(path), path)))


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


@contextmanager
def on_cpus(cpus: Sequence[int]) -> Iterator[None]:
    """Keep this process, its threads and its forks on these CPUs; afterwards each thread gets its own CPUs back.

    A mask belongs to a thread (https://man7.org/linux/man-pages/man2/sched_setaffinity.2.html): threads that exist
    already, such as the one in which autograd launches the backward pass, keep theirs when another's changes.
    """
    own: dict[int, set[int]] = {}
    allowed = os.sched_getaffinity(0)
    try:
        while new := _threads() - own.keys():  # one may start another before its turn comes
            for thread in new:
                own[thread] = _bind(thread, cpus) or allowed
        yield
    finally:
        for thread in _threads():  # one that was started meanwhile gets what its process has
            _bind(thread, own.get(thread, allowed))


def _threads() -> set[int]:
    return {int(name) for name in os.listdir("/proc/self/task")}


def _bind(thread: int, cpus: Iterable[int]) -> set[int] | None:
    """Put a thread on these CPUs; where it was, or None where it has ended."""
    try:
        before = os.sched_getaffinity(thread)
        os.sched_setaffinity(thread, cpus)
    except ProcessLookupError:
        return None
    return before
