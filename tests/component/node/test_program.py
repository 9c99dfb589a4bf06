"""The program as a file: built once, the same for all, run by the oldest Python, one copy per allocation."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.component.node.conftest import PATIENCE_S, PYTHON, until
from tests.conftest import CALLERS_HOME

from remuda.base.errors import InputError
from remuda.node import zipapp
from remuda.node.zipapp import BINDING, build_zipapp, deflated, program_path
from remuda.wire import exit as codes
from remuda.wire.process import ProcessId, is_alive

if TYPE_CHECKING:
    from tests.component.node.conftest import Allocation


def test_a_second_copy_does_nothing(allocation: Allocation) -> None:
    allocation.start(["/bin/sleep", "1000"])
    pid = allocation.state("ready").pid
    assert allocation.states() == ["ready"]  # now that is written, too
    claim = ProcessId.from_json((allocation.run_dir / "claim.json").read_text())
    assert claim.pid == allocation.process.pid
    assert is_alive(claim)
    before = {path.name: path.stat().st_ino for path in allocation.run_dir.iterdir() if "report" not in path.name}
    second = allocation.start(["/bin/sleep", "1000"])
    assert second.wait(PATIENCE_S) == codes.FENCED
    after = {path.name: path.stat().st_ino for path in allocation.run_dir.iterdir() if "report" not in path.name}
    assert after == before
    assert allocation.state("ready").pid == pid


def test_a_copy_after_the_end_does_nothing(allocation: Allocation) -> None:
    allocation.start(["/bin/sh", "-c", "echo once"])
    assert allocation.code() == 0
    assert allocation.start(["/bin/sh", "-c", "echo once"]).wait() == codes.FENCED
    assert allocation.log() == "once\n"


def test_of_many_at_once_one_runs(allocation: Allocation) -> None:
    many = [allocation.start(["/bin/sh", "-c", "echo once; sleep 0.3"]) for _ in range(8)]
    ends = sorted(process.wait() for process in many)
    assert ends == [0] + [codes.FENCED] * 7
    assert allocation.log() == "once\n"
    assert not [path for path in allocation.run_dir.iterdir() if path.name.startswith(".")]


def test_hostile_words_arrive_as_they_are(allocation: Allocation, tmp_path: Path) -> None:
    word = f"$(touch {tmp_path}/x) `touch {tmp_path}/x` ; touch {tmp_path}/x \n 'quoted\" \u2603"
    script = "import os, sys, json; print(json.dumps([sys.argv[1], os.environ['WORD'], os.environ['REMUDA_TASK']]))"
    allocation.start([*PYTHON, "-c", script, word], env={"WORD": word}, task=f"{word}/0")
    assert allocation.code() == 0
    assert json.loads(allocation.log()) == [word, word, f"{word}/0"]
    assert not (tmp_path / "x").exists()


def test_a_secret_is_seen_by_the_child_only(allocation: Allocation, tmp_path: Path) -> None:
    secret = "sk-3f9c1b7e-do-not-tell"
    (tmp_path / "key").write_text(f"{secret}\n")
    gate = tmp_path / "gate"
    script = (
        "import os, sys, time; key = os.environ['API_KEY']; print(len(key)); print('non-default args:', key);"
        "sys.stdout.flush(); sys.stdout.write(key[:9]); sys.stdout.flush()\n"
        "while not os.path.exists(sys.argv[1]): time.sleep(0.01)\n"
        "print(key[9:], key * 2)"
    )
    allocation.start([*PYTHON, "-c", script, str(gate)], secret_env={"API_KEY": {"file": str(tmp_path / "key")}})
    pid = allocation.state("ready").pid
    for process in (pid, allocation.process.pid):
        assert secret.encode() not in Path(f"/proc/{process}/cmdline").read_bytes()
    gate.touch()
    assert allocation.code() == 0
    assert allocation.log() == "23\nnon-default args: [secret]\n[secret] [secret][secret]\n"
    for path in allocation.run_dir.iterdir():
        assert secret not in path.read_text()
    assert allocation.process.stderr is not None
    assert secret not in allocation.process.stderr.read()


@pytest.mark.parametrize("text", ["", "{", '{"version": 1}', '{"version": 9}'])
def test_a_document_that_cannot_be_read(program: Path, tmp_path: Path, text: str) -> None:
    (tmp_path / "spec.json").write_text(text)
    end = subprocess.run(
        [*PYTHON, str(program), "child", str(tmp_path / "spec.json")], capture_output=True, check=False
    )
    assert end.returncode == codes.BAD_SPEC
    assert b"cannot read" in end.stderr


def test_a_run_directory_that_cannot_be_made(allocation: Allocation) -> None:
    process = allocation.start(["/bin/true"], run_dir="/proc/none")
    assert process.wait() == codes.CANNOT_START


def test_the_command_line(program: Path) -> None:
    for command in ([*PYTHON, str(program)], [sys.executable, "-m", "remuda.node"]):
        version = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True).stdout
        assert version.startswith("remuda-node 0.")
        assert subprocess.run([*command], capture_output=True, check=False).returncode == codes.BAD_SPEC


BUILD = """
import pathlib, sys
from remuda.node.zipapp import build_zipapp
print(build_zipapp(pathlib.Path(sys.argv[1])))
"""


def test_the_file_is_the_same_whoever_builds_it(tmp_path: Path) -> None:
    homes = [tmp_path / "shared", tmp_path / "shared", tmp_path / "other"]
    builders = [
        subprocess.Popen([sys.executable, "-c", BUILD, str(home)], stdout=subprocess.PIPE, text=True) for home in homes
    ]
    paths = [Path(builder.communicate()[0].strip()) for builder in builders]
    assert paths[0] == paths[1]
    assert paths[0].name == paths[2].name
    assert paths[0].read_bytes() == paths[2].read_bytes()
    assert [path.name for path in (tmp_path / "shared").iterdir()] == [paths[0].name]
    before = paths[0].stat()
    assert build_zipapp(tmp_path / "shared") == paths[0]
    assert paths[0].stat() == before


def test_what_is_compiled_beside_its_source_gives_the_same_bytes() -> None:
    """Else two hosts would replace each other's for ever, where one finds the compiled file and the other does not."""
    for name, path in zipapp._files().items():
        text = path.read_bytes()
        assert zipapp._compiled(name, text, path) == zipapp._compiled(name, text, None), name


def test_the_name_follows_the_files_of_the_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "packages"
    folder.mkdir()
    source = Path(shutil.copy2(next(Path(one, BINDING) for one in sys.path if Path(one, BINDING).is_file()), folder))
    monkeypatch.setattr(sys, "path", [str(folder)])
    name = program_path(tmp_path)
    assert program_path(tmp_path) == name
    os.utime(source, ns=(0, source.stat().st_mtime_ns + 1))
    later = program_path(tmp_path)
    source.write_bytes(source.read_bytes() + b"#")
    os.utime(source, ns=(0, 0))
    assert len({name, later, program_path(tmp_path)}) == 3
    assert [path.name for path in tmp_path.iterdir()] == ["packages"], "nothing is written"


def test_without_the_binding_of_gpus_a_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [])
    for make in (lambda: program_path(Path("/nowhere")), lambda: build_zipapp(Path("/nowhere")), deflated.__wrapped__):
        with pytest.raises(InputError, match=r"^nodes ask their GPUs with pynvml\.py, which is not here$") as told:
            make()
        assert told.value.hint == "pip install nvidia-ml-py"


def test_the_file_holds_three_rooms_and_no_more(program: Path) -> None:
    names = {name for name in zipfile.ZipFile(program).namelist() if name.endswith(".py")}
    rooms = {name.split("/")[1] for name in names if name.count("/") > 1}
    assert rooms == {"node", "wire", "policy"}
    assert {"__main__.py", "remuda/__init__.py", "remuda/node/child/loop.py"} <= names
    assert "remuda/node/zipapp.py" not in names


def oldest_python() -> str:
    """A Python 3.9, the oldest that nodes may have."""
    found = [shutil.which("python3.9"), *map(str, CALLERS_HOME.glob(".pyenv/versions/3.9*/bin/python"))]
    found.append(shutil.which("pypy3"))
    question = "import sys; sys.exit(sys.version_info[:2] != (3, 9))"
    for python in found:
        # A name on PATH may be a shim that runs nothing.
        if python and subprocess.run([python, "-c", question], capture_output=True, check=False).returncode == 0:
            return python
    pytest.fail("no Python 3.9 here, the oldest that nodes may have: install python3.9, or pypy3 on Debian 12")


def test_it_runs_under_the_oldest_python(allocation: Allocation) -> None:
    python = oldest_python()
    allocation.server(python=python, metrics_path="/metrics")
    allocation.counts({"running": 2.0, "waiting": 1.0, "prompt_tokens": 30.0})
    allocation.control.write_text("500")
    allocation.state("unhealthy")
    assert allocation.stop() == codes.STOPPED


def test_all_of_it_compiles_under_the_oldest_python(program: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(program).extractall(tmp_path)
    names = [path.relative_to(tmp_path).with_suffix("") for path in (tmp_path / "remuda").rglob("*.py")]
    modules = [str(name).replace(os.sep, ".").removesuffix(".__init__") for name in names if name.name != "__main__"]
    code = f"import sys; sys.path.insert(0, {str(program)!r}); [__import__(name) for name in {modules!r}]"
    subprocess.run([oldest_python(), "-I", "-S", "-W", "error", "-c", code], check=True, cwd=tmp_path)


def test_it_is_small(allocation: Allocation) -> None:
    """CPU and memory of one, because there is one beside every replica."""
    allocation.server(report_every_s=10)
    allocation.state("ready")
    stat = Path(f"/proc/{allocation.process.pid}/stat").read_bytes().rpartition(b") ")[2].split()
    assert sum(int(value) for value in stat[11:13]) / os.sysconf("SC_CLK_TCK") < 1.5  # 0.1 on a quick one
    status = Path(f"/proc/{allocation.process.pid}/status").read_text()
    anonymous_kb = int(next(line for line in status.splitlines() if line.startswith("RssAnon")).split()[1])
    assert anonymous_kb < 16_000


def test_the_claim_is_whole_when_it_is_seen(allocation: Allocation) -> None:
    allocation.start(["/bin/true"])
    text = until(
        lambda: (allocation.run_dir / "claim.json").exists() and (allocation.run_dir / "claim.json").read_text()
    )
    assert ProcessId.from_json(text).pid == allocation.process.pid
