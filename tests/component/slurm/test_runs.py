"""`remuda run` on a real Slurm: partitions that are found, what is shown of a run, and that nothing is left."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.component.host.test_arrays import most_at_once
from tests.conftest import until

from remuda.client.recordings import profiler

if TYPE_CHECKING:
    from tests.conftest import Home
    from tests.fakes.nvml import Driver

    from remuda.testing.slurm import SlurmBed

LONG = """#!/bin/bash
#REMUDA --gpus 2 --min-vram 40 --heartbeat-interval 1 --kill-grace 3 --no-gpu-check
#SBATCH --time=10 --ntasks=1
echo "gpus $CUDA_VISIBLE_DEVICES in $SLURM_JOB_PARTITION with $*"
while :; do sleep 0.2; done
"""


def test_a_run_from_start_to_stop(home: Home, slurm: SlurmBed) -> None:
    home.env |= {**slurm.env(), "REMUDA_SLURM_POLL_S": "0.5"}
    (home.root / "train.sh").write_text(LONG)
    shown = json.loads(home.run("run", "train.sh", "--dry-run", "--json").stdout)[0]
    assert shown["argv"][0] == "sbatch"
    assert f"--partition={shown['pools'][0]}" in shown["argv"]
    assert "--time=00:10:00" in shown["argv"]
    assert "#SBATCH --ntasks=1" in "".join(shown["files"].values())
    assert not home.paths.socket.exists(), "a dry run starts nothing"

    done = home.run("run", "train.sh", "--", "a b")
    assert done.stderr.splitlines()[0] == f"train is accepted on slurm: {' → '.join(shown['pools'])}"

    # What the node says of it comes before what Slurm says: when its time is over is known a moment later.
    # And what Slurm says may come before its program has said that it runs.
    def running() -> dict[str, Any] | None:
        seen: dict[str, Any] = home.view("train")["run"]
        return seen if seen["state"] == "RUNNING" and seen["limit_at"] else None

    run = until(running, "it runs, and Slurm says until when")
    assert run["job_id"].isdigit()
    assert run["pool"] in shown["pools"]
    assert run["limit_at"] > run["started_at"] > 0
    until(lambda: "with a b" in home.run("logs", "train").stdout, "it has written")
    assert f"in {run['pool']}" in home.run("logs", "train").stdout
    table = home.run("list").stdout.splitlines()[1].split()
    assert table[:6] == ["train", "RUNNING", run["node"], f"({run['pool']})", "job", run["job_id"]]
    shown_text = home.run("status", "train").stdout
    assert f"job id         {run['job_id']}" in shown_text
    assert "time limit in  " in shown_text

    home.run("restart", "train")
    until(lambda: home.view("train")["run"]["attempt"] == 2, "it is begun again")
    until(lambda: home.view("train")["run"]["state"] == "RUNNING", "it runs again")
    assert home.view("train")["run"]["job_id"] != run["job_id"]
    assert home.run("stop", "train").stderr.splitlines()[-1] == "train is stopped"
    assert slurm.run("squeue", "-h", "-t", "PD,R,CG", "-o", "%j").stdout.strip() == ""


def test_partitions_that_do_not_fit_are_named(home: Home, slurm: SlurmBed) -> None:
    home.env |= {**slurm.env()}
    (home.root / "train.sh").write_text("#!/bin/bash\n#REMUDA --gpus 100\ntrue\n")
    said = home.run("run", "train.sh", check=False)
    assert said.returncode == 2
    lines = said.stderr.splitlines()
    assert lines[0] == "error: train.sh:2: no partition fits"
    assert any(line.endswith(" GPUs per node, 100 asked") for line in lines)
    assert any(line.endswith(": no GPUs, 100 asked") for line in lines)
    assert all(line.startswith("  ") and ": " in line for line in lines[1:])
    missing = home.run("run", "train.sh", "--gpus", "1", "-p", "nowhere", check=False)
    assert missing.stderr.splitlines()[0] == "error: --partitions: there is no partition 'nowhere'"


def test_many_runs_in_one_command(home: Home, slurm: SlurmBed) -> None:
    home.env |= {**slurm.env(), "REMUDA_SLURM_POLL_S": "0.5"}
    names = [f"s{number}.sh" for number in range(20)]
    for name in names:
        (home.root / name).write_text("#!/bin/bash\necho done\n")
    home.run("run", *names, "--wait", timeout=480)
    views = json.loads(home.run("list", "--json").stdout)
    assert {view["phase"] for view in views} == {"DONE"}
    assert len({view["run"]["job_id"] for view in views}) == 20


@pytest.mark.parametrize("conf", ["/nowhere/slurm.conf", ""], ids=["another", "none"])
def test_a_host_that_asks_another_cluster_is_told_before_anything_is_sent(
    home: Home, slurm: SlurmBed, conf: str
) -> None:
    """As one that was started before the site's module was loaded."""
    home.run("host", "start", env={"SLURM_CONF": conf} if conf else {})
    pid = home.host_pid()
    home.env |= {**slurm.env(), "REMUDA_SLURM_POLL_S": "0.5"}
    (home.root / "train.sh").write_text("#!/bin/sh\ntrue\n")
    backend: dict[str, Any] = {"type": "slurm", "partition": "cpu", "account": "inference", "qos": "normal"}
    backend["endpoint"] = {"cpus_per_task": 1}
    document = home.swarm(backend=backend, gpus_per_replica=0, cpus_per_task=1)
    for words in (("run", "train.sh", "--backend", "slurm"), ("up", "-c", str(document))):
        refused = home.run(*words, check=False)
        was = f"with SLURM_CONF={conf}" if conf else "without SLURM_CONF"
        assert refused.returncode == 4
        assert refused.stderr.startswith(
            f"error: the host (pid {pid}) was started {was}, and here it is {home.env['SLURM_CONF']}\n"
            "  start one with this environment: remuda host stop, then remuda host start; what runs keeps running\n"
        ), refused.stderr
    assert json.loads(home.run("status", "--all", "--json").stdout) == []
    home.run("host", "stop")
    done = home.run("run", "train.sh", "--backend", "slurm")
    assert "does not reach" not in done.stderr
    until(lambda: home.view("train")["phase"] == "DONE", "a host with this environment runs it")


RECORDED = """#!/bin/bash
#REMUDA --gpus 2 --profile 20Hz --partitions gpu-a100 --heartbeat-interval 1 --kill-grace 3 --no-gpu-check
#SBATCH --time=10 --ntasks=1 --nodelist=a100-1
until [ -e done ]; do sleep 0.2; done
"""


def test_what_its_gpus_did_in_two_jobs_is_one_timeline(home: Home, slurm: SlurmBed, driver: Driver) -> None:
    home.env |= {**slurm.env(), "REMUDA_SLURM_POLL_S": "0.5"}
    other = slurm.submit("sleep 600", "--gres=gpu:1", "--nodelist=a100-1")  # it has GPU 0
    slurm.wait_job(other, "RUNNING")
    (home.root / "train.sh").write_text(RECORDED)
    home.run("host", "start")
    home.run("run", "train.sh", "--backend", "slurm", env=driver.environment)

    def recorded(attempt: int) -> str:
        """The job that a second was recorded of."""
        folders = profiler.beside(home.paths.workloads, "train")
        told = profiler.status_of(folders[-1]) if len(folders) == attempt else None
        return str(home.view("train")["run"]["job_id"]) if told is not None and told.rounds >= 20 else ""

    first = until(lambda: recorded(1), "a second of the first job is recorded")
    slurm.run("scancel", first)
    until(lambda: home.view("train")["phase"] == "STOPPED", "somebody cancelled it")
    home.run("restart", "train")
    assert until(lambda: recorded(2), "a second of the second is recorded") != first
    (home.root / "done").touch()
    until(lambda: home.view("train")["phase"] == "DONE", "it is done")

    told = json.loads(home.run("profiler", "analyze", "train", "--json").stdout)
    own = [gpu.uuid.decode() for gpu in driver.gpus[1:3]]
    assert [gpu["uuid"] for gpu in told["gpus"]] == own, "the recorder sees all GPUs of its node"
    assert [note["kind"] for note in told["notes"]] == ["start", "end"] * 2
    (task,) = told["tasks"]
    assert (task["task"], task["attempts"], task["nodes"]) == ("train/script/0", [1, 2], ["a100-1"])
    assert 0 < task["joules"] == pytest.approx(sum(gpu["joules"] for gpu in told["gpus"]))
    assert task["samples"] == sum(gpu["samples"] for gpu in told["gpus"]) >= 80


def test_all_nodes_of_a_run_are_recorded(home: Home, slurm: SlurmBed, driver: Driver) -> None:
    home.env |= {**slurm.env(), "REMUDA_SLURM_POLL_S": "0.5"}
    script = RECORDED.replace("--ntasks=1 --nodelist=a100-1", "--nodes=2 --ntasks-per-node=1")
    (home.root / "train.sh").write_text(script.replace("until", "srun --ntasks=2 --gres=gpu:2 true\nuntil"))
    home.run("host", "start")
    home.run("run", "train.sh", "--backend", "slurm", env=driver.environment)

    def recorded() -> bool:
        told = [profiler.status_of(path) for path in home.paths.workloads.glob("train/*/*/recording/**/")]
        return sum(1 for one in told if one is not None and one.rounds >= 20) == 2

    until(recorded, "a second of each node is recorded")
    (home.root / "done").touch()
    until(lambda: home.view("train")["phase"] == "DONE", "it is done")
    told = json.loads(home.run("profiler", "analyze", "train", "--json").stdout)
    own = [gpu.uuid.decode() for gpu in driver.gpus[:2]]
    assert [(gpu["node"], gpu["uuid"]) for gpu in told["gpus"]] == [
        (node, uuid) for node in ("a100-1", "a100-2") for uuid in own
    ]
    assert sorted(note["kind"] for note in told["notes"]) == ["end", "end", "start", "start"]
    (task,) = told["tasks"]
    assert (task["attempts"], task["nodes"], task["gpus"]) == ([1], ["a100-1", "a100-2"], 4)


ARRAY = """#!/bin/bash
#SBATCH --array=2-8:2%2 --output=out-%A_%2a.txt --time=10 --partition=cpu
#REMUDA --backoff-base 0.1 --backoff-max 0.1 --heartbeat-interval 1 --kill-grace 3
echo "begin $SLURM_ARRAY_TASK_ID" >> story
until [ -e go ]; do sleep 0.1; done
[ $SLURM_ARRAY_TASK_ID != 6 ] || [ -e second ] || { touch second; echo "end 6" >> story; exit 1; }
echo "$SLURM_ARRAY_TASK_ID of $SLURM_ARRAY_TASK_COUNT in $SLURM_ARRAY_JOB_ID"
echo "end $SLURM_ARRAY_TASK_ID" >> story
"""


def test_an_array_two_at_a_time(home: Home, slurm: SlurmBed) -> None:
    """The first two are one array of Slurm's, the others jobs of their own; who reads their output does not see it."""
    home.env |= {**slurm.env(), "REMUDA_SLURM_POLL_S": "0.5"}
    (home.root / "train.sh").write_text(ARRAY)
    story = home.root / "story"
    shown = json.loads(home.run("up", "train.sh", "--dry-run", "--json").stdout)
    assert [word for call in shown for word in call["argv"] if word.startswith("--array")] == ["--array=2,4"]
    home.run("up", "train.sh")
    until(lambda: story.is_file() and len(story.read_text().splitlines()) == 2, "two have begun")
    view = until(lambda: home.view("train") if home.view("train")["ready"] == 2 else None, "the host knows")
    assert [task["native"].partition("_")[2] for task in view["tasks"]] == ["2", "4", "", ""]
    home.kill_host()
    (home.root / "go").touch()
    home.run("host", "start")
    until(lambda: home.view("train")["phase"] == "DONE", "all are done")
    assert most_at_once(story) == 2
    uid, written = view["uid"], {file.name: file.read_text().splitlines() for file in home.root.glob("out-*")}
    assert {name: [line for line in lines if "remuda-node" not in line] for name, lines in written.items()} == {
        f"out-{uid}_0{index}.txt": [f"{index} of 4 in {uid}"] for index in (2, 4, 6, 8)
    }

    def attempts() -> list[int]:
        seen = home.view("train")
        return [task["attempt"] for task in seen["tasks"]] if seen["phase"] == "DONE" else []

    assert attempts() == [1, 1, 2, 1]
    home.run("restart", "train", "4,8")
    until(lambda: attempts() == [1, 2, 2, 2], "two are done again, and no others")
    assert slurm.run("squeue", "-h", "-t", "PD,R,CG", "-o", "%j").stdout.strip() == ""
