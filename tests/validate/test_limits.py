"""Fewer cores by the CPU quota of a control group."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from coresim.validate.limits import QuotaGroup


def tree(root: Path, groups: str, *folders: str) -> Path:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(groups)
    for folder in folders:
        (root / "sys/fs/cgroup" / folder).mkdir(parents=True)
    return root


def test_no_group_where_none_may_be_made(tmp_path: Path):
    assert QuotaGroup.make(tmp_path) is None
    # A folder that shows no quota after it was made is no control group, and is removed again.
    root = tree(tmp_path / "v2", "0::/mine\n", "mine")
    assert QuotaGroup.make(root) is None
    assert list((root / "sys/fs/cgroup/mine").iterdir()) == []


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
