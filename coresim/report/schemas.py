"""JSON schemas of what ``--json`` prints; every key that is listed is always there, null where a fact is not known."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any

from coresim.model.machines import CERTAINTIES, Machine
from coresim.report.results import COLUMNS

SCHEMA_VERSION = 1
_NUMBER = {"type": "number"}
_SHARE = {"type": "number", "minimum": 0, "maximum": 1}
_WHOLE = {"type": "integer", "minimum": 0}
_WHOLE_OR_NULL, _AMOUNT_OR_NULL = (
    {"type": ["integer", "null"], "minimum": 0},
    {"type": ["number", "null"], "minimum": 0},
)
_SETTING = {
    "workers": _WHOLE, "prefetch_factor": _WHOLE, "memory_bytes": _AMOUNT_OR_NULL, "gpu_idle": _SHARE,
    "gpu_idle_low": _SHARE, "gpu_idle_high": _SHARE, "throughput_samples_per_s": _NUMBER,
}  # fmt: skip
_POINT = {"cores": _WHOLE, **_SETTING}


def _object(properties: dict[str, Any], title: str | None = None) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": properties, "required": list(properties)}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, **schema} if title else schema


#: All accelerators of one host together.
_NODE = _object({"gpus": _WHOLE, "cores": _WHOLE, "workers": _WHOLE, "memory_bytes": _AMOUNT_OR_NULL})
#: Of the host's own cores, which may be a fraction for each accelerator.
_OWN = {**_SETTING, "cores": _NUMBER, "option": {"enum": [1, 2, 3]}}
_RECOMMENDED = _object(
    {
        "option": {"enum": [1, 2, 3]}, "cores_per_gpu": _WHOLE, **_SETTING, "node": _NODE,
        "verdict": {"type": "string"}, "next_bottleneck": {"type": "string"},
        "meets_target": {"type": "boolean"}, "probability_within_target": _SHARE,
    }
)  # fmt: skip
_SURE = _object(
    {
        "confidence": _SHARE, "option": {"enum": [1, 2, 3, None]}, "cores_per_gpu": _WHOLE_OR_NULL,
        "workers": _WHOLE_OR_NULL, "prefetch_factor": _WHOLE_OR_NULL, "memory_bytes": _AMOUNT_OR_NULL,
        "probability_within_target": {**_SHARE, "type": ["number", "null"]},
    }
)  # fmt: skip
_PER_RATE = _object({"cores": _NUMBER, "low": _NUMBER, "high": _NUMBER})
STEPS_SCHEMA = _object(
    {
        "schema_version": {"const": SCHEMA_VERSION},
        "step_time_known": {"const": False},
        "cores_per_1000_samples_per_s": _PER_RATE,
        "steps": {
            "type": "array",
            "items": _object({"step_s": _NUMBER, "recommendation": _RECOMMENDED, "sure": _SURE}),
        },
        "target_gpu_idle": _SHARE,
        "metadata": {"type": "object"},
    },
    "coresim recommend, where the step time is not known",
)
RECOMMEND_SCHEMA = _object(
    {
        "schema_version": {"const": SCHEMA_VERSION},
        "step_time_known": {"const": True},
        "recommendation": _RECOMMENDED,
        "sure": _SURE,
        "cores_per_1000_samples_per_s": _PER_RATE,
        "uncertain_inputs": {
            "type": "array",
            "items": _object({"name": {"type": "string"}, "uncertainty": _NUMBER, "share": _SHARE}),
        },
        "own_host": {
            **_object(
                {
                    **_OWN, "verdict": {"type": "string"}, "today": {**_object(_OWN), "type": ["object", "null"]},
                    "throughput_gain": {"type": ["number", "null"]},
                }
            ),
            "type": ["object", "null"],
        },
        "options": {
            "type": "array",
            "items": _object(
                {
                    "option": {"enum": [1, 2, 3]}, "cores_per_gpu": _WHOLE_OR_NULL,
                    "cores_per_gpu_sure": _WHOLE_OR_NULL,
                    "workers_capped": {
                        **_object(
                            {
                                "workers": _WHOLE, "by": {"enum": ["/dev/shm", "memory"]}, "size_bytes": _NUMBER,
                                "workers_wanted": _WHOLE, "needed_bytes": _NUMBER,
                            }
                        ),
                        "type": ["object", "null"],
                    },
                    "curve": {"type": "array", "items": _object(_POINT)},
                }
            ),
        },
        "lower_bound_cores": {"type": ["integer", "null"]},
        "metadata": {"type": "object"},
    },
    "coresim recommend",
)  # fmt: skip
SIMULATE_SCHEMA = _object(
    {
        "schema_version": {"const": SCHEMA_VERSION},
        "gpu_idle": _SHARE, "gpu_idle_low": _SHARE, "gpu_idle_high": _SHARE, "accelerator_utilisation": _SHARE,
        "data_stall_s": _NUMBER, "throughput_samples_per_s": _NUMBER, "makespan_s": _NUMBER,
        "stations": {
            "type": "array",
            "items": _object(
                {"name": {"type": "string"}, "utilisation": _NUMBER, "blocked": _NUMBER, "starved": _NUMBER}
            ),
        },
        "metadata": {"type": "object"},
    },
    "coresim simulate",
)  # fmt: skip


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    return {**schema, "type": [schema["type"], "null"]}


def _list(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


_TEXT, _TRUTH, _TABLE = {"type": "string"}, {"type": "boolean"}, {"type": "object"}
_OPTION = {"enum": [1, 2, 3]}
_AMOUNT = {"type": "number", "minimum": 0}
COMPARE_SCHEMA = _object(
    {
        "format": {"const": "coresim-comparison"}, "schema_version": {"const": SCHEMA_VERSION}, "about": _TABLE,
        "option": _OPTION, "gpu_idle_target": _SHARE, "cores_per_gpu_old": _or_null(_WHOLE),
        "cores_per_gpu_new": _or_null(_WHOLE),
        "changes": _list(
            _object(
                {
                    "name": _TEXT, "unit": _TEXT, "old": _AMOUNT, "new": _AMOUNT, "relative": _NUMBER,
                    "low": _or_null(_NUMBER), "high": _or_null(_NUMBER), "repeats": _TEXT, "more_is_worse": _TRUTH,
                    "real": _TRUTH, "cores_per_gpu": _or_null(_WHOLE),
                }
            )
        ),
        "cautions": _list(_TEXT), "fail_over": _or_null(_AMOUNT), "failed": _list(_TEXT),
        "not_told": _list(_object({"name": _TEXT, "processes_to_tell": _or_null(_WHOLE)})),
    },
    "coresim compare",
)  # fmt: skip


def machines_schema() -> dict[str, Any]:
    """Of ``coresim machines --json``: the fields of a machine as they are."""
    return _object(
        {
            "format": {"const": "coresim-machines"},
            "schema_version": {"const": SCHEMA_VERSION},
            "machines": _list(_object({item.name: _field(item) for item in fields(Machine)})),
        },
        "coresim machines",
    )


def _field(item: Any) -> dict[str, Any]:
    if item.name.startswith("certainty_"):
        return {"enum": list(CERTAINTIES)}
    # Annotations are texts in that module: "str", "int | None", ...
    kinds: dict[str, dict[str, Any]] = {"str": _TEXT, "int": _WHOLE, "float": _AMOUNT}
    kind = kinds[item.type.partition(" | ")[0]]
    return kind if item.default is MISSING or item.default is not None else _or_null(kind)


#: Columns of a plan's table that are not plain amounts; a price or what follows from it may not be known.
_PLANNED = {
    "key": _TEXT, "workload": _TEXT, "machine": _TEXT, "option": _OPTION, "gpu": _or_null(_TEXT), "gpus": _WHOLE,
    "cores_per_gpu_needed": _or_null(_WHOLE), "workers_per_gpu": _WHOLE, "prefetch_factor": _WHOLE,
    "gpu_idle": _SHARE, "gpu_idle_low": _SHARE, "gpu_idle_high": _SHARE, "basis": _TEXT, "confidence": _SHARE,
    "meets_target": _TRUTH, "notes": _TEXT, "price_usd_per_h": _or_null(_AMOUNT),
    "price_usd_per_million_samples": _or_null(_AMOUNT),
    "workload_cost_usd": _or_null(_AMOUNT), "stranded_cores": _or_null(_AMOUNT),
}  # fmt: skip
PLAN_SCHEMA = _object(
    {
        "format": {"const": "coresim-fleet-plan"}, "schema_version": {"const": SCHEMA_VERSION}, "about": _TABLE,
        "best": {
            "type": "object",
            "additionalProperties": {
                **_object(
                    {
                        "machine": _TEXT, "option": _OPTION, "meets_target": _TRUTH, "confidence": _SHARE,
                        "ask_for": _TABLE,
                    }
                ),
                "type": ["object", "null"],
            },
        },
        "mix": _list(
            _object(
                {
                    "machine": _TEXT, "cost_usd": _or_null(_AMOUNT), "gpu_hours": _AMOUNT, "idle_gpu_hours": _AMOUNT,
                    "workloads_beyond_target": _WHOLE,
                }
            )
        ),
        "rows": _list(_object({name: _PLANNED.get(name, _AMOUNT) for name in COLUMNS})),
        "not_predicted": _list(_object({"workload": _TEXT, "machine": _TEXT, "reason": _TEXT})),
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
