"""What the verbs share that list a table of the package: its rows for people, or all of their fields as JSON."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from typing import Any

from coresim.errors import EXIT_ANSWERED


def add_listing(
    subparsers: argparse._SubParsersAction[Any], verb: str, help_text: str, run: Callable[[argparse.Namespace], int]
) -> argparse.ArgumentParser:
    """A verb with ``--json``; its other options are added to what this returns."""
    parser: argparse.ArgumentParser = subparsers.add_parser(verb, help=help_text, description=help_text)
    parser.set_defaults(run=run)
    parser.add_argument("--json", action="store_true", help="every field, as JSON, alone on stdout")
    return parser


def chosen(known: Mapping[str, Any], name: str | None, what: str) -> list[Any]:
    """The row of that name, or all rows where none is named.

    Raises:
        InputError: a name that is none of them.
    """
    from coresim.model.keys import choice

    return [known[choice(*known).read(name, what)]] if name else list(known.values())


def print_rows(as_json: bool, rows: Any, document: Callable[[Any], Any], table: Callable[[Any], str]) -> int:
    """Print the rows; exit code 0."""
    print(json.dumps(document(rows), indent=1, allow_nan=False) if as_json else table(rows))
    return EXIT_ANSWERED
