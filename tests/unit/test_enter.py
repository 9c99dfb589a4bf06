"""The words of our own programs, and what plans of earlier versions call them."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from remuda.enter import PROGRAMS, renamed, words
from remuda.plan.engines.llamacpp import LAUNCHER

if TYPE_CHECKING:
    from pathlib import Path

PYTHON = "/env/bin/python"
BEFORE = {
    "drive": "remuda job drive", "gate": "remuda.control.gate", "llamacpp": "remuda.serving.llamacpp_server",
    "nginx": "remuda.serving.nginx_launcher", "rank": "remuda.control.entrypoint", "recorder": "remuda.node recorder",
    "relay": "remuda.serving.relay", "smg": "remuda.serving.smg_launcher",
}  # fmt: skip
"""They are in databases: a line may be added, and none changed."""


def test_what_was_written_down_once_is_known_for_ever() -> None:
    assert {word: before for word, (_, before) in PROGRAMS.items()} == BEFORE
    assert ("-m", *LAUNCHER.split()) == words("llamacpp")


@pytest.mark.parametrize("options", [(), ("-P",)])
@pytest.mark.parametrize("word", PROGRAMS)
def test_a_program_of_an_earlier_version_has_its_word(word: str, options: tuple[str, ...]) -> None:
    old = [PYTHON, *options, "-m", *BEFORE[word].split(), "--port", "-m"]
    new = (PYTHON, *options, *words(word), "--port", "-m")
    assert renamed(old) == renamed(old, PYTHON) == renamed(old, "/env/bin/python3.12") == new
    assert renamed(new) == new
    assert renamed(old, "/newer/bin/python") == tuple(old), "its environment may be of that version, too"


@pytest.mark.parametrize("argv", [
    (), (PYTHON,), (PYTHON, "-m"), (PYTHON, "-m", "remuda"), (PYTHON, "-P", "-m", "remuda", "job", "list"),
    (PYTHON, "-m", "remuda.serving.relays"), (PYTHON, "-m", "vllm.entrypoints.cli.main", "serve"),
    (PYTHON, "-m", "remuda.node", "smoke"), (PYTHON, "x.py", "-m", "remuda.serving.relay"),
    (PYTHON, "-m", "remuda.gang.entrypoint", "a:b"), ("remuda.serving.relay", "--port"),
])  # fmt: skip
def test_what_is_no_program_of_ours_stays_as_it_is(argv: tuple[str, ...]) -> None:
    assert renamed(argv) == argv


def ran(*argv: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *argv], env=os.environ | env, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.parametrize(("word", "more", "code"), [
    ("drive", (), 2), ("gate", ("w",), 1), ("llamacpp", (), 2),
    ("nginx", ("--help",), 0), ("rank", ("os:_exit",), 7), ("rank", ("sys:exit",), 0), ("recorder", (), 83),
    ("relay", ("--help",), 0), ("smg", ("--unknown",), 2),
])  # fmt: skip
def test_it_is_what_the_module_is(word: str, more: tuple[str, ...], code: int, tmp_path: Path) -> None:
    env = {"REMUDA_HOME": str(tmp_path / "home"), "REMUDA_ARGS": '{"status": 7}' if code == 7 else ""}
    named, entered = (ran(*argv, *more, **env) for argv in (("-m", *PROGRAMS[word][0].split()), words(word)))
    assert (entered.returncode, entered.stdout, entered.stderr) == (named.returncode, named.stdout, named.stderr)
    assert entered.returncode == code


@pytest.mark.parametrize(("word", "more"), [("rank", ("sys:exit",)), ("relay", ("--help",))])
def test_nothing_is_loaded_but_the_program(word: str, more: tuple[str, ...]) -> None:
    def loaded(*argv: str) -> list[str]:
        timed = ran("-X", "importtime", *argv, *more).stderr.splitlines()
        return sorted(line.rpartition("|")[2].strip() for line in timed if line.startswith("import time:"))

    assert loaded(*words(word)) == loaded("-m", PROGRAMS[word][0])


@pytest.mark.parametrize(("argv", "said"), [((), "''"), (("realy", "--port"), "'realy'")])
def test_an_unknown_word_is_one_sentence(argv: tuple[str, ...], said: str) -> None:
    done = ran(*words("relay")[:2], *argv)
    known = "drive, gate, llamacpp, nginx, rank, recorder, relay, smg"
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"remuda.enter: there is no program {said}; there are {known}\n"
