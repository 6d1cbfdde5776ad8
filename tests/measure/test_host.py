"""The host's facts, read from folders that look like other machines."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coresim.cli import doctor as verb
from coresim.errors import InputError, UnknownKeyError
from coresim.measure.host import read_host
from coresim.measure.parts import optional_parts
from coresim.model.host import CoreTerm, HostFacts, OptionalPart
from coresim.report.doctor import cores_sentence, doctor_dict, doctor_text

V2_MOUNT = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
V1_MOUNTS = """\
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
34 31 0:31 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
"""
GROUP = "sys/fs/cgroup"
CPU = "sys/devices/system/cpu"


class Machine:
    """A folder with /proc and /sys of a machine whose CPU n shares core n % cores."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, files: Mapping[str, str]) -> Machine:
        for name, text in files.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return self

    def topology(self, cores: int, threads: int = 1, sockets: int = 1) -> Machine:
        cpus = cores * threads
        files = {f"{CPU}/online": f"0-{cpus - 1}\n" if cpus > 1 else "0\n"}
        for cpu in range(cpus):
            siblings = ",".join(str(cpu % cores + cores * thread) for thread in range(threads))
            files[f"{CPU}/cpu{cpu}/topology/thread_siblings_list"] = siblings + "\n"
            files[f"{CPU}/cpu{cpu}/topology/physical_package_id"] = f"{cpu % cores * sockets // cores}\n"
        return self.write(files)

    def v2(self, own: str, files: Mapping[str, str] = {}) -> Machine:
        self.write({"proc/self/cgroup": f"0::{own}\n", "proc/self/mountinfo": V2_MOUNT})
        return self.write({f"{GROUP}/{name}": text for name, text in files.items()})

    def read(self, cpus: Iterable[int], environ: Mapping[str, str] = {}, **changes: Any) -> HostFacts:
        return read_host(
            self.root,
            affinity=lambda: set(cpus),
            environ=environ,
            **{"sleep": lambda _: None, "statvfs": fake_shm(8 << 30), **changes},
        )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def fake_shm(size: int) -> Callable[[str], os.statvfs_result]:
    blocks = size // 4096
    return lambda path: os.statvfs_result((4096, 4096, blocks, blocks, blocks // 2, 0, 0, 0, 0, 255))


def values(facts: HostFacts) -> dict[str, float | None]:
    return {term.name: term.value_cores for term in facts.terms}


def about(facts: HostFacts, words: str) -> list[str]:
    """The values of the warnings whose subject holds these words; each must have a remedy."""
    assert all(warning.remedy for warning in facts.warnings)
    return [warning.value for warning in facts.warnings if words in warning.what]


# --- usable cores: quota -------------------------------------------------------------------------------------------


def test_published_case_15_twelve_cpus_under_a_quota_of_four(machine: Machine) -> None:
    facts = machine.topology(12).v2("/", {"cpu.max": "400000 100000\n"}).read(range(12))
    assert (facts.logical_cpus, facts.affinity_cpus, facts.usable_cores) == (12, 12, 4)
    assert about(facts, "quota is below") == ["quota 4 cores, affinity 12 hardware threads"]


@pytest.mark.parametrize(("cpus", "far"), [(8, ["8 of 64 hardware threads"]), (16, [])])
def test_affinity_far_below_the_machine(machine: Machine, cpus: int, far: list[str]) -> None:
    assert about(machine.topology(64).read(range(cpus)), "affinity is far below") == far


def test_published_case_15_affinity_of_one_among_64(machine: Machine) -> None:
    facts = machine.topology(64).v2("/").read([17])
    assert facts.usable_cores == 1
    assert about(facts, "affinity is far below") == ["1 of 64 hardware threads"]


@pytest.mark.parametrize("tight", ["a", "a/b", "a/b/c"])
def test_v2_the_tightest_group_on_the_way_up_binds(machine: Machine, tight: str) -> None:
    files = {f"{group}/cpu.max": "600000 100000\n" for group in ("a", "a/b", "a/b/c")}
    files |= {f"{tight}/cpu.max": "200000 100000\n", "a/other/cpu.max": "10000 100000\n"}
    assert machine.topology(8).v2("/a/b/c", files).read(range(8)).usable_cores == 2


@pytest.mark.parametrize(
    ("text", "quota"),
    [("150000 100000", 1.5), ("max 100000", None), ("25000 50000", 0.5), ("", None), ("x y", None), ("5 0", None)],
)
def test_v2_quota_stays_fractional_and_max_is_none(machine: Machine, text: str, quota: float | None) -> None:
    facts = machine.topology(4).v2("/", {"cpu.max": text}).read(range(4))
    assert values(facts)["quota"] == quota
    assert facts.usable_cores == (4 if quota is None else quota)


@pytest.mark.parametrize(("quota", "usable"), [("250000", 2.5), ("-1", 8)])
def test_v1_quota_of_a_parent_and_memory_and_cpuset(machine: Machine, quota: str, usable: float) -> None:
    own = "5:cpu,cpuacct:/docker/abc\n4:memory:/docker/abc\n3:cpuset:/docker/abc\n0::/\n"
    machine.topology(8).write({"proc/self/cgroup": own, "proc/self/mountinfo": V1_MOUNTS})
    machine.write(
        {
            f"{GROUP}/cpu,cpuacct/docker/cpu.cfs_quota_us": quota,
            f"{GROUP}/cpu,cpuacct/docker/cpu.cfs_period_us": "100000",
            f"{GROUP}/cpu,cpuacct/docker/abc/cpu.cfs_quota_us": "-1",
            f"{GROUP}/cpu,cpuacct/docker/abc/cpu.cfs_period_us": "100000",
            f"{GROUP}/memory/memory.limit_in_bytes": "9223372036854771712",
            f"{GROUP}/memory/docker/memory.limit_in_bytes": str(4 << 30),
            f"{GROUP}/memory/docker/abc/memory.limit_in_bytes": str(3 << 30),
            f"{GROUP}/cpuset/docker/abc/cpuset.cpus": "0-7",
        }
    )
    facts = machine.read(range(8))
    assert facts.usable_cores == usable
    assert facts.memory_limit_bytes == 3 << 30
    assert facts.cpuset_cpus == "0-7"


@pytest.mark.parametrize(
    ("own", "mount_root"),
    [("/", "/"), ("/../..", "/"), ("/../../kubepods/pod1", "/"), ("/kubepods/pod1", "/kubepods/pod1"), ("/x", "/y")],
)
def test_in_a_container_the_mount_itself_is_the_group(machine: Machine, own: str, mount_root: str) -> None:
    machine.topology(16).v2(own, {"cpu.max": "300000 100000", "memory.max": "1000000"})
    machine.write({"proc/self/mountinfo": V2_MOUNT.replace(" / /sys", f" {mount_root} /sys")})
    machine.write({"sys/kubepods/pod1/cpu.max": "100000 100000", "sys/cpu.max": "100000 100000"})
    facts = machine.read(range(16))
    assert (facts.usable_cores, facts.memory_limit_bytes) == (3, 1000000)


@pytest.mark.parametrize("text", ["max", "9223372036854771712"])
def test_no_memory_limit_is_none(machine: Machine, text: str) -> None:
    assert machine.topology(2).v2("/", {"memory.max": text}).read([0]).memory_limit_bytes is None


def test_the_walk_stops_at_the_mount(machine: Machine) -> None:
    machine.topology(4).v2("/a").write({"sys/fs/cpu.max": "100000 100000"})
    assert machine.read(range(4)).usable_cores == 4


def test_no_control_group_at_all(machine: Machine) -> None:
    facts = machine.topology(4).read(range(3))
    assert values(facts) == {"affinity": 3, "quota": None, "physical": 4}
    assert (facts.usable_cores, facts.throttled_fraction, facts.memory_limit_bytes) == (3, None, None)


@pytest.mark.parametrize(("throttled", "shares"), [(20, ["20% of periods throttled"]), (1, [])])
def test_throttling_of_a_parent_is_seen(machine: Machine, throttled: int, shares: list[str]) -> None:
    own = "nr_periods 1000\nnr_throttled 1\n"
    stat = f"usage_usec 12345\nnr_periods 100\nnr_throttled {throttled}\nthrottled_usec 9\n"
    facts = machine.topology(4).v2("/a/b", {"a/cpu.stat": stat, "a/b/cpu.stat": own}).read(range(4))
    assert facts.throttled_fraction == throttled / 100
    assert [value[: len("20% of periods throttled")] for value in about(facts, "quota stops")] == shares


# --- usable cores: topology ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cpus", "usable"), [([0, 4], 1), ([0, 1, 4, 5], 2), ([0, 1, 2, 3], 4), (range(8), 4), ([3, 4], 2)]
)
def test_sibling_threads_are_one_core(machine: Machine, cpus: Iterable[int], usable: int) -> None:
    facts = machine.topology(cores=4, threads=2, sockets=2).read(cpus)
    assert (facts.threads_per_core, facts.sockets, facts.physical_cores) == (2, 2, 4)
    assert facts.usable_cores == facts.affinity_cores == usable
    assert bool(about(facts, "threads are counted as cores")) == (len(list(cpus)) > usable)


def test_core_ids_that_repeat_across_dies_are_not_merged(machine: Machine) -> None:
    machine.topology(4).write({f"{CPU}/cpu{cpu}/topology/core_id": str(cpu % 2) for cpu in range(4)})
    assert machine.read(range(4)).physical_cores == 4


def cpuinfo(extra: Callable[[int], str], cpus: int = 4) -> str:
    blocks = (f"processor\t: {cpu}\nmodel name\t: Some CPU\nflags\t\t: fpu {extra(cpu)}\n" for cpu in range(cpus))
    return "\n".join(blocks)


def test_cpuinfo_alone_gives_the_cores(machine: Machine) -> None:
    text = cpuinfo(lambda cpu: f"\nphysical id\t: 0\ncore id\t\t: {cpu // 2}")
    facts = machine.write({"proc/cpuinfo": text}).read(range(3))
    assert (facts.logical_cpus, facts.physical_cores, facts.affinity_cores) == (4, 2, 2)
    assert (facts.cpu_model, facts.hypervisor) == ("Some CPU", False)


def test_unknown_topology_counts_threads_and_says_so(machine: Machine) -> None:
    facts = machine.write({"proc/cpuinfo": cpuinfo(lambda cpu: "")}).read(range(3))
    assert values(facts) == {"affinity": 3, "quota": None, "physical": None}
    assert facts.usable_cores == 3
    assert "unknown" in facts.terms[0].explanation
    assert cores_sentence(facts) == "usable cores 3 = min(affinity 3, quota none, physical unknown)"


def test_a_hypervisor_that_hides_siblings_is_named(machine: Machine) -> None:
    machine.write({"proc/cpuinfo": cpuinfo(lambda cpu: "hypervisor")})
    assert about(machine.topology(4).read(range(4)), "hypervisor shows one thread")
    assert not about(machine.topology(2, threads=2).read(range(4)), "hypervisor shows one thread")


def test_caches_numa_and_memory(machine: Machine) -> None:
    for cpu in range(4):
        levels = {
            0: ("1", "32K", str(cpu)),
            1: ("2", "1024K", str(cpu)),
            2: ("3", "16384K", "0-1" if cpu < 2 else "2-3"),
        }
        for index, entry in levels.items():
            names = ("level", "size", "shared_cpu_list")
            folder = f"{CPU}/cpu{cpu}/cache/index{index}"
            machine.write({f"{folder}/{name}": text for name, text in zip(names, entry, strict=True)})
    machine.write({f"sys/devices/system/node/node{node}/cpulist": f"{node}\n" for node in (0, 2, 10)})
    machine.write({"proc/meminfo": "MemTotal:  1000 kB\nMemFree: 1 kB\nMemAvailable:   900 kB\n"})
    facts = machine.topology(4).read(range(4))
    assert (facts.last_level_cache_bytes, facts.last_level_caches) == (16384 * 1024, 2)
    assert (facts.numa_nodes, facts.numa_cpus) == (3, ("0", "2", "10"))
    assert (facts.memory_bytes, facts.memory_available_bytes) == (1000 * 1024, 900 * 1024)


# --- other warnings ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "small"), [(64 << 20, ["67.1 MB"]), (8 << 30, [])])
def test_a_small_dev_shm_is_named(machine: Machine, size: int, small: list[str]) -> None:
    facts = machine.topology(2).read(range(2), statvfs=fake_shm(size))
    assert (facts.shm_bytes, facts.shm_free_bytes) == (size, size // 2)
    assert about(facts, "/dev/shm") == small


@pytest.mark.parametrize(("allowed", "differs"), [(range(2), True), (range(8), False), (range(16), True)])
def test_slurm_hint_beside_the_affinity(machine: Machine, allowed: Iterable[int], differs: bool) -> None:
    environ = {"SLURM_CPUS_PER_TASK": "7", "SLURM_JOB_ID": "9", "HOME": "/secret"}
    facts = machine.topology(8, threads=2).read(allowed, environ)
    assert facts.hints == {"SLURM_CPUS_PER_TASK": "7", "SLURM_JOB_ID": "9"}
    assert bool(about(facts, "Slurm")) == differs


def test_kubernetes_and_container_hints(machine: Machine) -> None:
    inside = machine.topology(2).write({".dockerenv": ""}).read([0], {"KUBERNETES_SERVICE_HOST": "10.0.0.1"})
    assert inside.hints == {"kubernetes": "service environment", "container": "docker"}
    machine.write({"var/run/secrets/kubernetes.io/serviceaccount/namespace": "x"})
    assert machine.read([0]).hints["kubernetes"] == "service account"
    assert machine.read([0], {"container": "podman"}).hints["container"] == "podman"


def ticks(busy: Mapping[int, int], idle: int, own: int = 0, stolen: int = 0) -> dict[str, str]:
    waiting = idle // 10
    rows = [f"cpu{cpu} {user} 0 0 {idle - user - waiting} {waiting} 0 0 {stolen} 0 0" for cpu, user in busy.items()]
    after_name = " ".join(["S", *["1"] * 10, str(own), "0", "9", "9"])
    return {"proc/stat": "\n".join(["cpu 9 9 9", *rows, "ctxt 5", ""]), "proc/self/stat": f"7 (a (b) c) {after_name}"}


@pytest.mark.parametrize(("user", "own", "others"), [(12, 10, 0.1), (10, 10, 0.0), (20, 0, 1.0), (0, 1, 0.0)])
def test_load_of_others_on_our_cpus(machine: Machine, user: int, own: int, others: float) -> None:
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        machine.write(ticks({0: 100 + user, 1: 100, 2: 120}, idle=1020, own=50 + own))

    machine.topology(3).write(ticks({0: 100, 1: 100, 2: 100}, idle=1000, own=50))
    facts = machine.read([0, 1], sleep=sleep, load_window=0.7)
    assert slept == [0.7]
    assert facts.other_load_cores == pytest.approx(others)
    assert bool(about(facts, "other processes")) == (others > 0.07)


def test_stolen_time_is_a_share_of_wanted_time(machine: Machine) -> None:
    machine.topology(2).write(ticks({0: 10, 1: 10}, idle=50))
    later = ticks({0: 90, 1: 90}, idle=200, stolen=10)
    facts = machine.read([0, 1], sleep=lambda _: machine.write(later) and None)
    assert facts.steal_fraction == pytest.approx(0.1)
    assert facts.other_load_cores == pytest.approx(1.0)
    assert about(facts, "hypervisor gives")


def test_a_quiet_plain_machine_has_no_warnings(machine: Machine) -> None:
    machine.topology(4).v2("/", {"cpu.max": "max 100000"}).write(ticks({0: 1, 1: 1, 2: 1, 3: 1}, idle=50))
    facts = machine.read(range(4), sleep=lambda _: machine.write(ticks({0: 1, 1: 1, 2: 1, 3: 1}, 70)) and None)
    assert (facts.other_load_cores, facts.warnings) == (0, ())
    assert "Warnings: none" in doctor_text(facts, ())


# --- malformed sources, the real host, files -----------------------------------------------------------------------

SOURCES = [
    "proc/cpuinfo",
    "proc/meminfo",
    "proc/stat",
    "proc/self/stat",
    "proc/self/cgroup",
    "proc/self/mountinfo",
    f"{CPU}/online",
    f"{CPU}/cpu0/cache/index0/size",
    f"{CPU}/cpu0/cache/index0/level",
    f"{CPU}/cpu0/topology/physical_package_id",
    "sys/devices/system/node/node0/cpulist",
    f"{GROUP}/cpu.max",
    f"{GROUP}/cpu.stat",
    f"{GROUP}/memory.max",
]


@pytest.mark.parametrize("text", ["", "\n\n:\n", "rubbish: x - y\n", "\x00\xff 1 2", "-1", "9" * 5000, "1-\n3:"])
def test_malformed_files_give_none(machine: Machine, text: str) -> None:
    machine.write(dict.fromkeys(SOURCES, text))
    machine.write({"proc/self/cgroup": text, "proc/self/mountinfo": V2_MOUNT})
    check_nothing_known(machine.read([0, 1], statvfs=no_shm))
    machine.write({"proc/self/cgroup": "0::/\n"})
    check_nothing_known(machine.read([0, 1], statvfs=no_shm))


def no_shm(path: str) -> os.statvfs_result:
    raise FileNotFoundError(path)


def check_nothing_known(facts: HostFacts) -> None:
    assert values(facts) == {"affinity": 2, "quota": None, "physical": None}
    known = {key for key, value in facts.to_dict().items() if value is not None and key.endswith(("bytes", "fraction"))}
    assert not known
    assert facts.other_load_cores is None
    assert "unknown" in doctor_text(facts, ())


def test_an_empty_machine_gives_none(machine: Machine) -> None:
    facts = machine.read([0, 1], statvfs=no_shm)
    check_nothing_known(facts)
    assert (facts.logical_cpus, facts.cpu_model, facts.hypervisor, facts.cpuset_cpus) == (None, None, None, None)


def test_this_host() -> None:
    facts = read_host(load_window=0.05)
    threads = len(os.sched_getaffinity(0))
    assert facts.affinity_cpus == threads
    assert 0 < facts.usable_cores <= threads <= (facts.logical_cpus or threads)
    assert facts.usable_cores == min(value for value in values(facts).values() if value is not None)
    assert facts.memory_bytes is not None and facts.memory_bytes >= (facts.memory_available_bytes or 0) > 0
    assert HostFacts.from_dict(json.loads(json.dumps(facts.to_dict()))) == facts


def full(machine: Machine) -> HostFacts:
    machine.topology(4).v2("/", {"cpu.max": "150000 100000"})
    return machine.read(range(4), {"SLURM_JOB_ID": "9"})


def test_facts_survive_a_file_and_contradictions_do_not(machine: Machine) -> None:
    facts = full(machine)
    document = json.loads(json.dumps(facts.to_dict()))
    assert HostFacts.from_dict(document) == facts
    assert document["usable_cores"] == 1.5 and document["fingerprint"] == facts.fingerprint
    with pytest.raises(InputError, match=r"p\.json host\.usable_cores = 8"):
        HostFacts.from_dict(document | {"usable_cores": 8}, "p.json host")
    with pytest.raises(UnknownKeyError, match=r"host\.ram: unknown key"):
        HostFacts.from_dict(document | {"ram": 1})
    assert HostFacts.from_dict({"terms": document["terms"]}).memory_bytes is None


@pytest.mark.parametrize(
    "change",
    [
        {"memory_bytes": "24 GB"},
        {"memory_bytes": -1},
        {"logical_cpus": True},
        {"logical_cpus": 1.5},
        {"hypervisor": 1},
        {"cpu_model": 3},
        {"steal_fraction": float("nan")},
        {"hints": []},
        {"hints": {"a": 1}},
        {"numa_cpus": "0-1"},
        {"numa_cpus": [1]},
        {"terms": [{"name": "affinity"}]},
        {"terms": [{"name": "affinity", "value_cores": "2", "explanation": ""}]},
    ],
)
def test_a_value_of_the_wrong_type_is_refused_by_name(machine: Machine, change: dict[str, Any]) -> None:
    document = {key: value for key, value in full(machine).to_dict().items() if key != "usable_cores"}
    with pytest.raises(InputError, match=rf"host\.{next(iter(change))}"):
        HostFacts.from_dict(document | change)


def test_no_known_term_is_an_error_on_use() -> None:
    with pytest.raises(InputError, match="no term"):
        _ = HostFacts(terms=(CoreTerm("quota", None, ""),)).usable_cores


def test_fingerprint_tells_machines_apart_but_not_visits(machine: Machine) -> None:
    facts = replace(full(machine), cpu_model="A", memory_bytes=64 * 10**9)
    same: list[dict[str, Any]] = [
        {"memory_bytes": 65 * 10**9},
        {"memory_available_bytes": 1},
        {"other_load_cores": 1.0},
        {"hints": {}},
    ]
    other: list[dict[str, Any]] = [
        {"cpu_model": "B"},
        {"physical_cores": 8},
        {"threads_per_core": 2},
        {"memory_bytes": 128 * 10**9},
    ]
    assert {replace(facts, **change).fingerprint for change in same} == {facts.fingerprint}
    assert facts.fingerprint not in {replace(facts, **change).fingerprint for change in other}


# --- optional parts, the verb --------------------------------------------------------------------------------------


def part(parts: Iterable[OptionalPart], name: str) -> OptionalPart:
    return next(each for each in parts if each.name == name)


def test_shallow_parts_start_no_torch(tmp_path: Path) -> None:
    commands: list[str] = []
    parts = optional_parts(root=tmp_path, run=lambda command, timeout: commands.append(command[0]))
    assert commands == ["nvidia-smi"]
    assert not part(parts, "CUDA device").present and part(parts, "CUDA device").remedy
    assert part(parts, "free-threaded Python").version


@pytest.mark.parametrize("smi", [True, False])
def test_a_cuda_device_is_found_by_tool_or_driver(tmp_path: Path, smi: bool) -> None:
    Machine(tmp_path).write({"proc/driver/nvidia/gpus/0000:01:00.0/information": "Model: \t NVIDIA X\nIRQ: 1\n"})
    parts = optional_parts(root=tmp_path, run=lambda command, timeout: "NVIDIA Y, 550.54\n" if smi else None)
    found = part(parts, "CUDA device")
    assert (found.present, found.detail, found.version) == (
        True,
        *(("NVIDIA Y", "550.54") if smi else ("NVIDIA X", None)),
    )


@pytest.mark.parametrize(
    ("output", "present"),
    [
        ('noise\n{"version": "2", "cuda": "12", "devices": ["H"]}', True),
        (None, False),
        ("Segfault", False),
        ("3", False),
    ],
)
def test_deep_torch_that_breaks_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str | None, present: bool
) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda name: "2.0")
    torch = part(optional_parts(deep=True, root=tmp_path, run=lambda command, timeout: output), "torch")
    assert torch.present == present
    assert ("sees H" in torch.detail) == present and bool(torch.remedy) != present


def test_the_text_names_terms_warnings_and_remedies(machine: Machine) -> None:
    facts = full(machine)
    text = doctor_text(facts, (OptionalPart("torch", False, None, "needed", "pip install torch"),))
    assert text.startswith("usable cores 1.5 = min(affinity 4, quota 1.5, physical 4)\n")
    for piece in (
        *(term.explanation for term in facts.terms),
        "no  torch: needed; pip install torch",
        "SLURM_JOB_ID=9",
    ):
        assert piece in text
    assert facts.warnings and all(f"remedy: {warning.remedy}" in text for warning in facts.warnings)
    assert doctor_dict(facts, ())["host"] == facts.to_dict()


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_the_verb_prints_alone_and_answers(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    verb.add_parser(parser.add_subparsers())
    args = parser.parse_args(["doctor", *options])
    assert args.run(args) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    if options:
        assert json.loads(printed.out)["usable_cores"] > 0
    else:
        assert printed.out.startswith("usable cores ")
