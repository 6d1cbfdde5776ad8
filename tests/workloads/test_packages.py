"""An optional package that is not there is told with what installs it."""

from __future__ import annotations

import sys

import pytest

from coresim.errors import MissingPartError
from coresim.workloads.packages import load_package


def test_a_missing_package_is_told_with_what_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(MissingPartError, match=r"h5py is not installed; pip install h5py$"):
        load_package("h5py", "HDF5")
