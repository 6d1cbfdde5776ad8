"""The states of a hand-over: which is which, what stands in for one that is not known, and ranks that share cores."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from coresim.model.handover import (
    NO_HANDOVER,
    STATES,
    UNSEEN,
    Handover,
    nearest,
    state_of,
)
from coresim.model.service import Service


def test_a_state_is_what_the_maker_does_and_how_many_want_a_core():
    assert STATES[state_of("rest", 0, 2)] == "rest_free"
    assert STATES[state_of("work", 1, 2)] == "work_shared"
    assert STATES[state_of("begin", 2, 2)] == "begin_crowded"
    assert STATES[state_of("rest", 0, 1)] == "rest_crowded"
    assert STATES[state_of("rest", 0, Fraction(3, 2))] == "rest_shared"
    assert STATES[state_of("rest", 0, 2, ranks=2)] == "rest_shared"


def test_a_state_that_is_not_known_is_as_the_one_most_like_it():
    assert nearest(["rest_free", "work_crowded"], "work_shared") == "work_crowded"
    assert nearest(["rest_free", "rest_crowded"], "work_free") == "rest_free"
    # A maker at rest answers at once, however crowded the cores are.
    assert nearest(["rest_free", "begin_shared", "work_crowded"], "rest_crowded") == "rest_free"
    # A batch that was there before is handed over sooner than one that is sent now.
    assert nearest(["begin_free", "rest_crowded"], "work_free") == "rest_crowded"
    assert nearest(["send_crowded", "rest_free"], "begin_free") == "send_crowded"
    # In older profiles nobody told whether the trainer had waited for a batch whose maker then rested.
    assert nearest(["begin_crowded", "rest_free"], "send_free") == "rest_free"
    given = Handover(rest_free=Service(0.001), work_shared=Service(0.002))
    assert [service.mean for service in given.services()] == [0.001, 0.002, 0.002, 0.001] * 3
    assert Handover().services() == () and Handover(rest_free=Service(0.0)).services() == ()


def test_ranks_that_share_cores_hand_over_at_once():
    seen = Handover(rest_free=Service(0.001, uncertainty=0.3), work_crowded=Service(0.003))
    crowd = seen.at_once(8, 2.0)  # nine tasks on two cores
    assert crowd.rest_free == seen.rest_free and crowd.work_crowded == seen.work_crowded
    for unseen in (crowd.rest_shared, crowd.rest_crowded):
        assert unseen.mean == pytest.approx(0.0045) and unseen.uncertainty == pytest.approx(math.hypot(0.3, UNSEEN))
    # `work_shared` is like a state that is more crowded, and states where cores are free stay what they are.
    assert [one.mean for one in crowd.services()[:4]] == [one.mean for one in seen.services()[:4]]
    assert crowd.services()[STATES.index("work_shared")].mean == 0.003
    # Another crowd was seen: it is not known how much of that is sharing already.
    shared = Handover(rest_shared=Service(0.002)).at_once(8, 2.0)
    assert shared.rest_crowded == shared.rest_shared == Service(0.002)
    # One rank, a core for each, and nothing known: as before.
    assert seen.at_once(1, 1.0) is seen and seen.at_once(7, 8.0) is seen and NO_HANDOVER.at_once(8, 2.0) is NO_HANDOVER
