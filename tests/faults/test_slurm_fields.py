"""`$(…)` in every field of a run: what a user types arrives verbatim or is refused, and is executed nowhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.faults.slurm_runs import Runs

if TYPE_CHECKING:
    from tests.conftest import Home

    from remuda.testing.slurm import SlurmBed

CPU = ("--backend", "slurm", "--partitions", "cpu", "--no-gpu-check")
SHOWS = """#!/bin/sh
printf '%s\\n' "$@" > "$OUT/args"
printf '%s\\n' "$ODD" > "$OUT/env"
pwd > "$OUT/pwd"
while [ ! -e "$OUT/enough" ]; do sleep 0.1; done
"""


def odd(runs: Runs) -> str:
    """A text that leaves a file wherever any shell reads it."""
    marker = runs.home.root / "pwned"
    return f"a $(touch {marker}) `touch {marker}` ${{HOME}} '; touch {marker}; ' \" touch {marker} \" & | > * é"


@pytest.fixture
def runs(home: Home, slurm_bare: SlurmBed) -> Runs:
    return Runs(home, slurm_bare)


def refused(runs: Runs, *flags: str, script: Path | None = None) -> str:
    """Start a run that is not accepted, or given up; what is told of it."""
    done = runs.home.run("run", str(script or runs.script(SHOWS)), "--name", "odd", *CPU, *flags, check=False)
    if done.returncode == 0:
        runs.wait(lambda: runs.phase("odd") == "FAILED" or "refused" in runs.told("odd"), "it is refused")
        done = runs.home.run("explain", "odd")
        runs.home.run("stop", "odd")
        return done.stdout
    assert "Traceback" not in done.stderr
    return done.stderr


def nothing_was_executed(runs: Runs) -> None:
    assert not list(Path(runs.home.root).rglob("pwned"))


def test_values_arrive_verbatim(runs: Runs) -> None:
    """Without accounting Slurm takes any account, so even that comes back as it was typed."""
    text = odd(runs)
    workdir = runs.home.root / "a $(touch pwned) dir"
    workdir.mkdir()
    runs.home.run(
        "run", str(runs.script(SHOWS)), "--name", "odd", *CPU,
        "--env", f"OUT={runs.out}", "--env", f"ODD={text}",
        "--account", "$(touch pwned)`touch pwned`",
        "--workdir", str(workdir), "--output", "out $(touch pwned) %j.txt", "--error", "err `touch pwned`.txt",
        "--mail-user", "$(touch pwned)@x.org",
        "--sbatch-args", f"--comment='$(touch {runs.home.root}/pwned) and so on' --wckey='`touch pwned`'",
        "--preamble", f"export FROM_PREAMBLE=$(echo yes > {runs.out}/preamble)",
        "--", text, "$(touch pwned)", "",
    )  # fmt: skip
    runs.wait((runs.out / "pwd").exists, "it runs")
    shown = runs.slurm("scontrol", "show", "job", runs.job_id("odd"))
    assert "Account=$(touch pwned)`touch pwned`" in shown
    assert f"Comment=$(touch {runs.home.root}/pwned) and so on" in shown
    assert "MailUser=$(touch pwned)@x.org" in shown
    runs.enough()
    runs.wait_done("odd")
    assert runs.lines("args") == [text, "$(touch pwned)", ""]
    assert runs.lines("env") == [text]
    assert runs.lines("pwd") == [str(workdir)]
    # A preamble is shell, and is meant to be: it alone is executed.
    assert runs.lines("preamble") == ["yes"]
    assert {path.name for path in workdir.iterdir()} == {
        f"out $(touch pwned) {shown.split('JobId=')[1].split()[0]}.txt", "err `touch pwned`.txt"
    }  # fmt: skip
    nothing_was_executed(runs)


def test_a_dry_run_shows_what_a_shell_reads_back(runs: Runs) -> None:
    """Its command can be pasted: each word is quoted."""
    import shlex

    text = "$(touch pwned)"
    flags = [word for flag in ("account", "qos", "constraint", "reservation", "mail-user", "node-list")
             for word in (f"--{flag}", text)]  # fmt: skip
    done = runs.home.run("run", str(runs.script(SHOWS)), "--name", "odd", *CPU, *flags, "--dry-run", "--json")
    words = shlex.split(json.loads(done.stdout)[0]["command"])
    for name in ("account", "qos", "constraint", "reservation", "nodelist", "mail-user"):
        assert f"--{name}={text}" in words
    nothing_was_executed(runs)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        pytest.param(("--constraint", "$(touch pwned)"), "constraint", id="constraint"),
        pytest.param(("--reservation", "$(touch pwned)"), "reservation", id="reservation"),
        pytest.param(("--node-list", "$(touch pwned)"), "node", id="node-list"),
        pytest.param(("--partitions", "$(touch pwned)"), "partition", id="partitions"),
        pytest.param(("--sbatch-args", "--gres='$(touch pwned)'"), "gres", id="sbatch-args"),
    ],
)
def test_what_slurm_does_not_know_is_refused_and_named(runs: Runs, flags: tuple[str, ...], expected: str) -> None:
    told = refused(runs, *flags)
    assert expected in told.lower(), told
    assert not runs.jobs()
    nothing_was_executed(runs)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        pytest.param(("--exclude-nodes", "$(touch pwned)[1"), "exclude_nodes", id="exclude-nodes"),
        pytest.param(("--time-limit", "$(touch pwned)"), "time", id="time-limit"),
        pytest.param(("--mem", "$(touch pwned)"), "mem", id="mem"),
        pytest.param(("--gpus", "$(touch pwned)"), "gpus", id="gpus"),
        pytest.param(("--gpus", "1", "--gpu-type", "$(touch pwned)", "--partitions", "gpu-a100"), "gpu", id="gpu-type"),
        pytest.param(("--env", "$(touch pwned)=1"), "env", id="env-name"),
        pytest.param(("--signal", "$(touch pwned)"), "signal", id="signal"),
        pytest.param(("--account", "a\nb"), "account", id="line-break"),
        pytest.param(("--sbatch-args", "'unclosed"), "sbatch-args", id="unclosed"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_the_flag(runs: Runs, flags: tuple[str, ...], expected: str) -> None:
    done = runs.home.run("run", str(runs.script(SHOWS)), *CPU, *flags, check=False)
    assert done.returncode not in (0, 1), (done.stdout, done.stderr)
    assert expected in done.stderr.lower(), done.stderr
    assert "Traceback" not in done.stderr
    assert not runs.jobs()
    nothing_was_executed(runs)


def test_a_name_is_refused(runs: Runs) -> None:
    done = runs.home.run("run", str(runs.script(SHOWS)), *CPU, "--name", "$(touch pwned)", check=False)
    assert done.returncode == 2
    assert "name" in done.stderr
    assert "$(touch pwned)" in done.stderr
    nothing_was_executed(runs)


def test_modules_are_words(runs: Runs) -> None:
    """There is no `module` on these nodes, so the job script says which one it could not load."""
    text = "gcc/$(touch pwned) `touch pwned`; touch pwned"
    runs.home.run("run", str(runs.script(SHOWS)), "--name", "odd", *CPU, "--modules", text, "--backoff-base", "0.2")
    runs.wait(lambda: f"remuda: module load {text} failed" in runs.told("odd"), "the module is named")
    runs.home.run("stop", "odd")
    assert not runs.jobs()
    nothing_was_executed(runs)
