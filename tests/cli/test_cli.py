"""The command line as a user meets it: JSON, streams, exit codes, errors of one line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import psutil
import pytest
from kit import until
from shared import SCENARIO, check

from coresim.cli.main import main
from coresim.errors import MissingPartError
from coresim.measure.campaign import PARTS
from coresim.measure.server import BUILDING
from coresim.workloads.packages import load_package


@pytest.fixture
def scenario(tmp_path):
    path = tmp_path / "scenario.toml"
    path.write_text(SCENARIO)
    return str(path)


def call(capsys, *argv):
    """Exit code, stdout, stderr of a command run in this process."""
    try:
        code = main([str(word) for word in argv])
    except SystemExit as exit_:
        code = exit_.code
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def run(*argv, **options):
    return subprocess.run(
        [sys.executable, "-m", "coresim", *argv], capture_output=True, text=True, timeout=200, check=False, **options
    )


def test_recommend_prints_one_json_object_that_fits_its_schema(capsys, scenario):
    code, out, _ = call(capsys, "recommend", scenario, "--json", "--max-cores", 18)
    assert code == 0
    answer = json.loads(out)
    check(json.loads(call(capsys, "schema", "recommend")[1]), answer)
    chosen = answer["recommendation"]
    assert chosen["gpu_idle_low"] <= chosen["gpu_idle"] <= chosen["gpu_idle_high"]
    assert chosen["gpu_idle"] <= 0.05
    for option in answer["options"]:
        cores = [point["cores"] for point in option["curve"]]
        assert cores == sorted(set(cores)) and cores[:16] == list(range(1, 17))[: len(cores)]
        within = [point["cores"] for point in option["curve"] if point["gpu_idle"] <= 0.05]
        assert option["cores_per_gpu"] == (within[0] if within else None)
    fewest = min(option["cores_per_gpu"] for option in answer["options"] if option["cores_per_gpu"])
    assert chosen["cores_per_gpu"] == fewest
    assert answer["lower_bound_cores"] <= fewest


def test_simulate_says_nothing_of_workers_where_the_stages_are_listed(capsys, tmp_path):
    path = tmp_path / "staged.toml"
    path.write_text(
        '[workload]\nbatch_size = 10\n[accelerator]\nstep = "2 ms"\n'
        '[[stage]]\nname = "decode"\nservice = "1 ms"\nservers = 2\n'
    )
    out = call(capsys, "simulate", path, "--cores", 4, "--steps", 50)[1]
    assert out.startswith("Simulated: listed stages 1, cores 4.0, engine fast\n")


@pytest.mark.parametrize("engine", ["fast", "reference"])
def test_simulate_prints_one_json_object_that_fits_its_schema(capsys, scenario, engine):
    arguments = ("--option", 2, "--workers", 8, "--cores", 9, "--steps", 60, "--seed", 1, "--json", "--engine", engine)
    code, out, _ = call(capsys, "simulate", scenario, *arguments)
    assert code == 0
    answer = json.loads(out)
    check(json.loads(call(capsys, "schema", "simulate")[1]), answer)
    assert answer["accelerator_utilisation"] == pytest.approx(1 - answer["gpu_idle"])


def test_both_engines_give_the_same_answer(capsys, scenario):
    answers = []
    for engine in ("fast", "reference"):
        arguments = ("--workers", 3, "--cores", 2, "--steps", 40, "--replications", 2, "--json", "--engine", engine)
        answers.append(json.loads(call(capsys, "simulate", scenario, *arguments)[1]))
    for name in ("gpu_idle", "gpu_idle_low", "throughput_samples_per_s", "makespan_s", "busy_cores"):
        assert answers[0][name] == pytest.approx(answers[1][name], rel=1e-9)


def test_a_seed_gives_the_same_answer_again_and_another_another(capsys, scenario):
    def answer(seed):
        out = call(capsys, "simulate", scenario, "--steps", 50, "--seed", seed, "--json")[1]
        return json.loads(out)["gpu_idle"]

    assert answer(1) == answer(1) != answer(2)


def test_set_overrides_a_key(capsys, scenario):
    def rate(*settings):
        flags = [word for setting in settings for word in ("--set", setting)]
        return json.loads(call(capsys, "simulate", scenario, "--json", *flags)[1])["throughput_samples_per_s"]

    assert rate("workload.preprocess=0.1 ms", "fetch=0 s") > 2000 > rate()
    assert rate("accelerator.step=1 s") == pytest.approx(256 / 1.0035, rel=1e-3)


def test_the_schema_of_a_scenario_lists_every_key_of_the_example(capsys):
    schema = json.loads(call(capsys, "schema", "scenario")[1])
    import tomllib

    for section, table in tomllib.loads(SCENARIO).items():
        assert set(table) <= set(schema["properties"][section]["properties"])


def test_no_core_count_is_exit_4_and_says_what_would_help(capsys, scenario):
    slow = ("--set", "workload.consumer=80 ms", "--options", "2", "--max-cores", 18)
    code, out, _ = call(capsys, "recommend", scenario, *slow)
    assert code == 4
    assert out.startswith("No core count")
    assert "More cores will not help: serial consumer" in out


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


def test_trace_is_written_whole_or_not_at_all(capsys, tmp_path, scenario):
    path = tmp_path / "trace.json"
    assert call(capsys, "simulate", scenario, "--trace", path)[0] == 0
    assert json.loads(path.read_text())["traceEvents"]
    assert call(capsys, "simulate", scenario, "--trace", tmp_path / "no" / "trace.json")[0] == 2


def test_the_first_batches_are_drawn(capsys, tmp_path, scenario):
    path = tmp_path / "gantt.svg"
    assert call(capsys, "simulate", scenario, "--gantt", path)[0] == 0
    text = path.read_text()
    assert "<svg" in text
    assert len(text) > 10_000
    code, _, err = call(capsys, "simulate", scenario, "--gantt", tmp_path / "gantt.xyz")
    assert (code, len(err.splitlines())) == (2, 1)


def test_doctor_and_catalogue_answer(capsys):
    code, out, _ = call(capsys, "doctor", "--json")
    assert code == 0
    assert json.loads(out)["usable_cores"] > 0
    code, out, _ = call(capsys, "catalogue", "--json")
    assert code == 0
    assert all(row["source"] and row["certainty"] for row in json.loads(out)["rows"])


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


def test_one_machine_is_one_machine(capsys):
    _, out, _ = call(capsys, "machines", "--name", "p4d.24xlarge", "--provider", "aws")
    assert "\n1 machine. Cores" in out


def test_a_missing_package_is_told_with_what_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(MissingPartError, match=r"h5py is not installed; pip install h5py$"):
        load_package("h5py", "HDF5")
