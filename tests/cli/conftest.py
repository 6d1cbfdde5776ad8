"""What the tests of verbs share."""

from __future__ import annotations

import pytest
from shared import SCENARIO


@pytest.fixture
def scenario(tmp_path):
    path = tmp_path / "scenario.toml"
    path.write_text(SCENARIO)
    return str(path)
