"""`remuda up` on a real Slurm: a swarm's whole life, and what happens to it when jobs and nodes are lost."""

from __future__ import annotations

import json
import re
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from tests.conftest import until

from remuda.serving.tiny import make_tiny_model

if TYPE_CHECKING:
    from tests.conftest import Home
    from tests.fakes.nvml import Driver

    from remuda.testing.slurm import SlurmBed

#: As domyn-swarm writes it, but small; what it says of the endpoint's node is a job of its own here.
BACKEND = {
    "type": "slurm", "partition": "gpu-a100", "account": "inference", "qos": "normal", "time_limit": "02:00:00",
    "endpoint": {"cpus_per_task": 1, "mem": "200MB", "wall_time": "01:00:00"},
}  # fmt: skip

#: An engine that stands still for a moment is not to be begun again: nobody is ill here.
PATIENT = {"http_timeout": 60, "unhealthy_restart_after": 120}


def document(site: Home, name: str = "herd", **changes: Any) -> str:
    watchdog = PATIENT | changes.pop("watchdog", {})
    values = {"backend": BACKEND, "gpus_per_replica": 1, "cpus_per_task": 1, "watchdog": watchdog, **changes}
    return str(site.swarm(name, **values))


def queue(slurm: SlurmBed) -> list[str]:
    """Names of the jobs that pend or run."""
    return slurm.run("squeue", "-h", "-r", "-o", "%j").stdout.split()


def ask(site: Home, name: str = "herd", model: str = "herd-1") -> str:
    import openai

    with openai.OpenAI(
        base_url=site.view(name)["endpoint"] + "/v1", api_key="none", max_retries=0, timeout=90
    ) as client:
        answer = client.chat.completions.create(model=model, messages=[{"role": "user", "content": "hi"}], max_tokens=8)
    return answer.choices[0].message.content or ""


def tasks(site: Home, name: str = "herd") -> dict[str, dict[str, Any]]:
    return {task["task"]: task for task in site.view(name)["tasks"]}


def wait_all(site: Home, attempts: dict[str, int], name: str = "herd") -> dict[str, dict[str, Any]]:
    """Wait until these attempts serve, and the router sends to all replicas."""

    def serve() -> bool:
        now, view = tasks(site, name), site.view(name)
        members = (view["router"] or {"members": []})["members"]
        return (
            view["phase"] == "RUNNING" and len(members) == view["wanted"]
            and all(now[task]["phase"] == "ready" and now[task]["attempt"] >= n for task, n in attempts.items())
        )  # fmt: skip

    try:
        until(serve, f"{attempts} serve")
    except AssertionError as error:
        raise AssertionError(f"{error}\n{site.run('explain', name).stdout}\n{site.log()}") from None
    return tasks(site, name)


def recorded(site: Home, attempts: dict[str, list[int]], name: str = "herd") -> dict[str, Any] | None:
    """What the GPUs did, as soon as that is known of all of these attempts."""
    told = site.run("profiler", "analyze", name, "--json", check=False).stdout
    data: dict[str, Any] = json.loads(told) if told else {"tasks": []}
    found = {task["task"].removeprefix(f"{name}/"): task["attempts"] for task in data["tasks"]}
    return data if found == attempts else None


def test_a_swarm_from_up_to_down(site: Home, slurm: SlurmBed) -> None:
    file = document(site)
    dry = site.run("up", "-c", file, "--dry-run").stdout
    calls = [line for line in dry.splitlines() if line.startswith("sbatch ")]
    assert len(calls) == 2, "one array, one job"
    assert "remuda.enter relay" in dry, "the relay, on this machine"
    assert "--array=0-1 " in calls[0]
    assert "--gres=gpu:1 --cpus-per-task=1 --time=02:00:00 " in calls[0]
    assert "--cpus-per-task=1 --mem=200M --time=01:00:00 " in calls[1]
    assert not queue(slurm)

    done = site.run("up", "-c", file)
    view = site.view("herd")
    assert done.stdout == f"OPENAI_BASE_URL={view['endpoint']}/v1\n"
    assert view["endpoint"] == tasks(site)["relay/0"]["url"], "the address is the relay's"
    file_ = Path(view["run_dir"], "endpoint.json")
    until(
        lambda: json.loads(file_.read_text())["router"] == tasks(site)["router/0"]["url"], "the file names the router"
    )
    assert json.loads(file_.read_text())["url"] == view["endpoint"]
    with urllib.request.urlopen(f"{view['endpoint']}/v1/models", timeout=60) as answer:
        assert json.load(answer)["data"][0]["id"] == "herd-1"
    assert ask(site)
    wait_all(site, {"replica/0": 1, "replica/1": 1})
    arrays = {task["native"].split("_")[0] for name, task in tasks(site).items() if name.startswith("replica")}
    assert len(arrays) == 1, "replicas are one array"
    text = site.run("status", "herd").stdout
    assert "phase     RUNNING: 2 of 2 ready" in text
    assert "2 members" in text
    jobs = [task for name, task in tasks(site).items() if name != "relay/0"]
    assert all(task["node"] in slurm.node_names and task["native"] in text for task in jobs)
    assert re.search(r"\b1h 5\dm", text), text
    until(lambda: "HTTP 200 rep=2/2" in site.run("swarm", "list").stdout, "the endpoint answers within the list's time")
    assert re.search(r"its time limit ends it in 1h 5\dm", site.run("explain", "herd").stdout)
    assert "listening on" in site.run("logs", "herd", "--replica", "1").stdout

    site.run("up", "-c", file)
    assert site.view("herd")["uid"] == view["uid"], "typed again, it is the same"
    other = site.run("up", "-c", file, "--set", "backend.partition=gpu-l40s", check=False)
    assert other.returncode == 4, other.stderr

    site.run("scale", "herd", "3")
    wait_all(site, {"replica/2": 1})
    site.run("scale", "herd", "1")
    until(lambda: len(queue(slurm)) == 2, "the others left the cluster")
    (site.root / "in.jsonl").write_text('{"prompt": "a"}\n{"prompt": "b"}\n')
    site.run("job", "submit", "completion", "--name", "herd", "--input", "in.jsonl", "--output", "out.jsonl")
    assert [json.loads(line)["error"] for line in (site.root / "out.jsonl").read_text().splitlines()] == [None, None]

    assert "herd is down" in site.run("down", "herd").stderr
    assert queue(slurm) == []


def test_a_cancelled_replica_is_replaced(site: Home, slurm: SlurmBed, driver: Driver) -> None:
    """And what its GPUs did is told of both of its jobs."""
    site.run("host", "start")
    site.run("up", "-c", document(site, profile="20Hz"), env=driver.environment)
    lost = tasks(site)["replica/1"]["native"]
    slurm.run("scancel", lost)
    now = wait_all(site, {"replica/1": 2})
    assert now["replica/0"]["attempt"] == 1
    assert now["replica/1"]["native"] != lost
    assert ask(site)
    told = until(lambda: recorded(site, {"replica/0": [1], "replica/1": [1, 2]}), "all three are recorded")
    assert all(len(gpu["tasks"]) == 1 for gpu in told["gpus"]), "each its own"
    site.run("down", "herd")
    assert queue(slurm) == []


def test_a_crashed_node_is_left_with_all_that_was_on_it(site: Home, slurm: SlurmBed) -> None:
    """Two replicas and the router: the endpoint answers at the same address afterwards."""
    site.run("up", "-c", document(site))
    before = {name: task for name, task in tasks(site).items() if name != "relay/0"}
    assert len({task["node"] for task in before.values()}) == 1, "Slurm fills one node before it takes the next"
    node, endpoint = before["router/0"]["node"], site.view("herd")["endpoint"]
    slurm.crash(node)
    now = wait_all(site, dict.fromkeys(before, 2))
    assert all(now[name]["node"] != node for name in before)
    assert site.view("herd")["endpoint"] == endpoint
    assert ask(site)
    site.run("down", "herd")
    assert queue(slurm) == []


def test_without_a_router_the_replica_is_the_endpoint(site: Home, slurm: SlurmBed) -> None:
    site.run("up", "-c", document(site, replicas=1, router="none"))
    assert site.view("herd")["endpoint"] == tasks(site)["relay/0"]["url"]
    assert ask(site)
    assert len(queue(slurm)) == 1
    site.run("down", "herd")


@pytest.mark.real
def test_the_real_engine(site: Home, slurm: SlurmBed) -> None:
    """Two of llama.cpp's servers, each on a node of its own with its own address, behind smg on one of the nodes."""
    import openai

    model = make_tiny_model(site.root / "tiny.gguf")
    watchdog = {"http_path": None}
    # A node has 16 CPUs: two replicas do not fit on one.
    file = document(
        site, "pony", model=str(model), engine="llamacpp", command=None, args="--ctx-size 512 --parallel 4 --threads 1",
        gpus_per_replica=0, cpus_per_task=9, backend={**BACKEND, "partition": "cpu"}, watchdog=watchdog,
    )  # fmt: skip
    site.run("up", "-c", file)
    now = wait_all(site, {"replica/0": 1, "replica/1": 1}, "pony")
    replicas = [now["replica/0"], now["replica/1"]]
    assert [replica["http_status"] for replica in replicas] == [200, 200]
    assert {replica["node"] for replica in replicas} == {"cpu-1", "cpu-2"}
    if slurm.layout.isolated:
        assert len({urlsplit(replica["url"]).hostname for replica in replicas}) == 2
    assert ask(site, "pony", "tiny")
    said: list[openai.types.chat.ChatCompletionMessageParam] = [{"role": "user", "content": "Who is there?"}]
    with openai.OpenAI(
        base_url=site.view("pony")["endpoint"] + "/v1", api_key="none", max_retries=0, timeout=90
    ) as client:
        # The model's weights are random: it may end an answer at any word.
        stream = client.chat.completions.create(
            model="tiny", messages=said, max_tokens=8, stream=True, extra_body={"ignore_eos": True}
        )
        parts = [part.choices[0].delta.content for part in stream if part.choices]
    assert sum(1 for part in parts if part) >= 4, "a stream comes in parts"
    site.run("down", "pony")
    assert queue(slurm) == []
