"""Fewer cores by the CPU quota of a control group."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from coresim.validate.limits import QuotaGroup

MOUNT = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"


def in_group(root: Path) -> Path:
    """A machine on which this process is in a group below another; its group's folder."""
    home = root / "sys/fs/cgroup/above/mine"
    home.mkdir(parents=True)
    (home.parent / "cgroup.procs").write_text("1\n")
    (home / "cgroup.procs").write_text(f"2\n{os.getpid()}\n")
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/mountinfo").write_text(MOUNT)
    (root / "proc/self/cgroup").write_text("0::/above/mine\n")
    return home


def test_no_group_where_none_may_be_made(tmp_path: Path):
    assert QuotaGroup.make(tmp_path) is None
    # A folder that shows no quota after it was made is no control group, and is removed again.
    home = in_group(tmp_path)
    assert QuotaGroup.make(tmp_path) is None
    assert [path.name for path in home.iterdir()] == ["cgroup.procs"]


def test_a_group_is_made_below_this_process_s_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    home, make = in_group(tmp_path), Path.mkdir

    def mkdir(path: Path, exist_ok: bool) -> None:
        """As the kernel makes a control group: with its files."""
        make(path, exist_ok=exist_ok)
        (path / "cpu.max").write_text("max 100000")

    monkeypatch.setattr(Path, "mkdir", mkdir)
    group = QuotaGroup.make(tmp_path)
    assert group is not None
    assert group.home == home == group.folder.parent
    assert {path.name for path in home.parent.iterdir()} == {"cgroup.procs", "mine"}


@pytest.mark.parametrize(
    ("setting", "written"),
    [("cpu.max", {"cpu.max": "150000 100000"}),
     ("cpu.cfs_quota_us", {"cpu.cfs_quota_us": "150000", "cpu.cfs_period_us": "100000"})],
)  # fmt: skip
def test_cores_are_a_quota_and_the_process_comes_back(tmp_path: Path, setting: str, written: dict[str, str]):
    home, folder = tmp_path, tmp_path / "group"
    folder.mkdir()
    (folder / setting).write_text("")
    with QuotaGroup(folder, home).cores(1.5):
        assert {name: (folder / name).read_text() for name in written} == written
        assert (folder / "cgroup.procs").read_text() == str(os.getpid())
        assert not (home / "cgroup.procs").exists()
    assert (home / "cgroup.procs").read_text() == str(os.getpid())


def test_a_real_quota_holds_a_process_to_its_share():
    group = QuotaGroup.make()
    if group is None:
        pytest.skip("no CPU control group may be written here")
    with group, group.cores(0.25):
        began, cpu = time.perf_counter(), time.process_time()
        while time.perf_counter() - began < 1.0:
            pass
        share = (time.process_time() - cpu) / (time.perf_counter() - began)
    assert share < 0.5
    assert not group.folder.exists()
