"""``coresim storage``: the recorded storage tiers, with their sources."""

from __future__ import annotations

import argparse
from typing import Any

from coresim.cli.listing import add_listing, chosen, print_rows


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Register the verb."""
    help_text = "list the recorded storage tiers, as --storage takes them, with their sources"
    add_listing(subparsers, "storage", help_text, run).add_argument("name", nargs="?", help="only this one")


def run(args: argparse.Namespace) -> int:
    """Print the rows; exit code 0.

    Raises:
        InputError: a name that is none of them.
    """
    from coresim.model.storage import tiers
    from coresim.report.storage import storage_document, storage_table

    return print_rows(args.json, chosen(tiers(), args.name, "storage"), storage_document, storage_table)
