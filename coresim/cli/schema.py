"""``coresim schema``: the JSON schemas of what coresim reads and prints."""

from __future__ import annotations

import argparse
import json
from typing import Any

NAMES = ("scenario", "fleet", "recommend", "recommend-steps", "simulate", "compare", "machines", "plan")


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Register the verb."""
    parser = subparsers.add_parser("schema", help="print JSON schemas", description=__doc__)
    parser.add_argument("name", nargs="?", choices=NAMES, help="one schema only (default: all, by name)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the schema or schemas; exit code 0."""
    from coresim.fleet.description import fleet_schema
    from coresim.model.scenario import scenario_schema
    from coresim.report.schemas import schemas

    found = {"scenario": scenario_schema(), "fleet": fleet_schema(), **schemas()}
    print(json.dumps(found[args.name] if args.name else found, indent=1))
    return 0
