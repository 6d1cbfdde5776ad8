"""``coresim simulate``: one setting of one option, with all its accounts."""

from __future__ import annotations

import argparse
from typing import Any

from coresim.cli.common import (
    check_figure,
    check_writable,
    engine_named,
    heeding,
    metadata,
    read_input,
    settings_of,
    show,
)
from coresim.cli.flags import add_flags, positive, whole_number
from coresim.model.keys import MOST_PARTS


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Register the verb."""
    parser = subparsers.add_parser("simulate", help="simulate one setting", description=__doc__)
    parser.add_argument("input", help="a scenario (.toml) or a saved profile (.json)")
    add_flags(parser, "option", default=None, help="organisation of the pipeline (default 2, or what --preset is)")
    parser.add_argument(
        "--workers",
        type=whole_number(0, MOST_PARTS),
        help="loader workers per GPU; 0 is option 1 (default: the input's)",
    )
    parser.add_argument(
        "--cores", type=positive("a number of cores"), help="physical cores of the whole host (default: the input's)"
    )
    parser.add_argument(
        "--prefetch-factor", type=whole_number(1, MOST_PARTS), help="batches out per worker (default: the input's)"
    )
    parser.add_argument(
        "--steps", type=whole_number(10), help="steps per replication (default: 400, or more if many workers need it)"
    )
    parser.add_argument("--replications", type=whole_number(1), default=8, help="independent repeats (default 8)")
    add_flags(parser, "seed", "engine", "preset", "storage", "set", "json")
    parser.add_argument(
        "--trace", metavar="FILE", help="write a Chrome/Perfetto trace of the first replication's start"
    )
    parser.add_argument(
        "--gantt", metavar="FILE", help="draw the first batches of options 1, 2 and 3 (.png, .svg, .pdf)"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Simulate and print; exit code 0."""
    from coresim.model.build import build, resolve_setting
    from coresim.report.document import ESTIMATE
    from coresim.report.plain import section_text
    from coresim.report.provenance import step_provenance
    from coresim.report.simulated import bound_lines, estimate_section
    from coresim.sim.estimate import Plan, estimate

    if args.gantt:
        check_figure(args.gantt)
    if args.trace:
        check_writable(args.trace)
    scenario, profile = read_input(args.input, settings_of(args), storage=args.storage)
    setting = resolve_setting(scenario, args.option, args.workers, args.cores, args.prefetch_factor)
    pipeline = build(scenario, setting.option, setting.cores, setting.workers, setting.prefetch_factor)
    shown = {**setting._asdict(), "engine": args.engine}
    grow, count = args.steps is None, args.replications
    plan = Plan(args.steps or Plan.steps, grow, count, count, seed=args.seed, under_way=grow)
    engine = engine_named(args.engine)
    result = heeding(lambda: estimate(pipeline, plan, engine))
    about = metadata(args.seed, args.input, step_provenance(profile, None, args.settings), profile)
    document = ESTIMATE.write(result, setting=shown, metadata=about)
    if scenario.stages:  # they say how many servers each has; a loader's workers are no part of such a line
        shown = {"listed stages": len(scenario.stages), "cores": setting.cores, "engine": args.engine}
    code = show(args, document, section_text(estimate_section(result, shown, bound_lines(pipeline))))
    if args.trace:
        from coresim.report.trace import write_trace

        write_trace(args.trace, pipeline, plan, engine)
    if args.gantt:
        from coresim.report.figures import plot_gantt, save_figure

        save_figure(plot_gantt(scenario, setting.cores, max(1, setting.workers), engine, seed=args.seed), args.gantt)
    return code
