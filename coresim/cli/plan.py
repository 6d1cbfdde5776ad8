"""``coresim plan``: which machine for which workload, what it costs, what is stranded, and what to ask for."""

from __future__ import annotations

import argparse
import gc
import os
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor, Executor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from coresim.cli.common import check_writable, engine_named, metadata, progress_on_stderr, show
from coresim.cli.flags import add_flags, whole_number
from coresim.errors import EXIT_ANSWERED, EXIT_INTERRUPTED, CoresimError, InputError, MissingPartError
from coresim.fleet.description import Fleet, load_fleet

if TYPE_CHECKING:
    from coresim.fleet.plan import FleetPlan
    from coresim.report.results import ResultFile

#: Objects that a process makes before it looks for cycles among them.
GARBAGE = 50_000


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Register the verb."""
    parser = subparsers.add_parser(
        "plan",
        help="which machine for which workload: idle, price, stranded cores, and what to ask for",
        description="Predict each workload of a fleet file on each machine or site and choose.",
    )
    parser.add_argument("fleet", help="a fleet file (.toml): coresim schema fleet lists its keys")
    parser.add_argument("--top", type=whole_number(1), default=3, help="machines shown for each workload (default 3)")
    parser.add_argument(
        "--results", metavar="CSV", help="table of every pair, written as pairs finish; a rerun skips those in it"
    )
    parser.add_argument("--parquet", metavar="FILE", help="also write the table as Parquet (needs pyarrow)")
    sure = "probability that the cores to ask for meet the target, on machines that have enough (default 90%%)"
    add_flags(parser, "confidence", help=sure)
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--jobs", type=whole_number(1), help="processes here (default: one for each usable CPU)")
    where.add_argument(
        "--scheduler", metavar="ADDRESS", help="run on a Dask cluster, such as tcp://host:8786 (needs distributed)"
    )
    add_flags(parser, "seed", "engine", "json")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Plan and print; exit code 0 (a pair without a prediction is part of the answer), 1 if a file is incomplete."""
    from coresim.report.fleet import PLAN, fleet_text
    from coresim.report.results import ResultFile, read_results

    if args.parquet:
        from coresim.report.tables import check_parquet, write_parquet

        check_parquet()
        check_writable(args.parquet)
    results = ResultFile(args.results) if args.results else None
    try:
        plan = _planned(args, load_fleet(args.fleet), results)
    except KeyboardInterrupt:
        if results is None:
            raise
        print(f"coresim: interrupted; {args.results} keeps what is finished: run the same again", file=sys.stderr)
        return EXIT_INTERRUPTED
    show(args, PLAN.write(plan, about=metadata(args.seed, args.fleet)), fleet_text(plan, args.top))
    if args.parquet:
        write_parquet(plan, args.parquet)
    if results is not None and results.problem is not None:
        count = len(read_results(args.results))
        raise CoresimError(
            f"{results.problem}; {args.results} is incomplete: it has {count} of {len(plan.rows)} rows; free disk space"
            " and run the same command, which simulates only the rest"
        )
    return EXIT_ANSWERED


def _planned(args: argparse.Namespace, fleet: Fleet, results: ResultFile | None) -> FleetPlan:
    from coresim.fleet.plan import plan_fleet
    from coresim.fleet.task import FLEET_PLAN

    if results and results.problem:
        print(f"coresim: {results.problem}; rows are not saved, but the plan is still made", file=sys.stderr)

    with progress_on_stderr() as progress, _executor(args) as executor:
        plan = plan_fleet(
            fleet,
            executor=executor,
            plan=replace(FLEET_PLAN, seed=args.seed),
            engine=args.engine,
            confidence=args.confidence,
            done=results.done if results else None,
            save=results.append if results else None,
            progress=progress,
        )
    if results:
        results.finish(plan.rows)
    return plan


def _executor(args: argparse.Namespace) -> AbstractContextManager[Executor | None]:
    """Where the tasks run; none for one process: then they run in this one."""
    if args.scheduler:
        return _dask(args.scheduler)
    # What it has to say is said once here, not by each process.
    engine_named(args.engine)
    jobs = args.jobs or len(os.sched_getaffinity(0))
    return nullcontext() if jobs == 1 else _processes(jobs)


@contextmanager
def _processes(jobs: int) -> Iterator[Executor]:
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    # Not fork: a progress bar's thread may hold a lock.
    executor = ProcessPoolExecutor(jobs, multiprocessing.get_context("forkserver"), begin)
    try:
        yield executor
    except BrokenExecutor:
        raise CoresimError(
            "a process that simulates was killed; is memory short? take fewer --jobs; --results keeps what is finished"
        ) from None
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


def begin() -> None:
    """What a process that runs tasks does first."""
    # Ctrl-C and a terminal that is closed are told to the process that sends the tasks, which stops the others.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    # Simulating makes very many small objects and hardly a cycle: to look for cycles 700 objects after the last time,
    # as Python does, takes a tenth of the time.
    gc.freeze()
    gc.set_threshold(GARBAGE)


@contextmanager
def _dask(address: str) -> Iterator[Executor]:
    try:
        from distributed import Client
    except ImportError:
        raise MissingPartError("--scheduler: distributed is not installed; pip install distributed") from None
    try:
        client: Any = Client(address, timeout="10s")  # type: ignore[no-untyped-call]
    except (OSError, ValueError) as error:
        raise InputError(
            f"--scheduler {address}: no Dask scheduler answers there: {error}; check the address"
        ) from None
    with client:
        try:
            yield client.get_executor()
        except CoresimError:
            raise
        except Exception as error:  # a scheduler that is lost, workers that are killed or have no coresim
            from coresim.workloads.base import describe

            raise CoresimError(
                f"--scheduler {address}: the cluster failed: {describe(error)}; each worker needs this coresim, and"
                " memory; --results keeps what is finished"
            ) from None
