"""What the control groups of this process, versions 1 and 2, let it have: CPU time, CPUs and memory."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePosixPath

from coresim.measure.system_root import SystemRoot, cpu_list, whole

# What cgroup v1 writes for "no limit" is near 2**63, rounded to pages.
_NO_LIMIT = 1 << 60


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
    """In a container the path can lie outside what is mounted: then the mount's own folder is the nearest known."""
    inside = PurePosixPath(path)
    if ".." in inside.parts or not inside.is_relative_to(mount_root):
        return [point]
    folder = PurePosixPath(point) / inside.relative_to(mount_root)
    return [str(each) for each in (folder, *folder.parents) if each.is_relative_to(point)]
