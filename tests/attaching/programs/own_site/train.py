"""Trains only where its own sitecustomize was read."""

import builtins
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import sitecustomize
from plain import main

if __name__ == "__main__":
    assert builtins.SITE_WAS_READ
    assert Path(sitecustomize.__file__).parent == Path(__file__).resolve().parent
    main()
