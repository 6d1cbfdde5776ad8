"""``coresim schema``: the keys of a scenario."""

from __future__ import annotations

import json

from cli_kit import call
from shared import SCENARIO


def test_the_schema_of_a_scenario_lists_every_key_of_the_example(capsys):
    schema = json.loads(call(capsys, "schema", "scenario")[1])
    import tomllib

    for section, table in tomllib.loads(SCENARIO).items():
        assert set(table) <= set(schema["properties"][section]["properties"])
