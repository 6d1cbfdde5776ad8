"""The shape of the code: who imports whom, where heavy packages live, who prints, how long it is, where tests lie."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "coresim").rglob("*.py"))

#: A room imports from lower floors only; rooms of one floor do not know each other, except on the ground.
FLOORS = (
    ("errors", "units", "stats", "files", "__init__"),
    ("model", "workloads"),
    ("machines", "device"),
    ("measure", "sim", "theory"),
    ("advise", "validate"),
    ("attaching", "fleet"),
    ("report",),
    ("cli", "api", "callbacks"),
    ("__main__",),
)
FLOOR = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
#: `coresim.recommend` and the like are found in `coresim.api` on first use.
EXCEPTIONS = {("__init__", "api")}

#: Heavy packages and the only places that import them.
HOMES = {
    "simpy": ("coresim/sim/reference",),
    "pandas": ("coresim/report/tables.py",),
    "matplotlib": (
        "coresim/report/figures.py",
        "coresim/report/charts.py",
        "coresim/report/interactive.py",
        "coresim/report/pdf.py",
    ),
    "PIL": ("coresim/workloads/",),
    "h5py": ("coresim/workloads/packages.py",),
    "soundfile": ("coresim/workloads/packages.py",),
    "torch": (
        "coresim/device/models.py",
        "coresim/device/networks.py",
        "coresim/device/interface.py",
        "coresim/measure/server.py",
        "coresim/measure/torch_loader.py",
        "coresim/validate/",
        "coresim/workloads/base.py",
    ),
    "torchvision": ("coresim/device/",),
    "pynvml": ("coresim/attaching/watch.py",),
    "psutil": ("coresim/measure/", "coresim/attaching/watch.py"),
    "tqdm": ("coresim/cli/",),
    "jinja2": ("coresim/report/html.py",),
    "markupsafe": ("coresim/report/html.py",),
    "ipywidgets": ("coresim/report/widgets.py",),
    "lightning": ("coresim/callbacks.py",),
    "transformers": ("coresim/callbacks.py",),
    "distributed": ("coresim/cli/plan.py",),
}

#: Outside of the command line, what speaks and why.
SPEAKERS = {
    ("coresim/__main__.py", "sys.exit"),  # it is the command
    ("coresim/callbacks.py", "print"),  # a trainer's callback has nobody else to tell
}

LONGEST_FILE, LONGEST_FUNCTION = 300, 60

#: Rooms whose tests lie in a folder of their name, in a file for each module; `tests/together` crosses rooms.
MIRRORED = sorted(path.parent.name for path in (ROOT / "coresim").glob("*/__init__.py"))


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def room_of(path: Path) -> str:
    return path.relative_to(ROOT / "coresim").parts[0].removesuffix(".py")


@cache
def tree(path: Path) -> ast.Module:
    """The file's syntax, without what only type checkers see, which stands at the top."""
    found = ast.parse(path.read_text())
    found.body = [node for node in found.body if not _is_for_types(node)]
    return found


def _is_for_types(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


@cache
def nodes_of(source: ast.AST) -> tuple[ast.AST, ...]:
    """Every node of a file's syntax, which many tests look through."""
    return tuple(ast.walk(source))


def imports(source: ast.AST) -> Iterator[str]:
    """Dotted names of all modules that are imported, at the top or inside of functions."""
    for node in nodes_of(source):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            names = (f"{node.module}.{alias.name}" for alias in node.names)
            yield from names if node.module == "coresim" else (str(node.module),)


def length_of(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return int(node.end_lineno or 0) - node.lineno + 1


def rooms_used(source: ast.AST) -> Iterator[str]:
    for module in imports(source):
        package, _, rest = module.partition(".")
        room = rest.split(".")[0]
        if package == "coresim" and room:
            yield "__init__" if room.startswith("__") else room


def may_import(here: str, there: str) -> bool:
    ground = FLOOR[here] == FLOOR[there] == 0
    return here == there or ground or FLOOR[there] < FLOOR[here] or (here, there) in EXCEPTIONS


def strangers(source: ast.AST, path: str) -> list[str]:
    """Heavy packages that are imported in a place that is not their home."""
    used = {module.split(".")[0] for module in imports(source)}
    return sorted(package for package in used & set(HOMES) if not path.startswith(HOMES[package]))


def noises(source: ast.AST) -> list[str]:
    """Uses of the terminal and of the process: print, input, exit, argv."""
    names = {"print", "input", "exit", "quit", "sys.exit", "sys.argv", "sys.stdout", "sys.stderr"}
    nodes = (node for node in nodes_of(source) if isinstance(node, ast.Name | ast.Attribute))
    return sorted({ast.unparse(node) for node in nodes} & names)


def test_every_room_has_a_floor() -> None:
    assert {room_of(path) for path in FILES} <= set(FLOOR)


def test_imports_go_down() -> None:
    used = [(path, room_of(path), there) for path in FILES for there in rooms_used(tree(path))]
    assert len(used) > 100
    assert [(name_of(path), there) for path, here, there in used if not may_import(here, there)] == []


def files_used(source: ast.AST) -> Iterator[str]:
    """The package's own files that are imported, as ``room/file``."""
    for node in nodes_of(source):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            continue
        yield from (name.removeprefix("coresim.").replace(".", "/") for name in names if name.startswith("coresim."))


def circles(uses: dict[str, set[str]]) -> set[frozenset[str]]:
    """Groups of files each of which leads to all others of the group."""

    def reached(start: str) -> set[str]:
        found: set[str] = set()
        waiting = [start]
        while waiting:
            new = uses.get(waiting.pop(), set()) - found
            found |= new
            waiting += new
        return found

    reach = {name: reached(name) for name in uses}
    groups = {frozenset(other for other in reach[name] if name in reach.get(other, ())) for name in uses}
    return groups - {frozenset()}


def test_no_files_import_each_other() -> None:
    uses = {path.relative_to(ROOT / "coresim").with_suffix("").as_posix(): path for path in FILES}
    assert circles({name: set(files_used(tree(path))) & set(uses) for name, path in uses.items()}) == set()


def test_heavy_packages_are_imported_at_home_only() -> None:
    assert [(name_of(path), name) for path in FILES for name in strangers(tree(path), name_of(path))] == []


def test_the_packages_used_are_the_declared_ones() -> None:
    used = {module.split(".")[0] for path in FILES for module in imports(tree(path))}
    assert used <= {*sys.stdlib_module_names, *HOMES, "numpy", "coresim"}
    # A declared dependency that nothing imports should go.
    assert {"simpy", "pandas", "matplotlib", "PIL", "psutil", "tqdm", "torch"} <= used


def test_only_the_command_line_speaks() -> None:
    found = {(name_of(path), noise) for path in FILES if room_of(path) != "cli" for noise in noises(tree(path))}
    assert found == SPEAKERS


def test_files_are_short() -> None:
    lengths = {name_of(path): len(path.read_text().splitlines()) for path in FILES}
    assert {name: length for name, length in lengths.items() if length > LONGEST_FILE} == {}


def test_functions_are_short() -> None:
    nodes = ((path, node) for path in FILES for node in nodes_of(tree(path)))
    functions = [(path, node) for path, node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    assert [f"{name_of(path)}: {node.name}" for path, node in functions if length_of(node) > LONGEST_FUNCTION] == []


def without_module(room: str, names: Iterable[str]) -> list[str]:
    """Test files of a room that name no module and no package in it."""
    known = {path.stem for path in (ROOT / "coresim" / room).iterdir() if path.suffix == ".py" or path.is_dir()}
    return sorted(name for name in names if name.removeprefix("test_").removesuffix(".py") not in known)


@pytest.mark.parametrize("room", MIRRORED)
def test_tests_are_found_by_the_name_of_their_module(room: str) -> None:
    names = [path.name for path in (ROOT / "tests" / room).glob("test_*.py")]
    assert names and without_module(room, names) == []


LIGHT = ("coresim", "coresim.cli.main", "coresim.model.scenario", "coresim.theory.bounds", "coresim.workloads.registry")


def test_light_modules_load_nothing_heavy() -> None:
    code = f"""
import importlib, sys
for module in {LIGHT!r}:
    importlib.import_module(module)
    print(module, *sorted(set({list(HOMES)!r}) & sys.modules.keys()))
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert found.stdout.split("\n") == [*LIGHT, ""]


# The checks themselves


@pytest.mark.parametrize(
    ("here", "there", "good"),
    [
        ("sim", "model", True), ("sim", "measure", False), ("measure", "sim", False), ("theory", "sim", False),
        ("model", "sim", False), ("model", "workloads", False), ("files", "errors", True), ("cli", "report", True),
        ("report", "cli", False), ("advise", "validate", False), ("errors", "model", False), ("sim", "api", False),
    ],
)  # fmt: skip
def test_the_rule(here: str, there: str, good: bool) -> None:
    assert may_import(here, there) == good


def test_the_checks_see_what_they_look_for() -> None:
    source = ast.parse("def f():\n    import torch.nn\n    from coresim.measure.host import g\n    print(sys.argv)\n")
    assert strangers(source, "coresim/sim/draws.py") == ["torch"]
    assert strangers(source, "coresim/device/models.py") == []
    assert list(rooms_used(source)) == ["measure"]
    assert noises(source) == ["print", "sys.argv"]
    assert list(rooms_used(ast.parse("from coresim import stats, __version__"))) == ["stats", "__init__"]
    assert {"measure/host", "measure/host/g"} == set(files_used(source))
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"d"}}) == {frozenset("bc"), frozenset("d")}
    assert without_module("sim", ["test_kernel.py", "test_draws.py", "test_no_such.py"]) == ["test_no_such.py"]
