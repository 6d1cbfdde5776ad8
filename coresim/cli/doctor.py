"""`coresim doctor`: how many cores this process really has, and what misleads on this host."""

from __future__ import annotations

import argparse

from coresim.cli.common import show
from coresim.cli.flags import add_flags


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb and its options."""
    text = "Show how many cores this process can use, why, and what misleads on this host. Takes under a second."
    parser = subparsers.add_parser("doctor", help="how many cores do I really have, and why", description=text)
    add_flags(parser, "json")
    parser.add_argument(
        "--deep", action="store_true", help="also import torch, in a process of its own, to name its CUDA devices"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the report; the exit code is always that of an answer, whatever the warnings."""
    from coresim.measure.host import read_host
    from coresim.measure.parts import optional_parts
    from coresim.model.host import OptionalPart
    from coresim.report.doctor import doctor_dict, doctor_text
    from coresim.sim.kernel import COMPILED, REMEDY

    simulator = OptionalPart(
        "compiled simulator", COMPILED is not None, None, "simulates a hundred times as fast", REMEDY
    )
    facts, parts = read_host(), (*optional_parts(deep=args.deep), simulator)
    return show(args, doctor_dict(facts, parts), doctor_text(facts, parts))
