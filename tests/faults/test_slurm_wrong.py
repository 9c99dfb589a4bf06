"""What is wrong with a swarm's document is one clear sentence within seconds, and nothing of it is left."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.conftest import Home

    from remuda.testing.slurm import SlurmBed

BACKEND = {
    "type": "slurm", "partition": "gpu-a100", "account": "inference", "qos": "normal", "time_limit": "02:00:00",
    "endpoint": {"cpus_per_task": 1, "mem": "200MB", "wall_time": "01:00:00"},
}  # fmt: skip
OF_SLURM = "Slurm refused the job: "


@pytest.fixture
def site(home: Home, slurm: SlurmBed) -> Home:
    home.env |= {**slurm.env(), "REMUDA_SLURM_POLL_S": "0.5"}
    return home


def document(site: Home, backend: dict[str, Any] | None = None, **changes: Any) -> str:
    values = {"backend": {**BACKEND, **(backend or {})}, "gpus_per_replica": 1, "cpus_per_task": 1, **changes}
    return str(site.swarm(**values))


def jobs(slurm: SlurmBed) -> set[str]:
    """All that the controller knows, what others ran and what has ended included."""
    return set(slurm.run("squeue", "-h", "-t", "all", "-o", "%A %j").stdout.splitlines())


def refused(site: Home, slurm: SlurmBed, file: str) -> list[str]:
    """What `up` says, apart from notes; nothing was recorded and nothing reached the cluster."""
    before = jobs(slurm)
    done = site.run("up", "-c", file, check=False)
    assert done.returncode == 2, done.stderr
    assert not site.client.is_up(), "not even a host was needed"
    assert not site.paths.workloads.exists() or not list(site.paths.workloads.iterdir())
    assert jobs(slurm) <= before
    return [line for line in done.stderr.splitlines() if not line.startswith("note: ")]


@pytest.mark.parametrize(
    ("backend", "sentence", "hint"),
    [
        pytest.param(
            {"partition": "gpu-a10"},
            "the partition does not exist, or may not be used (“Invalid partition name specified”)",
            "did you mean 'gpu-a100'?",
            id="partition",
        ),
        pytest.param(
            {"account": "inferense"},
            "the account does not exist, or may not use this partition "
            "(“Invalid account or account/partition combination specified”)",
            "did you mean 'inference'?",
            id="account",
        ),
        pytest.param(
            {"qos": "hi"},
            "the QOS does not exist, or the account may not use it (“Invalid qos specification”)",
            "there are high, limited, normal",
            id="qos",
        ),
        pytest.param(
            {"exclude_nodes": "a100-9"},
            "a node that was named does not exist (“Invalid node name specified”)",
            "",
            id="node",
        ),
    ],
)
def test_what_slurm_would_refuse(
    site: Home, slurm: SlurmBed, backend: dict[str, Any], sentence: str, hint: str
) -> None:
    file = document(site, backend)
    said = refused(site, slurm, file)
    assert said[0].startswith(f"error: {file}:1:"), "where it was said"
    assert said[0].endswith(f": {OF_SLURM}{sentence}")
    assert hint in "".join(said[1:])


def test_a_gpu_count_that_no_node_has(site: Home, slurm: SlurmBed) -> None:
    said = refused(site, slurm, document(site, gpus_per_replica=8, gpus_per_node=8))
    assert "no node of the partition has what was asked for" in said[0]


@pytest.mark.parametrize("what", ["model", "image", "backend.venv_path"])
def test_a_file_that_is_not_there(site: Home, slurm: SlurmBed, what: str) -> None:
    path = f"{site.root}/not-there"
    changes: dict[str, Any] = {"engine": "vllm", "command": None}
    if what == "backend.venv_path":
        said = refused(site, slurm, document(site, {"venv_path": path}, **changes))
        assert said[0].endswith(f": {path!r} is not a virtual environment: there is no '{path}/bin/python'")
        return
    said = refused(site, slurm, document(site, **{**changes, what: path}))
    assert said[0].endswith(f": there is no {what} {path!r}")


def test_an_engine_that_the_environment_has_not(site: Home, slurm: SlurmBed) -> None:
    venv = Path(sys.executable).parents[1]
    said = refused(site, slurm, document(site, {"venv_path": str(venv)}, engine="vllm", command=None))
    assert said[0].endswith(f": {venv}/bin/python has no vllm, so it cannot start the vllm engine")
    assert said[1].strip().startswith("set `backend.venv_path` to an environment that has it")


def test_nodes_that_leave_no_choice(site: Home, slurm: SlurmBed) -> None:
    said = refused(site, slurm, document(site, {"node_list": "a100-1", "exclude_nodes": "a100-[1-2]"}))
    assert said[0].endswith(": `exclude_nodes` names every node of `node_list`")
    said = refused(site, slurm, document(site, {"node_list": "l40s-[1-2]"}))
    assert said[0].endswith(": no node of `node_list` is in partition 'gpu-a100'")


@pytest.mark.parametrize("what", ["image", "container"])
def test_what_is_missing_on_the_node_only(site: Home, slurm: SlurmBed, what: str) -> None:
    """Nothing is started again: the first replica that looks says it, and nothing of the whole is left."""
    image = site.root / "engine.sif"
    image.touch()
    lines = [f"rm -f {image}"] if what == "image" else ["export PATH=/nowhere"]
    done = site.run("up", "-c", document(site, {"preamble": lines}, image=str(image)), check=False)
    assert done.returncode == 1, done.stderr
    sentence = f"there is no image '{image}' on node a100-" if what == "image" else "neither apptainer nor singularity"
    assert "error: herd is FAILED: " in done.stderr
    assert sentence in done.stderr
    assert slurm.run("squeue", "-h", "-o", "%j").stdout == "", "`up` has waited for the end of the rest"
    assert ("herd", "FAILED") in [(view["name"], view["phase"]) for view in site.client.get("/workloads")]
    replicas = [task for task in site.view("herd")["tasks"] if task["task"].startswith("replica")]
    assert [task["attempt"] for task in replicas] == [1, 1]
