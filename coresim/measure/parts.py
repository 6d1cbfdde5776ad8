"""The optional parts that are installed here: torch, a CUDA device, and the kind of Python."""

from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Sequence
from pathlib import Path

from coresim.measure.system_root import SystemRoot
from coresim.model.host import OptionalPart

_TORCH_PROBE = """
import json, torch
cuda = torch.cuda
names = [cuda.get_device_name(i) for i in range(cuda.device_count())] if cuda.is_available() else []
print(json.dumps({"version": torch.__version__, "cuda": torch.version.cuda, "devices": names}))
"""
Runner = Callable[[Sequence[str], float], str | None]


def output_of(command: Sequence[str], timeout: float) -> str | None:
    """What a command prints within so many seconds; None where it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def optional_parts(deep: bool = False, root: Path = Path("/"), run: Runner = output_of) -> tuple[OptionalPart, ...]:
    """The parts that some requests need: torch, a CUDA device, and the kind of Python.

    ``deep``: import torch, in a process of its own, to name its CUDA devices (seconds). ``run`` is as `output_of`.
    """
    free = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
    detail = "threads run Python code in parallel" if free else "threads share one GIL, as in most builds"
    python = OptionalPart("free-threaded Python", free, sysconfig.get_python_version(), detail, "")
    return (_torch_part(deep, run), _cuda_part(SystemRoot(root), run), python)


def version_of(distribution: str) -> str | None:
    """The version of an installed distribution, or None."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _torch_part(deep: bool, run: Runner) -> OptionalPart:
    version = version_of("torch")
    if version is None:
        return OptionalPart("torch", False, None, "needed to time a training step", "pip install torch (any build)")
    if not deep:
        return OptionalPart("torch", True, version, "installed; not imported", "")
    # A broken or hanging torch must not take this process down with it. Its import may print before the last line.
    try:
        found = json.loads((run([sys.executable, "-c", _TORCH_PROBE], 120.0) or "").rpartition("\n")[2])
    except ValueError:
        found = None
    if not isinstance(found, dict):
        return OptionalPart("torch", False, version, "installed, but its import failed or hung", "reinstall torch")
    devices = ", ".join(map(str, found.get("devices") or [])) or "no CUDA device"
    return OptionalPart("torch", True, version, f"built for CUDA {found.get('cuda') or 'none'}; sees {devices}", "")


def _cuda_part(system: SystemRoot, run: Runner) -> OptionalPart:
    found = run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], 20.0)
    rows = [line.rpartition(",") for line in (found or "").splitlines() if "," in line]
    models = [system.text(path) or "" for path in system.glob("proc/driver/nvidia/gpus/*/information")]
    listed = [match[1] for match in (re.search(r"Model:\s*(.+)", text) for text in models) if match]
    names = [name.strip() for name, _, _ in rows] or listed
    if not names:
        return OptionalPart(
            "CUDA device", False, None, "needed to time a training step here", "use a recorded step time"
        )
    return OptionalPart("CUDA device", True, rows[0][2].strip() if rows else None, ", ".join(names), "")
