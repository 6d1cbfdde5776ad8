"""Run a named function as a program (``python -m coresim.cli.called NAME``), if it trains where it was to give data."""

from __future__ import annotations

import sys

from coresim.workloads.named import load_object


def main() -> None:
    """Import what the first argument names, and call it; its own arguments are none."""
    load_object(sys.argv.pop(1), "program")()


if __name__ == "__main__":
    main()
