"""The command line as a user meets it: bad settings, flags and files, stumbles, help, and an interrupt."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import psutil
import pytest
from cli_kit import call, run
from kit import until

from coresim.measure.campaign import PARTS
from coresim.measure.server import BUILDING

BAD = [
    ("workload.batch=1", "batch_size"),
    ("workload.preprocess=-1 ms", "-1 ms"),
    ("workload.preprocess=nan ms", "nan"),
    ("workload.batch_size=0", "0"),
    ("accelerator.step=98", "unit missing"),
    ("accelerator.step=98 lightyears", "lightyears"),
    ("loader.preset=tensorlow", "tensorlow"),
    ("nonsense", "section.key=value"),
    ("host.speed=[]", "speed"),
]


@pytest.mark.parametrize("verb", ["recommend", "simulate"])
@pytest.mark.parametrize(("setting", "said"), BAD)
def test_bad_settings_are_one_line_and_exit_2(capsys, scenario, verb, setting, said):
    code, out, err = call(capsys, verb, scenario, "--set", setting)
    assert (code, out) == (2, "")
    lines = [line for line in err.splitlines() if not line.endswith("...")]
    assert len(lines) == 1
    assert said in lines[0]


@pytest.mark.parametrize(
    "arguments",
    [
        ("--cores", "0"), ("--workers", "-1"), ("--steps", "3"), ("--seed", "x"), ("--option", "4"), ("--seed", "-1"),
        ("--engine", "slow"), ("--option", "3", "--workers", "0"),
    ],
)  # fmt: skip
def test_bad_flags_are_one_line_and_exit_2(capsys, scenario, arguments):
    code, out, err = call(capsys, "simulate", scenario, *arguments)
    assert (code, out, len(err.splitlines())) == (2, "", 1)


def test_bad_files_are_one_line_and_exit_2(capsys, tmp_path, scenario):
    (tmp_path / "broken.toml").write_text("[workload\n")
    (tmp_path / "cut.json").write_text('{"format": "coresim-profile", "schema')
    (tmp_path / "newer.json").write_text('{"format": "coresim-profile", "schema_version": 99}')
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    for name in ("missing.toml", "broken.toml", "cut.json", "newer.json", "binary.toml", "."):
        code, out, err = call(capsys, "recommend", tmp_path / name)
        assert (code, out, len(err.splitlines())) == (2, "", 1), name
    for arguments in (("--idle-target", "2"), ("--gpu", "a100"), ("--options", "4"), ("--max-cores", "0")):
        assert call(capsys, "recommend", scenario, *arguments)[0] == 2


def test_an_unwritable_output_is_told_before_measuring(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("coresim.measure.campaign.run_campaign", lambda *_, **__: pytest.fail("it was measured"))
    code, _, err = call(capsys, "measure", "-o", tmp_path / "no" / "p.json")
    assert code == 2
    assert "no" in err
    assert call(capsys, "recommend", "--save", tmp_path)[0] == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("workload.batch_size=abc", "workload.batch_size = 'abc': a whole number"),
        ("host.speed=abc", "write [1.0]"),
        ("workload.nokey=1", "workload.nokey: unknown key"),
    ],
)
def test_a_bad_setting_is_told_before_measuring(capsys, monkeypatch, setting, told):
    monkeypatch.setattr("coresim.measure.campaign.run_campaign", lambda *_, **__: pytest.fail("it was measured"))
    code, out, err = call(capsys, "recommend", "--set", setting)
    assert (code, out, len(err.splitlines())) == (2, "", 1) and told in err


def test_help_starts_without_the_heavy_packages():
    done = run("--help", env={**os.environ, "PYTHONPROFILEIMPORTTIME": "1"})
    assert done.returncode == 0
    heavy = {"jinja2", "numpy", "torch", "pandas", "matplotlib", "simpy", "PIL", "psutil", "tqdm"}
    loaded = {line.rsplit("|", 1)[-1].strip() for line in done.stderr.splitlines() if "|" in line}
    assert not loaded & heavy
    for verb in ("recommend", "simulate", "measure", "doctor", "catalogue", "schema"):
        assert verb in done.stdout


@pytest.mark.parametrize(("part", "processes"), [(BUILDING, 1), (PARTS["loader"][0], 3)])
def test_an_interrupt_leaves_no_process_no_file_and_no_traceback(short_folder, part, processes):
    """While one process makes the data; while the loader's workers, and all that measures beside them, run."""
    environment = {**os.environ, "TMPDIR": str(short_folder)}
    command = [sys.executable, "-m", "coresim", "recommend"]
    with subprocess.Popen(command, env=environment, stdout=-1, stderr=-1, text=True, start_new_session=True) as process:
        assert any(line.startswith(part) for line in process.stderr)
        family = psutil.Process(process.pid)
        until(lambda: len(family.children(recursive=True)) >= processes)
        children = family.children(recursive=True)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=200)
    assert process.returncode == 130, err
    assert out == ""
    assert "Traceback" not in err
    assert not psutil.wait_procs(children, timeout=120)[1]
    assert list(short_folder.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["recommend", "FILE", "--set", "host.gpus=8"], "host.gpus: unknown key; did you mean 'accelerator.count'?"),
        (["recommend", "FILE", "--set", "gpus=8"], "did you mean 'accelerator.count'?"),
        (["recommend", "FILE", "--gpu", "h100"], "leave one out, or say --set 'accelerator.step=98 ms' with your step"),
        (["recommend", "FILE", "--batch-size", "8"], "leave one out, or say --set workload.batch_size="),
        (["recommend", "FILE", "--workload", "tiny"], "is given; leave one out\n"),
        (
            ["recommend", "mydata.py"],
            "mydata.py: Python code, and a scenario or a profile is needed",
        ),
        (["whatif", "a/mydata.py"], "--dataset a/mydata.py:NAME"),
        (["recommend", "train.py"], "coresim recommend -- python train.py runs it"),
        (["recommend", "python", "train.py"], "a program goes after --: coresim recommend -- python train.py; see"),
        (["recommend", "--datset", "a:b"], "--datset; did you mean --dataset; see coresim recommend --help"),
        (["recommend", "--quik"], "did you mean --quick; see"),
        (["whatif", "FILE", "--step-time", "98ms"], "whatif takes it as --set 'accelerator.step=98 ms'; see"),
        (
            ["recommend", "--budget", "-2s"],
            "--budget -2s: a value that begins with - is joined to its flag: --budget=-2s",
        ),
        (["report", "FILE", "-o", "."], "cannot write .: it is a folder; name a file"),
        (["recomend", "FILE"], "did you mean 'recommend'; see coresim --help"),
        (["recommend", "FILE", "--"], "--: no command after it; write it there, such as -- python train.py"),
        (["recommend", "FILE", "-o", "a.json"], "-o (--save): goes with measuring, but"),
        (["recommend", ""], "'': an empty name, and a file is needed; name one"),
        (["simulate", ""], "'': an empty name, and a file is needed; name one"),
        (["recommend", "FOLDER"], "a folder, and a file is needed; name a file in it"),
        (
            ["recommend", "CUT"],
            "not valid JSON at line 1: Unterminated string starting at; undo the last edit",
        ),
    ],
)
def test_a_stumble_is_told_the_way_on(capsys, tmp_path, scenario, words, said):
    (tmp_path / "cut.json").write_text('{"format": "coresim-profile", "schema')
    files = {"FILE": scenario, "CUT": tmp_path / "cut.json", "FOLDER": tmp_path}
    code, out, err = call(capsys, *(files.get(word, word) for word in words))
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert said in err
