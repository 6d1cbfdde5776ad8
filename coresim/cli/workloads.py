"""``coresim workloads``: the built-in jobs that can be measured without a dataset of one's own."""

from __future__ import annotations

import argparse
import json

from coresim.errors import EXIT_ANSWERED


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb and its options."""
    help_text = "list the built-in jobs that --workload takes, and what each is for"
    parser = subparsers.add_parser("workloads", help=help_text, description=help_text)
    parser.add_argument("--json", action="store_true", help="the list as JSON, alone on stdout")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the list; returns exit code 0."""
    from coresim.report.workloads import workloads_document, workloads_table
    from coresim.workloads.registry import listing

    found = listing()
    print(json.dumps(workloads_document(found), indent=1) if args.json else workloads_table(found))
    return EXIT_ANSWERED
