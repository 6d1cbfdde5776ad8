"""All that reads, and cli: of ten thousand inputs that no one would write each is taken or refused in a line."""

from __future__ import annotations

import argparse
import copy
import io
import json
import os
import random
import tomllib
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any

import pytest
from by_hand import profile, with_steps
from made_up import at, ledger
from shared import SCENARIO

from coresim.advise.memory import memory_of
from coresim.advise.starved import uncertainty
from coresim.cli.main import LONGEST, build_parser, main, one_line
from coresim.errors import CoresimError, InputError
from coresim.files import read_json
from coresim.fleet.description import load_fleet
from coresim.machines.machines import read_machines
from coresim.model.build import build, resolve_setting
from coresim.model.load import scenario_of
from coresim.model.profile import Profile, load_document
from coresim.model.scenario import Scenario, read_scenario
from coresim.report.results import COLUMNS, read_results
from coresim.theory.bounds import bounds
from coresim.validate.grid import load_grid
from coresim.validate.ledger import load_ledger

#: Everything runs in this process and is seeded. ``CORESIM_FUZZ=200000`` tries so many instead.
COUNT = int(os.environ.get("CORESIM_FUZZ", "2000"))
SEED = 20
#: One in so many scenarios that were taken is simulated.
SIMULATED = 100

FLEET = """
machines = ["aws:p4d.24xlarge"]
options = [2]
cpu_speed = { a = 1.0, b = 2.0 }
[[workload]]
path = "scenario.toml"
gpu_hours = 10.0
gpu = "a100"
model = "resnet50"
set = ["target.gpu_idle=0.1"]
steps = { h100 = "50 ms" }
[[site]]
name = "here"
gpus = [1, 4]
cores_per_gpu = 8.0
price_per_core_h = 0.05
"""
GRID = """
[[block]]
workload = "tiny"
batch_size = [8, 16]
option = 2
workers = [1, 2]
cores = [2]
ratio = [0.5, 1.5]
repeats = 2
"""
MACHINES = (
    "id,gpu,gpu_count,physical_cores,memory_gib,price_usd_per_h,price_date\nown:a,a100,8,96,1024,10.5,2026-01-01\n"
)
ROWS = (
    f"{','.join(COLUMNS)}\n"
    "0123,vision,own:a,2,a100,8,3,12.0,5,2,0.01,0.0,0.03,2500.5,simulated,0.9,True,10.5,1.2,5.0,52.5,72.0,0.0,a note\n"
    "4567,vision,own:b,2,a100,1,,2.0,1,2,0.6,0.5,0.7,100.5,simulated,0.9,False,,,,,0.0,0.6,\n"
)

#: What a value is replaced by.
NASTY: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 3, 0.5, -0.0, 1e-320, 1e-100, 1e-30, 1e-12, 1e9, 1e17, 1e18, 1e19, 1e308, 10**12,
    10**13, 10**18, 10**400, float("inf"), float("nan"), "", " ", "0 s", "1e-13 s", "1e9 s", "1e999 s", "nan ms",
    "-1 ms", "5", "5 lightyears", "x" * 5000, "\0", "\ud800", "\x1b[31m", "\n", "${x}", "<b>", "../..", "5 ms",
    "pytorch", "tf.data",
    [], {}, [[]], [1.0], [0], ["5 ms"], {"mean": "5 ms"}, {"values": []}, {"values": [1e9], "unit": "h"},
    [1e6] * 50, {"mean": "1 ms", "cv": 1000.0, "distribution": "gamma"}, {"mean": "1 s", "uncertainty": 10.0},
    {"x": {"y": {}}},
)  # fmt: skip
LETTERS = "\0\n\t \"'\\[]{}=,:.#-+eE0123456789naifxµ\ud800\uffff"


def toml(document: dict[str, Any]) -> str:
    """A document as TOML, or as near to it as its values allow."""
    lines = []
    for name, table in document.items():
        tables = table if isinstance(table, list) and table and isinstance(table[0], dict) else [table]
        for one in tables:
            if not isinstance(one, dict) or (one is table and name in ("steps", "cpu_speed")):
                lines.insert(0, f"{name} = {inline(one)}")
                continue
            lines.append(f"[[{name}]]" if tables is table else f"[{name}]")
            lines += [f"{key} = {inline(value)}" for key, value in one.items()]
    return "\n".join(lines)


def inline(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {inline(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(inline, value)) + "]"
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 10**30:
        return hex(value)
    return json.dumps(value).replace("NaN", "nan").replace("Infinity", "inf")


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container with a key in it."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from places(value[key])


def changed(document: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """A copy with a few values replaced, keys renamed, or entries left out or doubled."""
    document = json.loads(json.dumps(document))
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        found = list(places(document))
        if not found:
            break
        holder, key = rng.choice(found)
        what = rng.random()
        if what < 0.7:
            holder[key] = copy.deepcopy(rng.choice(NASTY))
        elif what < 0.8:
            del holder[key]
        elif isinstance(holder, dict):
            holder[rng.choice(("", "x", str(key)[:-1], f"{key}.y", "µ" * 300))] = holder.pop(key)
        else:
            holder.extend(copy.deepcopy(holder[key]) for _ in range(rng.choice((1, 100))))
    return document


def garbled(text: str, rng: random.Random) -> bytes:
    """The text with a few letters changed, a piece cut out, doubled or moved, or its end cut off."""
    for _ in range(rng.choice((1, 1, 2, 8))):
        start, end = sorted((rng.randrange(len(text) + 1), rng.randrange(len(text) + 1)))
        piece = rng.choice(("", rng.choice(LETTERS), rng.choice(LETTERS) * 5000, text[start:end] * 2))
        end = rng.choice((start, start + 1, end))
        text = rng.choice((text[:start] + piece + text[end:], text[:start]))
    return text.encode(errors="surrogatepass")


def table_changed(text: str, rng: random.Random) -> bytes:
    """A CSV text with one of its cells replaced."""
    lines = [line.split(",") for line in text.splitlines()]
    cells = rng.choice(lines[1:] or lines)
    cells[rng.randrange(len(cells))] = str(rng.choice((*NASTY[:22], "9" * 5000, "1e400", '"', "x" * 140_000)))
    return "\n".join(",".join(line) for line in lines).encode(errors="surrogatepass")


def use(scenario: Scenario) -> None:
    """What every answer does with a scenario before it simulates it."""
    assert read_scenario(scenario.to_dict()) == scenario
    for option in (1, 2, 3):
        with suppress(InputError):  # the scenario does not say how many workers, or asks for what no option has
            setting = resolve_setting(scenario, option, None, None, None)
            pipeline = build(scenario, option, setting.cores, min(setting.workers, 64), setting.prefetch_factor)
            for bound in bounds(pipeline):
                assert bound.limit_batches_per_s > 0
            assert uncertainty(pipeline) >= 0
            memory_of(scenario, setting.workers, setting.prefetch_factor)


def read_any(path: Path) -> Scenario:
    found = load_document(path)
    if isinstance(found, Profile):
        assert found.host.warnings is not None and found.host.usable_cores >= 0
        assert Profile.from_dict(found.to_dict()) == found
    scenario = scenario_of(found, str(path))
    use(scenario)
    return scenario


Case = tuple[str, str, Callable[[random.Random], bytes], Callable[[Path], Any]]


def cases(folder: Path) -> list[Case]:
    """File name, how it is garbled, and who reads it."""
    scenario, fleet, grid = (tomllib.loads(text) for text in (SCENARIO, FLEET, GRID))
    (folder / "scenario.toml").write_text(SCENARIO)
    documents = {
        "given.json": profile().to_dict(), "timed.json": with_steps().to_dict(), "scenario.json": scenario,
        "ledger.json": ledger([at(2, 2, 0.1, 0.1, 0.12)]).to_dict(),
    }  # fmt: skip
    readers: dict[str, Callable[[Path], Any]] = {"ledger.json": load_ledger}
    found: list[Case] = []
    for name, document in documents.items():
        text, read = json.dumps(document), readers.get(name, read_any)
        found.append((name, "values", lambda rng, d=document: json.dumps(changed(d, rng)).encode(), read))  # type: ignore[misc]
        found.append((name, "text", lambda rng, t=text: garbled(t, rng), read))  # type: ignore[misc]
    for name, document, text, read in (
        ("job.toml", scenario, SCENARIO, read_any),
        ("other.toml", fleet, FLEET, load_fleet),
        ("grid.toml", grid, GRID, load_grid),
    ):
        found.append((name, "values", lambda rng, d=document: toml(changed(d, rng)).encode(errors="replace"), read))  # type: ignore[misc]
        found.append((name, "text", lambda rng, t=text: garbled(t, rng), read))  # type: ignore[misc]
    for name, text, read in (("machines.csv", MACHINES, read_machines), ("rows.csv", ROWS, read_results)):
        found.append((name, "values", lambda rng, t=text: table_changed(t, rng), read))  # type: ignore[misc]
        found.append((name, "text", lambda rng, t=text: garbled(t, rng), read))  # type: ignore[misc]
    return found


def told(error: CoresimError, *places: str) -> None:
    """The message names the place, says more than that, and is not too long."""
    line = one_line(error)
    assert len(line) <= LONGEST + 10, line
    assert any(place in line for place in places) and len(line) > max(map(len, places)) + 5, (places, line)


def test_every_reader_takes_or_refuses_anything(tmp_path: Path) -> None:
    rng, made, taken, bad = random.Random(SEED), cases(tmp_path), 0, []
    for number in range(COUNT * 7 // 10):
        name, how, make, read = made[number % len(made)]
        content = make(rng)
        path = tmp_path / name
        path.unlink(missing_ok=True)  # a file system may write one that is overwritten to its disk at once
        path.write_bytes(content)
        try:
            found = read(path)
        except CoresimError as error:
            told(error, name)
        except Exception as error:
            bad.append((number, name, how, type(error).__name__, str(error)[:200], content[:300]))
        else:
            taken += 1
            if isinstance(found, Scenario) and taken % SIMULATED == 0:
                simulated(path)
    assert not bad, f"{len(bad)} of them: {bad[:5]}"
    assert taken > COUNT // 20  # what is only refused tries little


def simulated(path: Path) -> None:
    with redirect_stderr(io.StringIO()) as err, redirect_stdout(io.StringIO()):
        code = main(["simulate", str(path), "--steps", "10", "--replications", "1", "--workers", "2", "--cores", "4"])
    assert code in (0, 2) and "Traceback" not in err.getvalue(), path.read_text()


def test_any_setting_is_taken_or_refused() -> None:
    rng, tables = random.Random(SEED), tomllib.loads(SCENARIO)
    keys = [
        f"{name}.{key}{entry}" for name, table in tables.items() for key in table for entry in ("", ".mean", ".x.y.z")
    ]
    for _ in range(COUNT // 10):
        value = rng.choice((inline(rng.choice(NASTY)), "".join(rng.choices(LETTERS, k=rng.randrange(12)))))
        key = rng.choice(keys)
        try:
            use(scenario_of(tables, "a scenario", [f"{key}={value}"]))
        except CoresimError as error:
            told(error, "--set", key.partition(".")[0])


def verbs(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    return next(dict(action.choices) for action in parser._actions if isinstance(action, argparse._SubParsersAction))


def test_any_flag_is_taken_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    rng, parser = random.Random(SEED), build_parser()
    words = ("", "0", "-1", "1", "9" * 16, "nan", "inf", "-inf", "1e400", "1e-400", "9" * 5000, "0x10",
             "1_000", "١", "5%", "1e999%", "5 ms", "\udcff", "\n", "x" * 5000, "--", "1,2,9", "a=b", "²")  # fmt: skip
    flags = {name: [a.option_strings[0] for a in verb._actions if a.option_strings and a.nargs != 0]
             for name, verb in verbs(parser).items()}  # fmt: skip
    for _ in range(COUNT // 5):
        verb = rng.choice(list(flags))
        chosen = [
            word for flag in rng.sample(flags[verb], min(2, len(flags[verb]))) for word in (flag, rng.choice(words))
        ]
        err = io.StringIO()
        with redirect_stderr(err), redirect_stdout(io.StringIO()), suppress(SystemExit):
            found = parser.parse_args([verb, *chosen, *(["x"] * rng.randrange(2))])
            for name, value in vars(found).items():
                assert not isinstance(value, float) or (value == value and abs(value) < 1e19), (verb, name, value)
                assert not isinstance(value, int) or abs(value) <= 10**12, (verb, name, value)
        lines = err.getvalue().splitlines()
        assert len(lines) <= 1 and all(len(line) < LONGEST + 200 for line in lines), lines


def test_the_inputs_are_the_same_every_time(tmp_path: Path) -> None:
    made = cases(tmp_path)
    (tmp_path / "rows.csv").write_text(ROWS)
    assert len(read_results(tmp_path / "rows.csv")) == 2
    (tmp_path / "rows.csv").write_text((tmp_path / "rows.csv").read_text().replace(",provenance,", ",basis,", 1))
    assert len(read_results(tmp_path / "rows.csv")) == 2  # as an earlier coresim called that column
    once, again = ([case[2](random.Random(7)) for case in made] for _ in range(2))
    assert once == again and len(set(once)) > len(once) // 2
    assert read_json(tmp_path / "x.json", json.dumps({"a": 1})) == {"a": 1}
