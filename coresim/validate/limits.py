"""The CPU quota of a control group, which gives a trial fewer cores as a container's limit does.

A quota lets every worker run on every CPU until the period's CPU time is used up; then all of them stop until the next
(https://docs.kernel.org/scheduler/sched-bwc.html). It needs a writable control group, which root has on most machines,
and the user of a container has not.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

from coresim.measure.host import group_folders
from coresim.measure.system_root import SystemRoot

PERIOD_US = 100_000
#: The last process of a group is gone some moments after it was waited for.
REMOVING_S = 2.0


class QuotaGroup(contextlib.AbstractContextManager["QuotaGroup"]):
    """A control group of our own below this process's, removed at the end of a ``with`` block.

    Its folder exists; ``home`` is the group to go back to.
    """

    def __init__(self, folder: Path, home: Path) -> None:
        self.folder, self.home = folder, home

    @classmethod
    def make(cls, root: Path = Path("/")) -> QuotaGroup | None:
        """A new group, or None where none may be made."""
        system, pid = SystemRoot(root), str(os.getpid())
        for group in group_folders(system, "cpu"):
            home, folder = root / group.lstrip("/"), root / group.lstrip("/") / f"coresim-{pid}"
            if pid not in system.lines(f"{group}/cgroup.procs"):
                continue  # one above this process's own
            try:
                folder.mkdir(exist_ok=True)
            except OSError:
                continue
            if any((folder / setting).exists() for setting in ("cpu.max", "cpu.cfs_quota_us")):
                return cls(folder, home)
            _remove(folder)
        return None

    @contextlib.contextmanager
    def cores(self, count: float) -> Iterator[None]:
        """This process, and the workers that it forks, with ``count`` CPU seconds per second."""
        quota = round(count * PERIOD_US)
        if (self.folder / "cpu.max").exists():
            (self.folder / "cpu.max").write_text(f"{quota} {PERIOD_US}")
        else:
            (self.folder / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (self.folder / "cpu.cfs_quota_us").write_text(str(quota))
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))
        try:
            yield
        finally:
            (self.home / "cgroup.procs").write_text(str(os.getpid()))

    def __exit__(self, *_: object) -> None:
        _remove(self.folder)


def _remove(folder: Path) -> None:
    """Remove a group once its processes are gone; what cannot be removed is empty and stays."""
    until = time.monotonic() + REMOVING_S
    while folder.exists():
        try:
            folder.rmdir()
        except OSError:
            if time.monotonic() > until:
                return
            time.sleep(0.05)
