"""``coresim measure``: the micro-benchmarks alone, kept in a profile for later and for other machines."""

from __future__ import annotations

import argparse

from coresim.cli.attach import add_attach, measured
from coresim.cli.common import check_writable, save, show
from coresim.cli.request import add_arguments

DEFAULT_OUTPUT = "profile.json"


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb and its options."""
    text = "Measure what preparing samples costs here, and the training step, and keep it in a profile."
    parser = subparsers.add_parser("measure", help="measure once, keep the profile", description=text)
    add_arguments(parser)
    add_attach(parser)
    parser.add_argument(
        "-o", "--output", default=DEFAULT_OUTPUT, metavar="FILE", help="where to write (default: %(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="print the profile too, as JSON, alone on stdout")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Measure, write the profile, and say what was measured; an output that cannot be written is reported before."""
    from coresim.report.content import statements
    from coresim.report.measured import measured_sections
    from coresim.report.plain import answer_lines

    check_writable(args.output)
    profile = measured(args)
    kept = save(args, profile, args.output)
    written = [f"written to {args.output}"] if kept else []
    return show(args, profile.to_dict(), answer_lines("", *measured_sections(profile), statements(written)))
