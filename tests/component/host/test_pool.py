"""`remuda pool` on this machine: so many at once, one after the other, killed in the middle, and one that fails."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

import yaml
from tests.conftest import cpu_seconds, until

if TYPE_CHECKING:
    import subprocess

    from tests.conftest import Home

ROWS = 30


def member(home: Home, name: str, *engine_args: str, **more: Any) -> dict[str, Any]:
    """A swarm of one engine without a router, and a job for it."""
    path = home.swarm(name, replicas=1, router="none", engine_args=list(engine_args), **more.pop("swarm", {}))
    job = {"job": "completion", "input": "in.jsonl", "output": f"{name}.jsonl"}
    return {"config": path.name, "job": job, **more}


def write(home: Home, *members: dict[str, Any], **more: Any) -> str:
    (home.root / "in.jsonl").write_text("".join(f'{{"prompt": "row {n}"}}\n' for n in range(ROWS)))
    path = home.root / "pool.yaml"
    path.write_text(yaml.safe_dump({**more, "swarms": list(members)}))
    return str(path)


def up(home: Home) -> list[str]:
    """Swarms that are not down."""
    return [view["name"] for view in home.client.get("/workloads", kind="swarm")]


def rows(home: Home, name: str) -> list[Any]:
    path = home.root / f"{name}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def asked(home: Home, job: str) -> int:
    """Tokens that a job has spent."""
    return int(json.loads(home.run("job", "status", job, "--json").stdout)["summary"]["completion_tokens"])


def test_one_after_the_other_and_one_that_fails(home: Home) -> None:
    broken = member(
        home, "broken", "--die-at-start", "3", swarm={"watchdog": {"max_restarts": 0, "max_replacements": 0}}
    )
    script = home.root / "look.py"
    script.write_text("import os, sys\nopen(sys.argv[1], 'w').write(os.environ['ENDPOINT'])\n")
    with_script = {**member(home, "third"), "job": {"script": "look.py", "args": [str(home.root / "told")]}}
    file = write(home, member(home, "first"), broken, with_script, max_concurrent=1)

    shown = home.run("pool", "-c", file, "--dry-run").stdout
    assert "at most 1 at once" in shown
    assert "first.replica.0.1." in shown
    planned = json.loads(home.run("pool", "-c", file, "--dry-run", "--json").stdout)
    assert [one["swarm"] for one in planned] == ["first", "broken", "third"]
    assert not home.client.is_up(), "nothing is recorded"

    running = home.start("pool", "-c", file, "--json")
    most, deadline = 0, time.monotonic() + 400
    while running.poll() is None:
        assert time.monotonic() < deadline, "it does not end"
        time.sleep(0.2)
        if home.client.is_up():
            most = max(most, len(up(home)))
    out, err = running.communicate()
    assert running.returncode == 1, err
    assert most == 1
    came = {one["name"]: (one["outcome"], one["reason"]) for one in json.loads(out)}
    assert came["first"] == ("done", "")
    assert came["third"] == ("done", "")
    assert came["broken"][0] == "failed"
    assert came["broken"][1].startswith("it is FAILED: ")
    assert len(rows(home, "first")) == ROWS
    assert (home.root / "told").read_text().startswith("http://127.0.0.1:")
    assert up(home) == []
    until(lambda: not home.tokens(), "all processes are gone")

    again = home.run("pool", "-c", file, check=False)
    assert again.returncode == 1, "what failed is tried again, and fails again"
    jobs = json.loads(home.run("job", "list", "--json").stdout)
    assert sorted(job["swarm"] for job in jobs) == ["first", "third"], "what was done is not done twice"


def test_killed_in_the_middle_it_goes_on(home: Home) -> None:
    slow = ("--token-s", "0.5", "--start-delay", "3")
    file = write(home, member(home, "a", *slow), member(home, "b", *slow), member(home, "c"), max_concurrent=2)
    running = home.start("pool", "-c", file)
    until(lambda: home.client.is_up() and up(home), "it has begun")
    assert home.run("pool", "-c", file, "--no-wait").returncode == 0, "typed twice at once it is one pool"
    until(lambda: home.client.get("/workloads", kind="job"), "a driver is there")
    running.send_signal(signal.SIGKILL)
    running.communicate()
    uids = {name: home.view(name)["uid"] for name in up(home)}
    assert uids
    home.kill_host()
    done = home.run("pool", "-c", file, timeout=400)
    assert [line.split()[:2] for line in done.stdout.splitlines()[1:]] == [["a", "done"], ["b", "done"], ["c", "done"]]
    assert {name: home.view(name)["uid"] for name in uids} == uids, "those that were up were taken over"
    request = json.loads(next(home.paths.jobs.glob("a-*/request.json")).read_text())
    assert request["slots"] == -1, "the engine was asked, and does not say"
    assert [len(rows(home, name)) for name in "abc"] == [ROWS, ROWS, ROWS]
    assert len(json.loads(home.run("job", "list", "--json").stdout)) == 3, "no job was sent twice"
    assert up(home) == []


def test_ctrl_c_leaves_all_as_it_is_and_keep_stays(home: Home) -> None:
    home.behave("slow", "a", slow_s=600)  # no job is over before the command is interrupted
    still = {"http_timeout": 60, "unhealthy_restart_after": 600}
    file = write(home, member(home, "a", keep=True, swarm={"watchdog": still}))
    running = home.start("pool", "-c", file)
    until(lambda: home.client.is_up() and home.client.get("/workloads", kind="job"), "a driver is there")
    running.send_signal(signal.SIGINT)
    err = running.communicate(timeout=180)[1]
    assert running.returncode == 130, err
    assert "error: not waited for; its swarms stay up and their jobs continue" in err
    assert f"go on: remuda pool -c {file}" in err
    assert up(home) == ["a"]
    home.behave("ok", "a")
    os.kill(home.task("a", "replica/0")["pid"], signal.SIGKILL)  # what it has is asked again
    done = home.run("pool", "-c", file)
    assert "a      done" in done.stdout
    assert up(home) == ["a"]


def test_it_goes_on_alone_and_is_cancelled(home: Home) -> None:
    slow = ("--token-s", "0.5", "--start-delay", "2")
    file = write(home, member(home, "a"), member(home, "b", *slow), member(home, "c"), max_concurrent=1)
    begun = home.run("pool", "-c", file, "--no-wait")
    assert f"follow it: remuda pool -c {file}; end it: remuda pool -c {file} --cancel" in begun.stderr
    until(lambda: up(home) == ["b"], "nobody follows, and the next has its turn")
    ended = home.run("pool", "-c", file, "--cancel", "--json")
    came = {row["name"]: (row["outcome"], row["reason"]) for row in json.loads(ended.stdout)}
    assert came == {"a": ("done", ""), "b": ("failed", "cancelled"), "c": ("failed", "cancelled")}
    until(lambda: not home.tokens(), "all processes are gone")


def test_a_key_reaches_swarm_job_and_script_and_is_in_no_record(home: Home) -> None:
    home.env["OUR_KEY"] = "k-123456"
    keyed = {"swarm": {"api_key": {"env": "OUR_KEY"}}}
    script = home.root / "look.py"
    script.write_text("import os, sys\nopen(sys.argv[1], 'w').write(os.environ['OPENAI_API_KEY'])\n")
    job = {"script": "look.py", "args": [str(home.root / "told")]}
    file = write(home, member(home, "a", **keyed), {**member(home, "b", **keyed), "job": job})
    done = home.run("pool", "-c", file)
    assert [line.split()[:2] for line in done.stdout.splitlines()[1:]] == [["a", "done"], ["b", "done"]]
    assert len(rows(home, "a")) == ROWS
    assert (home.root / "told").read_text() == "k-123456"
    database = b"".join(path.read_bytes() for path in home.paths.root.glob("*.db*"))
    assert b"k-123456" not in database
    assert not [*home.paths.root.glob("campaigns/*")], "the file of the secrets is gone"


def test_who_waits_costs_nothing_and_outlives_the_host(home: Home) -> None:
    go, script = home.root / "go", home.root / "wait.py"
    script.write_text("import os, sys, time\nwhile not os.path.exists(sys.argv[1]):\n    time.sleep(0.05)\n")
    file = write(home, {**member(home, "a"), "job": {"script": "wait.py", "args": [str(go)]}})
    with home.start("pool", "-c", file) as pool:
        until(lambda: home.client.is_up() and "RUNNING" in states(home), "its job runs")
        (job,) = [view["name"] for view in home.client.get("/workloads", kind="job")]
        with home.start("job", "wait", job, "--json") as waiting:
            assert spent(pool, waiting) <= 0.05, "one looks again and again"
            home.kill_host()
            until(home.client.is_up, "who waits starts the next host")
            go.touch()
            assert json.loads(waiting.communicate(timeout=180)[0])["state"] == "DONE"
        out, err = pool.communicate(timeout=180)
    assert pool.returncode == 0, err
    assert [line.split()[:2] for line in out.splitlines()[1:]] == [["a", "done"]]


def states(home: Home) -> list[str]:
    return [job["state"] for job in json.loads(home.run("job", "list", "--json").stdout)]


def spent(*commands: subprocess.Popen[str]) -> float:
    """The most that one of them takes of a processor in three seconds in which nothing happens."""
    pause = threading.Event().wait
    pause(2.0)
    before = [cpu_seconds(one.pid) for one in commands]
    pause(3.0)
    return max(cpu_seconds(one.pid) - since for one, since in zip(commands, before, strict=True))
