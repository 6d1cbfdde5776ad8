"""``coresim storage``: the recorded storage tiers, with their sources."""

from __future__ import annotations

import argparse
import json
from typing import Any

from coresim.errors import EXIT_ANSWERED


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Register the verb."""
    help_text = "list the recorded storage tiers, as --storage takes them, with their sources"
    parser = subparsers.add_parser("storage", help=help_text, description=help_text)
    parser.add_argument("name", nargs="?", help="only this one")
    parser.add_argument("--json", action="store_true", help="every field, as JSON, alone on stdout")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the rows; exit code 0.

    Raises:
        InputError: a name that is none of them.
    """
    from coresim.model.keys import choice
    from coresim.model.storage import tiers
    from coresim.report.storage import storage_document, storage_table

    known = tiers()
    chosen = [known[choice(*known).read(args.name, "storage")]] if args.name else list(known.values())
    print(json.dumps(storage_document(chosen), indent=1, allow_nan=False) if args.json else storage_table(chosen))
    return EXIT_ANSWERED
