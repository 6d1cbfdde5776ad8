"""What several test files use: a scenario as written, a check of documents, a benchmark as module, a sample's parts."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"

#: A scenario file with most keys.
SCENARIO = """
[workload]
batch_size = 256
samples_per_epoch = 1281167
fetch      = { mean = "0.4 ms", distribution = "exponential" }
preprocess = { mean = "5.2 ms", cv = 0.4, distribution = "lognormal" }
collate    = "3 ms"
consumer   = "2 ms"
copy       = "1.5 ms"
[accelerator]
step   = "98 ms"
launch = "5 ms"
sync   = "spin"
count  = 1
[host]
cores = 16
threads_per_core = 2
speed = [1.0, 1.0, 0.97]
[loader]
preset = "pytorch"
dispatch = "round_robin"
ordered = true
workers = 8
prefetch_factor = 2
fetchers = 16
buffer = 2
[target]
gpu_idle = 0.05
"""


def check(schema: dict[str, Any], value: Any, where: str = "$") -> None:
    """Fail unless the value fits; this knows the part of JSON Schema that the schemas of our outputs use."""
    kinds = {
        "object": dict, "array": list, "string": str, "boolean": bool, "integer": int, "number": (int, float),
        "null": type(None),
    }  # fmt: skip
    known = {"$schema", "title", "type", "const", "enum", "minimum", "maximum", "required", "properties", "items"}
    assert set(schema) <= known | {"additionalProperties"}, (where, set(schema) - known)
    if "type" in schema:
        names = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        fitting = [name for name in names if isinstance(value, kinds[name])]
        assert fitting and (not isinstance(value, bool) or "boolean" in fitting), (where, value, names)
    assert "const" not in schema or value == schema["const"], where
    assert "enum" not in schema or value in schema["enum"], (where, value)
    assert value is None or "minimum" not in schema or value >= schema["minimum"], (where, value)
    assert value is None or "maximum" not in schema or value <= schema["maximum"], (where, value)
    if value is None:
        return
    for name in schema.get("required", ()):
        assert name in value, (where, name)
    properties, others = schema.get("properties", {}), schema.get("additionalProperties", True)
    for name in value if isinstance(value, dict) else ():
        inner = properties.get(name, others)
        assert inner is not False, (where, name)
        if isinstance(inner, dict):
            check(inner, value[name], f"{where}.{name}")
    for index, item in enumerate(value if value is not None and "items" in schema else ()):
        check(schema["items"], item, f"{where}[{index}]")


def benchmark(name: str) -> Any:
    """A benchmark as a module; nothing of it is run. What it puts on the path is taken off again."""
    spec = importlib.util.spec_from_file_location(f"benchmark_{name}", BENCHMARKS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    path = list(sys.path)
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path[:] = path
    return module


def arrays_in(value: Any) -> Iterator[np.ndarray]:
    """All arrays and numbers of a sample or batch, in order."""
    if isinstance(value, tuple | list):
        for part in value:
            yield from arrays_in(part)
    else:
        yield np.asarray(value)


def same(one: Any, other: Any) -> bool:
    """Whether two samples or batches hold the same numbers of the same types."""
    pairs = zip(arrays_in(one), arrays_in(other), strict=True)
    return all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in pairs)


#: A job of which it is known what memory it takes.
SIZED_JOB = """
[workload]
batch_size = 10
preprocess = "3 ms"
batch_bytes = 1e6
worker_bytes = 2e6
[accelerator]
step = "20 ms"
"""
