"""Runs on a node that does not see the head's state directory: real Slurm, and a machine in a mount namespace."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.component.fleet.homes import ADDRESS, Fleet
from tests.component.fleet.test_steps import begin_dying
from tests.conftest import COLD, Home, until

from remuda.fleet import membership
from remuda.fleet.processes import Daemons
from remuda.serving.tiny import make_tiny_model

if TYPE_CHECKING:
    from collections.abc import Iterator

TRAIN = """#!/bin/sh
echo "hello of $SLURMD_NODENAME in $PWD"
ls {home} && echo "the head is seen"
trap 'echo told to end; exit 0' TERM
n=0; while [ -e {flag} ]; do n=$((n+1)); echo "line $n"; sleep 0.1; done
echo "last line"; exit 7
"""


class Hidden(Home):
    """A machine whose processes find nothing in a directory of another one."""

    def __init__(self, root: Path, hidden: Path) -> None:
        super().__init__(root, cold=True)
        self._hidden = hidden

    def start(self, *arguments: str, **given: Any) -> subprocess.Popen[str]:
        """Start a command there."""
        script = f'mount -t tmpfs tmpfs {self._hidden} && exec "$@"'
        env = {**self.env, **(given.get("env") or {})}
        return subprocess.Popen(
            ["unshare", "--mount", "sh", "-c", script, "sh", *COLD, *arguments], text=True, env=env, cwd=self.root,
            stdin=subprocess.DEVNULL, stdout=given.get("stdout", subprocess.PIPE), stderr=subprocess.PIPE,
        )  # fmt: skip


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    one = Fleet()
    one.box.close()
    one.box = Hidden(Path(tempfile.mkdtemp(prefix="rf", dir="/tmp")), one.head.root)
    token = one.begin()
    one.connect(token, "--resilient")
    one.idle()
    yield one
    one.close()


@pytest.fixture
def flag() -> Iterator[Path]:
    """A file: the script ends when it is gone."""
    file = Path(tempfile.mkstemp(prefix="rflag", dir="/tmp")[1])
    yield file
    file.unlink(missing_ok=True)


def run(fleet: Fleet, flag: Path, *words: str) -> None:
    """Start the script, and wait until its output comes."""
    (fleet.head.root / "train.sh").write_text(TRAIN.format(home=fleet.head.paths.root, flag=flag))
    fleet.head.run("run", "train.sh", "--backend", "fleet", "--max-retries", "0", *words)
    until(lambda: "line 3" in logs(fleet), "its output is here", 60)


def over(fleet: Fleet) -> list[tuple[int, int | None]]:
    """Its attempts, each with its exit code, when it has ended."""
    until(lambda: fleet.head.view("train")["phase"] in ("DONE", "FAILED"), "its end", 90)
    found = json.loads(fleet.head.run("explain", "train", "--json").stdout)["allocations"]
    return [(one["attempt"], one["exit_code"]) for one in found]


def logs(fleet: Fleet) -> str:
    return fleet.head.run("logs", "train", check=False).stdout


def is_counted(text: str) -> bool:
    """Whether it has each line once, in order."""
    numbers = [int(line.split()[1]) for line in text.splitlines() if line.startswith("line ")]
    return numbers == [*range(1, len(numbers) + 1)]


def kept(fleet: Fleet) -> list[Path]:
    """What the node still has of allocations."""
    return [*(fleet.box.paths.fleet_node / "carried").glob("*/*/*/.sent.json")]


def test_a_run_goes_to_a_node_that_shares_nothing_and_comes_back(fleet: Fleet, flag: Path) -> None:
    run(fleet, flag)
    task = fleet.head.view("train")["tasks"][0]
    assert (task["node"], task["phase"]) == ("box", "ready")
    script = next(fleet.head.paths.workloads.glob("train/*/*/job.sh")).read_text()
    assert len(script.splitlines()) <= 10
    assert str(fleet.head.paths.root) not in script
    flag.unlink()
    assert over(fleet) == [(1, 7)]
    said = logs(fleet)
    assert "hello of box in " in said
    assert "the head is seen" not in said
    assert said.endswith("last line\n")
    assert is_counted(said)
    until(lambda: not kept(fleet), "the node has forgotten it", 30)


def test_a_stop_has_its_grace_there(fleet: Fleet, flag: Path) -> None:
    run(fleet, flag)
    fleet.head.run("down", "train")
    assert logs(fleet).endswith("told to end\n")


def test_killed_in_between_there_is_one_copy_and_no_line_is_lost(fleet: Fleet, flag: Path) -> None:
    run(fleet, flag)
    sides = {"client": membership.running(fleet.box.paths.fleet_node), "host": fleet.head.host_pid(),
             "slurmd": Daemons(fleet.box.paths.fleet_node / "slurm").pid("slurmd")}  # fmt: skip
    for name, pid in sides.items():
        assert pid, name
        os.kill(pid, signal.SIGKILL)
        if name == "client":
            fleet.box.run("client", "connect", fleet.where, "--resilient", "--detach")
        seen = len(logs(fleet).splitlines())
        until(lambda seen=seen: len(logs(fleet).splitlines()) > seen + 20, f"its output goes on without {name}", 60)  # type: ignore[misc]
    flag.unlink()
    assert over(fleet) == [(1, 7)]
    assert is_counted(logs(fleet))
    assert logs(fleet).endswith("last line\n")


@pytest.mark.real
def test_a_swarm_on_a_node_that_shares_nothing(fleet: Fleet, tmp_path: Path) -> None:
    head = fleet.head
    own = {"model": str(make_tiny_model(tmp_path / "tiny.gguf")), "engine": "llamacpp", "command": None}
    place = {"backend": "fleet", "gpus_per_replica": 0, "cpus_per_task": 1, "replicas": 1}
    file = head.swarm("herd", **own, **place, args="--ctx-size 512 --threads 1", watchdog={"http_path": None})
    head.run("up", "-c", str(file))
    task = head.task("herd", "replica/0")
    assert (task["node"], task["url"].rpartition(":")[0]) == ("box", f"http://{ADDRESS}")
    assert kept(fleet), "it is carried"
    assert head.view("herd")["endpoint"] == head.task("herd", "router/0")["url"]
    (head.root / "in.jsonl").write_text('{"prompt": "a"}\n{"prompt": "b"}\n')
    head.run("job", "submit", "completion", "--name", "herd", "--input", "in.jsonl", "--output", "out.jsonl")
    assert [json.loads(line)["error"] for line in (head.root / "out.jsonl").read_text().splitlines()] == [None, None]
    assert head.run("logs", "herd", "--replica", "0").stdout
    head.run("down", "herd")
    until(lambda: not kept(fleet), "the node has forgotten it", 30)


def test_a_client_that_is_gone_says_nothing_about_its_runs(fleet: Fleet, flag: Path) -> None:
    run(fleet, flag)
    pid = membership.running(fleet.box.paths.fleet_node)
    os.kill(pid, signal.SIGKILL)
    flag.unlink()
    heard = fleet.head.paths.fleet_heard / "box"
    until(lambda: time.time() - heard.stat().st_mtime > 11, "it is silent", 30)
    assert fleet.head.view("train")["tasks"][0]["phase"] == "ready"
    fleet.box.run("client", "connect", fleet.where, "--resilient", "--detach")
    assert over(fleet) == [(1, 7)]
    assert logs(fleet).endswith("last line\n")


def test_what_cannot_be_carried_is_refused_when_it_is_planned(fleet: Fleet) -> None:
    (fleet.head.root / "train.sh").write_text("#!/bin/sh\n#SBATCH --output=/data/train.log\ntrue\n")
    said = fleet.head.run("run", "train.sh", "--backend", "fleet", check=False)
    assert said.returncode == 2
    assert "nodes of this fleet have files of their own, where 'output' means nothing" in said.stderr
    assert json.loads(fleet.head.run("status", "--all", "--json").stdout) == []


def test_a_machine_that_leaves_has_told_all_of_its_runs(fleet: Fleet, flag: Path) -> None:
    run(fleet, flag)
    with fleet.box.start("client", "disconnect") as leaving:
        until(lambda: "drain" in fleet.nodes()["box"]["state"], "it gets nothing new", 30)
        flag.unlink()
        assert leaving.wait(60) == 0
    assert not kept(fleet)
    assert over(fleet) == [(1, 7)]
    assert is_counted(logs(fleet))
    assert logs(fleet).endswith("last line\n")


def test_its_folder_travels_once_and_what_it_wrote_comes_back(fleet: Fleet) -> None:
    project = fleet.head.root / "project"
    (project / "data").mkdir(parents=True)
    (project / "model.py").write_text("print('model of', open('data/in.txt').read())\n")
    (project / "data" / "in.txt").write_text("input")
    (project / "cache.bin").write_text("ignored")
    (project / ".gitignore").write_text("cache.bin\n")
    subprocess.run(["git", "init", "-q", str(project)], check=True)
    script = "#!/bin/sh\nls\npython3 model.py\ncat $WHERE; echo\necho result > out.txt\necho changed >> data/in.txt\n"
    for name in ("one", "two"):
        (fleet.head.root / f"{name}.sh").write_text(script)
        fleet.head.run("run", f"{name}.sh", "--backend", "fleet", "--workdir", str(project), "--wait",
                       "--set", f"env.WHERE={project}/data/in.txt")  # fmt: skip
        said = fleet.head.run("logs", name).stdout.splitlines()
        assert said == ["data", "model.py", "model of input", "input"]
    node = fleet.box.paths.fleet_node
    assert len([*(node / "fetched").glob("*.tar")]) == 1
    until(lambda: not kept(fleet), "the node has forgotten both", 30)
    until(lambda: not [*(node / "carried").iterdir()], "nothing of them is left", 10)
    made = json.loads(fleet.head.run("pull", "one", "--json").stdout)
    assert made == ["one-results/data/in.txt", "one-results/out.txt"]
    assert (fleet.head.root / "one-results" / "data" / "in.txt").read_text() == "inputchanged\n"
    assert fleet.head.run("pull", "two", "out.txt", "--to", ".").stderr == "1 file in .\n"
    assert (fleet.head.root / "out.txt").read_text() == "result\n"
    assert (project / "data" / "in.txt").read_text() == "input"
    done = fleet.head.run("pull", "two", "model.py", check=False)
    assert done.stderr == "error: two wrote no 'model.py'\n  it wrote data/in.txt, out.txt\n"


def test_a_folder_that_cannot_travel_is_why_a_run_fails(fleet: Fleet) -> None:
    (fleet.head.root / "train.sh").write_text("#!/bin/sh\ntrue\n")
    large = fleet.head.root / "large"
    large.mkdir()
    with (large / "data.bin").open("wb") as file:
        file.truncate(201 << 20)
    fleet.head.run("run", "train.sh", "--backend", "fleet", "--workdir", str(large))
    assert over(fleet) == [(1, 82)]
    assert f"{large} has more than 200.0 MB or 50,000 files" in fleet.head.run("explain", "train").stdout


@pytest.mark.parametrize("step", ["after heard", "before submit"])
def test_a_head_that_dies_when_it_knows_that_nothing_is_shared(fleet: Fleet, flag: Path, step: str) -> None:
    head = fleet.head
    head.run("host", "stop")
    head.paths.fleet_carried.unlink()
    dying = begin_dying(head, "host", step)
    until(head.paths.fleet_carried.exists, "it knows", 60)
    (head.root / "train.sh").write_text(TRAIN.format(home=head.paths.root, flag=flag))
    if step == "after heard":
        assert dying.wait(60) == -signal.SIGKILL
    with head.start("run", "train.sh", "--backend", "fleet", "--max-retries", "0"):
        if step == "before submit":
            assert dying.wait(60) == -signal.SIGKILL
            head.run("host", "start")
        until(lambda: "line 3" in logs(fleet), "its output is here", 90)
    assert kept(fleet), "it is carried"
    flag.unlink()
    assert over(fleet) == [(1, 7)]
    assert is_counted(logs(fleet))


def test_what_is_pulled_too_early_of_nobody_twice_and_to_a_full_disk(fleet: Fleet, flag: Path) -> None:
    head, project = fleet.head, fleet.head.root / "project"
    project.mkdir()
    (head.root / "train.sh").write_text(
        f"#!/bin/sh\necho begun\nhead -c 3000000 /dev/zero > big\necho 1 > small\nchmod 400 small\nln big same\n"
        f"while [ -e {flag} ]; do sleep 0.1; done\n"
    )
    head.run("run", "train.sh", "--backend", "fleet", "--workdir", str(project))
    until(lambda: "begun" in logs(fleet), "it runs", 60)
    assert "error: nothing of what train wrote has come back\n" in head.run("pull", "train", check=False).stderr
    assert "nobody" in (done := head.run("pull", "nobody", check=False)).stderr
    assert done.returncode == 3
    flag.unlink()
    assert over(fleet) == [(1, 0)]
    for _ in range(2):
        assert json.loads(head.run("pull", "train", "--json").stdout) == [
            f"train-results/{name}" for name in ("big", "same", "small")
        ]
        sizes = {path.name: path.stat().st_size for path in (head.root / "train-results").iterdir()}
        assert sizes == {"big": 3_000_000, "same": 3_000_000, "small": 2}
    (head.root / "disk").mkdir()
    script = 'mount -t tmpfs -o size=1m tmpfs disk && "$@"; code=$?; ls -A disk; exit $code'
    words = ["unshare", "--mount", "sh", "-c", script, "sh", *COLD, "pull", "train", "--to", "disk"]
    full = subprocess.run(words, env=head.env, cwd=head.root, capture_output=True, text=True, check=False, timeout=60)
    assert (full.returncode, full.stdout) == (2, "")
    assert full.stderr.startswith("error: disk/big: cannot be written: no space left on device\n")
