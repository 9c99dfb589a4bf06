"""A machine joins a fleet and leaves it: real Slurm, real TLS, both sides with a state directory of their own."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import ssl
import sys
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.component.fleet.homes import ADDRESS, Fleet
from tests.conftest import until

from remuda.fleet.processes import Daemons

if TYPE_CHECKING:
    from collections.abc import Iterator


def test_a_machine_joins_works_and_leaves(fleet: Fleet) -> None:
    token = fleet.begin()
    fleet.connect(token)
    began = time.monotonic()
    node = fleet.idle()
    assert time.monotonic() - began < 10
    assert node["heard_s"] < 10
    assert (fleet.status()["state"], fleet.status()["name"]) == ("connected", "box")
    assert json.loads(fleet.head.run("host", "status", "--json").stdout)["fleet"]["nodes"][0]["name"] == "box"
    (fleet.head.root / "hello.sh").write_text('#!/bin/sh\necho "hello of $SLURMD_NODENAME"\n')
    fleet.head.run("run", "hello.sh", "--backend", "fleet", "--wait")
    assert "hello of box" in fleet.head.run("logs", "hello").stdout
    fleet.box.run("client", "disconnect")
    assert fleet.box.run("client", "status", check=False).returncode == 3
    until(lambda: "box" not in fleet.nodes(), "the node is gone", 60)
    assert not list((fleet.box.paths.fleet_node).glob("slurm*"))


def test_until_a_machine_has_joined_runs_stay_here(fleet: Fleet) -> None:
    token = fleet.begin()
    (fleet.head.root / "hello.sh").write_text("#!/bin/sh\necho hello\n")
    said = fleet.head.run("run", "hello.sh", "--wait")
    note = "no machine has joined yet: `remuda host token` prints the line for them"
    assert f"note: it runs on this machine: {note}\n" in said.stderr
    assert (fleet.head.view("hello")["backend"], fleet.head.view("hello")["phase"]) == ("local", "DONE")
    said = fleet.head.run("run", "hello.sh", "--name", "there", "--backend", "fleet", check=False)
    assert (said.returncode, said.stderr) == (2, f"error: no partition fits\n  fleet: {note}\n")
    said = fleet.head.run("up", "-c", str(fleet.head.swarm("herd", backend="fleet")), check=False)
    assert re.fullmatch(
        r"error: \S+/herd\.yaml:1:\d+: no machine has joined yet\n"
        r"  `remuda host token` prints the line for them\n", said.stderr,
    )  # fmt: skip
    fleet.connect(token)
    fleet.idle()
    said = fleet.head.run("run", "hello.sh", "--name", "later", "--wait")
    assert note not in said.stderr
    assert fleet.head.view("later")["tasks"][0]["node"] == "box"
    fleet.box.run("client", "disconnect")


def test_secrets_are_in_no_command_line_and_no_log(fleet: Fleet) -> None:
    token = fleet.begin()
    fleet.connect(token)
    key = json.loads((fleet.box.paths.fleet_node / "membership.json").read_text())["key"]
    secrets = [token.split(".")[2], key]
    lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    texts = [*(line.decode(errors="replace") for line in lines), fleet.head.paths.host_log.read_text()]
    texts += [
        (fleet.box.paths.fleet_node / "client.log").read_text(),
        (fleet.head.paths.fleet / "roll.json").read_text(),
    ]
    assert [secret for secret in secrets for text in texts if secret in text] == []
    for home in (fleet.head, fleet.box):
        loose = [p for p in home.paths.root.rglob("*") if p.is_file() and p.stat().st_mode & 0o077 and _has(p, secrets)]
        assert loose == []


def _has(path: Path, secrets: list[str]) -> bool:
    data = path.read_bytes()
    return any(secret.encode() in data for secret in secrets)


def test_killed_at_any_side_it_is_one_node_again(fleet: Fleet) -> None:
    """What the client started outlives it, and the next host goes on as the head."""
    fleet.connect(fleet.begin(), "--resilient")
    before = fleet.status()
    os.kill(before["pid"], signal.SIGKILL)
    fleet.head.kill_host()
    until(lambda: not fleet.status()["pid"], "the client is gone")
    assert fleet.status()["slurmd"] == before["slurmd"]
    fleet.head.run("host", "start")
    fleet.box.run("client", "connect", fleet.where, "--resilient", "--detach")
    now = fleet.status()
    assert (now["state"], now["slurmd"], now["munged"]) == ("connected", before["slurmd"], before["munged"])
    assert [*fleet.nodes()] == ["box"]
    os.kill(now["slurmd"], signal.SIGKILL)
    until(lambda: fleet.status()["slurmd"] not in (0, now["slurmd"]), "slurmd is back", 60)
    fleet.idle()
    (one,) = json.loads(fleet.head.run("host", "token", "list", "--json").stdout)
    assert one["uses"] == 1
    fleet.head.run("host", "stop")
    assert fleet.token().startswith("rmd1.")  # of a host that this very command starts


def test_a_token_that_opens_nothing(fleet: Fleet) -> None:
    token = fleet.begin()
    words = token.split(".")
    revoked, short = fleet.token(), fleet.token("--expires", "1s")
    fleet.head.run("host", "token", "revoke", revoked.split(".")[1])
    until(lambda: _refusal(fleet, short) != "good", "it expires", 30)
    cases = {
        ".".join([*words[:2], "0" * 64, words[3]]): "this fleet has no such token",
        revoked: f"the token {revoked.split('.')[1]} was revoked",
        short: f"the token {short.split('.')[1]} expired",
        ".".join([*words[:3], "0" * 64]): "shows another certificate than the fleet's own",
        token[:-10]: "this is not a token of a fleet",
    }
    for said, why in cases.items():
        done = fleet.connect(said, check=False)
        assert done.returncode != 0
        assert why in done.stderr
        assert "Traceback" not in done.stderr
    assert fleet.nodes() == {}


def _refusal(fleet: Fleet, token: str) -> str:
    listed = json.loads(fleet.head.run("host", "token", "list", "--json").stdout)
    return next(one["refusal"] or "good" for one in listed if one["id"] == token.split(".")[1])


def test_a_used_up_token_and_a_taken_name(fleet: Fleet) -> None:
    fleet.begin()
    fleet.connect(fleet.token("--uses", "1"))
    used = fleet.token("--uses", "1")
    key = json.loads((fleet.box.paths.fleet_node / "membership.json").read_text())["key"]
    joining = {"name": "box", "key": "x" * 64, "uid": os.getuid(), "at": time.time(), "slurm": "22.05.8",
               "address": ADDRESS, "cpus": 1, "memory": 1}  # fmt: skip
    status, said = ask(fleet, "join", f"Token {'.'.join(used.split('.')[1:3])}", joining)
    assert (status, said["error"]["type"]) == (403, "Conflict")
    assert said["error"]["message"].startswith(f"a node box is in this fleet already, at {ADDRESS}, heard ")
    # With the key of one node no other name is had, and nothing is said for another.
    status, said = ask(fleet, "join", f"Key {key}", joining | {"name": "other", "key": key})
    assert said["error"]["message"] == "this machine is node box of the fleet, and cannot be other"
    for authorization in ("", "Key ", "Key nothing", f"Token {key}", "Basic eDp5"):
        status, said = ask(fleet, "beat", authorization, {})
        assert status in (403, 404)
    assert ask(fleet, "beat", f"Token {'.'.join(used.split('.')[1:3])}", {})[0] == 403
    assert [*fleet.nodes()] == ["box"]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"uid": 12345}, "runs as user number 12345 and this fleet as"),
        ({"at": 0.0}, "behind the head's: set it, by NTP for example"),
        ({"slurm": "99.05.1"}, "a node's may be older, never newer"),
        ({"slurm": "21.08.5"}, "need 22.05 or newer"),
        ({"name": "../../x"}, "cannot be the name of a node"),
        ({"name": 3}, "'name' is of another type"),
    ],
)
def test_a_machine_that_cannot_be_a_node(fleet_of_all: tuple[Fleet, str], change: dict[str, Any], why: str) -> None:
    fleet, token = fleet_of_all
    joining = {"name": "far", "key": "y" * 64, "uid": os.getuid(), "at": time.time(), "slurm": "22.05.8",
               "address": ADDRESS, "cpus": 1, "memory": 1}  # fmt: skip
    status, said = ask(fleet, "join", f"Token {'.'.join(token.split('.')[1:3])}", joining | change)
    assert status in (400, 403)
    assert why in said["error"]["message"]


@pytest.fixture(scope="module")
def fleet_of_all() -> Iterator[tuple[Fleet, str]]:
    """One head for all that are refused."""
    one = Fleet()
    yield one, one.begin()
    one.close()


def ask(fleet: Fleet, verb: str, authorization: str, body: Any) -> tuple[int, Any]:
    """One request to the head, as no client of ours would send it."""
    context = ssl._create_unverified_context()
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    with closing(http.client.HTTPSConnection(ADDRESS, fleet.port + 1, context=context, timeout=30)) as connection:
        connection.request("POST", f"/fleet/v1/{verb}", data, {"Authorization": authorization})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())


def test_strangers_get_little(fleet_of_all: tuple[Fleet, str]) -> None:
    """A thousand connections that say nothing, and requests of any size: whoever has a key is answered meanwhile."""
    fleet, token = fleet_of_all
    before = len(list(Path(f"/proc/{fleet.head.host_pid()}/fd").iterdir()))
    silent = [socket.create_connection((ADDRESS, fleet.port + 1), 30) for _ in range(1000)]
    status, _ = ask(fleet, "beat", "Key nothing", {})
    assert status == 404
    open_now = len(list(Path(f"/proc/{fleet.head.host_pid()}/fd").iterdir()))
    assert open_now - before <= 80
    for one in silent:
        one.close()
    good = f"Token {'.'.join(token.split('.')[1:3])}"
    status, said = ask(fleet, "join", good, b"x" * 70_000)
    assert (status, said["error"]["message"]) == (413, "a request has 65,536 bytes at most")
    assert ask(fleet, "join", good, b"\xff{")[0] == 400


def test_what_speaks_against_a_head(fleet: Fleet) -> None:
    with socket.create_server((ADDRESS, fleet.port)):
        done = fleet.head.run("host", "start", "--port", str(fleet.port), "--host", ADDRESS, check=False)
    assert done.returncode == 4
    assert f"port {fleet.port} of this machine is in use by " in done.stderr
    assert f"(pid {os.getpid()})" in done.stderr
    done = fleet.head.run("host", "start", "--port", str(fleet.port), "--host", "192.0.2.77", check=False)
    assert "192.0.2.77 is not an address of this machine" in done.stderr
    assert not (fleet.head.paths.fleet / "head.json").exists()
    for words in (("token",), ("logs", "--controller"), ("stop", "--fleet")):
        done = fleet.head.run("host", *words, check=False)
        assert (done.returncode, done.stderr) == (
            3, "error: this host is not the head of a fleet\n  make it one: remuda host start --port 8090\n"
        )  # fmt: skip
    for words in (("--lease", "5m"), ("--http-port", "8091"), ("--unpack",)):
        done = fleet.head.run("host", "start", *words, check=False)
        assert done.returncode == 2
        assert done.stderr.splitlines()[-1] == (
            "Error: this host is not the head of a fleet: to make it one, say --port, too (--port 8090)"
        )
    assert not fleet.head.paths.fleet_environment.exists()


def test_a_fleet_that_ends_and_begins_again(fleet: Fleet) -> None:
    fleet.connect(fleet.begin(), "--resilient")
    goes_on = "the fleet's controller keeps running, and its nodes their work; to end it, too: remuda host stop --fleet"
    assert fleet.head.run("host", "stop").stderr.splitlines()[-1] == goes_on
    assert "slurmctld version" in fleet.head.run("host", "logs", "--controller", "-n", "0").stdout
    assert "slurmd version" in fleet.box.run("client", "logs", "--slurmd", "-n", "0").stdout
    assert goes_on not in fleet.head.run("host", "stop", "--fleet").stderr
    assert not (fleet.head.paths.fleet / "environment.json").exists()
    fleet.begin()
    node = fleet.idle()
    assert node["heard_s"] is not None
    fleet.box.run("client", "disconnect")


def test_a_head_whose_port_is_taken_says_so_and_comes_back(fleet: Fleet) -> None:
    fleet.begin()
    fleet.head.kill_host()
    Daemons(fleet.head.paths.fleet).stop("slurmctld", kill=True)

    def taken() -> socket.socket | None:
        with suppress(OSError):  # a child of the controller holds it a little longer
            return socket.create_server((ADDRESS, fleet.port))
        return None

    with until(taken, "the port is free", 30):
        fleet.head.run("host", "start")
        said = f"the fleet is not up: port {fleet.port} of this machine is in use"
        until(lambda: trouble(fleet).startswith(said), "it says so", 60)
        assert said in fleet.head.run("host", "status").stdout
        assert "is not up" in fleet.head.run("status").stderr
    until(lambda: not trouble(fleet), "it is up", 60)


def trouble(fleet: Fleet) -> str:
    return (
        str(fleet.head.client.get("/fleet").get("trouble", "it is not there yet")) if fleet.head.client.is_up() else ""
    )


def test_other_settings_reach_nodes_that_are_there(fleet: Fleet) -> None:
    fleet.connect(fleet.begin(), "--resilient")
    fleet.idle()
    fleet.head.run("host", "start", "--lease", "5m")
    conf = fleet.box.paths.fleet_node / "slurm" / "slurm.conf"
    until(lambda: "SlurmdTimeout=480" in conf.read_text(), "its settings are the new ones", 60)
    fleet.idle()
    assert wait_for_health(fleet, 0)


def test_the_foreground_ends_with_its_head(fleet: Fleet) -> None:
    """Ctrl-C ends the client alone; where it joins again nothing is started a second time."""
    token = fleet.begin()
    file = fleet.box.root / "token"
    file.write_text(token)
    process = fleet.box.start("client", "connect", fleet.where, "--token-file", str(file), "--node-id", "box")
    until((fleet.box.paths.fleet_node / "heard").exists, "it has joined", 60)
    now = fleet.status()
    os.kill(now["pid"], signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "what it started runs on" in err
    assert fleet.status()["slurmd"] == now["slurmd"]


def test_a_head_where_a_site_has_slurm(fleet: Fleet, slurm_bare: Any) -> None:
    env = {"SLURM_CONF": str(slurm_bare.root / "slurm.conf")}
    done = fleet.head.run("host", "start", "--port", str(fleet.port), "--host", ADDRESS, check=False, env=env)
    assert done.returncode == 4
    assert "this machine belongs to a cluster: its Slurm answers at " in done.stderr


def test_ssh_fetches_the_token(fleet: Fleet) -> None:
    """What ssh runs there is one command, and nothing of the token is in it."""
    fleet.begin()
    folder = fleet.box.root / "bin"
    folder.mkdir()
    remuda = f'PATH="{Path(sys.executable).parent}:$PATH" REMUDA_HOME="{fleet.head.paths.root}"'
    (folder / "ssh").write_text(
        f'#!/bin/sh\necho "$@" >> {folder}/asked\n[ "$2" = anna@head ] || exit 255\n{remuda} exec sh -c "$3"\n'
    )
    (folder / "ssh").chmod(0o755)
    fleet.box.env["PATH"] = f"{folder}:{os.environ['PATH']}"
    done = fleet.box.run("client", "connect", "bob@head", "--node-id", "box", "--detach", check=False)
    assert (done.returncode, "bob@head gave no token: ssh ended with code 255" in done.stderr) == (5, True)
    fleet.box.run("client", "connect", "anna@head", "--node-id", "box", "--detach", "--resilient")
    fleet.idle()
    os.kill(fleet.status()["pid"], signal.SIGKILL)
    until(lambda: not fleet.status()["pid"], "the client is gone")
    fleet.box.run("client", "connect", "anna@head", "--detach", "--resilient")
    # Asked again it is the same node; another fleet has to wait for this one to be left.
    assert "the client runs already" in fleet.box.run("client", "connect", "anna@head").stderr
    os.kill(fleet.status()["pid"], signal.SIGKILL)
    until(lambda: not fleet.status()["pid"], "the client is gone")
    file = fleet.box.root / "token"
    file.write_text(fleet.token())
    away = fleet.box.run("client", "connect", "192.0.2.9:8090", "--token-file", str(file), check=False)
    assert (away.returncode, f"this machine is node box of the fleet at {ADDRESS}" in away.stderr) == (4, True)
    assert (folder / "asked").read_text().splitlines()[1:] == ["-- anna@head remuda host token --json"]  # once


def test_health_has_a_reason_for_each_node(fleet: Fleet) -> None:
    assert fleet.head.run("health", check=False).returncode == 3
    fleet.connect(fleet.begin(), "--resilient")
    fleet.idle()
    assert "well" in wait_for_health(fleet, 0)
    os.kill(fleet.status()["pid"], signal.SIGKILL)
    assert "silent for " in wait_for_health(fleet, 1)
    shown = fleet.head.run("nodes", "status", "box", check=False)
    assert (shown.returncode, "notes" in shown.stdout, "silent for " in shown.stdout) == (1, True, True)
    assert json.loads(fleet.head.run("nodes", "status", "box", "--json", check=False).stdout)["address"] == ADDRESS
    refused = fleet.head.run("nodes", "status", "bax", check=False)
    assert refused.stderr == "error: the cluster has no node 'bax'\n  did you mean 'box'?\n"
    found = json.loads(fleet.head.run("health", "--json", check=False).stdout)
    assert (found["well"], [one["name"] for one in found["nodes"]]) == (False, ["box"])
    assert fleet.nodes()["box"]["problems"][0].startswith("silent for ")
    assert fleet.box.run("client", "status", check=False).returncode == 5


def wait_for_health(fleet: Fleet, code: int) -> str:
    """What `remuda health` prints as soon as it ends with this code."""

    def said() -> str | None:
        done = fleet.head.run("health", check=False)
        return done.stdout if done.returncode == code else None

    return until(said, f"health ends with {code}", 60)
