"""Compiles the event kernel (`coresim.sim.kernel`); all else about the package is in pyproject.toml."""

from __future__ import annotations

import ast
import hashlib
import os
import shlex
import shutil
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

KERNEL = Path("coresim/sim/kernel")
#: The parts of the text, each after those that it uses.
PARTS = (
    "records", "clocks", "accounts", "items", "servers", "receiving", "line", "trainer", "events", "build", "results",
    "engine", "pools",
)  # fmt: skip
#: What its files import and the one module does not: themselves, and what annotations are made of.
NOT_IMPORTED = ("__future__", "typing", "coresim.sim.kernel")
#: C types of the annotations; a record is a pointer to it, a list a pointer to its first element.
C_TYPES = {"int": "long", "bool": "bint", "Number": "double", "None": "void", "Arena": "Arena"}
OPTIONS = "language_level=3, annotation_typing=False, infer_types=True, cdivision=True"
# Numbers are those of Python to the last bit: a multiplication is rounded before its result is added to something.
FLAGS = ["-O3", "-g0", "-ffp-contract=off"]
ZIG = [sys.executable, "-m", "ziglang", "cc", "-mcpu=baseline", "-fno-sanitize=undefined"]


class Text:
    """The kernel's text as one Cython module: the functions as they stand, with C types for their annotations."""

    def __init__(self) -> None:
        self.texts = {part: (KERNEL / f"{part}.py").read_text() for part in PARTS}
        self.trees = {part: ast.parse(text) for part, text in self.texts.items()}
        self.records = {node.name: node for node in self.trees["records"].body if isinstance(node, ast.ClassDef)}

    def module(self) -> str:
        """The module."""
        head = [f"# cython: {OPTIONS}", "import numpy as np", f'TEXT = "{digest()}"']
        lines = [*head, *self.constants(), *self.structs(), (KERNEL / "memory.pyx").read_text()]
        for part in PARTS:
            for node in self.trees[part].body:
                if isinstance(node, ast.ImportFrom) and not str(node.module).startswith(NOT_IMPORTED):
                    lines.append(ast.unparse(node))
                elif isinstance(node, ast.FunctionDef):
                    lines += self.function(part, node)
        return "\n".join(lines)

    def constants(self) -> Iterator[str]:
        """``A, B = range(2)`` or ``A = 1``, of the records' file."""
        for node in self.trees["records"].body:
            if isinstance(node, ast.Assign):
                (target,) = node.targets
                names = target.elts if isinstance(target, ast.Tuple) else [target]
                values = range(len(names)) if len(names) > 1 else [ast.literal_eval(node.value)]
                yield from (f"cdef enum: {name.id} = {value}" for name, value in zip(names, values, strict=True))

    def structs(self) -> Iterator[str]:
        """The records."""
        yield from (f"cdef struct {name}" for name in self.records)
        for name, record in self.records.items():
            yield f"cdef struct {name}:"
            fields = [field for field in record.body if isinstance(field, ast.AnnAssign)]
            yield from (f"    {self.c_type(field.annotation)} {ast.unparse(field.target)}" for field in fields)

    def function(self, part: str, node: ast.FunctionDef) -> list[str]:
        """A function; one that is given records or memory is C's own, and without a Python object needs no lock."""
        lines, first = self.texts[part].splitlines(), node.body[0].lineno
        given = {argument.arg: self.c_type(argument.annotation) for argument in node.args.args}
        returned = self.c_type(node.returns)
        head = lines[node.lineno - 1 : first - 1]
        free = None not in given.values() and returned is not None and "Arena" not in given.values()
        if any(kind and (kind == "Arena" or kind.endswith("*")) for kind in given.values()):
            arguments = ", ".join(f"{kind or 'object'} {name}" for name, kind in given.items())
            head = [f"cdef {returned or 'object'} {node.name}({arguments})" + (" noexcept nogil:" if free else ":")]
        for line, start, stop, text in sorted(self.edits(node, free), reverse=True):
            lines[line - 1] = lines[line - 1][:start] + text + lines[line - 1][stop:]
        return [*head, *lines[first - 1 : node.end_lineno], ""]

    def edits(self, node: ast.FunctionDef, free: bool) -> Iterator[tuple[int, int, int, str]]:
        """Line, begin, end and new text: of declared variables, and of no record (None, where no object can be)."""
        for inner in (inner for statement in node.body for inner in ast.walk(statement)):
            if isinstance(inner, ast.AnnAssign) and (kind := self.c_type(inner.annotation)):
                yield inner.lineno, inner.col_offset, inner.annotation.end_col_offset, f"cdef {kind} {inner.target.id}"
            elif (isinstance(inner, ast.Name) and inner.id == "NOTHING") or (free and is_none(inner)):
                yield inner.lineno, inner.col_offset, inner.end_col_offset, "NULL"

    def c_type(self, annotation: ast.expr) -> str | None:
        """The C type, or None for what stays a Python object."""
        if isinstance(annotation, ast.BinOp):  # X | None
            return self.c_type(annotation.left)
        if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) == "list":
            element = self.c_type(annotation.slice)
            return f"{element}*" if element else None
        name = ast.unparse(annotation)
        return f"{name}*" if name in self.records else C_TYPES.get(name)


def is_none(node: ast.AST) -> bool:
    """Whether it is the word None."""
    return isinstance(node, ast.Constant) and node.value is None


def digest() -> str:
    """As `coresim.sim.kernel.digest` has it: a compiled kernel that is not of the text beside it is not used."""
    files = sorted(path for path in KERNEL.iterdir() if path.suffix in (".py", ".pyx") and path.name != "__init__.py")
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()


def other_compiler() -> list[str]:
    """The command of a C compiler where Python's own is not here; the last resort comes as a package, ziglang."""
    own = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    if shutil.which(own[0]):
        return []
    return next(([name] for name in ("cc", "gcc", "clang") if shutil.which(name)), ZIG)


class BuildKernel(build_ext):
    """Writes the Cython module, which setuptools compiles, by whatever compiler there is."""

    def build_extension(self, extension: Extension) -> None:
        """Compile it; where nothing can, the package works without it, slowly, and says so when it is used."""
        folder = Path(self.build_temp).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        module = folder / "_compiled.pyx"
        module.write_text(Text().module())
        extension.sources = [str(module)]
        if other := other_compiler():
            for place in ("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR"):
                os.environ.setdefault(place, str(folder / "zig"))
            compiling, linking = [*other, "-fPIC", "-fwrapv", "-DNDEBUG"], [*other, "-shared"]
            self.compiler.set_executables(compiler_so=compiling, linker_so=linking)
        super().build_extension(extension)


def kernel() -> list[Extension]:
    """The extension, unless Python's headers, which no package brings, are missing."""
    if not Path(sysconfig.get_path("include"), "Python.h").is_file():
        sys.stderr.write("coresim: Python.h is missing (install python3-dev): the simulator is not compiled, so slow\n")
        return []
    sources = [str(KERNEL / f"{part}.py") for part in PARTS]
    return [Extension("coresim.sim.kernel._compiled", sources, extra_compile_args=FLAGS, optional=True)]


setup(
    cmdclass={"build_ext": BuildKernel},
    ext_modules=kernel(),
    setup_requires=["ziglang"] if kernel() and other_compiler() == ZIG else [],
)
