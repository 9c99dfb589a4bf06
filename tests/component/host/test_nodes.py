"""Nodes and GPUs of this machine, and the API behind them, where there is no cluster."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from remuda.base.errors import InputError

if TYPE_CHECKING:
    from tests.conftest import Home

HERE = os.uname().nodename
LOCAL = ("--backend", "local")
CUDA = Path(__file__).parents[1] / "node" / "libcuda.c"


@pytest.fixture
def machine(home: Home) -> Home:
    """A machine with two GPUs, as nvidia-smi tells it."""
    folder = home.root / "bin"
    folder.mkdir()
    program = folder / "nvidia-smi"
    names = 'printf "NVIDIA L40S\\nNVIDIA L40S\\n"'
    program.write_text(f'#!/bin/sh\ncase "$*" in *=name*) {names};; *) printf "0\\n1\\n";; esac\n')
    program.chmod(0o755)
    home.env["PATH"] = f"{folder}:{os.environ['PATH']}"
    home.env.pop("CUDA_VISIBLE_DEVICES", None)
    return home


def ask(home: Home, *words: str) -> Any:
    return json.loads(home.run(*words, *LOCAL, "--json").stdout)


def test_gpus_of_this_machine(machine: Home) -> None:
    (view,) = ask(machine, "gpus")
    assert (view["pool"], view["gpu"], view["vram_gb"]) == ("local", "NVIDIA L40S", 48.0)
    assert (view["free"], view["total"], view["availability"]) == (2, 2, "full")
    (node,) = ask(machine, "nodes")
    assert (node["name"], node["gpus"], node["gpus_free"], node["usable"]) == (HERE, 2, 2, True)


def test_a_ban_of_this_machine(machine: Home) -> None:
    machine.run("nodes", "ban", HERE, "--ttl", "1h", "--reason", "noisy", *LOCAL)
    (node,) = ask(machine, "nodes")
    assert node["ban"]["reason"] == "noisy"
    assert ask(machine, "nodes", "unban", HERE) == [HERE]
    assert [line["kind"] for line in ask(machine, "nodes", "history", HERE)] == ["ban", "unban"]


def test_the_test_of_this_machine(machine: Home, tmp_path: Path) -> None:
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(tmp_path / "libcuda.so.1"), str(CUDA)], check=True)
    path = ("--env", f"LD_LIBRARY_PATH={tmp_path}")
    (found,) = ask(machine, "nodes", "test", *path)
    assert (found["node"], found["outcome"], found["gpus"]) == (HERE, "ok", ["Fake 0"])
    done = machine.run("nodes", "test", *path, "--env", "FAKE_CUDA_INIT=802", *LOCAL, check=False)
    assert done.returncode == 1
    assert done.stdout.startswith(f"failed  {HERE}  CUDA failed: cuInit returned 802")
    assert done.stderr == (
        f"1 node: 1 CUDA failed\nheld against {HERE} for 12 hours (remuda nodes history NODE)\n"
    )  # fmt: skip
    (late,) = ask(machine, "nodes", "test", *path, "--env", "FAKE_CUDA_ILL=hang", "--timeout", "1", "--no-record")
    assert late["outcome"] == "timeout"


def test_a_cluster_that_is_not_there(machine: Home) -> None:
    """Slurm's commands are on this machine, and no `slurm.conf`."""
    for name in ("sbatch", "scontrol", "sinfo"):
        program = machine.root / "bin" / name
        program.write_text(f"#!/bin/sh\necho '{name}: fatal: Could not establish a configuration source' >&2; exit 1\n")
        program.chmod(0o755)
    done = machine.run("nodes", "status", "box", check=False)
    assert (done.returncode, done.stderr.splitlines()) == (5, [
        "error: this machine has no Slurm and is not the head of a fleet",
        "  make it one: remuda host start --port 8090; this machine alone: --backend local",
    ])  # fmt: skip


def test_the_api_describes_itself(machine: Home) -> None:
    machine.run("host", "start")
    document: dict[str, Any] = machine.client.get("/openapi.json")
    paths = {path: sorted(verbs) for path, verbs in document["paths"].items() if "gpus" in path or "nodes" in path}
    assert paths == {
        "/api/v1/fleet/nodes/{name}/lost": ["post"],
        "/api/v1/gpus": ["get"],
        "/api/v1/nodes": ["get"],
        "/api/v1/nodes/tests": ["post"],
        "/api/v1/nodes/{name}/ban": ["delete", "post"],
        "/api/v1/nodes/{name}/evidence": ["delete"],
        "/api/v1/nodes/{name}/history": ["get"],
    }
    schemas = document["components"]["schemas"]
    for name in ("GpuView", "NodeView", "BanView", "EvidenceView"):
        assert set(schemas[name]["properties"]) == set(schemas[name]["required"])


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ({"ttl_s": 0}, "ttl: a ban lasts longer than 0 s, not 0 s"),
        ({"ttl_s": -1}, "ttl: a ban lasts longer than 0 s, not -1 s"),
        ({"ttl_s": "soon"}, "ttl_s: Input should be a valid number, unable to parse string as a number"),
    ],
)
def test_a_bad_body(machine: Home, body: dict[str, object], sentence: str) -> None:
    machine.run("host", "start")
    with pytest.raises(InputError) as caught:
        machine.client.post(f"/nodes/{HERE}/ban", body, backend="local")
    assert str(caught.value) == sentence


def test_what_is_left_out_of_a_ban_has_a_default(machine: Home) -> None:
    machine.run("host", "start")
    (ban,) = machine.client.post(f"/nodes/{HERE}/ban", {}, backend="local")
    assert (ban["reason"], ban["until"] - ban["at"]) == ("no reason given", 43200.0)
