"""`remuda doctor` on this machine: what is wrong is a sentence, and only what nobody wants is ended.

Other tests run at the same time, so only what is of this home is looked at.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import sqlite3
import subprocess
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

from tests.conftest import until

from remuda.backends.local.processes import tokens_by_pid

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Home


def look(home: Home, *flags: str) -> dict[str, Any]:
    seen: dict[str, Any] = json.loads(home.run("doctor", "--json", *flags, check=False).stdout)
    return seen


def check(seen: dict[str, Any], name: str) -> tuple[str, str, str]:
    one = next(check for check in seen["checks"] if check["name"] == name)
    return one["state"], one["sentence"], one["todo"]


def own(home: Home, seen: dict[str, Any]) -> dict[str, str]:
    """Task -> verdict, of this home."""
    mine = [one for one in seen["allocations"] if one["home"] == str(home.paths.root)]
    return {".".join(one["token"].split(".")[1:3]): one["verdict"] for one in mine}


def test_a_life(home: Home) -> None:
    seen = look(home)
    assert check(seen, "host")[1] == "none runs on this machine; commands that need one start it"
    assert check(seen, "database")[1].endswith("remuda.db is not there yet; the first host makes it")
    assert own(home, seen) == {}

    home.run("up", "-c", str(home.swarm(replicas=1, router="none")))
    seen = look(home)
    state, said, _ = check(seen, "host")
    assert state == "ok"
    assert said.startswith(f"pid {home.host_pid()} on ")
    assert check(seen, "database")[0] == "ok"
    assert own(home, seen) == {"replica.0": "wanted"}

    home.kill_host()
    seen = look(home)
    assert check(seen, "workloads")[1:] == ("1 workloads are wanted, and no host looks after them", "remuda host start")
    assert check(seen, "host")[0] == "note", "its socket lies there"
    assert own(home, seen) == {"replica.0": "wanted"}
    assert not seen["well"]

    stale = home.paths.workload("herd") / "secrets" / "zzzzzzzz"
    for folder in (stale.parent, stale):
        folder.mkdir(mode=0o700)
    (home.paths.workloads / "forgotten").mkdir()
    seen = look(home)
    assert check(seen, "secrets")[1].endswith(f"the first is {stale}")
    assert check(seen, "run directories")[1].endswith("are of no workload: forgotten")
    look(home, "--clean", "--yes")
    assert not stale.exists()
    assert home.tokens(), "what is wanted goes on"

    home.run("down", "herd")
    assert own(home, look(home)) == {}


def test_a_broken_database_condemns_nobody(home: Home) -> None:
    home.run("up", "-c", str(home.swarm(replicas=1, router="none")))
    home.kill_host()
    database = home.paths.database
    for path in database.parent.glob("remuda.db-*"):
        path.unlink()
    database.write_bytes(b"\0" * 4096 + b"this is no database any more" * 400)
    done = home.run("doctor", "--clean", "--yes", check=False)
    assert done.returncode == 1
    assert f"✗ database: database {database} is damaged or is not a database" in done.stdout
    assert own(home, look(home)) == {"replica.0": "unknown"}
    assert home.tokens()
    database.unlink()
    told = check(look(home), "database")
    assert told == (
        "problem", f"{database} is not there yet, though there are run directories",
        "if it is elsewhere, set REMUDA_DATABASE_URL; if it was lost, remuda db restore COPY",
    )  # fmt: skip
    assert own(home, look(home)) == {"replica.0": "unknown"}


def test_a_newer_database_is_told_and_read(home: Home) -> None:
    home.run("host", "start")
    home.run("host", "stop")
    with closing(sqlite3.connect(home.paths.database)) as connection, connection:
        connection.execute("UPDATE remuda_revision SET version_num = '9999'")
    state, said, todo = check(look(home), "database")
    assert state == "problem"
    assert "revision 9999, and this command knows " in said
    assert todo == "use the newer remuda that wrote it"


def removed(folder: Path) -> bool:
    shutil.rmtree(folder, ignore_errors=True)
    return not folder.exists()


def test_what_a_deleted_home_left_is_ended(home: Home) -> None:
    home.run("up", "-c", str(home.swarm()))
    home.kill_host()
    pids = set(home.tokens())
    # Its programs write there meanwhile.
    until(lambda: removed(home.paths.root), "it is gone")
    home.paths.prepare()
    assert own(home, look(home)) == {"replica.0": "orphan", "replica.1": "orphan", "router.0": "orphan"}
    refused = home.run("doctor", "--clean", check=False)
    assert refused.returncode == 2
    assert "not a terminal; pass --yes to clean unasked" in refused.stderr
    done = home.run("doctor", "--clean", "--yes", check=False)
    assert done.stderr.count(" has ended\n") == 3, done.stderr
    assert own(home, look(home)) == {}
    until(lambda: not pids & set(tokens_by_pid()), "all their processes are gone")


def test_wrong_flags(home: Home) -> None:
    done = home.run("doctor", "--gone-homes", check=False)
    assert done.returncode == 2
    assert "--gone-homes goes with --clean" in done.stderr


def test_a_full_disk_is_told(home: Home) -> None:
    assert check(look(home), "disk")[0] == "ok"
    small = home.root / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=0700", "none", str(small)], check=True)
    try:
        with suppress(OSError), (small / "much").open("wb") as file:
            file.write(b"x" * (2 << 20))
        done = home.run("doctor", "--json", check=False, env={"REMUDA_HOME": str(small)})
    finally:
        subprocess.run(["umount", str(small)], check=True)
    state, said, todo = check(json.loads(done.stdout), "disk")
    assert (state, said) == ("problem", f"no room is left for {small}; nothing new can be recorded")
    assert "make room" in todo
    assert done.returncode == 1


def test_a_configuration_of_slurm_that_is_gone_is_told(home: Home) -> None:
    done = home.run("doctor", "--json", check=False, env={"SLURM_CONF": "/nowhere/slurm.conf"})
    assert check(json.loads(done.stdout), "slurm") == (
        "problem", "SLURM_CONF is /nowhere/slurm.conf, and there is no such file",
        "load the module of your site again, or unset SLURM_CONF",
    )  # fmt: skip


def test_work_of_other_people_is_none_of_ours(home: Home) -> None:
    """Who runs this may be the superuser, who can read everybody's processes."""
    token = f"theirs.replica.0.1.{secrets.token_hex(4)}"
    env = {"REMUDA_TOKEN": token, "REMUDA_RUN_DIR": f"/gone/workloads/theirs/replica-0/attempt-1-{token[-8:]}"}
    theirs = subprocess.Popen(["sleep", "600"], env=env, user=12345) if os.getuid() == 0 else None
    try:
        found = [one for one in look(home)["allocations"] if one["token"] == token]
    finally:
        if theirs is not None:
            theirs.kill()
            theirs.wait()
    assert found == []


def test_what_another_home_left_is_a_note_with_how_to_end_it(home: Home) -> None:
    token = "lost.replica.0.1.abcd1234"
    gone = home.root / "gone"
    env = {"REMUDA_TOKEN": token, "REMUDA_RUN_DIR": f"{gone}/workloads/lost/replica-0/attempt-1-{token[-8:]}"}
    other = subprocess.Popen(["sleep", "300"], env=env)
    try:
        done = home.run("doctor", check=False)
        assert done.returncode == 0, done.stdout
        assert "○ allocations: " in done.stdout
        assert f"{other.pid}: remuda doctor --clean --gone-homes, or kill {other.pid}\n" in done.stdout
        (found,) = [one for one in look(home)["allocations"] if one["token"] == token]
        assert (found["verdict"], found["own"]) == ("homeless", False)
    finally:
        other.kill()
        other.wait()


def test_a_home_that_may_not_be_looked_at_is_not_taken_for_gone(home: Home) -> None:
    """As where a file system does not answer, or a folder above it is somebody else's."""
    token = f"other.replica.0.1.{secrets.token_hex(4)}"  # the same test may run twice on a machine
    loop = home.root / "loop"
    loop.symlink_to(loop)
    env = {"REMUDA_TOKEN": token, "REMUDA_RUN_DIR": f"{loop}/state/workloads/other/replica-0/attempt-1-{token[-8:]}"}
    other = subprocess.Popen(["sleep", "600"], env=env)
    try:
        (found,) = [one for one in look(home)["allocations"] if one["token"] == token]
    finally:
        other.kill()
        other.wait()
    assert found["verdict"] == "unknown"
    assert found["sentence"].endswith("could not be looked at")
