"""``coresim whatif``: today beside each remedy."""

from __future__ import annotations

import argparse
import json
from typing import Any

from coresim.cli.attach import add_attach, read_job
from coresim.cli.common import (
    add_json,
    add_option,
    add_preset,
    add_set,
    add_storage,
    settings_of,
    share,
    study_of,
    whole_number,
)
from coresim.cli.measure import progress_on_stderr
from coresim.errors import EXIT_ANSWERED, EXIT_NOT_TRUSTED
from coresim.model.option import Option


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Register the verb."""
    parser = subparsers.add_parser(
        "whatif",
        help="what would help: today beside each remedy, and what it costs",
        description="Simulate a job as it is and after each remedy: more workers, cores or prefetch, another decoder or"
        " format, the GPU, threads, a cache, ... What is assumed is stated as a range. --set changes the job first.",
    )
    parser.add_argument("input", nargs="?", help="a scenario (.toml) or a saved profile (.json)")
    add_attach(parser, save=True)
    parser.add_argument("--remedy", action="append", default=[], metavar="NAME", help="only this one; repeatable")
    add_option(parser, None, "(default 2; 1 where the loader has no workers)")
    parser.add_argument("--idle-target", type=share, metavar="SHARE", help="largest acceptable GPU idle (default 5%%)")
    parser.add_argument("--seed", type=whole_number(0), default=1, help="seed of all random draws (default 1)")
    parser.add_argument(
        "--cold", action="store_true", help="samples come from storage, as it was measured, not from the page cache"
    )
    add_preset(parser)
    add_storage(parser)
    add_set(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Simulate and print; exit code 0."""
    from coresim.advise.what_if import option_today, remedies_named, what_if
    from coresim.attaching.today import check_today, own_options
    from coresim.report.remedies import what_if_document, what_if_text
    from coresim.report.today import today_document, today_text
    from coresim.sim.estimate import Plan

    target = [] if args.idle_target is None else [f"target.gpu_idle={args.idle_target!r}"]
    scenario, profile = read_job(args, [*settings_of(args), *target], args.cold, args.storage)
    remedies_named(scenario, args.remedy)  # before anything is simulated
    with progress_on_stderr() as progress, study_of(Plan(seed=args.seed), "fast", progress) as study:
        option = args.option or option_today(scenario, Option.OVERLAPPED)
        found = what_if(scenario, study, args.remedy, option, options=own_options(profile))
        today = check_today(profile, study)
    if args.json:
        observed = today_document(today) if today else None
        print(json.dumps(what_if_document(found) | {"observed": observed}, indent=1))
    else:
        print(*filter(None, [today and today_text(today), what_if_text(found)]), sep="\n\n")
    return EXIT_ANSWERED if today is None or today.trusted else EXIT_NOT_TRUSTED
