"""``coresim machines``: GPU instances and servers with their cores, memory and dated prices."""

from __future__ import annotations

import argparse
import json
from typing import Any

from coresim.cli.common import positive, whole_number
from coresim.errors import EXIT_ANSWERED
from coresim.model.machines import SORTS, Filter


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Register the verb."""
    help_text = "list GPU machines: cores per GPU, memory, bandwidth and dated prices, each with its source"
    parser = subparsers.add_parser("machines", help=help_text, description=help_text)
    parser.add_argument("--gpu", metavar="NAME", help="only machines with this GPU, such as a100 or l40s")
    parser.add_argument("--provider", metavar="NAME", help="only this provider, such as aws")
    parser.add_argument("--name", metavar="TEXT", help="only machines whose name holds this text")
    parser.add_argument("--gpus", type=whole_number(1), metavar="N", help="only machines with so many GPUs")
    parser.add_argument(
        "--min-cores-per-gpu",
        type=positive("a number"),
        metavar="CORES",
        help="only machines with at least so many cores per GPU",
    )
    parser.add_argument(
        "--max-price",
        type=positive("a number"),
        metavar="USD",
        help="only machines of at most this price per GPU and hour",
    )
    parser.add_argument("--priced", action="store_true", help="only machines whose price is known")
    parser.add_argument("--sort", choices=SORTS, default="file", help="order (default: as in the file)")
    parser.add_argument(
        "--file",
        metavar="CSV",
        help="your own machines instead: columns id,gpu,gpu_count,physical_cores and others",
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="every field, as JSON, alone on stdout")
    form.add_argument("--csv", action="store_true", help="every field, as CSV that --file reads back")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the machines that the filters leave; returns exit code 0.

    Raises:
        InputError: a bad file, an unknown name, or nothing left.
    """
    from coresim.model.machines import load_machines, read_machines, select_machines
    from coresim.report.machines import machine_table, machines_csv, machines_document

    wanted = Filter(args.gpu, args.provider, args.name, args.gpus, args.min_cores_per_gpu, args.max_price, args.priced)
    rows = select_machines(read_machines(args.file) if args.file else load_machines(), wanted, args.sort)
    if args.csv:
        print(machines_csv(rows), end="")
    else:
        print(json.dumps(machines_document(rows), indent=1, allow_nan=False) if args.json else machine_table(rows))
    return EXIT_ANSWERED
