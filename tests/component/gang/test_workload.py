"""Gangs as typed, with a real host and real processes on this machine: ranks that crash, are killed, and come back."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.conftest import PYTHON, Home, until
from tests.faults.dying_hosts import DyingHosts

from remuda.base.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import Iterator

TRAIN = """\
import os, sys, time
from pathlib import Path
rank, count = os.environ["REPLICA_RANK"], os.environ["REPLICA_COUNT"]
meeting = Path(os.environ["REMUDA_RENDEZVOUS"].removeprefix("file://"))
print(f"rank {rank} of {count} in {os.environ['RUN_ID']}", *sys.argv[1:], flush=True)
with (meeting / f"starts-{rank}").open("a") as starts:
    starts.write(f"{os.getpid()} {os.environ.get('CUDA_VISIBLE_DEVICES', 'none')}\\n")
crash = Path(f"crash-{rank}")
if crash.exists():
    once = crash.read_text() == "once"
    if once:
        crash.unlink()
    sys.exit(3)
while not (meeting / "go").exists():
    time.sleep(0.05)
"""
QUICK = ("-s", "backoff_base=0.1", "-s", "backoff_max=0.1", "-s", "kill_grace=3")


@pytest.fixture
def place(home: Home) -> Home:
    (home.root / "train.py").write_text(TRAIN)
    return home


def gang(home: Home, ranks: int, *flags: str, check: bool = True) -> Any:
    return home.run("gang", "run", "-n", str(ranks), *QUICK, *flags, "--", PYTHON, "train.py", "x y", check=check)


def meeting(home: Home, name: str = "train") -> Path:
    return home.paths.workload(name) / "rendezvous"


def starts(home: Home, rank: int, name: str = "train") -> list[tuple[int, str]]:
    """Pid and GPUs of each start of a rank."""
    path = meeting(home, name) / f"starts-{rank}"
    lines = path.read_text().splitlines() if path.exists() else []
    return [(int(pid), gpus) for pid, gpus in (line.split() for line in lines)]


def is_up(home: Home, ranks: int, name: str = "train") -> bool:
    """Whether all ranks have said that they run, and are seen to."""
    return all(starts(home, rank, name) for rank in range(ranks)) and home.view(name)["ready"] == ranks


def phase(home: Home, name: str = "train") -> str:
    return str(home.view(name)["phase"])


def let_go(home: Home, name: str = "train") -> None:
    (meeting(home, name) / "go").touch()
    until(lambda: phase(home, name) == "DONE", "all ranks are done")


def test_from_start_to_end(place: Home) -> None:
    home = place
    (home.root / "crash-1").write_text("once")
    done = gang(home, 4)
    assert done.stdout == "train\n"
    assert done.stderr.splitlines()[0] == "train is accepted on local: 4 ranks"
    until(lambda: is_up(home, 4) and len(starts(home, 1)) == 2, "rank 1 has crashed and come back")
    assert home.task("train", "rank/1")["attempt"] == 2

    os.kill(starts(home, 2)[0][0], signal.SIGKILL)
    until(lambda: len(starts(home, 2)) == 2 and is_up(home, 4), "rank 2 was killed and comes back")
    assert [len(starts(home, rank)) for rank in range(4)] == [1, 2, 2, 1], "the others were left alone"
    shown = home.run("status", "train").stdout
    assert "train (gang on local)" in shown
    assert "RUNNING: 4 of 4 ready" in shown
    assert home.run("list").stdout.splitlines()[1].split()[:2] == ["train", "RUNNING"]
    again = gang(home, 4, check=False)
    assert again.returncode == 4
    assert again.stderr.splitlines()[-2:] == [
        "error: gang 'train' is up already",
        "  stop it first (remuda stop train), or give the new one a name of its own: --name",
    ]

    let_go(home)
    assert home.run("logs", "train", "--rank", "3").stdout == "rank 3 of 4 in train x y\n"
    assert home.run("logs", "train", "--task", "rank/1", "--attempt", "1").stdout == "rank 1 of 4 in train x y\n"
    assert "killed by signal" in home.run("explain", "train").stdout
    moves = [line["phase"] for line in json.loads(home.run("events", "train", "--json", "-n", "999").stdout)
             if line["task"] == "rank/2"]  # fmt: skip
    assert moves.count("waiting") == 1
    assert moves[-1] == "done"
    assert not home.tokens()
    assert home.run("down", "train", "--remove").stderr.splitlines()[-1] == "train is down"
    assert not home.paths.workload("train").exists()


def test_down_leaves_nothing(place: Home) -> None:
    gang(place, 3)
    until(lambda: is_up(place, 3), "it runs")
    pids = [starts(place, rank)[0][0] for rank in range(3)]
    assert place.run("down", "train").stderr.splitlines()[-1] == "train is down"
    assert not place.tokens()
    assert [pid for pid in pids if Path(f"/proc/{pid}").exists()] == []
    assert phase(place) == "DOWN"


def test_restart_begins_all_ranks_again(place: Home) -> None:
    gang(place, 2)
    until(lambda: is_up(place, 2), "it runs")
    place.run("restart", "train")
    until(lambda: [len(starts(place, rank)) for rank in range(2)] == [2, 2], "both are begun again")
    until(lambda: is_up(place, 2), "both run")
    assert [task["failures"] for task in place.view("train")["tasks"]] == [0, 0]
    let_go(place)
    noted = gang(place, 2)
    assert noted.stderr.startswith("note: if 'train' was trained before it goes on from there")
    until(lambda: phase(place) == "DONE", "a new gang of the name")


def test_a_rank_without_tries_fails_the_gang_and_says_which(place: Home) -> None:
    (place.root / "crash-1").write_text("always")
    done = gang(place, 3, "-s", "max_retries=1", "--wait", check=False)
    assert done.returncode == 1
    why = "train is FAILED: rank/1: given up after 2 failures, the last: exit code 3"
    assert done.stderr.splitlines()[-1] == why
    assert len(starts(place, 1)) == 2
    assert not place.tokens(), "what one rank let down has ended, too"
    assert phase(place) == "FAILED"
    assert "rank/1: given up after 2 failures" in place.run("explain", "train").stdout
    (place.root / "crash-1").unlink()
    place.run("restart", "train")
    until(lambda: is_up(place, 3), "it is begun again")
    let_go(place)


def test_a_timeout_ends_all_ranks(place: Home) -> None:
    done = gang(place, 2, "-s", "timeout=1s", "--wait", check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("train is FAILED: rank/0: its time is over")
    until(lambda: not place.tokens(), "nothing is left")


def test_follow_shows_all_ranks_until_they_end(place: Home) -> None:
    (place.root / "crash-0").write_text("once")
    process = place.start("gang", "run", "-n", "2", *QUICK, "--follow", "--", PYTHON, "train.py")
    with process:
        until(lambda: is_up(place, 2) and len(starts(place, 0)) == 2, "it runs")
        (meeting(place) / "go").touch()
        out, err = process.communicate(timeout=180)
    assert process.returncode == 0
    lines = out.splitlines()
    assert lines[0] == "train"
    assert [line for line in lines if line.startswith("rank/1")] == ["rank/1: rank 1 of 2 in train"]
    said = [line for line in lines if line.startswith("rank/0: rank")]
    assert said == ["rank/0: rank 0 of 2 in train"] * 2
    assert err.splitlines()[-1] == "train is DONE"


def test_a_script_is_copied(place: Home) -> None:
    (place.root / "fit.py").write_text(f"#!{PYTHON}\n{TRAIN}")
    document = place.root / "gang.yaml"
    document.write_text("kind: gang\nranks: 2\nscript: fit.py\nargs: [a b]\nrun_id: r7\nbackoff_base: 0.1\n")
    assert place.run("config", "check", str(document)).stdout == f"{document}: good\n"
    view = json.loads(place.run("gang", "up", "-c", str(document), "--json").stdout)
    assert (view["name"], view["kind"], view["labels"]["run_id"]) == ("fit", "gang", "r7")
    (place.root / "fit.py").write_text("nothing that runs")
    until(lambda: is_up(place, 2, "fit"), "it runs")
    os.kill(starts(place, 1, "fit")[0][0], signal.SIGKILL)
    until(lambda: len(starts(place, 1, "fit")) == 2, "the copy is begun again")
    let_go(place, "fit")
    assert place.run("logs", "fit", "--rank", "1", "-n", "1").stdout == "rank 1 of 2 in r7 a b\n"


@pytest.fixture
def four_gpus(place: Home) -> Home:
    """A machine that has four GPUs."""
    folder = place.root / "bin"
    folder.mkdir()
    program = folder / "nvidia-smi"
    program.write_text("#!/bin/sh\nprintf '0\\n1\\n2\\n3\\n'\n")
    program.chmod(0o755)
    place.env["PATH"] = f"{folder}:{os.environ['PATH']}"
    place.env.pop("CUDA_VISIBLE_DEVICES", None)
    return place


def gpus(home: Home, name: str, ranks: int) -> list[str]:
    until(lambda: is_up(home, ranks, name), f"{name} runs")
    return [starts(home, rank, name)[-1][1] for rank in range(ranks)]


def test_all_ranks_get_their_gpus_or_none(four_gpus: Home) -> None:
    home = four_gpus
    flags = ("--gpus", "1", "-s", "gpu_check=false")
    gang(home, 2, *flags, "--name", "one")
    one = gpus(home, "one", 2)
    assert len(set(one)) == 2
    refused = gang(home, 3, *flags, "--name", "two", check=False)
    assert refused.returncode == 4
    assert refused.stderr.splitlines()[-2:] == [
        "error: 3 GPUs are needed and 2 of this machine's 4 are free", "  in use by: one"
    ]  # fmt: skip
    assert not home.paths.workload("two").exists()
    assert home.run("status", "two", check=False).returncode == 3
    gang(home, 2, *flags, "--name", "two")
    two = gpus(home, "two", 2)
    assert sorted(one + two) == ["0", "1", "2", "3"]

    let_go(home, "one")
    gang(home, 1, *flags, "--name", "three")
    three = gpus(home, "three", 1)
    assert three[0] in one, "what is over holds nothing"
    again = home.run("restart", "one", check=False)
    assert again.returncode == 4, "its GPUs are another's by now"
    assert again.stderr.splitlines()[-1] == "  in use by: three, two"
    home.run("down", "two")
    (meeting(home, "one") / "go").unlink()
    home.run("restart", "one")
    until(lambda: len(starts(home, 0, "one")) == len(starts(home, 1, "one")) == 2, "it is begun again")
    assert sorted(gpus(home, "one", 2) + three) == sorted({*gpus(home, "one", 2), *three})


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        pytest.param(
            ("run", "-n", "2"), 2, "say what each rank runs, behind --: remuda gang run -n 4 -- python train.py",
            id="no command",
        ),
        pytest.param(("run", "--", "true"), 2, "Missing option '-n' / '--ranks'", id="no ranks"),
        pytest.param(
            ("run", "-n", "2", "--", "no-such-program"), 2, "error: --: there is no program 'no-such-program'",
            id="no program",
        ),
        pytest.param(
            ("run", "-n", "2", "--name", "A B", "--", "true"), 2, "error: --name: `name` ", id="name",
        ),
        pytest.param(
            ("run", "-n", "2", "--rendezvous", "/x", "--", "true"), 2,
            "error: --rendezvous: `rendezvous` must be the URL of a store, not '/x'", id="rendezvous",
        ),
        pytest.param(
            ("run", "-n", "2", "--mode", "rigid", "-s", "quorum=1", "--", "true"), 2,
            "error: --set quorum: `quorum` lets ranks train on without the others, which no `rigid` gang does",
            id="rigid",
        ),
        pytest.param(
            ("run", "-n", "2", "--backend", "slurm", "-s", "ranks_per_node=2", "--", "true"), 2,
            "error: --set ranks_per_node: `ranks_per_node` is for ranks that share a job, and those of an",
            id="elastic on slurm",
        ),
        pytest.param(
            ("run", "-n", "201", "--", "true"), 2,
            "error: 'true' cannot have 201 tasks 'rank' on this machine: 200 at most", id="too many",
        ),
        pytest.param(
            ("run", "-n", "2", "-s", "secret_env.K.env=NOT_SET_HERE", "--", "true"), 2,
            "error: environment variable NOT_SET_HERE is not set, and a secret is read from it", id="secret",
        ),
        pytest.param(("up",), 2, "name the gang's document once: with -c or without it", id="no document"),
        pytest.param(("up", "run.yaml"), 2, "error: run.yaml: is a run, and a gang is needed here", id="a run"),
        pytest.param(("rounds", "nope"), 3, "error: nothing is called 'nope'", id="rounds of nothing"),
        pytest.param(
            ("rounds", "s3://b/x"), 2, "error: URL: a rendezvous may have several runs in it", id="rounds of which"
        ),
    ],
)  # fmt: skip
def test_what_is_refused_leaves_nothing(
    shared_home: Home, arguments: tuple[str, ...], code: int, said: str
) -> None:  # fmt: skip
    (shared_home.root / "run.yaml").write_text("script: x.sh\n")
    done = shared_home.run("gang", *arguments, check=False)
    assert done.returncode == code
    assert said in done.stderr
    assert not shared_home.paths.workloads.exists() or not list(shared_home.paths.workloads.iterdir())


def test_a_dry_run_shows_all_and_starts_nothing(four_gpus: Home) -> None:
    env = {"MY_API_KEY": "hush-hush"}
    flags = ("--gpus", "2", "--env", "MY_API_KEY", "--env", "OTHER_TOKEN=hush-hush", "--env", "A=1", "--dry-run")
    words = ("gang", "run", "-n", "2", *flags)
    done = four_gpus.run(*words, "--", PYTHON, "train.py", env=env)
    lines = [line for line in done.stdout.splitlines() if line]
    assert lines[:2] == ["# train: gang on local", "#   rank: 2 tasks, 2 GPUs"]
    (head,) = [line for line in lines if line.startswith("# train.rank.0")]
    assert head.endswith(" and 1 task like it")
    assert [line for line in lines if line.startswith("# GPUs")] == ["# GPUs 0,1"]
    (command,) = [line for line in lines if line.endswith(f"{PYTHON} train.py")]
    assert all(word in command for word in ("A=1", "REPLICA_COUNT=2", "REPLICA_RANK=0 "))
    told = four_gpus.run(*words, "--json", "--", PYTHON, "train.py", env=env)
    ranks = [next(json.loads(text)["env"] for text in one["files"].values()) for one in json.loads(told.stdout)]
    assert [(env["REPLICA_RANK"], env["CUDA_VISIBLE_DEVICES"]) for env in ranks] == [("0", "0,1"), ("1", "2,3")]
    assert "hush-hush" not in f"{done.stdout}{done.stderr}{told.stdout}{told.stderr}"
    assert not four_gpus.paths.workload("train").exists()


def test_secrets_reach_ranks_and_nothing_else(place: Home) -> None:
    env = {"MY_API_KEY": "hush-hush"}
    script = "import os; print(len(os.environ['MY_API_KEY']))"
    place.run("gang", "run", "-n", "2", "--name", "g", "--env", "MY_API_KEY", "--wait", "--", PYTHON, "-c", script,
              env=env)  # fmt: skip
    assert place.run("logs", "g", "--rank", "1").stdout == "9\n"
    assert "hush-hush" not in json.dumps(place.client.get("/workloads/g/spec"))
    assert "hush-hush" not in place.run("explain", "g").stdout


@pytest.fixture
def hosts(place: Home) -> Iterator[DyingHosts]:
    one = DyingHosts(place, "local")
    yield one
    one.close()


@pytest.mark.parametrize("step", ["before start", "after start"])
def test_a_host_killed_between_accepting_and_starting(place: Home, hosts: DyingHosts, step: str) -> None:
    hosts.run(step)
    gang(place, 3, check=False)
    until(hosts.is_dead, "the host is killed")
    assert hosts.death() == step
    place.run("status", "train")  # starts the next host
    until(lambda: is_up(place, 3), "all ranks run")
    assert [len(starts(place, rank)) for rank in range(3)] == [1, 1, 1], "no rank was lost or started twice"
    assert [task["attempt"] for task in place.view("train")["tasks"]] == [1, 1, 1]
    let_go(place)


def test_a_gang_that_no_host_has_accepted_can_be_typed_again(place: Home, hosts: DyingHosts) -> None:
    hosts.run("after add_workloads")
    assert gang(place, 3, check=False).returncode != 0
    assert hosts.death() == "after add_workloads"
    assert place.run("status", "train", check=False).returncode == 3
    gang(place, 3)
    until(lambda: is_up(place, 3), "all ranks run")
    let_go(place)


def test_a_gang_that_was_removed_is_not_found(place: Home) -> None:
    gang(place, 1)
    until(lambda: is_up(place, 1), "it runs")
    place.run("down", "train", "--remove")
    with pytest.raises(NotFound):
        place.view("train")
