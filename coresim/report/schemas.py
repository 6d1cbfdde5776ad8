"""JSON schemas of what ``--json`` prints; every key that is listed is always there, null where a fact is not known."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any

from coresim.model.machines import CERTAINTIES, Machine
from coresim.report.results import COLUMNS

SCHEMA_VERSION = 1
#: What stands for a value's schema below; with "?" behind it the value may be null.
_KINDS: dict[str, dict[str, Any]] = {
    "text": {"type": "string"},
    "truth": {"type": "boolean"},
    "table": {"type": "object"},
    "number": {"type": "number"},
    "amount": {"type": "number", "minimum": 0},
    "share": {"type": "number", "minimum": 0, "maximum": 1},
    "whole": {"type": "integer", "minimum": 0},
    "option": {"enum": [1, 2, 3]},
}


def _kind(said: str | dict[str, Any]) -> dict[str, Any]:
    if isinstance(said, dict):
        return said
    found = _KINDS[said.removesuffix("?")]
    return _or_null(found) if said.endswith("?") else found


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    if "enum" in schema:
        return {"enum": [*schema["enum"], None]}
    return {**schema, "type": [schema["type"], "null"]}


def _object(properties: dict[str, Any], title: str | None = None) -> dict[str, Any]:
    kinds = {name: _kind(said) for name, said in properties.items()}
    schema: dict[str, Any] = {"type": "object", "properties": kinds, "required": list(kinds)}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, **schema} if title else schema


def _list(items: str | dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": _kind(items)}


_VERSION = {"const": SCHEMA_VERSION}
_SETTING = {
    "workers": "whole", "prefetch_factor": "whole", "memory_bytes": "amount?", "gpu_idle": "share",
    "gpu_idle_low": "share", "gpu_idle_high": "share", "throughput_samples_per_s": "number",
}  # fmt: skip
#: Of the host's own cores, which may be a fraction for each accelerator.
_OWN = {**_SETTING, "cores": "number", "option": "option"}
_RECOMMENDED = _object(
    {
        "option": "option", "cores_per_gpu": "whole", **_SETTING,
        # All accelerators of one host together.
        "node": _object({"gpus": "whole", "cores": "whole", "workers": "whole", "memory_bytes": "amount?"}),
        "verdict": "text", "next_bottleneck": "text", "meets_target": "truth", "probability_within_target": "share",
    }
)  # fmt: skip
_SURE = _object(
    {
        "confidence": "share", "option": "option?", "cores_per_gpu": "whole?", "workers": "whole?",
        "prefetch_factor": "whole?", "memory_bytes": "amount?", "probability_within_target": "share?",
    }
)  # fmt: skip
_PER_RATE = _object({"cores": "number", "low": "number", "high": "number"})
STEPS_SCHEMA = _object(
    {
        "schema_version": _VERSION, "step_time_known": {"const": False}, "cores_per_1000_samples_per_s": _PER_RATE,
        "steps": _list(_object({"step_s": "number", "recommendation": _RECOMMENDED, "sure": _SURE})),
        "target_gpu_idle": "share", "metadata": "table",
    },
    "coresim recommend, where the step time is not known",
)  # fmt: skip
_CAPPED = _object(
    {
        "workers": "whole", "by": {"enum": ["/dev/shm", "memory"]}, "size_bytes": "number", "workers_wanted": "whole",
        "needed_bytes": "number",
    }
)  # fmt: skip
_OPTION = _object(
    {
        "option": "option", "cores_per_gpu": "whole?", "cores_per_gpu_sure": "whole?",
        "workers_capped": _or_null(_CAPPED), "curve": _list(_object({"cores": "whole", **_SETTING})),
    }
)  # fmt: skip
_OWN_HOST = _object(
    {**_OWN, "verdict": "text", "today": _or_null(_object(_OWN)), "throughput_gain": {"type": ["number", "null"]}}
)
RECOMMEND_SCHEMA = _object(
    {
        "schema_version": _VERSION, "step_time_known": {"const": True}, "recommendation": _RECOMMENDED, "sure": _SURE,
        "cores_per_1000_samples_per_s": _PER_RATE,
        "uncertain_inputs": _list(_object({"name": "text", "uncertainty": "number", "share": "share"})),
        "own_host": _or_null(_OWN_HOST), "options": _list(_OPTION), "lower_bound_cores": {"type": ["integer", "null"]},
        "metadata": "table",
    },
    "coresim recommend",
)  # fmt: skip
SIMULATE_SCHEMA = _object(
    {
        "schema_version": _VERSION, "gpu_idle": "share", "gpu_idle_low": "share", "gpu_idle_high": "share",
        "accelerator_utilisation": "share", "data_stall_s": "number", "throughput_samples_per_s": "number",
        "makespan_s": "number",
        "stations": _list(_object({"name": "text", "utilisation": "number", "blocked": "number", "starved": "number"})),
        "metadata": "table",
    },
    "coresim simulate",
)  # fmt: skip
_CHANGE = _object(
    {
        "name": "text", "unit": "text", "old": "amount", "new": "amount", "relative": "number", "low": "number?",
        "high": "number?", "repeats": "text", "more_is_worse": "truth", "real": "truth", "cores_per_gpu": "whole?",
    }
)  # fmt: skip
COMPARE_SCHEMA = _object(
    {
        "format": {"const": "coresim-comparison"}, "schema_version": _VERSION, "about": "table", "option": "option",
        "gpu_idle_target": "share", "cores_per_gpu_old": "whole?", "cores_per_gpu_new": "whole?",
        "changes": _list(_CHANGE), "cautions": _list("text"), "fail_over": "amount?", "failed": _list("text"),
        "not_told": _list(_object({"name": "text", "processes_to_tell": "whole?"})),
    },
    "coresim compare",
)  # fmt: skip


def machines_schema() -> dict[str, Any]:
    """Of ``coresim machines --json``: the fields of a machine as they are."""
    machine = _object({item.name: _field(item) for item in fields(Machine)})
    found = {"format": {"const": "coresim-machines"}, "schema_version": _VERSION, "machines": _list(machine)}
    return _object(found, "coresim machines")


def _field(item: Any) -> dict[str, Any]:
    if item.name.startswith("certainty_"):
        return {"enum": list(CERTAINTIES)}
    # Annotations are texts in that module: "str", "int | None", ...
    kind = _KINDS[{"str": "text", "int": "whole", "float": "amount"}[item.type.partition(" | ")[0]]]
    return kind if item.default is MISSING or item.default is not None else _or_null(kind)


#: Columns of a plan's table that are not plain amounts; a price or what follows from it may not be known.
_PLANNED = {
    "key": "text", "workload": "text", "machine": "text", "option": "option", "gpu": "text?", "gpus": "whole",
    "cores_per_gpu_needed": "whole?", "workers_per_gpu": "whole", "prefetch_factor": "whole", "gpu_idle": "share",
    "gpu_idle_low": "share", "gpu_idle_high": "share", "basis": "text", "confidence": "share", "meets_target": "truth",
    "notes": "text", "price_usd_per_h": "amount?", "price_usd_per_million_samples": "amount?",
    "workload_cost_usd": "amount?", "stranded_cores": "amount?",
}  # fmt: skip
_BEST = _object(
    {"machine": "text", "option": "option", "meets_target": "truth", "confidence": "share", "ask_for": "table"}
)
_MIX = _object(
    {
        "machine": "text", "cost_usd": "amount?", "gpu_hours": "amount", "idle_gpu_hours": "amount",
        "workloads_beyond_target": "whole",
    }
)  # fmt: skip
PLAN_SCHEMA = _object(
    {
        "format": {"const": "coresim-fleet-plan"}, "schema_version": _VERSION, "about": "table",
        "best": {"type": "object", "additionalProperties": _or_null(_BEST)}, "mix": _list(_MIX),
        "rows": _list(_object({name: _PLANNED.get(name, "amount") for name in COLUMNS})),
        "not_predicted": _list(_object({"workload": "text", "machine": "text", "reason": "text"})),
    },
    "coresim plan",
)  # fmt: skip


def schemas() -> dict[str, dict[str, Any]]:
    """Every schema of an output, by its verb."""
    return {
        "recommend": RECOMMEND_SCHEMA,
        "recommend-steps": STEPS_SCHEMA,
        "simulate": SIMULATE_SCHEMA,
        "compare": COMPARE_SCHEMA,
        "machines": machines_schema(),
        "plan": PLAN_SCHEMA,
    }
