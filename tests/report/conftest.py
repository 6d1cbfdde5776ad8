"""The answer that several tests of reports show."""

from __future__ import annotations

import pytest
from report_kit import TABLES

import coresim
from coresim.report.answer import Answer


@pytest.fixture(scope="module")
def answer() -> Answer:
    return coresim.recommend(TABLES)
