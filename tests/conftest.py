"""What every test has: a state folder of its own, so that the user's ledgers are left alone; and a made-up profile."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from made_up import profile


@pytest.fixture(autouse=True, scope="session")
def own_state_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="session")
def profile_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A made-up profile's file."""
    path = tmp_path_factory.mktemp("profile") / "profile.json"
    profile().save(path)
    return path
