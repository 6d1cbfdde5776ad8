"""What to ask for: a setting as the words of Slurm, Kubernetes, Docker and the DataLoader."""

from __future__ import annotations

import math

from coresim.advise.fleet import Row
from coresim.advise.memory import memory_of
from coresim.report.settings import pins_memory

#: Room in /dev/shm beyond the batches that are out.
_SHM_ROOM = 1.25


def asked_cores(row: Row) -> int:
    """Whole physical cores per GPU to ask for: those needed, or all that there are where those are fewer."""
    had = max(1, math.floor(row.outcome.cores_had))
    return had if row.outcome.cores_needed is None else min(row.outcome.cores_needed, had)


def asks(row: Row) -> dict[str, str]:
    """The request by system; CPUs of schedulers are hardware threads, so cores times threads per core.

    ``slurm``: lines of a batch script. ``kubernetes``: YAML of a pod's container and volume, requests equal to limits,
    so that the kubelet's static policy gives whole CPUs; MEMORY is for the user to fill in. ``docker``: flags of
    ``docker run``. ``dataloader``: arguments.
    """
    gpus, cpus = row.candidate.gpu_count, asked_cores(row) * (row.candidate.threads_per_core or 1)
    shm = shm_mib(row)
    return {
        "slurm": f"#SBATCH --gpus-per-node={gpus}\n#SBATCH --cpus-per-gpu={cpus}",
        "kubernetes": _kubernetes(gpus, cpus * gpus, shm),
        "docker": f"docker run --gpus {gpus} --cpus={cpus * gpus}" + (f" --shm-size={shm}m" if shm else " --ipc=host"),
        "dataloader": _dataloader(row),
    }


def shm_mib(row: Row) -> int | None:
    """Shared memory of the host's loaders, MiB with a quarter more; None where the batch's size is not known."""
    if row.option == 1:
        return 64
    scenario = row.workload.scenario
    memory = memory_of(scenario, row.outcome.workers, row.outcome.prefetch_factor)
    if memory is None:
        return None
    each = memory.batches / scenario.accelerator.count
    return max(64, math.ceil(_SHM_ROOM * each * row.candidate.gpu_count / 2**20))


def _kubernetes(gpus: int, cpus: int, shm: int | None) -> str:
    amounts = f'{{cpu: "{cpus}", memory: MEMORY, nvidia.com/gpu: "{gpus}"}}'
    limit = f", sizeLimit: {shm}Mi" if shm else ""
    return "\n".join(
        [
            "resources:",
            f"  requests: {amounts}",
            f"  limits: {amounts}",
            "volumeMounts: [{name: shm, mountPath: /dev/shm}]",
            "# in the pod's spec:",
            f"volumes: [{{name: shm, emptyDir: {{medium: Memory{limit}}}}}]",
        ]
    )


def _dataloader(row: Row) -> str:
    if row.option == 1:
        return "DataLoader(..., num_workers=0)"
    scenario, outcome = row.workload.scenario, row.outcome
    return (
        f"DataLoader(..., num_workers={outcome.workers}, prefetch_factor={outcome.prefetch_factor},"
        f" pin_memory={pins_memory(scenario)}, persistent_workers={scenario.loader.persistent_workers})"
    )
