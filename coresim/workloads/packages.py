"""Optional packages, each for one format, imported when a file is written or read and never before."""

from __future__ import annotations

from typing import Any

from coresim.errors import MissingPartError


def load_h5py() -> Any:
    """The package h5py; `MissingPartError` where it is not installed."""
    try:
        import h5py  # noqa: PLC0415 (optional)
    except ImportError:
        raise MissingPartError("HDF5: the package h5py is not installed; pip install h5py") from None
    return h5py


def load_soundfile() -> Any:
    """The package soundfile; `MissingPartError` where it is not installed."""
    try:
        import soundfile  # noqa: PLC0415 (optional)
    except ImportError:
        raise MissingPartError("FLAC: the package soundfile is not installed; pip install soundfile") from None
    return soundfile
