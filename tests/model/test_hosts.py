"""Several hosts: all accelerators of all hosts take part in every step."""

from __future__ import annotations

import pytest

from coresim import simulate
from coresim.model.build import build
from coresim.model.scenario import read_scenario


def tables(**accelerator: object) -> dict:
    work = {"batch_size": 8, "preprocess": {"mean": "5 ms", "cv": 0.5, "distribution": "gamma"}}
    return {"workload": work, "accelerator": {"step": "20 ms"} | accelerator, "host": {"cores": 4}}


def test_hosts_are_read_and_written_back():
    scenario = read_scenario(tables(hosts=4, count=2))
    assert scenario.accelerator.total == 8
    assert read_scenario(scenario.to_dict()) == scenario


def test_hosts_wait_for_one_another():
    pipeline = build(read_scenario(tables(hosts=4, allreduce="3 ms")), 2, 4, 2)
    assert (pipeline.hosts, pipeline.ranks, pipeline.barrier, pipeline.allreduce) == (4, 1, True, 0.003)
    alone = simulate(tables(), workers=2, cores=4).result
    many = simulate(tables(hosts=16), workers=2, cores=4).result
    # The slowest of sixteen decides how fast all are.
    assert many.gpu_idle > alone.gpu_idle + 0.01
    assert many.throughput_samples_per_s > 10 * alone.throughput_samples_per_s


def test_an_epoch_is_shared_by_all_accelerators():
    document = tables(hosts=2, count=2)
    document["workload"]["samples_per_epoch"] = 3200
    assert read_scenario(document).batches_per_epoch == 100


def test_no_host_is_refused():
    with pytest.raises(Exception, match="hosts"):
        read_scenario(tables(hosts=0))
