"""Checkpoints that a program wrote while coresim was attached: they hold a training on repeated data."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from coresim.model.warning import HostWarning

ENDINGS = (".pt", ".pth", ".ckpt", ".safetensors", ".bin", ".pkl", ".h5", ".msgpack")
#: Files looked at, at the most, and folders of tools that hold no checkpoints.
MOST_FILES = 20_000
SKIPPED = {".git", "__pycache__", "node_modules", "site-packages", ".venv"}
SHOWN = 3


def checkpoints(folders: Iterable[str], since: float) -> list[str]:
    """Files with a checkpoint's ending that were written since then (seconds of the epoch)."""
    seen = islice(_files(folders), MOST_FILES)
    return sorted({path for path in seen if path.endswith(ENDINGS) and os.path.getmtime(path) >= since})


def _files(folders: Iterable[str]) -> Iterator[str]:
    for folder in dict.fromkeys(folders):
        for place, inner, names in os.walk(folder):
            inner[:] = [name for name in inner if name not in SKIPPED]
            yield from (os.path.join(place, name) for name in names if os.path.isfile(os.path.join(place, name)))


def named_folders(command: Iterable[str]) -> list[str]:
    """Folders that a command line names, such as ``--out=runs``."""
    words = [part for word in command for part in (word, word.partition("=")[2]) if part]
    return [word for word in words if Path(word).is_dir()]


def checkpoint_warning(paths: list[str]) -> list[HostWarning]:
    """What to say of them; nothing where there are none."""
    if not paths:
        return []
    more = f" and {len(paths) - SHOWN} more" if len(paths) > SHOWN else ""
    return [
        HostWarning(
            "the program saved what looks like a checkpoint meanwhile",
            ", ".join(paths[:SHOWN]) + more,
            "it was trained on repeated data: do not go on from it",
        )
    ]
