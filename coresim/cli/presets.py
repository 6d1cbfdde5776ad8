"""``coresim presets``: the frameworks' input pipelines, and how each was checked."""

from __future__ import annotations

import argparse
from typing import Any

from coresim.cli.listing import add_listing, chosen, print_rows


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the verb and its options."""
    help_text = "list the frameworks' input pipelines, as --preset takes them, and how each was checked"
    add_listing(subparsers, "presets", help_text, run).add_argument("name", nargs="?", help="one of them, in full")


def run(args: argparse.Namespace) -> int:
    """Print the rows; exit code 0.

    Raises:
        InputError: a name that is none of them.
    """
    from coresim.model.presets import PRESETS
    from coresim.report.presets import preset_text, presets_document, presets_table

    rows = chosen(PRESETS, args.name, "preset")
    table = presets_table if not args.name else lambda rows: preset_text(*rows)
    return print_rows(args.json, rows, presets_document, table)
