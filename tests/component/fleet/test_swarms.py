"""Swarms, batch jobs and deployments on three machines that joined: the router is here, replicas are there."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import pytest
from tests.component.fleet.machines import Machines
from tests.component.slurm.test_deployed_bench import RECIPE as MEASURED
from tests.component.slurm.test_deployments import RECIPE, STANDINS
from tests.component.slurm.test_deployments import ask as ask_deployment
from tests.component.slurm.test_swarms import PATIENT, ask, tasks, wait_all
from tests.conftest import until

from remuda.serving.tiny import make_tiny_model

if TYPE_CHECKING:
    from collections.abc import Iterator

NAMES = ("ash", "birch", "cedar")
ROWS = 2000
TINY: Final[dict[str, Any]] = {"engine": "llamacpp", "command": None, "args": "--ctx-size 512 --parallel 2 --threads 1"}


@pytest.fixture(scope="module")
def machines() -> Iterator[Machines]:
    one = Machines(dict.fromkeys(NAMES, 1))
    token = one.begin("--lease", "20s")
    for name in NAMES:
        one.connect(name, token, "--gpus", "h100:1")
    idle(one)
    yield one
    one.close()


def idle(machines: Machines) -> None:
    until(lambda: {node["state"] for node in machines.nodes().values()} == {"idle"}, "all are idle", 120)


def document(machines: Machines, name: str = "herd", **changes: Any) -> str:
    """A swarm of which each replica has the CPUs of a whole machine."""
    watchdog = PATIENT | {"silence_after": 10} | changes.pop("watchdog", {})
    own = {"backend": "fleet", "gpus_per_replica": 0, "cpus_per_task": len(os.sched_getaffinity(0))}
    values = {**own, "watchdog": watchdog, **changes}
    return str(machines.head.swarm(name, **values))


def replicas(machines: Machines, name: str = "herd") -> dict[str, dict[str, Any]]:
    return {key: task for key, task in tasks(machines.head, name).items() if key.startswith("replica")}


def test_the_benchmark_of_a_recipe_is_beside_its_frontend(machines: Machines) -> None:
    """Dynamo's frontend and what stands before it, too: neither is a job."""
    home = machines.head
    (home.root / "model").mkdir(exist_ok=True)
    (home.root / "model/config.json").write_text("{}")
    recipe = home.root / "bench.yaml"
    path = os.pathsep.join([str(STANDINS), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
    recipe.write_text(MEASURED.format(model=home.root / "model", path=path))
    words = ("apply", str(recipe), "--backend", "fleet", "--name", "measured")
    done = home.run(*words, check=False, env={"OUR_KEY": "k-4b1f9d"})
    assert done.returncode in (10, 11), f"{done.stdout}\n{done.stderr}\n{home.log()}"
    view = home.view("measured")
    (name,) = json.loads(Path(view["run_dir"], "bench/verdict.json").read_text())["points"]
    point = json.loads(Path(view["run_dir"], "bench", name, "point.json").read_text())
    assert (point["load"]["requests"], point["metrics"]["failed"]) == (12, 0)
    there = {name for name, task in tasks(home, "measured").items() if task["node"] in NAMES}
    assert there == {"prefill/0", "decode/0"}
    idle(machines)


def members(machines: Machines) -> list[str]:
    """Addresses that the router sends to."""
    return [*(machines.head.view("herd")["router"] or {"members": []})["members"]]


@pytest.mark.real
def test_a_batch_goes_on_while_the_machine_of_a_replica_is_lost(machines: Machines) -> None:
    home = machines.head
    model = str(make_tiny_model(home.root / "tiny.gguf"))
    file = document(machines, model=model, watchdog={"http_path": None}, **TINY)
    dry = home.run("up", "-c", file, "--dry-run").stdout
    assert ("remuda.enter smg" in dry, "remuda.enter relay" in dry) == (True, False)
    done = home.run("up", "-c", file)
    view = home.view("herd")
    assert done.stdout == f"OPENAI_BASE_URL={view['endpoint']}/v1\n"
    now = wait_all(home, {"replica/0": 1, "replica/1": 1})
    assert {name: task["node"] in NAMES for name, task in now.items()} == {
        "replica/0": True, "replica/1": True, "router/0": False,
    }  # fmt: skip
    assert view["endpoint"] == now["router/0"]["url"]
    at = {task["node"]: urlsplit(task["url"]).hostname for task in replicas(machines).values()}
    assert len(at) == 2, "a machine each"
    assert at == {name: machines.layout.address(NAMES.index(name)) for name in at}
    assert "2 members" in home.run("status", "herd").stdout

    # A batch of it is driven beside the router. Client and slurmd of a machine are killed, and nothing happens.
    lines = [json.dumps({"id": number, "prompt": f"row {number}"}) for number in range(ROWS)]
    (home.root / "in.jsonl").write_text("\n".join(lines) + "\n")
    arguments = json.dumps({"max_tokens": 32, "temperature": 0, "ignore_eos": True})
    words = ("-i", "in.jsonl", "-o", "out.jsonl", "--job-id", "batch", "--max-concurrency", "4")
    home.run("job", "submit", "completion", "--name", "herd", *words, "--detach", "--job-kwargs", arguments)
    until(lambda: rows(home.root) >= 20, "twenty rows", 180)
    assert home.task("batch", "driver/0")["node"] not in NAMES, "it is here"
    lost = machines.by_name[now["replica/1"]["node"]]
    for part in ("client", "slurmd"):
        lost.kill(part)
    before = rows(home.root)
    until(lambda: rows(home.root) > before + 20, "it goes on", 180)
    lost.remuda("client", "connect", machines.where, "--resilient", "--detach")
    assert {task["attempt"] for task in replicas(machines).values()} == {1}

    # Then its cable is cut: nothing is sent there, and another replica begins on the third machine.
    lost.cut()
    lost.run("mount", "-t", "tmpfs", "tmpfs", str(home.paths.root))  # a shared directory is gone with it
    until(lambda: now["replica/1"]["url"] not in members(machines), "nothing is sent there any more")
    assert home.task("herd", "replica/1")["attempt"] == 1
    after = wait_all(home, {"replica/1": 2})
    assert after["replica/1"]["node"] not in (lost.name, after["replica/0"]["node"])
    assert (after["replica/0"]["attempt"], after["router/0"]["attempt"]) == (1, 1)
    assert home.view("herd")["endpoint"] == view["endpoint"]
    state = json.loads(home.run("job", "wait", "batch", "--json", timeout=300).stdout)
    assert state["state"] == "DONE", state
    answers = [json.loads(line) for line in (home.root / "out.jsonl").read_text().splitlines()]
    assert Counter(answer["id"] for answer in answers) == Counter(range(ROWS))
    assert {answer["error"] for answer in answers} == {None}
    assert home.task("batch", "driver/0")["attempt"] == 1
    assert "herd.replica.1.1" in " ".join(home.tokens().values()), "the first is cut off, and lives"
    lost.run("umount", "--lazy", str(home.paths.root))
    lost.heal()
    try:
        until(lambda: "herd.replica.1.1" not in " ".join(home.tokens().values()), "it has ended")
    except AssertionError as error:
        raise AssertionError(f"{error}\n{machines.story(lost.name)}") from error
    assert "herd is down" in home.run("down", "herd").stderr
    assert not any(token.startswith("herd.") for token in home.tokens().values())
    idle(machines)


def rows(root: Path) -> int:
    """Rows that the batch has finished, as its own file says."""
    try:
        return int(json.loads((root / "out.jsonl.checkpoint/progress.json").read_text())["done"])
    except (OSError, ValueError):
        return 0


def test_a_key_opens_the_address_to_others_and_the_router_may_be_none(machines: Machines) -> None:
    home = machines.head
    (home.root / "key").write_text("k-4b1f9d\n")
    (home.root / "key").chmod(0o600)
    home.run("up", "-c", document(machines, "keyed", replicas=1, api_key={"file": str(home.root / "key")}))
    url = home.view("keyed")["endpoint"]
    assert urlsplit(url).hostname == machines.layout.head, "machines of the fleet reach it, too"
    body = json.dumps({"model": "herd-1", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4})
    words = ("-s", "-o", "/dev/null", "-w", "%{http_code}", "-H", "content-type: application/json", "-d", body)
    for key, code in (("k-4b1f9d", "200"), ("k-other", "401")):
        ask_with = ("curl", *words, "-H", f"Authorization: Bearer {key}", f"{url}/v1/chat/completions")
        assert machines.by_name["ash"].run(*ask_with).stdout == code
    home.run("down", "keyed")
    home.run("up", "-c", document(machines, "lone", replicas=1, router="none"))
    assert home.view("lone")["endpoint"] == tasks(home, "lone")["relay/0"]["url"]
    assert ask(home, "lone")
    home.run("down", "lone")
    idle(machines)


def test_a_recipe_whose_prefill_spans_two_machines(machines: Machines) -> None:
    """It needs all machines, so the one that was lost before is not avoided."""
    home = machines.head
    was_lost = any(node["is_avoided"] for node in machines.nodes().values())
    (home.root / "model").mkdir(exist_ok=True)
    (home.root / "model/config.json").write_text("{}")
    recipe = home.root / "recipe.yaml"
    text = RECIPE.format(model=home.root / "model", standins=STANDINS)
    text = text.replace("gpus_per_node: 2", "gpus_per_node: 1").replace("decode: {nodes: 2", "decode: {nodes: 1")
    recipe.write_text(text)
    done = home.run("apply", str(recipe), "--backend", "fleet")
    assert "wide is up: prefill 1/1, decode 1/1, model tiny" in done.stderr
    now = tasks(home, "wide")
    assert now["decode/0"]["node"] in NAMES
    assert now["frontend/0"]["node"] not in NAMES, "it is here"
    assert ("prefill: would avoid, but needs nodes: " in home.run("events", "wide").stdout) is was_lost
    assert ask_deployment(home) == 5
    home.run("down", "wide")
    idle(machines)


def test_a_machine_that_somebody_says_is_off(machines: Machines) -> None:
    """Its replica is the only one, so nobody's voice tells that it is silent; the last test: the machine stays off."""
    home = machines.head
    home.run("up", "-c", document(machines, "only", replicas=1))
    before = tasks(home, "only")["replica/0"]
    machines.by_name[before["node"]].close()
    home.run("nodes", "lost", before["node"], "--force")
    after = wait_all(home, {"replica/0": 2}, "only")
    assert after["replica/0"]["node"] != before["node"]
    assert ask(home, "only")
    home.run("down", "only")
