"""The public functions: measure, simulate and recommend from Python, without a terminal."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from coresim import __version__
from coresim.advise.recommend import recommend as _recommend
from coresim.advise.refine import CONFIDENCE
from coresim.advise.steps import for_steps
from coresim.advise.sweep import Study
from coresim.attaching.here import attach as attach
from coresim.attaching.today import check_today, own_options
from coresim.fleet.description import Fleet, load_fleet
from coresim.fleet.plan import plan_fleet
from coresim.fleet.task import FLEET_PLAN
from coresim.measure.campaign import Request, run_campaign
from coresim.model.build import build, resolve_setting
from coresim.model.load import load_input
from coresim.model.profile import Profile, load_document
from coresim.model.scenario import Scenario, read_scenario
from coresim.report.answer import Answer, Measured, Simulated, answer_of
from coresim.report.content import Section, Table
from coresim.report.fleet import Planned
from coresim.report.output import format_of
from coresim.report.output import write_report as write
from coresim.report.plan import plan_report
from coresim.report.provenance import profile_notes
from coresim.report.results import ResultFile
from coresim.report.steps import ForSteps
from coresim.sim.engines import engine_named
from coresim.sim.estimate import Engine, Plan, estimate

if TYPE_CHECKING:
    import ipywidgets

#: A scenario or profile, or the path of one, or a scenario's tables.
Input = Scenario | Profile | dict[str, Any] | str | os.PathLike[str]


def measure(**request: Any) -> Measured:
    """Measure this machine and job; the keyword arguments are the fields of `coresim.measure.campaign.Request`.

    Raises:
        CoresimError: as the command line's ``measure`` does, with the same one-line messages.
    """
    return Measured.of(run_campaign(Request(**request)))


def load(path: str | os.PathLike[str]) -> Scenario | Measured:
    """A scenario or a profile from a file."""
    document = load_document(path)
    return Measured.of(document) if isinstance(document, Profile) else read_scenario(document, str(path))


def recommend(
    source: Input | None = None,
    *,
    settings: Sequence[str] = (),
    options: Sequence[int] | None = None,
    max_cores: int | None = None,
    confidence: float = CONFIDENCE,
    seed: int = 1,
    engine: str = "fast",
    executor: Executor | None = None,
) -> Answer:
    """Recommend CPU cores per GPU.

    Args:
        source: a scenario, a profile, tables, or a path; None measures this machine first.
        settings: overrides such as ``"accelerator.step=98 ms"``.
        options: which organisations of the pipeline to consider; by default those of the loader's preset, and of a
            program the one with workers.
        max_cores: largest core count per accelerator to try.
        confidence: how sure the larger of the two core counts is to meet the target.
        seed: of all random draws.
        engine: ``fast`` or ``reference``.
        executor: where the points of the curves are simulated; None: here.
    """
    scenario, profile = load_input(measure() if source is None else source, settings)
    study = Study(_engine(engine), Plan(seed=seed), executor)
    answer = _recommend(scenario, study, options or own_options(profile), max_cores, confidence)
    return answer_of(answer, profile, settings=settings, today=check_today(profile, study))


def recommend_for_steps(
    source: Input | None = None,
    *,
    settings: Sequence[str] = (),
    options: Sequence[int] | None = None,
    max_cores: int | None = None,
    confidence: float = CONFIDENCE,
    seed: int = 1,
    engine: str = "fast",
    executor: Executor | None = None,
) -> ForSteps:
    """Recommend if the time of a training step is not known: for a rate of samples, and for a few step times.

    The arguments are those of `recommend`.
    """
    scenario, profile = load_input(measure() if source is None else source, settings, step_needed=False)
    study = Study(_engine(engine), Plan(seed=seed), executor)
    notes, provenance = profile_notes(profile, settings) if profile else ((), ())
    return ForSteps(for_steps(scenario, study, options, max_cores, confidence), notes, provenance)


def write_report(
    answer: Answer,
    path: str | os.PathLike[str],
    *,
    title: str = "CPU cores per GPU",
    remedies: Sequence[Section] = (),
    ledger: Table | None = None,
    **provenance: object,
) -> None:
    """Write an answer as a report that can be read without coresim.

    Args:
        answer: from `recommend`.
        path: where to write; its ending gives the format: ``.html``, ``.md`` or ``.pdf``.
        title: of the report.
        remedies: what-ifs side by side, as `coresim.report.remedies.remedies_sections` makes them.
        ledger: a table of predicted beside measured.
        provenance: further notes on where it comes from, such as ``source="profile.json"``.

    Raises:
        InputError: an unknown format, or a path that cannot be written.
    """
    format_of(path)
    about = {"tool": "coresim", "tool_version": __version__, **provenance}
    write(plan_report(answer, _engine("fast"), about, title, remedies, ledger), path)


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
        seed, settings, engine: as in `recommend`.
    """
    scenario, _ = load_input(source, settings)
    setting = resolve_setting(scenario, option, workers, cores, prefetch_factor)
    pipeline = build(scenario, setting.option, setting.cores, setting.workers, setting.prefetch_factor)
    grow = steps is None
    plan = Plan(steps or Plan.steps, grow, replications, replications, seed=seed, under_way=grow)
    result = estimate(pipeline, plan, _engine(engine))
    return Simulated(result, setting._asdict())


def what_if(source: Input, *, settings: Sequence[str] = ()) -> ipywidgets.VBox:
    """Sliders for a notebook: batch, step, cost of a sample, storage, cores, workers, prefetch factor.

    Args:
        source: a scenario, a profile, tables, or a path.
        settings: overrides, such as ``"host.cores=16"``.

    Raises:
        MissingPartError: ipywidgets is not installed.
    """
    from coresim.report.widgets import what_if_widget  # noqa: PLC0415 - matplotlib takes half a second to import

    return what_if_widget(load_input(source, settings)[0], _engine("fast"))


def plan(
    fleet: Fleet | str | os.PathLike[str],
    *,
    executor: Executor | None = None,
    results: str | os.PathLike[str] | None = None,
    confidence: float = CONFIDENCE,
    seed: int = 1,
    engine: str = "fast",
) -> Planned:
    """Plan a fleet: every workload on every machine or site, and the best of them.

    Args:
        fleet: what `coresim.fleet.description.load_fleet` reads, or its path.
        executor: where pairs are simulated: a process pool, a Dask client's ``get_executor()``, any other; None: here.
        results: CSV file that takes each pair as it is finished; pairs that are in it already are not simulated.
        confidence: how sure the cores needed are to meet the target, on hosts that have so many.
        seed, engine: as in `recommend`.
    """
    _engine(engine)
    table = ResultFile(results) if results is not None else None
    found = plan_fleet(
        fleet if isinstance(fleet, Fleet) else load_fleet(fleet),
        executor=executor,
        plan=replace(FLEET_PLAN, seed=seed),
        engine=engine,
        confidence=confidence,
        done=table.done if table else None,
        save=table.append if table else None,
    )
    if table:
        table.finish(found.rows)
        if table.problem:
            logging.getLogger("coresim").warning("%s; run the same again when there is room", table.problem)
    return Planned(found)


def _engine(name: str) -> Engine:
    return engine_named(name, logging.getLogger("coresim").warning)
