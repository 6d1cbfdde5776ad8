"""A setting as a request to Slurm, Kubernetes or Docker, and in the words of the loader's framework."""

from __future__ import annotations

import math
from dataclasses import replace

from coresim.advise.memory import Memory, memory_of
from coresim.fleet.plan import Row
from coresim.model.option import Option
from coresim.report.settings import loader_settings
from coresim.units import format_bytes

#: Room beyond what the loaders are computed to take.
_ROOM = 1.25
#: Of a trainer with its framework and device context, and of a worker that was not measured: judgements.
_TRAINER_BYTES, _WORKER_BYTES = 8e9, 1e9


def scheduler_requests(row: Row) -> dict[str, str]:
    """The request by system; CPUs of schedulers are hardware threads, so cores times threads per core.

    ``slurm``: lines of a batch script. ``kubernetes``: YAML of a pod's container and volume, requests equal to limits,
    so that the kubelet's static policy gives whole CPUs, with a comment on what the memory is for. ``docker``: flags
    of ``docker run``. ``dataloader``: the settings in the words of the job's own framework.
    """
    # Whole physical cores per GPU: those needed, or all that there are where those are fewer.
    had = max(1, math.floor(row.outcome.cores_had))
    cores = had if row.outcome.minimum_cores is None else min(row.outcome.minimum_cores, had)
    gpus, cpus, shm = row.candidate.gpu_count, cores * (row.candidate.threads_per_core or 1), shm_mib(row)
    return {
        "slurm": f"#SBATCH --gpus-per-node={gpus}\n#SBATCH --cpus-per-gpu={cpus}",
        "kubernetes": _kubernetes(row, cpus * gpus, shm),
        "docker": f"docker run --gpus {gpus} --cpus={cpus * gpus}" + (f" --shm-size={shm}m" if shm else " --ipc=host"),
        "dataloader": _dataloader(row),
    }


def _memory(row: Row) -> Memory | None:
    """The memory of the loaders. A stored sample of unknown size counts as large as a prepared one."""
    scenario, outcome = row.workload.scenario, row.outcome
    workload = scenario.workload
    if workload.sample_bytes is None and workload.batch_bytes is not None:
        stored = replace(workload, sample_bytes=workload.batch_bytes / workload.batch_size)
        scenario = replace(scenario, workload=stored)
    return memory_of(scenario, outcome.workers, outcome.prefetch_factor, row.option)


def shm_mib(row: Row) -> int | None:
    """Shared memory of the host's loaders, MiB, with a quarter more; None if the batch's size is not known."""
    if row.option == Option.NO_OVERLAP:
        return 64
    scenario = row.workload.scenario
    memory = _memory(row)
    if memory is None:
        return None
    each = memory.batches / scenario.accelerator.count
    return max(64, math.ceil(_ROOM * each * row.candidate.gpu_count / 2**20))


def memory_gib(row: Row) -> tuple[int, str]:
    """Memory of the host's loaders and trainers, whole GiB, and what it is made of.

    Finished batches in /dev/shm count against a pod's limit too. Parts that were not measured are assumed and named.
    """
    scenario, gpus = row.workload.scenario, row.candidate.gpu_count
    alone, outcome = row.option == Option.NO_OVERLAP, row.outcome
    workers = 0 if alone or scenario.loader.in_process else outcome.workers * gpus
    private = scenario.workload.worker_bytes
    memory = None if alone else _memory(row)
    batches = 0.0 if memory is None else memory.batches / scenario.accelerator.count * gpus
    size = _ROOM * (batches + workers * (private or _WORKER_BYTES)) + gpus * _TRAINER_BYTES
    of = [f"{format_bytes(_TRAINER_BYTES)} (assumed) for each trainer"]
    if workers:
        each = f"{format_bytes(private)}" if private else f"{format_bytes(_WORKER_BYTES)} (assumed)"
        of.append(f"{each} for each of {workers} workers")
    if batches:
        of.append(f"{format_bytes(batches)} of batches")
    elif row.option != Option.NO_OVERLAP:
        of.append("no batches: their size is not known")
    return math.ceil(size / 2**30), ", ".join(of)


def _kubernetes(row: Row, cpus: int, shm: int | None) -> str:
    memory, of = memory_gib(row)
    amounts = f'{{cpu: "{cpus}", memory: {memory}Gi, nvidia.com/gpu: "{row.candidate.gpu_count}"}}'
    limit = f", sizeLimit: {shm}Mi" if shm else ""
    return (
        f"# memory: {of}; a quarter more for all but trainers\n"
        f"resources:\n  requests: {amounts}\n  limits: {amounts}\n"
        "volumeMounts: [{name: shm, mountPath: /dev/shm}]\n"
        "# in the pod's spec:\n"
        f"volumes: [{{name: shm, emptyDir: {{medium: Memory{limit}}}}}]"
    )


def _dataloader(row: Row) -> str:
    scenario, outcome = row.workload.scenario, row.outcome
    scenario = replace(scenario, accelerator=replace(scenario.accelerator, copies=True))  # to the machine's GPU
    words = "num_workers=0"
    if row.option != Option.NO_OVERLAP:
        words = loader_settings(scenario, outcome.workers, outcome.prefetch_factor)
    return f"DataLoader(..., {words})" if words.startswith("num_workers") else words
