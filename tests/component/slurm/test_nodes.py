"""Nodes, GPUs, bans and smoke tests on the real cluster of the tests, as a user types them."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.conftest import Home, at_once, until

from remuda.specs.recipe import cluster

if TYPE_CHECKING:
    from remuda.testing.slurm import SlurmBed

CUDA = Path(__file__).parents[1] / "node" / "libcuda.c"


@pytest.fixture
def head(home: Home, slurm: SlurmBed) -> Home:
    """A home on the head of the cluster."""
    home.env |= slurm.env()
    return home


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Directory with a driver library that does as it is told."""
    folder = tmp_path_factory.mktemp("cuda")
    folder.chmod(0o755)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(folder / "libcuda.so.1"), str(CUDA)], check=True)
    return str(folder)


def ask(home: Home, *words: str) -> Any:
    done = home.run(*words, "--json")
    assert done.stdout, f"{words} printed nothing; it said {done.stderr!r}; {home.log()}"
    return json.loads(done.stdout)


def smoke(home: Home, *words: str, code: int = 0) -> dict[str, dict[str, Any]]:
    """Results of a smoke test by node."""
    # A GPU that is free is given at once, but by a controller that may stand still for a while.
    patience = () if "--wait" in words else ("--wait", "60")
    done = home.run("nodes", "test", "--json", *words, *patience, check=False, timeout=300)
    assert done.returncode == code, done.stderr + home.log()
    return {item["node"]: item for item in json.loads(done.stdout)}


def outcomes(found: dict[str, dict[str, Any]]) -> dict[str, str]:
    return {name: item["outcome"] for name, item in found.items()}


def smoke_jobs(bed: SlurmBed) -> list[str]:
    """Smoke tests that wait or run."""
    names = bed.run("squeue", "-h", "-o", "%j %t").stdout.splitlines()
    return [line for line in names if line.startswith("remuda-smoke")]


def hold_gpus(bed: SlurmBed, node: str, gpus: int) -> None:
    partition = f"gpu-{node.partition('-')[0]}"
    job = bed.submit("sleep 3600", "-w", node, "-p", partition, f"--gres=gpu:{gpus}", "--mem=100")
    bed.wait_job(job, "RUNNING", limit_s=180)


# What there is


def test_gpus_follow_what_runs_and_what_is_drained(head: Home, slurm: SlurmBed) -> None:
    hold_gpus(slurm, "a100-1", 3)
    slurm.drain("l40s-2", "bad fan")

    def seen() -> dict[str, dict[str, Any]]:
        return {view["pool"]: view for view in ask(head, "gpus") if view["gpu"] in ("a100", "l40s")}

    until(lambda: seen()["gpu-l40s"]["free"] == 2 and seen()["gpu-a100"]["free"] == 5, "the cluster's view is fresh")
    views = {(view["pool"], view["gpu"]): view for view in ask(head, "gpus")}
    a100, l40s = views["gpu-a100", "a100"], views["gpu-l40s", "l40s"]
    assert (a100["max_per_node"], a100["available"], a100["availability"]) == (4, 4, "full")
    assert (a100["nodes_free"], a100["nodes"], a100["free"], a100["total"]) == (2, 2, 5, 8)
    assert (l40s["vram_gb"], l40s["available"], l40s["nodes_free"], l40s["nodes"], l40s["total"]) == (48.0, 2, 1, 2, 4)
    assert {pool for pool, _ in views} == {"gpu-a100", "gpu-l40s", "spot", "spotc", "short"}
    text = head.run("gpus").stdout
    assert re.search(r"^gpu-l40s +l40s +48GB +2 +2 full +1/2 +2/4$", text, re.MULTILINE), text


def test_nodes_with_the_schedulers_reason(head: Home, slurm: SlurmBed) -> None:
    slurm.drain("cpu-2", "bad fan in rack 7")

    def drained() -> dict[str, Any] | None:
        views = {view["name"]: view for view in ask(head, "nodes", "--list")}
        assert set(views) == set(slurm.node_names)
        return views["cpu-2"] if not views["cpu-2"]["usable"] else None

    view = until(drained, "cpu-2 is drained")
    assert view is not None
    assert view["reason"] == "bad fan in rack 7"
    assert "drain" in view["state"]
    assert re.search(r"^cpu-2 .*\n  .*bad fan in rack 7$", head.run("nodes", "list", "-p", "cpu").stdout, re.MULTILINE)


def test_a_partition_that_does_not_exist(head: Home) -> None:
    done = head.run("nodes", "list", "-p", "gpu-a10", check=False)
    assert (done.returncode, done.stderr) == (
        3, "error: there is no partition 'gpu-a10'\n  did you mean 'gpu-a100'?\n"
    )  # fmt: skip


def test_a_controller_that_is_down_is_said(head: Home, slurm: SlurmBed) -> None:
    ask(head, "nodes", "ban", "a100-1")
    slurm.stop("slurmctld")

    def silent() -> bool:
        done = head.run("gpus", check=False)
        return done.returncode == 5 and "Unable to contact slurm controller" in done.stderr

    until(silent, "nobody answers")
    assert head.run("nodes", "unban", "a100-1").returncode == 0


# Bans


def test_a_ban_from_its_beginning_to_its_end(head: Home) -> None:
    done = head.run("nodes", "ban", "a100-[1-2]", "--ttl", "1h", "--reason", "Bad GPU")
    assert re.fullmatch(r"(a100-[12] is banned for (1h|59m [ \d]+s): Bad GPU\n){2}", done.stderr), done.stderr
    head.run("nodes", "ban", "--node", "l40s-1", "--ttl", "3600")
    views = {view["name"]: view for view in ask(head, "nodes")}
    assert {name for name, view in views.items() if view["is_avoided"]} == {"a100-1", "a100-2", "l40s-1"}
    assert views["l40s-1"]["ban"]["reason"] == "no reason given"
    assert ask(head, "nodes", "unban", "--node", "a100-1,l40s-1") == ["a100-1", "l40s-1"]
    assert [view["name"] for view in ask(head, "nodes") if view["ban"]] == ["a100-2"]
    assert [line["kind"] for line in ask(head, "nodes", "history", "a100-1")] == ["ban", "unban"]


def test_a_node_that_does_not_exist(head: Home) -> None:
    done = head.run("nodes", "ban", "a100-3", check=False)
    assert (done.returncode, done.stderr) == (
        3, "error: slurm has no node 'a100-3'\n  did you mean 'a100-2', 'a100-1'? (--force bans it all the same)\n"
    )  # fmt: skip
    head.run("nodes", "ban", "a100-3", "--force")
    assert [view["name"] for view in ask(head, "nodes") if not view["is_known"]] == ["a100-3"]


def test_a_run_keeps_away_from_a_banned_node(head: Home) -> None:
    script = head.root / "where.sh"
    script.write_text("#!/bin/sh\necho $SLURMD_NODENAME\n")
    head.run("nodes", "ban", "l40s-1", "--ttl", "1h")
    words = ("--backend", "slurm", "--partitions", "gpu-l40s", "--gpus", "1", "--no-gpu-check")
    head.run("run", str(script), "--name", "where", *words)
    until(lambda: head.view("where")["phase"] in ("DONE", "FAILED"), "the run ends")
    assert head.view("where")["phase"] == "DONE", head.view("where")["reason"]
    assert head.task("where", "script/0")["node"] == "l40s-2"


# Smoke tests


def test_nodes_without_cuda(head: Home) -> None:
    found = smoke(head)
    assert outcomes(found) == dict.fromkeys(["a100-1", "a100-2", "l40s-1", "l40s-2"], "no-cuda")
    assert found["a100-1"]["pool"] == "gpu-a100"
    text = head.run("nodes", "test", "--all", "-p", "cpu")
    assert re.fullmatch(r"(no-cuda cpu-[12]  no CUDA libs installed \([\d.]+ s\)\n){2}", text.stdout)
    assert text.stderr == "2 nodes: 2 no CUDA libs installed\n"


def test_cuda_that_works_and_cuda_that_fails(head: Home, library: str) -> None:
    path = ("--env", f"LD_LIBRARY_PATH={library}")
    found = smoke(head, "--nodes", "a100-1,l40s-1", *path)
    assert outcomes(found) == {"a100-1": "ok", "l40s-1": "ok"}
    assert found["a100-1"]["gpus"] == ["Fake 0"]
    broken = smoke(head, "--nodes", "a100-2", *path, "--env", "FAKE_CUDA_ILL=214", code=1)["a100-2"]
    assert (broken["outcome"], broken["proved"], broken["device"]) == ("failed", True, "0000:3a:00")
    assert broken["detail"] == "GPU 0 (0000:3A:00.0): cuCtxCreate_v2 returned 214: uncorrectable memory error"
    (line,) = ask(head, "nodes", "history", "a100-2")
    assert (line["kind"], line["weight"], line["counts"], line["device"]) == ("smoke-test", 1.0, True, "0000:3a:00")
    assert [view["name"] for view in ask(head, "nodes") if view["is_avoided"]] == ["a100-2"]
    head.run("nodes", "ban", "a100-2", "--ttl", "1h")
    smoke(head, "--nodes", "a100-2", *path)
    kinds = [line["kind"] for line in ask(head, "nodes", "history", "a100-2")]
    assert kinds == ["smoke-test", "ban", "smoke-test-passed"]
    assert [line["kind"] for line in ask(head, "nodes", "history", "a100-2") if line["counts"]] == ["ban"]


def test_what_is_not_to_be_recorded_is_not(head: Home, library: str) -> None:
    words = ("--nodes", "a100-2", "--env", f"LD_LIBRARY_PATH={library}", "--env", "FAKE_CUDA_INIT=802", "--no-record")
    assert outcomes(smoke(head, *words, code=1)) == {"a100-2": "failed"}
    assert ask(head, "nodes", "history", "a100-2") == []


def test_a_node_without_python_is_not_held_against_it(head: Home) -> None:
    found = smoke(head, "--nodes", "l40s-1", "--python", "/no/such/python", code=1)["l40s-1"]
    assert (found["outcome"], found["meaning"], found["proved"]) == ("failed", "the test did not run", False)
    assert "/no/such/python" in found["detail"]
    assert ask(head, "nodes", "history", "l40s-1") == []


def test_a_driver_that_hangs_is_ended(head: Home, slurm: SlurmBed, library: str) -> None:
    path = ("--env", f"LD_LIBRARY_PATH={library}", "--env", "FAKE_CUDA_INIT=hang")
    found = smoke(head, "--nodes", "l40s-1", *path, "--timeout", "2")["l40s-1"]
    assert (found["outcome"], found["proved"]) == ("timeout", True)
    assert ask(head, "nodes", "history", "l40s-1") == []
    until(lambda: not smoke_jobs(slurm), "no test is left")


def test_a_node_whose_gpus_are_taken_is_busy(head: Home, slurm: SlurmBed) -> None:
    hold_gpus(slurm, "l40s-1", 2)
    until(lambda: next(v for v in ask(head, "nodes") if v["name"] == "l40s-1")["gpus_free"] == 0, "they are taken")
    found = smoke(head, "-p", "gpu-l40s")
    assert outcomes(found) == {"l40s-1": "busy", "l40s-2": "no-cuda"}
    assert found["l40s-1"]["detail"] == "2 of 2 GPUs are taken"


def test_gpus_that_are_taken_in_the_meantime(head: Home, slurm: SlurmBed) -> None:
    ask(head, "nodes")  # what the host knows is some seconds old when the test begins
    hold_gpus(slurm, "l40s-1", 2)
    found = smoke(head, "--nodes", "l40s-1", "--wait", "2")["l40s-1"]
    assert (found["outcome"], found["meaning"]) == ("busy", "node busy (no free GPUs)")
    until(lambda: not smoke_jobs(slurm), "no test is left")


@pytest.mark.parametrize(
    ("words", "detail"),
    [
        (("--qos", "nope"), "Invalid qos specification"),
        (("--account", "nope"), "Invalid account or account/partition combination specified"),
        (("-p", "short", "--timeout", "10m", "--wait", "2"), "its time limit is longer than the partition allows"),
    ],
)
def test_a_qos_or_partition_error(head: Home, words: tuple[str, ...], detail: str) -> None:
    found = smoke(head, "--nodes", "a100-1", *words)["a100-1"]
    assert (found["outcome"], found["meaning"]) == ("refused", "QOS/partition error")
    assert detail in found["detail"]


def test_a_drained_node_is_not_asked(head: Home, slurm: SlurmBed) -> None:
    slurm.drain("l40s-2", "bad fan")
    until(lambda: not next(v for v in ask(head, "nodes") if v["name"] == "l40s-2")["usable"], "it is drained")
    found = smoke(head, "-p", "gpu-l40s", "--nodes", "l40s-2")["l40s-2"]
    assert found["outcome"] == "refused"
    assert found["detail"].endswith(": bad fan")


def test_a_frozen_node_does_not_answer(head: Home, slurm: SlurmBed) -> None:
    ask(head, "nodes")
    slurm.freeze("l40s-2")
    found = smoke(head, "--nodes", "l40s-2", "--timeout", "20", "--wait", "20")["l40s-2"]
    assert found["outcome"] in ("timeout", "refused"), found
    assert not found["proved"]


def test_a_controller_that_goes_away_is_no_fault_of_the_nodes(head: Home, slurm: SlurmBed) -> None:
    ask(head, "nodes")
    slurm.stop("slurmctld")
    done = head.run("nodes", "test", "--json", "--nodes", "a100-1", "--timeout", "10", check=False)
    if done.returncode == 5:  # the host's view was too old already
        assert "Unable to contact slurm controller" in done.stderr
        return
    assert [item["outcome"] for item in json.loads(done.stdout)] == ["timeout"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_is_stopped_leaves_no_job(head: Home, slurm: SlurmBed, library: str, number: int) -> None:
    ask(head, "nodes")
    path = ("--env", f"LD_LIBRARY_PATH={library}", "--env", "FAKE_CUDA_INIT=hang")
    process = head.start("nodes", "test", "--nodes", "a100-[1-2],l40s-1", "--jobs", "2", "--wait", "60", *path)
    until(lambda: sum(line.endswith(" R") for line in smoke_jobs(slurm)) == 2, "two tests run")
    process.send_signal(number)
    _, err = process.communicate(timeout=180)
    assert process.returncode == 130
    assert at_once(err) == "error: stopped: 0 of 3 nodes were tested, and the tests that still ran were ended\n"
    until(lambda: not smoke_jobs(slurm), "no test is left")


def test_a_cluster_file_of_what_is_there(head: Home, tmp_path: Path) -> None:
    head.run("init", "cluster", "-o", str(tmp_path / "srtslurm.yaml"), "--yes")
    found = cluster.read(tmp_path / "srtslurm.yaml").layer.data
    place = {name: found["backend"][name] for name in ("account", "partition", "time_limit")}
    assert place == {"account": "inference", "partition": "gpu-a100", "time_limit": "04:00:00"}
    assert (found["gpus_per_node"], found["gpu_type"]) == ("4", "a100")


RECIPE = """\
name: apart
model: {path: r1, container: image}
resources: {gpu_type: a100, gpus_per_node: 8, prefill_nodes: 1, prefill_workers: 1, decode_nodes: 1, decode_workers: 1,
            gpus_per_prefill: 4}
"""


def test_nodes_that_a_recipe_needs_are_looked_for(head: Home, tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text(RECIPE)
    done = head.run("preflight", str(tmp_path / "r.yaml"), "--json", check=False)
    (seen,) = json.loads(done.stdout)
    (failure,) = [one for one in seen["failures"] if "a worker of" in one]
    assert done.returncode == 1
    assert failure.endswith("a worker of decode needs 1 node with 8 a100 GPUs, and partition gpu-a100 has 0: "
                            "nodes there have 4 a100")  # fmt: skip
