"""A workload whose samples are files in a folder, one file per sample."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from coresim.workloads.base import Workload


class FolderWorkload(Workload):
    """One file per sample; a subclass sets ``patterns`` and writes the files of an empty folder in ``write``."""

    patterns: tuple[str, ...] = ("*",)  # what the files are called, as glob patterns
    count: int = 64  # how many files `write` makes

    @cached_property
    def _paths(self) -> list[Path]:
        return sorted(path for pattern in self.patterns for path in self.folder.rglob(pattern))

    def make(self) -> None:
        """Write the generated files, always the same ones, unless the folder holds such files already."""
        if not self._paths:
            self.write()
            del self._paths

    def write(self) -> None:
        """Write ``self.count`` files into ``self.folder``; the same ones each time."""
        raise NotImplementedError

    def __len__(self) -> int:
        """The number of files."""
        return len(self._paths)

    def files(self) -> Sequence[Path]:
        """The stored files."""
        return self._paths

    def fetch(self, index: int) -> Any:
        """The file's bytes."""
        return self._paths[index].read_bytes()
