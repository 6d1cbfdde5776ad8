"""``coresim compare``: what really changed between two profiles of one job."""

from __future__ import annotations

import argparse
from typing import Any

from coresim.cli.common import metadata, show, study_of
from coresim.cli.flags import add_flags, fraction
from coresim.errors import EXIT_ANSWERED, EXIT_UNTOLD, EXIT_WORSE, InputError
from coresim.model.load import scenario_of
from coresim.model.profile import Profile, load_document
from coresim.model.scenario import Scenario
from coresim.units import in_bounds, short


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Register the verb."""
    help_text = "tell a real change between two profiles from noise, and what it does to the cores needed"
    parser = subparsers.add_parser("compare", help=help_text, description=help_text)
    parser.add_argument("old", help="the profile to compare with (.json)")
    parser.add_argument("new", help="the new profile (.json)")
    parser.add_argument(
        "--fail-over", type=_limit, metavar="SHARE",
        help="exit with code 6 if a real change for the worse is above this share, such as 10%%, and 7 if the data"
        " cannot decide it",
    )  # fmt: skip
    for side in ("old", "new"):
        parser.add_argument(
            f"--also-{side}", action="append", default=[], metavar="FILE",
            help=f"another profile taken together with the {side} one: its processes are more repeats; repeatable",
        )  # fmt: skip
    add_flags(parser, "option", "seed", "engine", "set", "json")
    parser.set_defaults(run=run)


def _limit(text: str) -> float:
    """An argparse type: a share that may be above one."""
    value = fraction(text, "0.1 or 10%")
    if not (value >= 0 and in_bounds(value)):
        raise argparse.ArgumentTypeError(f"{short(text)} is not a share; write 0.1 or 10%")
    if value > 1 and not text.endswith("%"):
        # A gate that was meant to be 10 % must not let everything through.
        raise argparse.ArgumentTypeError(f"{text} would be {value:.0%}; write {text}%, or {value:.0%} if you mean that")
    return value


def run(args: argparse.Namespace) -> int:
    """Compare and print; with ``--fail-over`` 6 if a real change for the worse is larger, 7 if that is undecided."""
    from coresim.advise.compare import compare, pooled
    from coresim.report.compare import comparison_document, comparison_text
    from coresim.sim.estimate import Plan

    old = pooled([_profile(path) for path in (args.old, *args.also_old)])
    new = pooled([_profile(path) for path in (args.new, *args.also_new)])

    def read(profile: Profile) -> Scenario:
        path = args.old if profile is old else args.new
        return scenario_of(profile, path, args.settings)

    with study_of(Plan(seed=args.seed, inputs=0), args.engine) as study:
        found = compare(old, new, read, study, args.option)
    about = metadata(args.seed, f"{args.old} {args.new}")
    show(args, comparison_document(found, about, args.fail_over), comparison_text(found, args.fail_over))
    if args.fail_over is None:
        return EXIT_ANSWERED
    if found.losses_over(args.fail_over):
        return EXIT_WORSE
    return EXIT_UNTOLD if found.untold(args.fail_over) else EXIT_ANSWERED


def _profile(path: str) -> Profile:
    """The profile of a file; a scenario has no measurements to compare."""
    found = load_document(path)
    if not isinstance(found, Profile):
        raise InputError(f"{path}: a scenario; compare takes two profiles, as coresim measure -o FILE.json writes them")
    return found
