"""The event kernel: one text that Python runs exactly, on Fractions, and Cython compiles to C, on doubles.

Its semantics are written in `coresim.model.pipeline`. Read `records` first, for the names of all fields; then `events`
(the loop), `line` and `trainer` (what happens), `servers` and `items` (who is free, what stands where), `clocks`
(processor sharing), `accounts` (where the time goes). `build` fills the records from a description, `results` reads the
accounts out of them, `engine` joins the three; `pools` is compiled with them.

Every file is plain Python. When the package is installed, `setup.py` joins them, turns the annotations into C types and
compiles them to one module, ``_compiled``. Only `memory` is written twice, for Python and for C.
"""

from __future__ import annotations

import hashlib
import sysconfig
from importlib import import_module
from pathlib import Path
from types import ModuleType


def digest(folder: Path) -> str:
    """A digest of the kernel's text, to recognise a kernel that was compiled from another text."""
    files = sorted(path for path in folder.iterdir() if path.suffix in (".py", ".pyx") and path.name != "__init__.py")
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()


def _compiled() -> tuple[ModuleType | None, str]:
    """The compiled kernel; or None, with the reason and the remedy."""
    again = "install coresim again (in a checkout: pip install -v -e ., which tells why where it cannot be compiled)"
    try:
        module = import_module("coresim.sim.kernel._compiled")
    except ImportError as error:
        if not Path(sysconfig.get_path("include"), "Python.h").is_file():
            return None, f"Python's headers are missing here: install python3-dev, then {again}"
        return None, again if isinstance(error, ModuleNotFoundError) else f"{error}: {again}"
    if digest(Path(__file__).parent) != module.TEXT:
        return None, f"it was compiled from another text: {again}"
    return module, ""


#: The compiled kernel; where there is none (None) the text itself runs, and the remedy says what to do about it.
COMPILED, REMEDY = _compiled()
