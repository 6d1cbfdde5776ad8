"""What is done in a fork: its result comes back, its traces do not, and what fails is told."""

from __future__ import annotations

import gc
import os
import signal

import pytest

from coresim.errors import CoresimError, InputError
from coresim.measure.forked import run_forked
from coresim.measure.processes import DeathError


def test_each_call_has_a_process_of_its_own_and_leaves_nothing_in_this_one() -> None:
    kept: list[int] = []

    def call(number: int) -> tuple[int, int]:
        kept.append(number)
        return number, os.getpid()

    found = run_forked([lambda: call(1), lambda: call(2)], "a call")
    assert [number for number, _ in found] == [1, 2] and kept == []
    assert len({os.getpid(), *(pid for _, pid in found)}) == 3


def test_the_first_collection_of_a_fork_does_not_visit_what_it_inherited() -> None:
    inherited, here = [[number] for number in range(10_000)], gc.get_freeze_count()
    assert run_forked([gc.get_freeze_count], "a call")[0] >= here + len(inherited)
    assert gc.get_freeze_count() == here


def test_what_fails_is_told_by_name_and_what_began_it_first() -> None:
    def fails(error: Exception) -> None:
        raise error

    with pytest.raises(InputError, match="no such column"):
        run_forked([lambda: fails(CoresimError("peer lost")), lambda: fails(InputError("no such column"))], "a rank")
    with pytest.raises(CoresimError, match="a rank raised ValueError: odd"):
        run_forked([lambda: fails(ValueError("odd"))], "a rank")


def test_one_that_is_killed_is_told() -> None:
    with pytest.raises(DeathError, match="a rank ended with exit code -9"):
        run_forked([lambda: os.kill(os.getpid(), signal.SIGKILL)], "a rank")
