"""What another user of the machine can do to a user of remuda: nothing but make a command say whose something is."""

from __future__ import annotations

import json
import os
import shutil
import socket
import stat
import struct
import subprocess
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.conftest import PYTHON, Home, at_once, until
from tests.fakes.stub_process import StubProcess
from tests.strangers import dumps, modes

from remuda.base.disk.paths import StatePaths
from remuda.base.disk.private import told_above, user_name
from remuda.base.errors import HostUnreachable, NotPrivate
from remuda.client.http import HostClient, refuse_peer
from remuda.node.zipapp import build_zipapp, program_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tests.strangers import Stranger

CASES = Path(__file__).parents[2] / "cases"
RECIPE = """
kind: deployment
name: here
backend: {type: local}
model: {path: model.gguf, name: tiny}
engine: llamacpp
roles: {agg: {workers: 1}}
frontend: {type: none}
"""
SCRIPT = "#!/bin/bash\n#REMUDA --backend local --backoff-base 0.1\n"


def typed(*words: str, cwd: Path, env: Mapping[str, str], umask: int = 0o002) -> subprocess.CompletedProcess[str]:
    """A command of a user who works in a project's folder; nothing but `env` chooses what it does."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("REMUDA_", "OPENAI_", "XDG_"))}
    done = subprocess.run(
        [PYTHON, "-m", "remuda", *words], cwd=cwd, env={**kept, "NO_COLOR": "1", "COLUMNS": "200", **env}, umask=umask,
        capture_output=True, text=True, timeout=240, stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    done.stderr = at_once(done.stderr)
    return done


@pytest.fixture
def project(common: Path) -> Iterator[Home]:
    """A state directory that was not made yet, in a folder of a project."""
    (common / "train.sh").write_text(f"{SCRIPT}echo trained\n")
    one = Home.__new__(Home)
    one.root, one.paths = common, StatePaths(common / "home")
    one.client, one.env, one.cold = HostClient(one.paths), {}, True
    yield one
    one.close()


@pytest.mark.parametrize(
    "words",
    [
        ("run", "train.sh", "--dry-run"),
        ("doctor",),
        ("status",),
        ("init", "defaults"),
        ("db", "status"),
        ("host", "status"),
        ("bench", "import", "vllm.json"),
        ("apply", "recipe.yaml", "--dry-run"),
    ],
    ids=" ".join,
)
def test_whatever_comes_first_makes_nothing_that_others_can_write(project: Home, words: tuple[str, ...]) -> None:
    shutil.copy(CASES / "bench/imported/vllm.json", project.root)
    (project.root / "model.gguf").touch()
    (project.root / "recipe.yaml").write_text(RECIPE)
    done = typed(*words, cwd=project.root, env={"REMUDA_HOME": str(project.paths.root)}, umask=0)
    assert not project.paths.root.exists() or done.returncode == 0, done.stderr
    only_mine(project)


def test_nor_does_a_benchmark_that_comes_first(project: Home) -> None:
    with StubProcess() as stub:
        load = ("-C", "1", "--requests", "2", "--isl", "8", "--osl", "2", "--no-stream")
        words = ("bench", "--endpoint", f"{stub.url}/v1", *load)
        typed(*words, cwd=project.root, env={"REMUDA_HOME": str(project.paths.root)}, umask=0)
    assert list((project.paths.root / "bench").glob("*/point.json"))
    only_mine(project)


def only_mine(project: Home) -> None:
    """Nothing in the state directory is open to others."""
    if project.paths.root.exists():
        assert stat.S_IMODE(project.paths.root.stat().st_mode) & 0o777 == 0o700
        found = {path: mode for path, mode in modes(project.paths.root).items() if not path.endswith(".pyz")}
        assert found == {}, dumps(found)


def test_a_dry_run_writes_nothing(project: Home) -> None:
    done = typed("run", "train.sh", "--dry-run", cwd=project.root, env={"REMUDA_HOME": str(project.paths.root)})
    assert done.returncode == 0, done.stderr
    assert not project.paths.root.exists()


def test_a_shared_folder_is_refused_as_home(project: Home) -> None:
    done = typed("run", "train.sh", cwd=project.root, env={"REMUDA_HOME": str(project.root)})
    assert done.returncode == 4
    assert done.stdout == ""
    said = f"error: {project.root} can be written by others than {user_name(os.geteuid())} (mode 2775): by all in group"
    assert done.stderr.startswith(said)
    assert f"chmod 700 {project.root}" in done.stderr
    assert "REMUDA_HOME" in done.stderr
    assert sorted(path.name for path in project.root.iterdir()) == ["train.sh"]


def test_who_can_put_another_home_in_its_place_is_told_once(project: Home, stranger: Stranger) -> None:
    """By the command that starts the host, in its log, by doctor; not by commands that find a host."""
    home = {"REMUDA_HOME": str(project.paths.root)}
    said = told_above(project.paths.root)
    assert bool(said) == stranger.is_real  # else the group may be one's own
    began = typed("host", "start", cwd=project.root, env=home)
    assert began.returncode == 0, began.stderr
    assert began.stderr.count(said) == 1 or not said, began.stderr
    assert said in project.paths.host_log.read_text()
    assert said not in (again := typed("status", cwd=project.root, env=home).stderr) or not said, again
    # What else is on this machine decides on its exit code, too.
    seen = json.loads(typed("doctor", "--json", cwd=project.root, env=home).stdout)
    assert [check for check in seen["checks"] if check["state"] == "problem"] == []
    assert any(said in f"{check['sentence']} {check['todo']}" for check in seen["checks"]), seen["checks"]


@pytest.mark.parametrize("words", [("run", "train.sh"), ("status",), ("host", "start")], ids=" ".join)
def test_a_home_below_a_folder_of_everybody_is_refused(project: Home, words: tuple[str, ...]) -> None:
    project.root.chmod(0o777)
    done = typed(*words, cwd=project.root, env={"REMUDA_HOME": str(project.paths.root)})
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr.startswith(f"error: any user can replace {project.paths.root}: ")
    assert f"chmod o-w {project.root}" in done.stderr
    assert not project.paths.root.exists()


def test_a_home_directory_elsewhere_is_looked_at_like_that(project: Home, tmp_path: Path, stranger: Stranger) -> None:
    home = {"REMUDA_HOME": str(tmp_path / "home")}
    document = project.root / "swarm.yaml"
    document.write_text(f"model: m\nengine: command\ncommand: [sleep, inf]\nhome_directory: {project.root}/here\n")
    said = typed("config", "check", str(document), cwd=tmp_path, env=home)
    assert said.returncode == 0, said.stderr
    told = told_above(project.root / "here", instead="set home_directory to one")
    assert told in said.stdout + said.stderr
    assert bool(told) == stranger.is_real
    project.root.chmod(0o777)
    refused = typed("up", "-c", str(document), cwd=tmp_path, env=home)
    assert refused.returncode == 4, refused.stderr
    assert f"any user can replace {project.root}/here" in refused.stderr
    assert "set home_directory to one of your own" in refused.stderr


def test_a_program_that_was_put_in_place_of_ours_is_never_run(project: Home, stranger: Stranger) -> None:
    """The folder was open once, and somebody knew the name of what is run from it."""
    program, mark = program_path(project.paths.node), project.root / "was-run"
    project.paths.root.mkdir()
    project.paths.root.chmod(0o777)

    def evil() -> None:
        program.parent.mkdir(mode=0o777)
        with zipfile.ZipFile(program, "w") as archive:
            archive.writestr("__main__.py", f"open({str(mark)!r}, 'w')")
        program.chmod(0o644)

    assert stranger.does(evil)
    home = {"REMUDA_HOME": str(project.paths.root)}
    refused = typed("run", "train.sh", cwd=project.root, env=home)
    assert refused.returncode == 4, refused.stderr
    # The user does what the sentence says, and the program is still theirs.
    project.paths.root.chmod(0o700)
    if stranger.is_real:
        refused = typed("run", "train.sh", cwd=project.root, env=home)
        assert (refused.returncode, f"{program.parent} belongs to" in refused.stderr) == (5, True), refused.stderr
        os.chown(program.parent, os.geteuid(), -1)
    done = typed("run", "train.sh", cwd=project.root, env=home)
    assert done.returncode == 0, done.stderr
    until(lambda: project.view("train")["phase"] == "DONE", "it was trained")
    assert not mark.exists()
    assert program.stat().st_uid == os.geteuid()


def test_a_program_counts_only_with_its_own_bytes(tmp_path: Path) -> None:
    path = build_zipapp(tmp_path)
    whole, before = path.read_bytes(), path.stat()
    assert build_zipapp(tmp_path) == path
    assert path.stat() == before, "what is whole is left alone"

    def link() -> None:
        path.unlink()
        path.symlink_to("/etc/passwd")

    def pipe() -> None:
        path.unlink()
        os.mkfifo(path)

    spoils: list[Callable[[], object]] = [
        lambda: path.write_bytes(whole[:-1] + b"x"),
        lambda: path.write_bytes(whole + b"x"),
        lambda: path.write_bytes(b""),
        lambda: path.chmod(0o666),
        link,
        pipe,
    ]
    for spoil in spoils:
        spoil()
        assert build_zipapp(tmp_path) == path
        assert path.read_bytes() == whole
        assert stat.S_IMODE(path.lstat().st_mode) == 0o644


def test_a_program_of_somebody_else_is_replaced(common: Path, stranger: Stranger) -> None:
    """Their file may hold our bytes today and others tomorrow."""
    common.chmod(0o777)
    path = program_path(common)
    whole = build_zipapp(common / "ours").read_bytes()

    def copy() -> None:
        path.write_bytes(whole)
        path.chmod(0o644)

    assert stranger.does(copy)
    if stranger.is_real:
        build_zipapp(common)
        assert path.stat().st_uid == os.geteuid()
    assert path.read_bytes() == whole


@pytest.fixture
def repository(common: Path) -> Path:
    """What somebody cloned: its `.env` names a state directory with all that it takes to run a script."""
    evil = common / "repository"
    (evil / "home").mkdir(parents=True)
    (evil / "home").chmod(0o700)
    evil.chmod(0o755)
    (evil / "evil.sh").write_text(f"touch {common}/was-run\n")
    (evil / "defaults.yaml").write_text(f"run:\n  env: {{BASH_ENV: {evil}/evil.sh}}\n")
    (evil / "remuda").mkdir()
    for module in ("remuda/__init__.py", "click.py", "sqlalchemy.py", "orjson.py"):
        (evil / module).write_text(f"open({str(common / 'was-run')!r}, 'w')\n")
    (evil / ".env").write_text(
        f"REMUDA_HOME={evil}/home\nREMUDA_DEFAULTS={evil}/defaults.yaml\n"
        f"DOMYN_SWARM_DEFAULTS={evil}/defaults.yaml\nREMUDA_DATABASE_URL={evil}/evil.db\n"
    )
    return evil


def test_nothing_of_a_folder_runs_because_one_stands_in_it(repository: Path, project: Home) -> None:
    """The user's own home and script; only the working directory is somebody else's."""
    project.root.chmod(0o755)
    mine = project.root / "me"
    (mine / ".remuda").mkdir(parents=True, mode=0o700)
    project.paths = StatePaths(mine / ".remuda")
    project.client = HostClient(project.paths)

    def here(*words: str) -> subprocess.CompletedProcess[str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("REMUDA_", "DOMYN_"))}
        command = [str(Path(PYTHON).with_name("remuda")), *words]
        return subprocess.run(
            command, cwd=repository, env={**kept, "HOME": str(mine), "NO_COLOR": "1", "COLUMNS": "200"},
            capture_output=True, text=True, timeout=240, stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip

    seen = here("status", "--json")
    assert json.loads(seen.stdout) == []
    # A slow machine lets it say what it waits for.
    assert len([one for one in seen.stderr.splitlines() if not one.startswith("waiting for the host (pid ")]) == 1
    assert (
        f"{repository}/.env sets REMUDA_HOME, REMUDA_DEFAULTS, DOMYN_SWARM_DEFAULTS, REMUDA_DATABASE_URL" in seen.stderr
    )
    ran = here("run", str(project.root / "train.sh"))
    assert ran.returncode == 0, ran.stderr
    until(lambda: project.view("train")["phase"] == "DONE", "it was trained")
    (project.root / "in.jsonl").write_text('{"messages": "hi"}\n')
    words = ("job", "submit", "-i", f"{project.root}/in.jsonl", "-o", f"{project.root}/out.jsonl", "--detach")
    sent = here(*words, "--endpoint", "http://127.0.0.1:9", "--model", "m", "--job-id", "ask")
    assert sent.returncode == 0, sent.stderr
    until(lambda: here("logs", "ask").stdout, "its driver has said something")
    assert not (project.root / "was-run").exists()
    assert list((repository / "home").iterdir()) == []
    assert not (repository / "evil.db").exists()


def test_an_engine_finds_no_module_in_the_folder_where_it_was_typed(repository: Path, project: Home) -> None:
    """What is rendered is carried out, as the node program would."""
    (project.root / "m.gguf").touch()
    document = {"model": str(project.root / "m.gguf"), "engine": "llamacpp", "router": "none", "name": "x"}
    (project.root / "x.yaml").write_text(json.dumps(document))
    home = {"REMUDA_HOME": str(project.paths.root), "PYTHONSAFEPATH": "1"}
    done = typed("up", "-c", str(project.root / "x.yaml"), "--dry-run", "--json", cwd=repository, env=home)
    assert done.returncode == 0, done.stderr
    (child,) = [json.loads(text) for item in json.loads(done.stdout) for text in item["files"].values()]
    assert child["cwd"] == str(repository)
    for env, found in (({}, True), (child["env"], False)):
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
        subprocess.run(
            [*child["argv"][:3], "--help"], cwd=child["cwd"], env=kept | env, capture_output=True, check=False
        )
        assert (project.root / "was-run").exists() is found
        (project.root / "was-run").unlink(missing_ok=True)


def deep(common: Path) -> StatePaths:
    """A state directory whose path is too long for a socket."""
    return StatePaths(common / ("d" * 90) / "home")


@pytest.fixture
def squat(monkeypatch: pytest.MonkeyPatch, common: Path) -> StatePaths:
    """The same, with the place of its socket in a folder where everybody may make some."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(common))
    return deep(common)


def listen(path: Path, heard: Path) -> None:
    """Be the host on a socket, and keep what is asked."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        path.chmod(0o777)
        server.listen()
        heard.with_suffix(".ready").touch()
        while True:
            peer, _ = server.accept()
            with peer, heard.open("ab") as file:
                peer.settimeout(30)
                file.write(b"." + peer.recv(65536))
                file.flush()
                peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")


def test_a_squatted_socket_gets_nothing(
    squat: StatePaths, common: Path, stranger: Stranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = common / "heard"
    path = squat.socket  # as its user sees it

    def serve() -> None:
        path.parent.mkdir(mode=0o777)
        listen(path, heard)

    stranger.begins(serve)
    until(heard.with_suffix(".ready").exists, "they listen")
    stranger.see_as_foreign()
    monkeypatch.setattr(StatePaths, "socket", path)
    client = HostClient(squat)
    whose = rf"belongs to {user_name(stranger.uid)}"
    for ask in (client.is_up, lambda: client.post("/workloads", {"secret": 1}), lambda: list(client.lines("/x"))):
        with pytest.raises(NotPrivate, match=whose) as caught:
            ask()
    assert "XDG_RUNTIME_DIR" in caught.value.hint
    assert not heard.exists()


def test_whoever_listens_in_a_folder_of_ours_is_asked_who_they_are(
    common: Path, stranger: Stranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A socket that was handed on, or put there while the folder was open."""
    paths, heard = StatePaths(common / "home"), common / "heard"
    paths.root.mkdir(mode=0o777)
    paths.root.chmod(0o777)
    stranger.begins(lambda: listen(paths.socket, heard))
    until(heard.with_suffix(".ready").exists, "they listen")
    paths.root.chmod(0o700)
    stranger.see_as_foreign()
    if not stranger.is_real:
        monkeypatch.setattr(StatePaths, "check_socket", lambda _: None)
    with pytest.raises(NotPrivate, match=f"belongs to {user_name(stranger.uid)}, not to your host"):
        HostClient(paths).post("/workloads", {"secret": 1})
    assert not heard.exists() or set(heard.read_bytes()) <= set(b"."), "nothing was asked"


def test_a_command_says_whose_socket_it_is(squat: StatePaths, common: Path, stranger: Stranger) -> None:
    folder = squat.socket.parent
    assert stranger.does(lambda: folder.mkdir(mode=0o777)), "with our umask the group may write it"
    (common / "train.sh").write_text(f"{SCRIPT}echo trained\n")
    env = {"REMUDA_HOME": str(squat.root), "XDG_RUNTIME_DIR": str(common)}
    for words in (("status",), ("run", "train.sh"), ("host", "start")):
        done = typed(*words, cwd=common, env=env)
        assert done.returncode == 4, (words, done)
        assert done.stdout == ""
        assert str(folder) in done.stderr
        assert "XDG_RUNTIME_DIR" in done.stderr
    assert not squat.database.exists()


def test_who_may_answer() -> None:
    refuse_peer(1000, 1000, "/s")
    for other in (0, 1001, 54_321):
        with pytest.raises(NotPrivate, match=f"/s belongs to {user_name(other)}"):
            refuse_peer(other, 1000, "/s")


def test_our_own_host_is_believed(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "host.sock"))
        server.listen()
        with socket.socket(socket.AF_UNIX) as asks:
            asks.connect(str(tmp_path / "host.sock"))
            _, uid, _ = struct.unpack("3i", asks.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    refuse_peer(uid, os.geteuid(), "")
    with pytest.raises(HostUnreachable):
        HostClient(StatePaths(tmp_path / "none")).get("/host")


def test_nothing_that_a_host_and_its_tasks_leave_is_open(project: Home) -> None:
    """With a umask of 0, as some services have it."""
    (project.root / "train.sh").write_text(f"{SCRIPT}echo trained; remuda-progress 3 10; sleep 600\n")
    home = {"REMUDA_HOME": str(project.paths.root)}
    project.paths.prepare()
    project.paths.host_log.touch(mode=0o644)
    done = typed("run", "train.sh", cwd=project.root, env=home, umask=0)
    assert done.returncode == 0, done.stderr
    until(lambda: "trained" in typed("logs", "train", cwd=project.root, env=home).stdout, "it runs")
    until((project.paths.workload("train") / "progress.json").exists, "it has said how far it is")
    typed("explain", "train", cwd=project.root, env=home, umask=0)
    typed("stop", "train", cwd=project.root, env=home, umask=0)
    assert stat.S_IMODE(project.paths.host_log.stat().st_mode) == 0o600
    found = {path: mode for path, mode in modes(project.paths.root).items() if not path.endswith(".pyz")}
    assert found == {}, dumps(found)
    assert json.loads(project.paths.workload("train").joinpath("meta.json").read_text())
