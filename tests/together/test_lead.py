"""Model and both engines of sim: what of a launch comes before an idle device can begin, by hand."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from coresim.errors import InputError
from coresim.model.build import build
from coresim.model.option import Option
from coresim.model.pipeline import Phase, Pipeline, Trainer
from coresim.model.scenario import read_scenario
from coresim.sim import fast, reference
from coresim.sim.draws import Draws
from coresim.sim.run import RunLength

ENGINES = [reference.simulate, fast.simulate]


def job(lead: Any, copy_mode: str = "none", copy: Any = 0, run_ahead: int = 0, **times: Any) -> tuple[Pipeline, Draws]:
    """A trainer that prepares for 10 s, launches for 4 s and waits; a step takes 7 s."""
    seconds = {
        "trainer.prepare": 10, "trainer.consumer": 0, "trainer.copy": copy, "trainer.launch": 4, "accelerator.step": 7,
    } | times  # fmt: skip
    trainer = Trainer((Phase("prepare"),), copy_mode=copy_mode, spin=False, run_ahead=run_ahead, lead=Fraction(lead))
    drawn_times = {key: np.array([[Fraction(value)]], dtype=object) for key, value in seconds.items()}
    return Pipeline((), trainer, Phase("step"), cores=Fraction(4)), Draws(drawn_times)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("lead", "copy_mode", "copy", "start", "launch"),
    [
        (0, "none", 0, 10, 0),
        ("1/4", "none", 0, 11, 1),
        (1, "none", 0, 14, 4),
        # A copy in the stream goes before the step; the device waits for what of the lead is left when it is made.
        ("1/4", "stream", "1/2", 11, Fraction(1, 2)),
        ("1/4", "stream", 3, 13, 0),
        # A copy engine makes its copy meanwhile; a copy that is waited for comes before the launch.
        ("1/4", "overlap", "1/2", 11, 1),
        ("1/4", "overlap", 3, 13, 1),
        ("1/4", "sync", 3, 14, 1),
    ],
)
def test_an_idle_device_begins_when_the_lead_is_launched(
    engine: Any, lead: Any, copy_mode: str, copy: Any, start: Any, launch: Any
) -> None:
    run = engine(*job(lead, copy_mode, copy), RunLength(1, trace=True))
    assert run.traces[0].start == (start,)
    assert run.ranks[0].end == start + 7
    assert run.ranks[0].accelerator["launch"] == launch
    assert run.ranks[0].accelerator["busy"] == 7
    assert sum(run.ranks[0].accelerator.values()) == start + 7
    assert run.ranks[0].trainer["launch"] == 4


@pytest.mark.parametrize("engine", ENGINES)
def test_a_device_that_is_behind_waits_for_no_lead(engine: Any) -> None:
    # Launches begin at 10 and 15 s; the first step takes from 12 to 32 s, and the lead of the second is over by 17 s.
    pipeline, draws = job("1/2", run_ahead=1, **{"accelerator.step": 20})
    times = {**draws.service_times, "trainer.prepare": np.array([[Fraction(10)], [Fraction(1)]], dtype=object)}
    run = engine(pipeline, Draws(times), RunLength(2, trace=True))
    assert run.traces[0].start == (12, 32)
    assert run.ranks[0].accelerator["launch"] == 2


@pytest.mark.parametrize("engine", ENGINES)
def test_a_launch_that_shares_a_core_has_a_longer_lead(engine: Any) -> None:
    pipeline, draws = job("1/4", **{"accelerator.step": 7})
    half = Pipeline((), pipeline.trainer, pipeline.step, cores=Fraction(1, 2))
    run = engine(half, draws, RunLength(1, trace=True))
    assert run.traces[0].start == (22,)  # 20 s to prepare and 2 s of lead
    assert run.ranks[0].end == 29  # the launch ends at 28 s


@pytest.mark.parametrize("lead", [-0.5, 1.5, float("nan")])
def test_a_lead_is_a_share(lead: float) -> None:
    with pytest.raises(InputError, match=r"trainer: lead .* must be a share, from 0 to 1"):
        Pipeline((), Trainer((Phase("prepare"),), lead=lead), Phase("step"))


def test_a_scenario_says_what_of_a_launch_is_lead() -> None:
    tables: dict[str, Any] = {
        "workload": {"batch_size": 4, "preprocess": "1 ms"},
        "accelerator": {"step": "20 ms", "launch": "5 ms", "lead": 0.25},
    }
    assert build(read_scenario(tables), Option.OVERLAPPED, 2.0, 2).trainer.lead == 0.25
    with pytest.raises(InputError, match=r"accelerator.lead = 2"):
        read_scenario(tables | {"accelerator": tables["accelerator"] | {"lead": 2}})
