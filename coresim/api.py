"""The public functions: measure, simulate and recommend from Python, without a terminal."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import Executor
from typing import Any

from coresim.advise.recommend import recommend as _recommend
from coresim.advise.sweep import Study
from coresim.errors import InputError
from coresim.measuring.campaign import Request, run_campaign
from coresim.model.build import build, resolve_setting
from coresim.model.profile import Profile, load_document
from coresim.model.scenario import Scenario, override, read_scenario
from coresim.report.answer import Answer, Simulated
from coresim.report.text import profile_notes
from coresim.sim.estimate import Engine, Plan, estimate

#: A scenario or profile, or the path of one, or a scenario's tables.
Input = Scenario | Profile | dict[str, Any] | str | os.PathLike[str]


def measure(**request: Any) -> Profile:
    """Measure this machine and job; the keyword arguments are the fields of `coresim.measuring.campaign.Request`.

    Raises:
        CoresimError: as the command line's ``measure`` does, with the same one-line messages.
    """
    return run_campaign(Request(**request))


def load(path: str | os.PathLike[str]) -> Scenario | Profile:
    """A scenario or a profile from a file."""
    document = load_document(path)
    return document if isinstance(document, Profile) else read_scenario(document, str(path))


def recommend(
    source: Input | None = None,
    *,
    settings: Sequence[str] = (),
    options: tuple[int, ...] | None = None,
    max_cores: int | None = None,
    seed: int = 1,
    engine: str = "fast",
    executor: Executor | None = None,
) -> Answer:
    """Recommend CPU cores per GPU.

    Args:
        source: a scenario, a profile, tables, or a path; None measures this machine first.
        settings: overrides such as ``"accelerator.step=98 ms"``.
        options: which organisations of the pipeline to consider; by default those of the loader's preset.
        max_cores: largest core count per accelerator to try.
        seed: of all random draws.
        engine: ``fast`` or ``reference``.
        executor: where the points of the curves are simulated; None: here.
    """
    scenario, profile = _resolve(measure() if source is None else source, settings)
    answer = _recommend(scenario, Study(_engine(engine), Plan(seed=seed), executor), options, max_cores)
    if profile is None:
        return Answer(answer)
    return Answer(answer, profile.accelerator.basis, *profile_notes(profile))


def simulate(
    source: Input,
    *,
    option: int | None = None,
    workers: int | None = None,
    cores: float | None = None,
    prefetch_factor: int | None = None,
    steps: int | None = None,
    replications: int = 8,
    seed: int = 1,
    settings: Sequence[str] = (),
    engine: str = "fast",
) -> Simulated:
    """Simulate one setting.

    Args:
        source: a scenario, a profile, tables, or a path.
        option: 1 (no overlap), 2 (overlapped) or 3 (staged); None: 2, or what the loader's preset is.
        workers: loader workers per accelerator; 0 is option 1; None: the scenario's.
        cores: physical cores of the whole host; None: the scenario's.
        prefetch_factor: batches out per worker, instead of the scenario's.
        steps: steps per replication; None: 400, or more if many workers need it.
        replications: independent repeats.
        seed: of all random draws.
        settings: overrides such as ``"workload.batch_size=512"``.
        engine: ``fast`` or ``reference``.
    """
    scenario, _ = _resolve(source, settings)
    setting = resolve_setting(scenario, option, workers, cores, prefetch_factor)
    pipeline = build(scenario, setting.option, setting.cores, setting.workers, setting.prefetch_factor)
    plan = Plan(steps or Plan.steps, steps is None, replications, replications, seed=seed)
    result = estimate(pipeline, plan, _engine(engine))
    return Simulated(result, setting._asdict())


def _resolve(source: Input, settings: Sequence[str]) -> tuple[Scenario, Profile | None]:
    if isinstance(source, Scenario):
        return (read_scenario(override(source.to_dict(), list(settings))) if settings else source), None
    document = source if isinstance(source, Profile | dict) else load_document(source)
    profile = document if isinstance(document, Profile) else None
    tables = document.scenario_tables() if isinstance(document, Profile) else document
    return read_scenario(override(tables, list(settings))), profile


def _engine(name: str) -> Engine:
    if name == "fast":
        from coresim.sim.fast import simulate as fast  # noqa: PLC0415 - numba takes half a second to import

        return fast
    if name == "reference":
        from coresim.sim.reference import simulate as reference  # noqa: PLC0415

        return reference
    raise InputError(f"engine {name!r}: use fast or reference")
