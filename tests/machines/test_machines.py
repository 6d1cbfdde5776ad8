"""The machine catalogue: every shipped row is sound and sourced; filters, sorting and the user's own rows."""

from __future__ import annotations

import json
import math
from dataclasses import fields, replace
from pathlib import Path

import pytest

from coresim.cli.main import main
from coresim.errors import InputError, UnknownKeyError
from coresim.machines.machines import (
    CERTAINTIES,
    Filter,
    Machine,
    channels_of,
    find_machine,
    load_machines,
    parse_machines,
    same_gpu,
    select_machines,
)
from coresim.report.listings import machines_csv

MACHINES = load_machines()
HEAD = "id,gpu,gpu_count,physical_cores"
PAIRS = {"cpu": "cpu", "memory": "memory_gib", "bandwidth": "bandwidth_gb_s_per_socket", "price": "price_usd_per_h"}


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.id)
def test_a_shipped_row_is_sound(machine: Machine) -> None:
    assert machine.kind in ("cloud VM", "bare metal", "server")
    assert machine.source != Machine.source and (machine.price_usd_per_h is None) == (machine.price_source is None)
    for part, fact in PAIRS.items():
        assert (getattr(machine, f"certainty_{part}") == "unknown") == (getattr(machine, fact) is None), part
    assert machine.certainty_cores in CERTAINTIES and machine.certainty_cores not in ("unknown", "given")
    assert machine.threads_per_core in (1, 2, None)
    # No accelerator host has fewer than 1 or more than 128 physical cores for each GPU: a vCPU column read as cores.
    assert 1 <= machine.cores_per_gpu <= 128
    texts = [getattr(machine, item.name) for item in fields(machine)]
    assert all(text == text.strip() and text for text in texts if isinstance(text, str))


def test_the_catalogue_is_large_and_has_no_row_twice() -> None:
    assert len({machine.id for machine in MACHINES}) == len(MACHINES) == 144
    assert {"AWS", "Azure", "GCP", "Lambda", "CoreWeave", "OCI", "NVIDIA"} <= {m.provider for m in MACHINES}


def test_cores_are_half_of_the_vcpus_where_threads_share_cores() -> None:
    # AWS states 96 vCPUs for p4d.24xlarge on 48 cores; Azure's ND96asr_v4 shows 96 cores of one thread.
    aws = find_machine("p4d.24xlarge", MACHINES)
    assert (aws.physical_cores, aws.cores_per_gpu, aws.threads_per_core) == (48, 6, 2)
    azure = find_machine("Standard_ND96asr_v4", MACHINES)
    assert (azure.physical_cores, azure.threads_per_core) == (96, 1)


def test_filters_and_order() -> None:
    found = select_machines(MACHINES, Filter(gpu="h100", gpus=8, priced=True), "price-per-gpu")
    prices = [machine.price_per_gpu_h for machine in found]
    assert len(found) >= 3 and prices == sorted(prices) and all("H100" in m.gpu and m.gpu_count == 8 for m in found)
    assert all(m.price_per_gpu_h <= 4 for m in select_machines(MACHINES, Filter(most_price_per_gpu_h=4)))
    cores = [m.cores_per_gpu for m in select_machines(MACHINES, Filter(least_cores_per_gpu=20), "cores-per-gpu")]
    assert cores == sorted(cores, reverse=True) and min(cores) >= 20
    assert {m.provider for m in select_machines(MACHINES, Filter(provider="aws"))} == {"AWS"}


def test_an_unknown_price_comes_last_and_meets_no_limit() -> None:
    dear = Machine("a", "X1", 1, 8, price_usd_per_h=90.0, price_date="2026-01-01")
    unknown = Machine("b", "X1", 1, 8)
    assert select_machines([unknown, dear], Filter(), "price") == [dear, unknown]
    assert select_machines([unknown, dear], Filter(most_price_per_gpu_h=math.inf)) == [dear]


@pytest.mark.parametrize(
    ("asked", "name", "same"),
    [("a100", "NVIDIA A100 SXM 80GB", True), ("H100", "NVIDIA H100 PCIe", True), ("l4", "NVIDIA L40S", False),
     ("t4", "NVIDIA T4g", False), ("h100", "NVIDIA H200 SXM", False)],
)  # fmt: skip
def test_names_of_one_chip(asked: str, name: str, same: bool) -> None:
    assert same_gpu(asked, name) == same


def test_own_rows_come_back_as_written() -> None:
    own = parse_machines(f"{HEAD},memory_gib\nbox,RTX 4090,2,16,128\nother,L4,1,8,\n", "own.csv")
    assert own[0].cores_per_gpu == 8 and own[0].certainty_cores == "given" and own[1].memory_gib is None
    assert own[1].certainty_memory == own[1].certainty_price == "unknown"
    assert parse_machines(machines_csv(own), "again") == own
    assert parse_machines(machines_csv(MACHINES), "again") == MACHINES


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        (f"{HEAD}\nbox,L4,two,8\n", InputError, ["own.csv: line 2", "gpu_count = 'two'", "whole number"]),
        (f"{HEAD}\nbox,L4,1,0\n", InputError, ["line 2", "physical_cores = 0", "positive"]),
        (f"{HEAD}\nbox,L4,1\n", InputError, ["line 2", "physical_cores: missing"]),
        (f"{HEAD}\nbox,L4,1,8,9\n", InputError, ["line 2", "more values than columns"]),
        (f"{HEAD},price_usd_per_h\nbox,L4,1,8,2.5\n", InputError, ["price_date: missing", "box"]),
        (f"{HEAD},core_per_gpu\n", UnknownKeyError, ["column core_per_gpu", "unknown"]),
        ("id,gpu\nbox,L4\n", InputError, ["column gpu_count: missing"]),
        (f"{HEAD}\nbox,L4,1,8\nbox,L4,1,8\n", InputError, ["'box' is there twice"]),
        (f"{HEAD}\n", InputError, ["holds no machine"]),
        ("", InputError, ["own.csv"]),
        (f"{HEAD},certainty_cores\nbox,L4,1,8,sure\n", InputError, ["certainty_cores = 'sure'", "stated"]),
    ],
)  # fmt: skip
def test_a_bad_file_says_where(text: str, kind: type[Exception], words: list[str]) -> None:
    with pytest.raises(kind) as caught:
        parse_machines(text, "own.csv")
    assert all(word in str(caught.value) for word in words), caught.value


def test_unknown_names_are_answered_with_near_ones() -> None:
    for call in (
        lambda: select_machines(MACHINES, Filter(gpu="h1000")),
        lambda: select_machines(MACHINES, Filter(provider="awss")),
        lambda: find_machine("p4d.24xlrge", MACHINES),
    ):
        with pytest.raises(InputError, match=r"nearest known: .*(H100|AWS|p4d.24xlarge)"):
            call()
    with pytest.raises(InputError, match="no machine meets all"):
        select_machines(MACHINES, Filter(gpu="t4", least_cores_per_gpu=100))
    twins = [replace(MACHINES[0], id="x:one"), replace(MACHINES[0], id="y:one")]
    with pytest.raises(InputError, match="x:one, y:one"):
        find_machine("one", twins)


def test_the_verb(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["machines", "--gpu", "l40s", "--sort", "price"]) == 0
    text = capsys.readouterr().out
    assert text.splitlines()[1].startswith("aws:g6e.xlarge") and "theoretical" in text and "2026-01-19" in text
    path = tmp_path / "own.csv"
    path.write_text(f"{HEAD}\nbox,RTX 4090,2,16\n")
    assert main(["machines", "--file", str(path), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["machines"]
    assert [(row["id"], row["price_usd_per_h"]) for row in rows] == [("box", None)]
    assert main(["machines", "--csv", "--gpu", "t4"]) == 0
    assert {m.gpu for m in parse_machines(capsys.readouterr().out, "out")} == {"NVIDIA T4"}
    assert main(["machines", "--gpu", "nope"]) == 2
    assert capsys.readouterr().err.startswith("coresim: unknown GPU 'nope'")


@pytest.mark.parametrize(
    ("cpu", "expected"),
    [
        ("AMD EPYC 7742 64-Core Processor", 100e9), ("Intel(R) Xeon(R) Platinum 8480+ CPU @ 2.00GHz", 400e9),
        ("Intel(R) Xeon(R) Processor", None), ("AMD EPYC 77421", None), (None, None),
    ],
)  # fmt: skip
def test_channels_of_a_known_processor(cpu: str | None, expected: float | None) -> None:
    known = [
        Machine("a", "g", 1, 64, cpu="EPYC 7742", bandwidth_gb_s_per_socket=50.0),
        Machine("b", "g", 1, 56, cpu="Xeon Platinum 8480+", bandwidth_gb_s_per_socket=200.0),
    ]
    assert channels_of(cpu, 2, known) == expected
    assert channels_of(cpu, None, known) is None
