"""``coresim catalogue``: the recorded accelerator step times, with their sources."""

from __future__ import annotations

import argparse
from typing import Any

from coresim.cli.listing import add_listing, print_rows


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the verb and its options."""
    help_text = "list the recorded step times that stand in for a GPU that is not here"
    parser = add_listing(subparsers, "catalogue", help_text, run)
    parser.add_argument("--gpu", metavar="NAME", help='only this GPU, such as "a100" or "RTX 3090"')
    parser.add_argument("--model", metavar="NAME", help='only this net, such as "resnet50"')


def run(args: argparse.Namespace) -> int:
    """Print the rows that ``--gpu`` and ``--model`` leave; returns exit code 0.

    Raises:
        InputError: a name that matches nothing.
    """
    from coresim.model.catalogue import select_rows
    from coresim.report.catalogue import catalogue_document, catalogue_table

    return print_rows(args.json, select_rows(args.gpu, args.model), catalogue_document, catalogue_table)
