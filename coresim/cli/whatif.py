"""``coresim whatif``: today beside each remedy."""

from __future__ import annotations

import argparse
from typing import Any

from coresim.cli.attach import add_attach, read_job
from coresim.cli.common import progress_on_stderr, settings_of, show, study_of
from coresim.cli.flags import add_flags
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
    add_flags(parser, "option", default=None, help="organisation (default 2; 1 where the loader has no workers)")
    add_flags(parser, "idle-target", "seed", "cold", "preset", "storage", "set", "json")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Simulate and print; exit code 0."""
    from coresim.advise.what_if import option_today, remedies_named, what_if
    from coresim.attaching.today import check_today, own_options
    from coresim.report.remedies import what_if_document, what_if_text
    from coresim.report.today import TODAY, today_section
    from coresim.sim.estimate import Plan

    scenario, profile = read_job(args, settings_of(args), args.cold, args.storage)
    remedies_named(scenario, args.remedy)  # before anything is simulated
    with progress_on_stderr() as progress, study_of(Plan(seed=args.seed), "fast", progress) as study:
        own = own_options(profile)
        option = args.option or option_today(scenario, own[0] if own else Option.OVERLAPPED)
        found = what_if(scenario, study, args.remedy, option, options=own)
        today = check_today(profile, study)
    document = what_if_document(found) | {"observed": TODAY.write(today) if today else None}
    show(args, document, what_if_text(found, *([today_section(today)] if today else [])))
    return EXIT_ANSWERED if today is None or today.trusted else EXIT_NOT_TRUSTED
