"""Read the host from the operating system: Linux's /proc and /sys, the affinity mask and the environment.

No root, no network. Every source can be replaced, so tests feed folders that look like other machines. A file that
is missing or malformed gives None for its facts, never a crash and never 0.
"""

from __future__ import annotations

import importlib.metadata
import itertools
import json
import os
import re
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from coresim.model.host import CoreTerm, HostFacts, Part

_CPUS = "sys/devices/system/cpu"
# What cgroup v1 writes for "no limit" is near 2**63, rounded to pages.
_NO_LIMIT = 1 << 60
_HINTS = (
    *("SLURM_JOB_ID", "SLURM_NTASKS", "SLURM_CPUS_PER_TASK", "SLURM_CPUS_PER_GPU", "SLURM_CPUS_ON_NODE"),
    *("SLURM_JOB_CPUS_PER_NODE", "SLURM_GPUS_ON_NODE", "SLURM_CPU_BIND", "NCPUS", "NSLOTS", "LSB_DJOB_NUMPROC"),
    *("OMP_NUM_THREADS", "OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY"),
)
_TORCH_PROBE = """
import json, torch
cuda = torch.cuda
names = [cuda.get_device_name(i) for i in range(cuda.device_count())] if cuda.is_available() else []
print(json.dumps({"version": torch.__version__, "cuda": torch.version.cuda, "devices": names}))
"""
Runner = Callable[[Sequence[str], float], str | None]


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

    Args:
        root: the folder that holds ``proc``, ``sys`` and ``dev``.
        affinity: hardware threads that this process may run on.
        environ: variables of scheduler, container and thread binding.
        sleep: waits between the two load samples.
        statvfs: size of a file system, asked about ``/dev/shm``.
        load_window: seconds between the two load samples.
    """
    tree = _Tree(root)
    allowed = sorted(affinity())
    topology = _read_topology(tree)
    covered = topology.count_cores(allowed)
    cpu_groups, memory_groups = _group_folders(tree, "cpu"), _group_folders(tree, "memory")
    cache_bytes, caches = _last_level_cache(tree, topology.online)
    shm_bytes, shm_free_bytes = _shm(statvfs, root)
    other_load, steal = _load(tree, allowed, sleep, load_window)
    numa_cpus = _numa_cpus(tree)
    return HostFacts(
        terms=_terms(topology, allowed, _quota(tree, cpu_groups)),
        logical_cpus=len(topology.online) or None,
        affinity_cpus=len(allowed),
        affinity_cores=covered,
        physical_cores=topology.count_cores(topology.online),
        threads_per_core=topology.threads_per_core,
        sockets=topology.sockets,
        numa_nodes=len(numa_cpus) or None,
        numa_cpus=numa_cpus,
        cpuset_cpus=_cpuset(tree),
        cpu_model=topology.cpu_model,
        last_level_cache_bytes=cache_bytes,
        last_level_caches=caches,
        memory_bytes=_meminfo(tree, "MemTotal"),
        memory_available_bytes=_meminfo(tree, "MemAvailable"),
        memory_limit_bytes=_memory_limit(tree, memory_groups),
        shm_bytes=shm_bytes,
        shm_free_bytes=shm_free_bytes,
        hypervisor=topology.hypervisor,
        hints=_hints(tree, environ),
        other_load_cores=other_load,
        throttled_fraction=_throttled(tree, cpu_groups),
        steal_fraction=steal,
    )


def optional_parts(deep: bool = False, root: Path = Path("/"), run: Runner | None = None) -> tuple[Part, ...]:
    """The parts that some requests need: torch, a CUDA device, numba, and the kind of Python.

    Args:
        deep: import torch, in a process of its own, to name its CUDA devices (seconds).
        root: the folder that holds ``proc``.
        run: runs a command with a timeout in seconds and gives its output, or None when it failed.
    """
    run = _run if run is None else run
    return (_torch_part(deep, run), _cuda_part(_Tree(root), run), _numba_part(), _python_part())


class _Tree:
    """Files below a root; one that is missing, unreadable or malformed reads as None."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def text(self, path: str) -> str | None:
        try:
            return (self.root / path.lstrip("/")).read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            return None

    def number(self, path: str) -> int | None:
        return _int(self.text(path))

    def lines(self, path: str) -> list[str]:
        return (self.text(path) or "").splitlines()

    def exists(self, path: str) -> bool:
        return (self.root / path.lstrip("/")).exists()

    def glob(self, pattern: str) -> list[str]:
        return sorted(str(path.relative_to(self.root)) for path in self.root.glob(pattern))


def _int(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch(r"-?[0-9]{1,20}", text) else None


def _cpu_list(text: str | None) -> tuple[int, ...]:
    """CPUs of Linux's list form, such as ``0-3,8``; empty when malformed."""
    if text is None or not re.fullmatch(r"\d{1,6}(-\d{1,6})?(,\d{1,6}(-\d{1,6})?)*", text):
        return ()
    ends = [part.partition("-") for part in text.split(",")]
    return tuple(cpu for first, _, last in ends for cpu in range(int(first), int(last or first) + 1))


@dataclass(frozen=True)
class _Topology:
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
        cores = list(self.cores.values())
        return max((cores.count(core) for core in set(cores)), default=None)

    @property
    def sockets(self) -> int | None:
        return len({package for package, _ in self.cores.values()}) or None


def _read_topology(tree: _Tree) -> _Topology:
    blocks = _cpuinfo(tree)
    listed = tuple(cpu for cpu in (_int(block.get("processor")) for block in blocks) if cpu is not None)
    online = _cpu_list(tree.text(f"{_CPUS}/online")) or listed
    first = blocks[0] if blocks else {}
    arm = " ".join(first[key] for key in ("CPU implementer", "CPU part") if key in first)
    flags = first.get("flags")
    return _Topology(
        online=online,
        cores=_cores_of_sys(tree, online) or _cores_of_cpuinfo(blocks, online),
        cpu_model=first.get("model name") or first.get("cpu") or arm or None,
        hypervisor=None if flags is None else "hypervisor" in flags.split(),
    )


def _cpuinfo(tree: _Tree) -> list[dict[str, str]]:
    blocks = (tree.text("proc/cpuinfo") or "").split("\n\n")
    pairs = [[line.partition(":") for line in block.splitlines() if ":" in line] for block in blocks]
    return [{key.strip(): value.strip() for key, _, value in block} for block in pairs if block]


def _cores_of_sys(tree: _Tree, online: Iterable[int]) -> dict[int, tuple[str, str]]:
    """The kernel's sibling list names a core: core_id repeats across the dies of some packages."""
    cores = {}
    for cpu in online:
        folder = f"{_CPUS}/cpu{cpu}/topology"
        package, siblings = tree.text(f"{folder}/physical_package_id"), tree.text(f"{folder}/thread_siblings_list")
        if not package or not siblings:
            return {}
        cores[cpu] = (package, siblings)
    return cores


def _cores_of_cpuinfo(blocks: list[dict[str, str]], online: Iterable[int]) -> dict[int, tuple[str, str]]:
    cores = {
        int(block["processor"]): (block["physical id"], block["core id"])
        for block in blocks
        if _int(block.get("processor")) is not None and {"physical id", "core id"} <= block.keys()
    }
    return cores if cores.keys() >= set(online) else {}


def _terms(topology: _Topology, allowed: Collection[int], quota: float | None) -> tuple[CoreTerm, ...]:
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


def _last_level_cache(tree: _Tree, online: Iterable[int]) -> tuple[int | None, int | None]:
    """Size in bytes of one cache of the highest level, and how many of them the machine has."""
    found: dict[tuple[int, str], int] = {}
    for cpu in online:
        for index in itertools.count():
            folder = f"{_CPUS}/cpu{cpu}/cache/index{index}"
            level, shared = tree.number(f"{folder}/level"), tree.text(f"{folder}/shared_cpu_list")
            size = re.fullmatch(r"(\d{1,12})K", tree.text(f"{folder}/size") or "")
            if level is None or shared is None or size is None:
                break
            found[level, shared] = int(size[1]) * 1024
    highest = max((level for level, _ in found), default=None)
    top = [size for (level, _), size in found.items() if level == highest]
    return (max(top), len(top)) if top else (None, None)


def _numa_cpus(tree: _Tree) -> tuple[str, ...]:
    nodes = [path for path in tree.glob("sys/devices/system/node/node*/cpulist") if re.search(r"node\d+/cpulist", path)]
    nodes.sort(key=lambda path: int(re.findall(r"node(\d+)/", path)[-1]))
    return tuple(tree.text(path) or "" for path in nodes)


def _meminfo(tree: _Tree, key: str) -> int | None:
    match = re.search(rf"^{key}:\s+(\d+) kB$", tree.text("proc/meminfo") or "", re.MULTILINE)
    kilobytes = _int(match[1]) if match else None
    return None if kilobytes is None else kilobytes * 1024


def _shm(statvfs: Callable[[str], os.statvfs_result], root: Path) -> tuple[int | None, int | None]:
    try:
        room = statvfs(str(root / "dev/shm"))
    except OSError:
        return None, None
    return room.f_frsize * room.f_blocks, room.f_frsize * room.f_bavail


def _hints(tree: _Tree, environ: Mapping[str, str]) -> dict[str, str]:
    hints = {name: environ[name] for name in _HINTS if name in environ}
    if "KUBERNETES_SERVICE_HOST" in environ:
        hints["kubernetes"] = "service environment"
    elif tree.exists("var/run/secrets/kubernetes.io/serviceaccount"):
        hints["kubernetes"] = "service account"
    marks = {"docker": ".dockerenv", "podman": "run/.containerenv", "singularity": ".singularity.d"}
    container = environ.get("container") or next((name for name, mark in marks.items() if tree.exists(mark)), None)
    return hints | ({"container": container} if container else {})


def _group_folders(tree: _Tree, controller: str) -> list[str]:
    """Folders of this process's control groups, v2 and v1, each from its own group up to the mount."""
    own = {}
    for line in tree.lines("proc/self/cgroup"):
        _, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        own.update(dict.fromkeys(names.split(","), path))
    folders: list[str] = []
    for names_here, mount_root, point in _group_mounts(tree):
        for name in {"", controller} & names_here & own.keys():
            folders += _walk_up(own[name], mount_root, point)
    return folders


def _group_mounts(tree: _Tree) -> list[tuple[set[str], str, str]]:
    """(controllers, root inside the hierarchy, mount point); the unnamed controller stands for v2."""
    mounts = []
    for line in tree.lines("proc/self/mountinfo"):
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


def _quota(tree: _Tree, folders: Iterable[str]) -> float | None:
    """Least quota along the walk, in cores: a parent's binds its children."""
    quotas = []
    for folder in folders:
        v2 = (tree.text(f"{folder}/cpu.max") or "").split()
        v1 = (tree.text(f"{folder}/cpu.cfs_quota_us"), tree.text(f"{folder}/cpu.cfs_period_us"))
        for pair in (tuple(v2), v1):
            numbers = [_int(text) for text in pair]
            if len(numbers) == 2 and numbers[0] and numbers[1] and min(numbers[0], numbers[1]) > 0:
                quotas.append(numbers[0] / numbers[1])
    return min(quotas, default=None)


def _throttled(tree: _Tree, folders: Iterable[str]) -> float | None:
    fractions = []
    for folder in folders:
        counts = dict(line.split(" ", 1) for line in tree.lines(f"{folder}/cpu.stat") if " " in line)
        periods, throttled = _int(counts.get("nr_periods")), _int(counts.get("nr_throttled"))
        if periods and throttled is not None:
            fractions.append(throttled / periods)
    return max(fractions, default=None)


def _memory_limit(tree: _Tree, folders: Iterable[str]) -> int | None:
    files = [f"{folder}/{name}" for folder in folders for name in ("memory.max", "memory.limit_in_bytes")]
    limits = [limit for limit in (tree.number(file) for file in files) if limit is not None and 0 < limit < _NO_LIMIT]
    return min(limits, default=None)


def _cpuset(tree: _Tree) -> str | None:
    """The control group's CPUs. Shown, not counted: the kernel keeps the affinity inside them already."""
    names = ("cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus")
    files = (f"{folder}/{name}" for folder in _group_folders(tree, "cpuset") for name in names)
    return next((text for text in (tree.text(file) for file in files) if _cpu_list(text)), None)


@dataclass(frozen=True)
class _Ticks:
    """Clock ticks since boot, summed over some CPUs, and this process's own."""

    busy: int
    stolen: int
    total: int
    own: int


def _ticks(tree: _Tree, cpus: Collection[int]) -> _Ticks | None:
    rows = {line.split()[0]: [_int(text) for text in line.split()[1:9]] for line in tree.lines("proc/stat") if line}
    picked = [rows.get(f"cpu{cpu}", []) for cpu in cpus]
    # After the command's name, which may hold spaces, utime and stime are the 12th and 13th fields.
    own = [_int(text) for text in (tree.text("proc/self/stat") or "").rpartition(")")[2].split()[11:13]]
    flat = [value for row in (*picked, own) for value in row if value is not None]
    if len(own) != 2 or len(flat) != 8 * len(cpus) + 2:
        return None
    user, nice, system, idle, wait, irq, softirq, stolen = (sum(flat[column:-2:8]) for column in range(8))
    busy = user + nice + system + irq + softirq
    return _Ticks(busy, stolen, busy + idle + wait + stolen, sum(flat[-2:]))


def _load(
    tree: _Tree, cpus: Collection[int], sleep: Callable[[float], None], window: float
) -> tuple[float | None, float | None]:
    """Cores kept busy by others during the window, and the share of wanted time stolen since boot."""
    before = _ticks(tree, cpus)
    sleep(window)
    after = _ticks(tree, cpus)
    if before is None or after is None or after.total <= before.total:
        return None, None
    others = (after.busy - before.busy) - (after.own - before.own)
    wanted = after.busy + after.stolen
    cores = max(0.0, others / (after.total - before.total) * len(cpus))
    return cores, after.stolen / wanted if wanted else None


def _run(command: Sequence[str], timeout: float) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _torch_part(deep: bool, run: Runner) -> Part:
    version = _version("torch")
    if version is None:
        return Part("torch", False, None, "needed to time a training step", "pip install torch (any build)")
    if not deep:
        return Part("torch", True, version, "installed; not imported", "")
    # A broken or hanging torch must not take this process down with it.
    found = _json_object(run([sys.executable, "-c", _TORCH_PROBE], 120.0))
    if found is None:
        return Part("torch", False, version, "installed, but its import failed or hung", "reinstall torch")
    devices = ", ".join(map(str, found.get("devices") or [])) or "no CUDA device"
    return Part("torch", True, version, f"built for CUDA {found.get('cuda') or 'none'}; sees {devices}", "")


def _json_object(text: str | None) -> dict[str, Any] | None:
    """The JSON object on the last line: an import may print before it."""
    try:
        found = json.loads((text or "").rpartition("\n")[2])
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _cuda_part(tree: _Tree, run: Runner) -> Part:
    found = run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], 20.0)
    rows = [line.rpartition(",") for line in (found or "").splitlines() if "," in line]
    models = [tree.text(path) or "" for path in tree.glob("proc/driver/nvidia/gpus/*/information")]
    listed = [match[1] for match in (re.search(r"Model:\s*(.+)", text) for text in models) if match]
    names = [name.strip() for name, _, _ in rows] or listed
    if not names:
        return Part("CUDA device", False, None, "needed to time a training step here", "use a recorded step time")
    return Part("CUDA device", True, rows[0][2].strip() if rows else None, ", ".join(names), "")


def _numba_part() -> Part:
    version = _version("numba")
    return Part("numba", version is not None, version, "compiles the simulator", "" if version else "pip install numba")


def _python_part() -> Part:
    free = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
    detail = "threads run Python code in parallel" if free else "threads share one GIL, as in most builds"
    return Part("free-threaded Python", free, sysconfig.get_python_version(), detail, "")
