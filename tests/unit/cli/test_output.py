"""Plain when piped, coloured for people who want it, silent when the reader has gone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from remuda.cli import main, show

if TYPE_CHECKING:
    from collections.abc import Mapping

ESCAPE = "\x1b"


def run(home: Path, *words: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "remuda", *words], capture_output=True, text=True, check=False, cwd=home,
        stdin=subprocess.DEVNULL, env={**os.environ, "REMUDA_HOME": str(home / "h"), **(env or {})},
    )  # fmt: skip


def on_a_terminal(home: Path, words: str, env: Mapping[str, str]) -> str:
    """What a person sees: the command runs on a pseudo-terminal."""
    import pty

    chunks: list[bytes] = []
    pid, fd = pty.fork()
    if pid == 0:
        os.chdir(home)
        os.execve(sys.executable, [sys.executable, "-c", words], {**os.environ, "TERM": "xterm-256color", **env})
    while True:
        try:
            chunk = os.read(fd, 65536)
        except OSError:
            break
        if not chunk:
            break
        chunks.append(chunk)
    os.close(fd)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, b"".join(chunks)
    return b"".join(chunks).decode()


TABLE = "from remuda.cli.show import table; table(['name', 'phase'], [['herd', 'RUNNING'], ['b', 'FAILED']])"


def test_output_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    for words in (["version"], ["config", "schema"]):
        with Path("/dev/full").open("w") as full:
            done = subprocess.run(
                [sys.executable, "-m", "remuda", *words], stdout=full, stderr=subprocess.PIPE, text=True, check=False,
                cwd=tmp_path, env={**os.environ, "REMUDA_HOME": str(tmp_path / "h")},
            )  # fmt: skip
        said = "error: standard output cannot be written: No space left on device\n"
        assert (done.returncode, done.stderr) == (1, said)


def test_closed_output_is_nobodys(tmp_path: Path) -> None:
    for closed in (">&-", "2>&-", ">&- 2>&-"):
        line = f"exec {sys.executable} -m remuda config schema {closed}"
        done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=False, cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")


def test_names_are_never_cut(tmp_path: Path) -> None:
    row = "['the-name-of-a-run', *['word'] * 3, 'x y']"
    wide = f"from remuda.cli.show import table; table(['name', *'abc', 'why'], [{row}])"
    assert "the-name-of-a-run" in on_a_terminal(tmp_path, wide, {"COLUMNS": "30"})


def test_a_table_for_people_and_one_for_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    drawn = on_a_terminal(tmp_path, TABLE, {"NO_COLOR": ""})
    assert ESCAPE in drawn
    assert "RUNNING" in drawn
    assert "\x1b[32m" not in on_a_terminal(tmp_path, TABLE, {"NO_COLOR": "1"})
    show.table(["name", "phase"], [["herd", "RUNNING"], ["b", "FAILED"]])
    assert capsys.readouterr().out == "NAME  PHASE\nherd  RUNNING\nb     FAILED\n"


def test_a_dumb_terminal_gets_plain_text(tmp_path: Path) -> None:
    assert ESCAPE not in on_a_terminal(tmp_path, TABLE, {"TERM": "dumb"})


def test_what_there_is_none_of(capsys: pytest.CaptureFixture[str]) -> None:
    show.table(["name"], [], empty="nothing runs")
    assert capsys.readouterr().out == "nothing runs\n"


def test_pairs_leave_out_what_is_empty(capsys: pytest.CaptureFixture[str]) -> None:
    show.pairs([("name", "herd"), ("reason", ""), ("state directory", "/h")])
    assert capsys.readouterr().out == "name             herd\nstate directory  /h\n"
    show.pairs([("reason", "")])
    assert capsys.readouterr().out == ""


def test_ages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 10_000.0)
    assert [show.age(at) for at in (0.0, 10_000 - 7200, 20_000)] == ["-", "2h", "0.0s"]


@pytest.mark.parametrize("words", [["--help"], ["job", "submit", "--help"], ["job", "list"], ["db", "status"]])
def test_piped_output_is_plain(tmp_path: Path, words: list[str]) -> None:
    done = run(tmp_path, *words, env={"FORCE_COLOR": "", "TERM": "xterm-256color"})
    assert done.returncode == 0
    assert ESCAPE not in done.stdout + done.stderr


def test_json_is_json_and_nothing_else(tmp_path: Path) -> None:
    assert json.loads(run(tmp_path, "job", "list", "--json").stdout) == []
    status = json.loads(run(tmp_path, "db", "status", "--json").stdout)
    assert status["revision"]
    schema = json.loads(run(tmp_path, "config", "schema").stdout)
    assert "replicas" in schema["properties"]


def test_commands_that_need_no_host_start_none(tmp_path: Path) -> None:
    run(tmp_path, "job", "list")
    run(tmp_path, "db", "status")
    done = run(tmp_path, "host", "status")
    assert (done.returncode, done.stderr) == (5, "error: no host is running\n  start it: remuda host start\n")
    assert run(tmp_path, "host", "stop").stderr == "no host is running\n"
    assert run(tmp_path, "host", "logs").returncode == 3
    assert not (tmp_path / "h" / "host.log").exists()


@pytest.mark.parametrize("words", [["config", "schema"], ["--help"], ["completion", "bash"]])
def test_a_reader_that_has_enough_is_no_error(tmp_path: Path, words: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "remuda", *words], stdout=write, stderr=subprocess.PIPE, text=True, check=False,
            env={**os.environ, "REMUDA_HOME": str(tmp_path)},
        )  # fmt: skip
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("shell", "parts"),
    [
        ("bash", ["_REMUDA_COMPLETE=bash_complete", "complete -o nosort -F"]),
        ("zsh", ["#compdef remuda", "_REMUDA_COMPLETE=zsh_complete"]),
        ("fish", ["complete --no-files --command remuda", "_REMUDA_COMPLETE=fish_complete"]),
    ],
)
def test_completion_scripts(shell: str, parts: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert [part for part in parts if part not in script] == []


def test_the_bash_script_completes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "bash"]) == 0
    (tmp_path / "script").write_text(capsys.readouterr().out)
    (tmp_path / "remuda").write_text(f'#!/bin/sh\nexec {sys.executable} -m remuda "$@"\n')
    (tmp_path / "remuda").chmod(0o755)
    ask = (
        'source ./script; COMP_WORDS=(remuda swarm d); COMP_CWORD=2; _remuda_completion remuda; echo "${COMPREPLY[@]}"'
    )
    bash = shutil.which("bash")
    assert bash
    done = subprocess.run(
        [bash, "-c", ask], capture_output=True, text=True, check=True, cwd=tmp_path,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "REMUDA_HOME": str(tmp_path / "h")},
    )  # fmt: skip
    assert done.stdout == "describe\n"
