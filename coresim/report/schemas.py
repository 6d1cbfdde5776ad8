"""JSON schemas of what ``--json`` prints, by verb."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any

from coresim.machines.machines import CERTAINTIES, Machine
from coresim.report.compare import COMPARISON
from coresim.report.document import ESTIMATE, RECOMMENDATION
from coresim.report.fleet import PLAN
from coresim.report.records import Key, Record, constant
from coresim.report.steps import STEPS


def schemas() -> dict[str, dict[str, Any]]:
    """Every schema of an output, by its verb."""
    machine = Record(*(Key(item.name, _kind(item)) for item in fields(Machine)))
    machines = Record(
        constant("format", "coresim-machines"), constant("schema_version", 1), Key("machines", machine, each=True)
    )
    return {
        "recommend": RECOMMENDATION.schema("coresim recommend"),
        "recommend-steps": STEPS.schema("coresim recommend, where the step time is not known"),
        "simulate": ESTIMATE.schema("coresim simulate"),
        "compare": COMPARISON.schema("coresim compare"),
        "machines": machines.schema("coresim machines"),
        "plan": PLAN.schema("coresim plan"),
    }


def _kind(item: Any) -> str | dict[str, Any]:
    if item.name.startswith("certainty_"):
        return {"enum": list(CERTAINTIES)}
    # Annotations are texts in that module: "str", "int | None", ...
    kind = {"str": "text", "int": "whole", "float": "amount"}[item.type.partition(" | ")[0]]
    return kind if item.default is MISSING or item.default is not None else f"{kind}?"
