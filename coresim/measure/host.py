"""Read the host from the operating system: Linux's /proc and /sys, the affinity mask and the environment.

No root, no network. Every source can be replaced, so tests feed folders that look like other machines. A file that
is missing or malformed gives None for its facts, never a crash and never 0.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path, PurePosixPath

from coresim.measure.system_root import SystemRoot, cpu_list, whole
from coresim.measure.topology import Topology, clock_range, last_level_cache, numa_cpus, read_topology
from coresim.model.host import CoreTerm, HostFacts

# cgroup v1 writes a number near 2**63, rounded to pages, for "no limit".
_NO_LIMIT = 1 << 60
_HINTS = (
    *("SLURM_JOB_ID", "SLURM_NTASKS", "SLURM_CPUS_PER_TASK", "SLURM_CPUS_PER_GPU", "SLURM_CPUS_ON_NODE"),
    *("SLURM_JOB_CPUS_PER_NODE", "SLURM_GPUS_ON_NODE", "SLURM_CPU_BIND", "NCPUS", "NSLOTS", "LSB_DJOB_NUMPROC"),
    *("OMP_NUM_THREADS", "OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY"),
)


def read_host(
    root: Path = Path("/"),
    *,
    affinity: Callable[[], Collection[int]] = lambda: os.sched_getaffinity(0),
    environ: Mapping[str, str] = os.environ,
    sleep: Callable[[float], None] = time.sleep,
    statvfs: Callable[[str], os.statvfs_result] = os.statvfs,
    load_window: float = 0.2,
) -> HostFacts:
    """The facts of this host, as this process sees them.

    ``root`` holds ``proc``, ``sys`` and ``dev``. The load is sampled twice, ``load_window`` seconds apart.
    """
    system = SystemRoot(root)
    allowed = sorted(affinity())
    topology = read_topology(system)
    covered = topology.count_cores(allowed)
    cpu_groups, memory_groups = group_folders(system, "cpu"), group_folders(system, "memory")
    cache_bytes, caches = last_level_cache(system, topology.online)
    shm_bytes, shm_free_bytes = shared_memory(statvfs, root)
    other_load, steal = _load(system, allowed, sleep, load_window)
    clock_base_hz, clock_max_hz = clock_range(system, topology.online)
    nodes, cores = numa_cpus(system), list(topology.cores.values())
    return HostFacts(
        terms=_terms(topology, allowed, cpu_quota(system, cpu_groups)),
        logical_cpus=len(topology.online) or None,
        affinity_cpus=len(allowed),
        affinity_cores=covered,
        physical_cores=topology.count_cores(topology.online),
        threads_per_core=max(map(cores.count, set(cores)), default=None),
        sockets=len({package for package, _ in cores}) or None,
        numa_nodes=len(nodes) or None,
        numa_cpus=nodes,
        cpuset_cpus=cpuset(system),
        cpu_model=topology.cpu_model,
        last_level_cache_bytes=cache_bytes,
        last_level_caches=caches,
        memory_bytes=_meminfo(system, "MemTotal"),
        memory_available_bytes=_meminfo(system, "MemAvailable"),
        memory_limit_bytes=memory_limit(system, memory_groups),
        shm_bytes=shm_bytes,
        shm_free_bytes=shm_free_bytes,
        clock_base_hz=clock_base_hz,
        clock_max_hz=clock_max_hz,
        hypervisor=topology.hypervisor,
        hints=_hints(system, environ),
        other_load_cores=other_load,
        throttled_fraction=throttled_fraction(system, cpu_groups),
        steal_fraction=steal,
    )


def _terms(topology: Topology, allowed: Collection[int], quota: float | None) -> tuple[CoreTerm, ...]:
    covered, physical = topology.count_cores(allowed), topology.count_cores(topology.online)
    on_cores = "physical cores unknown, so threads are counted" if covered is None else f"on {covered} physical cores"
    threads = f"{len(allowed)} hardware threads, {on_cores}: where this process may run (sched_getaffinity)"
    limited = "no CPU quota found in the control groups"
    if quota is not None:
        limited = "CPU-seconds per second, the least quota of this process's control group and its parents"
    machine = "physical cores of the machine (topology in /sys, else /proc/cpuinfo)"
    return (
        CoreTerm("affinity", len(allowed) if covered is None else covered, threads),
        CoreTerm("quota", quota, limited),
        CoreTerm("physical", physical, machine if physical is not None else "the machine does not say"),
    )


def _meminfo(system: SystemRoot, key: str) -> int | None:
    match = re.search(rf"^{key}:\s+(\d+) kB$", system.text("proc/meminfo") or "", re.MULTILINE)
    kilobytes = whole(match[1]) if match else None
    return None if kilobytes is None else kilobytes * 1024


def shared_memory(
    statvfs: Callable[[str], os.statvfs_result] = os.statvfs, root: Path = Path("/")
) -> tuple[int | None, int | None]:
    """Bytes of ``/dev/shm``, where loaders put their batches, and how many of them are free."""
    try:
        room = statvfs(str(root / "dev/shm"))
    except OSError:
        return None, None
    return room.f_frsize * room.f_blocks, room.f_frsize * room.f_bavail


def _hints(system: SystemRoot, environ: Mapping[str, str]) -> dict[str, str]:
    hints = {name: environ[name] for name in _HINTS if name in environ}
    if "KUBERNETES_SERVICE_HOST" in environ:
        hints["kubernetes"] = "service environment"
    elif system.exists("var/run/secrets/kubernetes.io/serviceaccount"):
        hints["kubernetes"] = "service account"
    marks = {"docker": ".dockerenv", "podman": "run/.containerenv", "singularity": ".singularity.d"}
    container = environ.get("container") or next((name for name, mark in marks.items() if system.exists(mark)), None)
    return hints | ({"container": container} if container else {})


def _ticks(system: SystemRoot, cpus: Collection[int]) -> tuple[int, int, int, int] | None:
    """Clock ticks since boot of some CPUs: busy, stolen, and all; and this process's own."""
    rows = {line.split()[0]: [whole(text) for text in line.split()[1:9]] for line in system.lines("proc/stat") if line}
    picked = [rows.get(f"cpu{cpu}", []) for cpu in cpus]
    # After the command's name, which may hold spaces, utime and stime are the 12th and 13th fields.
    own = [whole(text) for text in (system.text("proc/self/stat") or "").rpartition(")")[2].split()[11:13]]
    flat = [value for row in (*picked, own) for value in row if value is not None]
    if len(own) != 2 or len(flat) != 8 * len(cpus) + 2:
        return None
    user, nice, kernel, idle, wait, irq, softirq, stolen = (sum(flat[column:-2:8]) for column in range(8))
    busy = user + nice + kernel + irq + softirq
    return busy, stolen, busy + idle + wait + stolen, sum(flat[-2:])


def _load(
    system: SystemRoot, cpus: Collection[int], sleep: Callable[[float], None], window: float
) -> tuple[float | None, float | None]:
    """Cores kept busy by others during the window, and the share of wanted time stolen since boot."""
    before = _ticks(system, cpus)
    sleep(window)
    after = _ticks(system, cpus)
    if before is None or after is None or after[2] <= before[2]:
        return None, None
    busy, _, total, own = (late - early for late, early in zip(after, before, strict=True))
    wanted, stolen = after[0] + after[1], after[1]
    return max(0.0, (busy - own) / total * len(cpus)), stolen / wanted if wanted else None


def group_folders(system: SystemRoot, controller: str) -> list[str]:
    """Folders of this process's control groups, v2 and v1, each from its own group up to the mount."""
    own = {}
    for line in system.lines("proc/self/cgroup"):
        _, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        own.update(dict.fromkeys(names.split(","), path))
    folders: list[str] = []
    for names_here, mount_root, point in _group_mounts(system):
        for name in {"", controller} & names_here & own.keys():
            folders += _walk_up(own[name], mount_root, point)
    return folders


def cpu_quota(system: SystemRoot, folders: Iterable[str]) -> float | None:
    """Least quota along the walk, in cores: a parent's binds its children."""
    quotas = []
    for folder in folders:
        v2 = (system.text(f"{folder}/cpu.max") or "").split()
        v1 = (system.text(f"{folder}/cpu.cfs_quota_us"), system.text(f"{folder}/cpu.cfs_period_us"))
        for pair in (tuple(v2), v1):
            numbers = [whole(text) for text in pair]
            if len(numbers) == 2 and numbers[0] and numbers[1] and min(numbers[0], numbers[1]) > 0:
                quotas.append(numbers[0] / numbers[1])
    return min(quotas, default=None)


def throttled_fraction(system: SystemRoot, folders: Iterable[str]) -> float | None:
    """Largest share of scheduling periods along the walk in which a group used up its quota and was stopped."""
    fractions = []
    for folder in folders:
        counts = dict(line.split(" ", 1) for line in system.lines(f"{folder}/cpu.stat") if " " in line)
        periods, throttled = whole(counts.get("nr_periods")), whole(counts.get("nr_throttled"))
        if periods and throttled is not None:
            fractions.append(throttled / periods)
    return max(fractions, default=None)


def memory_limit(system: SystemRoot, folders: Iterable[str]) -> int | None:
    """Least memory limit along the walk, in bytes."""
    files = [f"{folder}/{name}" for folder in folders for name in ("memory.max", "memory.limit_in_bytes")]
    limits = [limit for limit in (system.number(file) for file in files) if limit is not None and 0 < limit < _NO_LIMIT]
    return min(limits, default=None)


def cpuset(system: SystemRoot) -> str | None:
    """The control group's CPUs. Shown, not counted: the kernel keeps the affinity inside them already."""
    names = ("cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus")
    files = (f"{folder}/{name}" for folder in group_folders(system, "cpuset") for name in names)
    return next((text for text in (system.text(file) for file in files) if cpu_list(text)), None)


def _group_mounts(system: SystemRoot) -> list[tuple[set[str], str, str]]:
    """(controllers, root inside the hierarchy, mount point); the unnamed controller stands for v2."""
    mounts = []
    for line in system.lines("proc/self/mountinfo"):
        left, _, right = line.partition(" - ")
        place, kind = left.split(), right.split()
        if len(place) < 5 or len(kind) < 3 or kind[0] not in ("cgroup", "cgroup2"):
            continue
        names = {""} if kind[0] == "cgroup2" else set(kind[2].split(","))
        mounts.append((names, place[3], place[4].replace("\\040", " ")))
    return mounts


def _walk_up(path: str, mount_root: str, point: str) -> list[str]:
    """In a container the path can lie outside of what is mounted; then the mount's own folder is the nearest one."""
    inside = PurePosixPath(path)
    if ".." in inside.parts or not inside.is_relative_to(mount_root):
        return [point]
    folder = PurePosixPath(point) / inside.relative_to(mount_root)
    return [str(each) for each in (folder, *folder.parents) if each.is_relative_to(point)]
