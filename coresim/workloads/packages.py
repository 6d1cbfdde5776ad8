"""Optional packages, each for one format, imported when a file is written or read and never before."""

from __future__ import annotations

import importlib
from typing import Any

from coresim.errors import MissingPartError


def load_package(name: str, what: str) -> Any:
    """The package that the format ``what`` needs; `MissingPartError` where it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise MissingPartError(f"{what}: the package {name} is not installed; pip install {name}") from None
