"""`remuda run` and what belongs to it, as typed, with a real host and real processes on this machine."""

from __future__ import annotations

import json
import os
import signal
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.conftest import at_once, until

from remuda.base.asker import me

if TYPE_CHECKING:
    import subprocess

    from tests.conftest import Home

LONG = "echo begun $REMUDA_SCRIPT_DIR $*; echo trouble >&2; while :; do sleep 0.1; done"


def script(home: Home, body: str, name: str = "train.sh", directives: str = "") -> str:
    head = f"#!/bin/bash\n#REMUDA --backend local --backoff-base 0.1 --backoff-max 0.1 --kill-grace 3 {directives}\n"
    (home.root / name).write_text(head + body + "\n")
    return name


def state(home: Home, name: str) -> str:
    return str(home.view(name)["run"]["state"])


def output(home: Home, name: str, *flags: str) -> str:
    return home.run("logs", name, *flags, check=False).stdout


def run_file(home: Home, name: str, file: str) -> Any:
    return json.loads((home.paths.workload(name) / file).read_text())


def has(file: Path, key: str, value: object) -> bool:
    """Whether the file is there and says so; it is replaced meanwhile."""
    try:
        return bool(json.loads(file.read_text())[key] == value)
    except FileNotFoundError:
        return False


def test_from_start_to_stop(home: Home) -> None:
    done = home.run("run", script(home, LONG), "--", "a b", "$(touch x)")
    assert done.stdout == "train\n"
    assert done.stderr.splitlines()[0] == "train is accepted on local"
    until(lambda: "begun" in output(home, "train"), "it runs")
    assert output(home, "train") == f"begun {home.root} a b $(touch x)\n"
    until(lambda: output(home, "train", "--stderr"), "it says what comes next")
    assert output(home, "train", "--stderr") == "trouble\n"
    until(lambda: state(home, "train") == "RUNNING", "it is seen running")
    lines = home.run("list").stdout.splitlines()
    assert lines[0].split() == ["NAME", "STATE", "WHERE", "HEARTBEAT", "AGE"]
    assert lines[1].split()[:2] == ["train", "RUNNING"]
    shown = home.run("status", "train").stdout
    assert "train (run on local, run_once)" in shown
    assert "attempt" in shown
    again = home.run("run", "train.sh", check=False)
    assert again.returncode == 4
    assert again.stderr.splitlines() == [
        "error: run 'train' is up already",
        "  stop it first (remuda stop train), or give the new one a name of its own: --name",
    ]
    assert home.run("stop", "train").stderr.splitlines()[-1] == "train is stopped"
    assert not home.tokens()
    assert home.run("list").stdout == "no runs; start one: remuda run train.sh\n"
    assert json.loads(home.run("list", "--all", "--json").stdout)[0]["phase"] == "DOWN"
    assert not (home.root / "x").exists()


def test_a_change_of_the_file_does_not_change_the_run(home: Home) -> None:
    home.run("run", script(home, LONG))
    until(lambda: "begun" in output(home, "train"), "it runs")
    script(home, "echo other")
    home.run("restart", "train")
    until(lambda: home.task("train", "script/0")["attempt"] == 2, "it is begun again")
    until(lambda: "begun" in output(home, "train"), "the copy runs")
    assert run_file(home, "train", "meta.json")["sbatch_script"] == str(home.root / "train.sh")


def test_wait_tells_how_it_ended(home: Home) -> None:
    good = home.run("run", script(home, "echo fine"), "--wait")
    assert (good.stdout, good.stderr.splitlines()[-1]) == ("train\n", "train is DONE")
    bad = home.run("run", script(home, "exit 3", directives="--max-retries 1"), "--wait", check=False)
    assert bad.returncode == 1
    assert bad.stderr.splitlines()[-1] == "train is FAILED: given up after 2 failures, the last: exit code 3"
    assert home.view("train")["run"]["restarts"] == 1
    assert run_file(home, "train", "meta.json")["max_retries"] == 1


def test_follow_goes_over_attempts(home: Home) -> None:
    body = "[ -e second ] && { echo two; exit 0; }; touch second; echo one; exit 1"
    done = home.run("run", script(home, body), "--follow")
    assert done.stdout.splitlines() == ["train", "one", "two"]
    assert done.stderr.splitlines()[-1] == "train is DONE"


def test_logs_are_followed_over_attempts(home: Home) -> None:
    body = (
        "[ -e second ] && { echo two; exit 0; }; echo one; while [ ! -e go ]; do sleep 0.1; done; touch second; exit 1"
    )
    home.run("run", script(home, body))
    until(lambda: "one" in output(home, "train"), "the first attempt runs")
    following = home.start("logs", "train", "-f", "--json")
    assert following.stdout is not None
    first = following.stdout.readline()
    (home.root / "go").touch()
    more, _ = following.communicate(timeout=180)
    said = [json.loads(line)["line"] for line in [first, *more.splitlines()]]
    assert said == ["one", "--- attempt 2 ---", "two"]


def test_who_looks_on_goes_on_when_the_host_dies(home: Home) -> None:
    """Logs are complete, and each line comes once; whoever waits sees the end."""
    body = "for i in $(seq 9999); do echo $i; [ -e go ] && [ $i -gt 300 ] && exit 0; sleep 0.01; done"
    home.run("run", script(home, body))
    until(lambda: "2" in output(home, "train").split(), "it runs")
    names = (("logs", "train", "-f"), ("logs", "train", "-n", "1", "-f"), ("status", "train", "-w", "--json"))
    with ExitStack() as stack:
        commands = one, last, watching = [stack.enter_context(home.start(*words)) for words in names]
        for command in commands:
            stack.callback(command.kill)  # or a failure would wait for what goes on
        said = [_line(one)]
        begun = int(_line(last))
        _line(watching)
        pid = home.host_pid()
        os.kill(pid, signal.SIGKILL)
        said += [_line(one) for _ in range(300)]
        (home.root / "go").touch()
        said += one.stdout.read().split() if one.stdout else []
        assert said == [str(number + 1) for number in range(len(said))]
        assert last.stdout is not None
        assert last.stdout.read().split() == [str(number) for number in range(begun + 1, len(said) + 1)]
        until(lambda: '"phase": "DONE"' in _line(watching), "who watches sees the end")
        watching.send_signal(signal.SIGINT)
        told = [at_once(command.stderr.read()) for command in commands if command.stderr is not None]
    # Who looks when another has started the next host already finds nothing to say.
    note = "note: the host went away; waiting for the next\n"
    assert set(told[:2]) <= {note, ""}
    assert any(note in text for text in told), told
    assert home.host_pid() != pid


def test_a_host_that_is_stopped_under_followers_finds_no_fault_in_it(home: Home) -> None:
    home.run("run", script(home, "echo one; sleep 600"))
    with home.start("logs", "train", "-f") as following:
        try:
            assert _line(following) == "one"
            home.run("host", "stop")
        finally:
            following.kill()
    assert "Traceback" not in home.paths.host_log.read_text()


def _line(command: subprocess.Popen[str]) -> str:
    assert command.stdout is not None
    return command.stdout.readline().strip()


def test_indefinite_begins_again_until_its_time_is_over(home: Home) -> None:
    script(home, "echo x >> times; sleep 0.2", directives="--mode indefinite --keep-alive 10m --quick-failure 0")
    terminal = home.start("run", "train.sh", "--wait")
    times = home.root / "times"
    until(lambda: times.exists() and len(times.read_text().splitlines()) > 1, "it is begun again")
    home.run("set", "train", "keep_alive=1")
    _, said = terminal.communicate(timeout=240)
    assert terminal.returncode == 0, said
    assert home.view("train")["phase"] == "DONE"
    until(lambda: not home.tokens(), "all its processes are gone")


def test_a_time_that_is_over_at_once(home: Home) -> None:
    """Nothing is begun, and whoever waits is told."""
    names = ("train.sh", "other.sh")
    for name in names:
        (home.root / name).write_text(
            "#!/bin/sh\n#REMUDA --backend local --mode indefinite --keep-alive 0.001\necho x >> times\n"
        )
    home.run("run", *names, "--wait")
    assert not (home.root / "times").exists()
    for name in ("train", "other"):
        view = home.view(name)
        assert (view["phase"], view["reason"]) == ("DONE", "script/0: its time is over; it was never started")


def test_a_typo_stops_after_the_brake(home: Home) -> None:
    done = home.run("run", script(home, "pyhton train.py"), "--wait", check=False)
    assert done.returncode == 1
    view = home.view("train")
    assert view["phase"] == "FAILED"
    assert view["run"]["attempt"] == 3
    assert "pyhton: command not found" in output(home, "train", "--stderr")


def test_pause_begins_nothing_new(home: Home) -> None:
    home.run("run", script(home, "echo begun; sleep 0.1; while [ ! -e go ]; do sleep 0.05; done; exit 1"))
    until(lambda: "begun" in output(home, "train"), "it runs")
    assert home.run("pause", "train").stderr.startswith("train is paused: it will not be restarted; it is ")
    assert json.loads(home.run("pause", "train", "--json").stdout)["paused"] is True
    (home.root / "go").touch()
    until(lambda: state(home, "train") == "PAUSED", "it has ended and waits")
    until(lambda: has(home.paths.workload("train") / "control.json", "paused", True), "the file says so")
    assert home.view("train")["run"]["attempt"] == 1
    assert "train  PAUSED" in home.run("list").stdout
    (home.root / "go").unlink()
    home.run("unpause", "train")
    until(lambda: home.task("train", "script/0")["attempt"] == 2, "it goes on")
    home.run("pause", "train")
    said = home.run("restart", "train").stderr
    assert said.startswith("train is being restarted, and is no longer paused "), "nobody asked for that"
    assert home.view("train")["paused"] is False
    assert home.run("restart", "train").stderr.startswith("train is being restarted (remuda status train)")


def test_restart_of_a_live_run_counts_no_failure(home: Home) -> None:
    home.run("run", script(home, LONG))
    until(lambda: state(home, "train") == "RUNNING", "it runs")
    for attempt in (2, 3):
        home.run("restart", "train")
        until(
            lambda: (state(home, "train"), home.view("train")["run"]["attempt"]) == ("RUNNING", attempt),  # noqa: B023
            "it runs again",
        )
    assert home.task("train", "script/0")["failures"] == 0
    assert home.view("train")["run"]["restarts"] == 2


def test_ended_runs_begin_again(home: Home) -> None:
    home.run("run", script(home, "echo x >> times"), "--wait")
    said = home.run("pause", "train", check=False)
    assert said.stderr.splitlines() == [
        "error: 'train' is DONE and cannot be paused", "  start it again: remuda restart train"]  # fmt: skip
    home.run("restart", "train")
    until(lambda: (home.root / "times").read_text() == "x\nx\n", "it ran again")
    until(lambda: state(home, "train") == "DONE", "it is done again")
    uid = home.view("train")["uid"]
    home.run("run", "train.sh", "--wait")
    assert home.view("train")["uid"] != uid, "a new run takes the place of one that has ended"


def test_many_at_once(home: Home) -> None:
    names = [script(home, "exit 0", f"s{number}.sh") for number in range(30)]
    done = home.run("run", *names, "--wait", "--json", timeout=400)
    views = json.loads(done.stdout)
    assert [view["name"] for view in views] == [f"s{number}" for number in range(30)]
    assert {view["phase"] for view in views} == {"DONE"}
    script(home, LONG, "s5.sh")
    home.run("run", "s5.sh")
    both = home.run("run", "s4.sh", "s5.sh", check=False)
    assert both.returncode == 4
    assert home.view("s4")["uid"] == views[4]["uid"], "all or none"
    assert [len(list((home.paths.workload(n) / "scripts").iterdir())) for n in ("s4", "s5")] == [1, 2]
    assert home.run("stop", "s5", "nope", check=False).stderr.splitlines()[0] == "error: nothing is called 'nope'"
    assert state(home, "s5") != "DOWN", "names are looked up before anything is changed"


def test_files_of_the_seed(home: Home) -> None:
    body = "remuda-progress 3/10 --metric loss=2.5; echo out; echo err >&2; sleep 1; exit 4"
    home.run("run", script(home, body, directives="--max-retries 0 --heartbeat-interval 1"), "--wait", check=False)
    folder = home.paths.workload("train")
    until((folder / "ended.json").exists, "all is written")
    assert (folder / "slurm.out").read_text() == "out\n"
    assert (folder / "slurm.err").read_text() == "err\n"
    assert float((folder / "heartbeat").read_text()) > 0
    assert run_file(home, "train", "progress.json")["step"] == 3
    assert run_file(home, "train", "control.json") == {"paused": False, "stop": False, "restart": 0}
    ended = run_file(home, "train", "ended.json")
    assert (ended["state"], ended["exit_code"], ended["cause"]) == ("failed", 4, "application")
    assert run_file(home, "train", "failure.json")["exit_code"] == 4
    assert not (folder / "final.json").exists()
    story = [json.loads(line) for line in (folder / "events.log").read_text().splitlines()]
    assert [line["id"] for line in story] == sorted({line["id"] for line in story})
    assert story[-1]["phase"] == "failed"
    home.kill_host()
    home.run("restart", "train")
    until(lambda: home.view("train")["run"]["attempt"] == 2, "the next host goes on")
    until(lambda: state(home, "train") == "FAILED", "it ended again")
    until(lambda: has(folder / "ended.json", "attempt", 2), "the files follow")
    ids = [json.loads(line)["id"] for line in (folder / "events.log").read_text().splitlines()]
    assert ids == sorted(set(ids)), "no line is written twice"


def test_progress_is_shown(home: Home) -> None:
    home.run(
        "run", script(home, f"remuda-progress 3/10 --metric loss=2.5; {LONG}", directives="--heartbeat-interval 0.2")
    )
    until(lambda: home.view("train")["run"]["progress"] == {"step": 3, "total": 10, "loss": 2.5}, "it is told")
    assert "3/10 loss=2.5" in home.run("list").stdout


def test_variables_and_secrets_reach_the_script(home: Home) -> None:
    script(home, 'echo "$A|$HERE|$MY_API_KEY|$NOT_KEPT"')
    env = {"HERE": "x y", "MY_API_KEY": "hush-hush", "NOT_KEPT": "n"}
    home.run("run", "train.sh", "--wait", "--env", "A=1", "--env", "HERE", "--env", "MY_API_KEY", env=env)
    assert output(home, "train") == "1|x y|[secret]|\n"
    shown = home.run("run", "train.sh", "--env", "MY_API_KEY", "--dry-run", env=env).stdout
    assert "hush-hush" not in shown
    plan = json.dumps(home.client.get("/workloads/train/spec"))
    assert "hush-hush" not in plan


def test_dry_run_starts_nothing(home: Home) -> None:
    done = home.run("run", script(home, "echo"), "--dry-run", "--json")
    shown = json.loads(done.stdout)
    assert shown[0]["argv"][-2] == "child"
    assert next(iter(shown[0]["files"])).endswith("child.json")
    assert not home.paths.socket.exists()
    assert not home.paths.workload("train").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("run",), 2, "Missing argument 'SCRIPT...'"),
        (("run", "a.sh", "b.sh", "--name", "x"), 2, "--name and --follow are for one script"),
        (("run", "nope.sh"), 2, "error: nope.sh: there is no such script"),
        (("pause", "nope"), 3, "error: nothing is called 'nope'"),
        (("puase", "nope"), 2, "Did you mean 'pause'?"),
    ],
)
def test_usage(home: Home, arguments: tuple[str, ...], code: int, said: str) -> None:
    done = home.run(*arguments, check=False)
    assert done.returncode == code
    assert said in done.stderr


def test_import_of_the_seed(home: Home) -> None:
    folder = home.root / "shepherd"
    for name, meta in {
        "good": {"run_id": "good", "run_mode": "run_once", "sbatch_script": str(home.root / "train.sh"),
                 "sbatch_args": "--ntasks=1 --time=10", "max_retries": 4,
                 "partition_fallback": {"partitions": ["a", "b"], "retry_per_partition": 3}},
        "none": {"run_id": "none", "sbatch_script": "/no/such.sh"},
    }.items():  # fmt: skip
        (folder / "runs" / name).mkdir(parents=True)
        (folder / "runs" / name / "meta.json").write_text(json.dumps(meta))
    (folder / "runs" / "torn").mkdir()
    (folder / "runs" / "torn" / "meta.json").write_text('{"run_id": ')
    (folder / "runs" / "good" / "control.json").write_text('{"paused": true}')
    now = time.time()
    bans = {"n1": {"expires_at": now + 3600, "reason": "Bad GPU"}, "n2": {"expires_at": now - 1}}
    (folder / "blacklist.json").write_text(json.dumps(bans))
    (home.root / "train.sh").write_text("#!/bin/bash\necho x\n")
    no_slurm = {"PATH": str(Path("/nowhere"))}
    done = home.run("import", "shepherd", str(folder), "--json", check=False, env=no_slurm)
    told = json.loads(done.stdout)
    assert done.returncode == 1
    assert [view["name"] for view in told["runs"]] == ["good"]
    assert (told["runs"][0]["phase"], told["runs"][0]["paused"]) == ("DOWN", True)
    assert told["bans"] == ["n1"]
    assert [problem.removeprefix(f"{folder}/runs/").split(":")[0] for problem in told["problems"]] == [
        "none/meta.json", "torn/meta.json"]  # fmt: skip
    plan = home.client.get("/workloads/good/spec")["plan"]
    group = plan["groups"][0]
    assert [pool["name"] for pool in group["pools"]] == ["a", "b"]
    assert (group["replace"]["max_failures"], group["failover"]["retry_per_pool"]) == (5, 3)
    assert (group["resources"]["time_limit_s"], plan["place"]["args"]) == (600, ["--ntasks=1"])
    empty = home.run("import", "shepherd", str(home.root), check=False)
    assert empty.stderr.splitlines()[0] == f"error: {home.root}: is not a state directory of Shepherd"


def test_set_changes_a_live_run_and_says_who_did(home: Home) -> None:
    file = script(home, f"[ -e {home.root}/enough ] || {{ sleep 0.2; exit 3; }}", directives="--quick-failure 0")
    home.run("run", file, "--max-retries", "1000")
    until(lambda: home.view("train")["run"]["attempt"] > 1, "it fails and is begun again")
    done = home.run("set", "train", "max_retries=2000", "heartbeat-grace=5m")
    assert done.stderr.splitlines() == [
        "train: max_retries is 2000; it counts at once", "train: heartbeat_grace is 300; it counts at once"
    ]  # fmt: skip
    (line,) = [one for one in json.loads(home.run("events", "train", "-n", "9999", "--json").stdout)
               if "set max" in one["reason"]]  # fmt: skip
    assert line["reason"].endswith(f"set max_retries from 1000 to 2000; heartbeat_grace from 90 to 300 by {me()}")
    listed = {one["key"]: one for one in json.loads(home.run("set", "train", "--json").stdout)}
    assert (listed["max_retries"]["value"], listed["max_retries"]["counts"]) == (2000, "now")
    assert "max_retries" in home.run("set", "train").stdout
    home.run("set", "train", "max_retries=0")
    until(lambda: state(home, "train") == "FAILED", "it is given up with its next failure")
    wrong = home.run("set", "train", "max_retires=4", check=False)
    assert wrong.returncode == 2
    assert wrong.stderr.splitlines() == [
        "error: a run has no setting 'max_retires'", "  did you mean 'max_retries'?"
    ]  # fmt: skip
    assert home.run("set", "train", "max_retries", check=False).returncode == 2
    assert "nothing is called 'tran'" in home.run("set", "tran", "max_retries=1", check=False).stderr
