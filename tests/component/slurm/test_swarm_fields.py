"""What a document says of images, nodes and logs, seen from inside the replicas on the real cluster."""

from __future__ import annotations

import json
import os
import shutil
import signal
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.conftest import PYTHON, until
from tests.fakes import containers

import remuda

if TYPE_CHECKING:
    from tests.conftest import Home

    from remuda.testing.slurm import SlurmBed

SOURCES = str(Path(remuda.__file__).parents[1])
BACKEND = {
    "type": "slurm", "partition": "gpu-a100", "account": "inference", "qos": "normal", "time_limit": "02:00:00",
    "endpoint": {"cpus_per_task": 1, "mem": "200MB", "wall_time": "01:00:00"},
}  # fmt: skip

#: An engine that stands still for a moment is not to be begun again: nobody is ill here.
PATIENT = {"http_timeout": 60, "unhealthy_restart_after": 120}


def document(site: Home, backend: dict[str, Any] | None = None, **changes: Any) -> str:
    values = {
        "backend": {**BACKEND, **(backend or {})}, "gpus_per_replica": 1, "cpus_per_task": 1, "watchdog": PATIENT,
        **changes,
    }  # fmt: skip
    return str(site.swarm(**values))


def stand_in(site: Home, program: str) -> list[str]:
    """Put a stand-in into the nodes' PATH; the lines of a preamble that make them see it."""
    folder, real = site.root / "bin", shutil.which("srun")
    folder.mkdir(exist_ok=True)
    path = folder / program
    path.write_text(f'#!/bin/sh\nexec {PYTHON} -I {containers.__file__} {program} "$@"\n')
    path.chmod(0o755)
    return [f'export PATH={folder}:"$PATH" ASKED={site.root}/asked REAL_SRUN={real}']


def asked(site: Home) -> dict[str, Any]:
    (line,) = (site.root / "asked").read_text().splitlines()
    found: dict[str, Any] = json.loads(line)
    return found


def engine(site: Home) -> list[str]:
    """The engine as it would be in an image, where remuda is not installed; it notes what it sees."""
    code = (
        f"import sys, os; sys.path[:0] = {[SOURCES]!r}\n"
        f"open({str(site.root / 'seen')!r}, 'w').write(os.environ.get('HF_TOKEN', '') + os.environ.get('MODE', ''))\n"
        "from tests.fakes.engine import main; main()"
    )
    return [PYTHON, "-c", code, "--host", "{host}", "--port", "{port}", "--model", "herd-1"]


def test_an_image_of_singularity(site: Home, slurm: SlurmBed) -> None:
    """By what stands in for it: the real one needs a kernel that lets it."""
    image, key = site.root / "engine.sif", site.root / "key"
    image.touch()
    key.write_text("hf-secret\n")
    backend = {"preamble": stand_in(site, "apptainer")}
    site.run("up", "-c", document(
        site, backend, replicas=1, image=str(image), command=engine(site), env={"MODE": "quiet"},
        secret_env={"HF_TOKEN": {"file": str(key)}},
    ))  # fmt: skip
    was = asked(site)
    assert (was["flags"], was["image"]) == (["--nv"], str(image))
    assert was["binds"] == [str(site.root), str(site.paths.workload("herd"))]
    assert "hf-secret" not in json.dumps(was)
    assert (site.root / "seen").read_text() == "hf-secretquiet"
    site.run("down", "herd")


def test_an_image_of_pyxis(site: Home, slurm: SlurmBed) -> None:
    """The server is a step of the job, started by the real srun; it ends with the swarm."""
    backend = {"preamble": stand_in(site, "srun")}
    image = "docker://nvcr.io/nvidia/engine:1"
    site.run("up", "-c", document(site, backend, replicas=1, image=image, command=engine(site), env={"MODE": "loud"}))
    was = asked(site)
    root = site.root
    assert was["pyxis"] == [
        "--container-image=nvcr.io#nvidia/engine:1",
        f"--container-mounts={root}:{root},{site.paths.workload('herd')}:{site.paths.workload('herd')}",
        f"--container-workdir={root}",
    ]
    assert (root / "seen").read_text() == "loud"
    assert site.task("herd", "replica/0")["phase"] == "ready"
    site.run("down", "herd")
    assert slurm.run("squeue", "-h", "-o", "%j").stdout == ""


def test_a_step_that_a_killed_srun_has_left_is_ended_before_the_next(site: Home, slurm: SlurmBed) -> None:
    """By the real `srun`, which takes the options of Pyxis because the bed has a plugin that knows them."""
    image = "docker://nvcr.io/nvidia/engine:1"
    watchdog = {"restart_backoff_initial": 0.1}
    site.run(
        "up", "-c", document(site, replicas=1, image=image, command=engine(site), watchdog={**PATIENT, **watchdog})
    )
    token = f"herd.replica.0.1.{site.view('herd')['uid']}"

    def steps() -> list[str]:
        said = slurm.run("squeue", "-h", "-s", "-o", "%i %j").stdout.splitlines()
        return [line.split()[0] for line in said if line.split()[1] == token]

    (first,) = steps()
    for pid in [int(path.parent.name) for path in Path("/proc").glob("[0-9]*/cmdline") if _is_srun(path, token)]:
        with suppress(ProcessLookupError):  # one of two ends with the other
            os.kill(pid, signal.SIGKILL)
    until(lambda: site.task("herd", "replica/0")["restarts"] == 1, "it is started again in its place")
    until(lambda: site.task("herd", "replica/0")["phase"] == "ready", "it is ready again")
    (second,) = steps()
    assert second != first
    assert f"ends what an earlier start has left: {first}\n" in site.run("logs", "herd", "--replica", "0").stdout
    site.run("down", "herd")
    assert slurm.run("squeue", "-h", "-o", "%j").stdout == ""


def _is_srun(path: Path, name: str) -> bool:
    try:
        words = path.read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return False
    return words[0] == "srun" and f"--job-name={name}" in words


def wait_said(path: Path, text: str) -> None:
    until(lambda: path.exists() and text in path.read_text(), f"{path} says {text}")


def test_nodes_packing_logs_and_the_environment(site: Home, slurm: SlurmBed) -> None:
    logs = site.root / "logs"
    backend = {
        "partition": "spot", "node_list": "l40s-[1-2],cpu-1", "exclude_nodes": "cpu-1", "log_directory": str(logs),
        "venv_path": str(Path(PYTHON).parents[1]), "mail_user": "me@there",
    }  # fmt: skip
    command = [PYTHON, "-c", "import os; print('venv', os.environ['VIRTUAL_ENV'], flush=True)\n" + _ENGINE]
    command += ["--host", "{host}", "--port", "{port}", "--model", "herd-1"]
    file = document(site, backend, gpus_per_node=2, replicas_per_node=1, command=command)
    done = site.run("up", "-c", file)
    assert "holds 2 GPUs, so that no node has more than 1 replicas" in done.stderr
    assert "not used" not in done.stderr
    nodes = [site.task("herd", f"replica/{index}")["node"] for index in (0, 1)]
    assert sorted(nodes) == ["l40s-1", "l40s-2"]
    for index in (0, 1):
        wait_said(logs / "herd" / f"replica-{index}.1.log", f"venv {Path(PYTHON).parents[1]}\n")
    told = slurm.run("scontrol", "show", "job", "-o").stdout
    assert "MailUser=me@there" in told
    site.run("down", "herd")


_ENGINE = "from tests.fakes.engine import main; main()"


def test_a_replica_that_needs_more_memory_than_its_job_was_given(site: Home, slurm: SlurmBed) -> None:
    """As an engine that loads weights: it answers only after Slurm has looked how much memory it takes."""
    code = (
        f"import sys; sys.path[:0] = {[SOURCES]!r}\n"
        "weights = b'w' * (300 << 20)\n"
        "from tests.fakes.engine import main; main()"
    )
    backend = {"partition": "cpu"}
    command = [PYTHON, "-c", code, "--host", "{host}", "--port", "{port}", "--model", "herd-1"]
    command += ["--control", str(site.root / "herd.control")]
    site.behave("500")
    file = document(site, backend, gpus_per_replica=0, replicas=1, command=command)
    done = site.run("up", "-c", file, check=False)
    assert done.returncode != 0
    task = site.task("herd", "replica/0")
    assert (task["phase"], task["attempt"]) == ("failed", 1), task
    assert task["reason"].startswith("used more memory than it had asked for")
    assert task["reason"].endswith("; raise `backend.mem`")
    assert "raise `backend.mem`" in done.stderr

    site.behave("ok")
    site.run("up", "-c", file, "--set", "backend.mem=600MB")
    task = site.task("herd", "replica/0")
    assert task["phase"] == "ready"
    assert slurm.run("squeue", "-h", "-j", task["native"], "-o", "%m").stdout == "600M\n"
    site.run("down", "herd")
