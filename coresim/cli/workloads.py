"""``coresim workloads``: the built-in jobs that can be measured without a dataset of one's own."""

from __future__ import annotations

import argparse
from typing import Any

from coresim.cli.listing import add_listing, print_rows


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the verb and its options."""
    add_listing(subparsers, "workloads", "list the built-in jobs that --workload takes, and what each is for", run)


def run(args: argparse.Namespace) -> int:
    """Print the list; returns exit code 0."""
    from coresim.report.workloads import workloads_document, workloads_table
    from coresim.workloads.registry import listing

    return print_rows(args.json, listing(), workloads_document, workloads_table)
