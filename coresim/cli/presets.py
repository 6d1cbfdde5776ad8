"""``coresim presets``: the frameworks' input pipelines, and how each was checked."""

from __future__ import annotations

import argparse
import json
from typing import Any


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the verb and its options."""
    help_text = "list the frameworks' input pipelines, as --preset takes them, and how each was checked"
    parser = subparsers.add_parser("presets", help=help_text, description=help_text)
    parser.add_argument("name", nargs="?", help="one of them, in full")
    parser.add_argument("--json", action="store_true", help="every field, as JSON, alone on stdout")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the rows; exit code 0.

    Raises:
        InputError: a name that is none of them.
    """
    from coresim.model.keys import choice
    from coresim.model.presets import PRESETS
    from coresim.report.presets import preset_text, presets_document, presets_table

    chosen = [PRESETS[choice(*PRESETS).read(args.name, "preset")]] if args.name else list(PRESETS.values())
    if args.json:
        print(json.dumps(presets_document(chosen), indent=1, allow_nan=False))
    else:
        print(preset_text(chosen[0]) if args.name else presets_table(chosen))
    return 0
