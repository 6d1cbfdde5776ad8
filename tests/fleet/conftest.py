"""What the tests of fleets share."""

from __future__ import annotations

from pathlib import Path

import pytest
from fleet_kit import FLEET, JOB


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "job.toml").write_text(JOB)
    (tmp_path / "fleet.toml").write_text(FLEET)
    return tmp_path / "fleet.toml"
