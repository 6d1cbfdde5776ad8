"""``coresim simulate``: one setting of one option, with all its accounts."""

from __future__ import annotations

import argparse
import json
import math
from typing import TYPE_CHECKING, Any

from coresim.cli.common import add_json, add_set, core_count, metadata, read_input, require, whole_number

if TYPE_CHECKING:
    from coresim.model.scenario import Scenario


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Register the verb."""
    parser = subparsers.add_parser("simulate", help="simulate one setting", description=__doc__)
    parser.add_argument("input", help="a scenario (.toml) or a saved profile (.json)")
    parser.add_argument(
        "--option", type=int, choices=(1, 2, 3), default=2, help="organisation of the pipeline (default 2)"
    )
    parser.add_argument(
        "--workers", type=whole_number(0), help="loader workers per GPU; 0 is option 1 (default: the input's)"
    )
    parser.add_argument("--cores", type=core_count, help="physical cores of the whole host (default: the input's)")
    parser.add_argument("--prefetch-factor", type=whole_number(1), help="batches out per worker (default: the input's)")
    parser.add_argument(
        "--steps", type=whole_number(10), help="steps per replication (default: 400, or more if many workers need it)"
    )
    parser.add_argument("--replications", type=whole_number(1), default=8, help="independent repeats (default 8)")
    parser.add_argument("--seed", type=int, default=1, help="seed of all random draws (default 1)")
    parser.add_argument(
        "--engine", choices=("fast", "reference"), default="fast", help="compiled kernel or SimPy reference"
    )
    parser.add_argument(
        "--trace", metavar="FILE", help="write a Chrome/Perfetto trace of the first replication's start"
    )
    add_set(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Simulate and print; exit code 0."""
    from coresim.cli.common import engine_named
    from coresim.model.build import build
    from coresim.report.document import estimate_document
    from coresim.report.text import estimate_text
    from coresim.sim.estimate import Plan, estimate

    require(args.seed >= 0, f"--seed {args.seed}: must not be negative")
    scenario, profile = read_input(args.input, args.settings)
    setting = _setting(args, scenario)
    pipeline = build(scenario, setting["option"], setting["cores"], setting["workers"], setting["prefetch_factor"])
    plan = Plan(args.steps or Plan.steps, args.steps is None, args.replications, args.replications, seed=args.seed)
    engine = engine_named(args.engine)
    result = estimate(pipeline, plan, engine)
    if args.trace:
        from coresim.report.trace import write_trace

        write_trace(args.trace, pipeline, plan, engine)
    if args.json:
        fingerprint = profile.host.fingerprint if profile else None
        about = metadata(args.seed, args.input, profile.accelerator.basis if profile else None, fingerprint)
        print(json.dumps(estimate_document(result, setting, about), indent=1, allow_nan=False))
    else:
        print(estimate_text(result, setting))
    return 0


def _setting(args: argparse.Namespace, scenario: Scenario) -> dict[str, Any]:
    """The setting asked for, the rest from the scenario."""
    workers = args.workers if args.workers is not None else scenario.loader.workers
    option = 1 if workers == 0 and args.option == 2 else args.option
    cores = args.cores or scenario.host.cores
    if option == 1:
        workers, cores = 0, cores or float(scenario.loader.split * scenario.accelerator.count)
    if workers is None:
        require(cores is not None, "--workers: missing, and the input has no loader.workers; say --workers 8")
        workers = max(1, math.floor((cores or 1.0) / scenario.accelerator.count) - 1)
    require(option != 3 or workers > 0, "--workers 0: option 3 needs at least one worker; say --workers 1")
    cores = cores or float((workers + 1) * scenario.accelerator.count)
    factor = args.prefetch_factor or scenario.loader.prefetch_factor
    return {"option": option, "workers": workers, "cores": cores, "prefetch_factor": factor, "engine": args.engine}
