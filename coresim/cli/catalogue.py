"""``coresim catalogue``: the recorded accelerator step times, with their sources."""

from __future__ import annotations

import argparse
import json

from coresim.errors import EXIT_ANSWERED


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb and its options."""
    help_text = "list the recorded step times that stand in for a GPU that is not here"
    parser = subparsers.add_parser("catalogue", help=help_text, description=help_text)
    parser.add_argument("--gpu", metavar="NAME", help='only this GPU, such as "a100" or "RTX 3090"')
    parser.add_argument("--model", metavar="NAME", help='only this net, such as "resnet50"')
    parser.add_argument("--json", action="store_true", help="every field, as JSON, alone on stdout")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the rows that ``--gpu`` and ``--model`` leave; returns exit code 0.

    Raises:
        InputError: a name that matches nothing.
    """
    from coresim.model.catalogue import select_rows
    from coresim.report.catalogue import catalogue_document, catalogue_table

    rows = select_rows(args.gpu, args.model)
    print(json.dumps(catalogue_document(rows), indent=1, allow_nan=False) if args.json else catalogue_table(rows))
    return EXIT_ANSWERED
