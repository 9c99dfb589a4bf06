"""Sweeps that the host carries out: two deployments with two loads each, real processes, `tests/standins/dynamo`."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.conftest import until

if TYPE_CHECKING:
    from tests.conftest import Home

STANDINS = Path(__file__).parents[2] / "standins"
WORDS = ("apply", "grid.yaml", "--sweep")


def write(home: Home) -> None:
    (home.root / "model").mkdir()
    (home.root / "model/config.json").write_text("{}")
    path = os.pathsep.join([str(STANDINS), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
    document = {
        "kind": "deployment", "name": "grid", "model": {"path": str(home.root / "model"), "name": "tiny"},
        "python": sys.executable, "engine": "mocker", "env": {"PYTHONPATH": path, "SEQS": "{seqs}"},
        "roles": {"prefill": {}, "decode": {}}, "sweep": {"seqs": [8, 16]},
        "benchmark": {"type": "sa-bench", "isl": 40, "osl": 8, "concurrencies": [1, 2], "num_prompts_mult": 12,
                      "validity": {"V6.lag": "60s", "V7.cpu": 10, "V7.throttled": "1h", "V10.share": 10}},
    }  # fmt: skip
    (home.root / "grid.yaml").write_text(json.dumps(document))


def good(home: Home) -> Counter[str]:
    """How often each point is there that counts, by address."""
    kept = json.loads(home.run("bench", "list", "--json").stdout)
    return Counter(point["id"] for point in kept if point["verdict"] != "invalid")


def deployments(home: Home) -> list[dict[str, Any]]:
    views: list[dict[str, Any]] = home.client.get("/workloads", kind="deployment", everything="true")
    return views


def test_each_point_is_measured_once_and_then_what_is_new(home: Home) -> None:
    write(home)
    done = home.run(*WORDS)
    assert [row.split()[0::3] for row in done.stdout.splitlines()[1:]] == [
        [f"seqs={seqs}", "known"] for seqs in (8, 8, 16, 16)
    ]
    first = good(home)
    assert [*first.values()] == [1, 1, 1, 1], "loads of one config share a deployment"
    kept = json.loads(home.run("bench", "list", "--json").stdout)
    assert all("V10.share=10" in point["changed"] for point in kept), "judged as its document says"
    assert len(deployments(home)) == 2
    assert {view["phase"] for view in deployments(home)} <= {"DONE", "DOWN"}
    until(lambda: not home.tokens(), "nothing of it is left")

    uids = {view["uid"] for view in deployments(home)}
    assert "nothing to measure: all points are known" in home.run(*WORDS).stderr
    assert ({view["uid"] for view in deployments(home)}, good(home)) == (uids, first)

    more = home.run(*WORDS, "--set", "sweep.seqs=8", "--set", "benchmark.concurrencies=[1, 2, 3]")
    assert "to measure: 1 point on 1 deployment, at most 1 at once" in more.stderr
    assert sorted(good(home).values()) == [1] * 5
    told = json.loads(home.run("sweep", "status", "grid", "--json").stdout)
    assert [(row["step"], row["outcome"]) for row in told["deployments"]] == [("over", "done")]
    assert [one["state"] for one in told["points"]] == ["known"] * 3
    assert home.run("sweep", "list").stdout.splitlines()[1].split()[:6] == ["grid", "1", "0", "0", "1", "0"]
    home.run("sweep", "report", "grid", "-o", str(home.root / "grid.html"))
    assert "Sweep grid" in (home.root / "grid.html").read_text()


def test_host_and_command_are_killed_and_each_point_is_there_once(home: Home) -> None:
    write(home)
    command = home.start(*WORDS)
    until(lambda: home.client.is_up() and any(view["phase"] == "RUNNING" for view in deployments(home)), "one is up")
    command.send_signal(signal.SIGKILL)
    command.communicate()
    (uid,) = {view["uid"] for view in deployments(home)}
    home.kill_host()
    assert len(home.run("sweep", "status", "grid").stdout.splitlines()) == 3
    assert uid in {view["uid"] for view in deployments(home)}, "the next host goes on with it"
    home.run("sweep", "wait", "grid", check=False)
    home.run(*WORDS)
    assert [*good(home).values()] == [1, 1, 1, 1]


def test_ctrl_c_leaves_it_and_cancel_ends_it(home: Home) -> None:
    write(home)
    command = home.start(*WORDS)
    until(lambda: home.client.is_up() and deployments(home), "it has begun")
    command.send_signal(signal.SIGINT)
    err = command.communicate(timeout=180)[1]
    assert command.returncode == 130, err
    assert "sweep grid keeps running without this terminal\n  follow it: remuda sweep wait grid; end it" in err
    assert len(deployments(home)) == 1
    home.run("sweep", "cancel", "grid")
    ended = home.run("sweep", "wait", "grid", check=False)
    assert ended.returncode == 1
    until(lambda: not home.tokens(), "nothing of it is left")
    told = json.loads(home.run("sweep", "status", "grid", "--json").stdout)["deployments"]
    assert [(row["outcome"], row["reason"]) for row in told] == [("failed", "cancelled")] * 2
    other = home.run("sweep", "status", "other", check=False)
    assert (other.returncode, other.stderr) == (
        3, "error: there is no sweep 'other'\n  begin one: remuda apply FILE --sweep\n"
    )  # fmt: skip


def test_commands_and_questions_are_points(home: Home) -> None:
    write(home)
    document = json.loads((home.root / "grid.yaml").read_text())
    ran, well = home.root / "ran", home.root / "well"
    script = f'echo "$SEQS $PWD $A" >> {ran}; echo of > "$SRT_LOG_DIR/log"; test -e {well}'
    document["benchmark"] = {"type": "custom", "command": ["/bin/sh", "-c", script], "env": {"A": "b"}}
    (home.root / "grid.yaml").write_text(json.dumps(document))
    failed = home.run(*WORDS, check=False)
    assert (failed.returncode, len(ran.read_text().splitlines())) == (1, 2), failed.stderr
    assert "bench/0: exit code 1" in failed.stderr
    well.touch()
    home.run(*WORDS)
    assert sorted(ran.read_text().splitlines()) == sorted([f"{seqs} {home.root} b" for seqs in (8, 16)] * 2)
    assert "nothing to measure: all points are known" in home.run(*WORDS).stderr
    told = json.loads(home.run("sweep", "status", "grid", "--json").stdout)
    assert [(one["state"], one["load"][:10]) for one in told["points"]] == [("known", "/bin/sh -c")] * 2

    document["benchmark"] = {"type": "lm-eval", "tasks": ["sums"], "limit": 4}
    (home.root / "grid.yaml").write_text(json.dumps(document))
    done = home.run(*WORDS)
    assert [row.split()[0::3] for row in done.stdout.splitlines()[1:]] == [
        [f"seqs={seqs}", "known"] for seqs in (8, 16)
    ]
    kept = json.loads(home.run("bench", "list", "--json").stdout)
    assert [point["accuracy"]["asked"] for point in kept] == [4, 4]
    assert "nothing to measure: all points are known" in home.run(*WORDS).stderr
    home.run("sweep", "report", "grid", "-o", str(home.root / "grid.html"))
    page = (home.root / "grid.html").read_text()
    assert all(f"seqs={seqs}</td>" in page for seqs in (8, 16))
