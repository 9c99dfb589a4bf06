"""Pools as documents: what is wrong is told with the place in the pool's own file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from remuda.base.disk.paths import StatePaths
from remuda.base.errors import InputError
from remuda.cli import main
from remuda.client.jobs.pool import plan_pool
from remuda.look import planning
from remuda.specs.reading.pools import load_pool

if TYPE_CHECKING:
    from pathlib import Path

SWARM = "{model: m, engine: command, command: [x], router: none, replicas: 1}"
JOB = "{input: in.jsonl, output: out.jsonl}"


def write(folder: Path, text: str, name: str = "pool.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("swarms: []", "pool.yaml:1:9: `swarms` must have at least 1", id="no swarms"),
        pytest.param(f"swarms:\n- swarm: {SWARM}\n  jobb: {JOB}", "pool.yaml:3:3: ", id="unknown key"),
        pytest.param(f"max_concurrent: 0\nswarms:\n- swarm: {SWARM}\n  job: {JOB}", "pool.yaml:1:1", id="no place"),
        pytest.param(f"swarms:\n- job: {JOB}", "needs one of `config` (a file) and `swarm` (written here)", id="none"),
        pytest.param(
            f"swarms:\n- swarm: {SWARM}\n  job: {{input: x}}", "needs `input` and `output`, or a `script`", id="out"
        ),
        pytest.param(
            f"swarms:\n- swarm: {SWARM}\n  job: {{input: x, output: y, args: [z]}}",
            "has `args`, which are those of a `script`", id="args of no script",
        ),
        pytest.param(
            f"max_concurrent: 1\nswarms:\n- swarm: {SWARM}\n- swarm: {SWARM}\n  job: {JOB}",
            "1 of its swarms stay up (`keep`, or no `job`) and only 1 may be up at once, "
            "so the others would wait indefinitely", id="no way on",
        ),
        pytest.param(
            "swarms:\n- config: a.yaml\n- config: nowhere.yaml\n  job: " + JOB,
            "pool.yaml:3:11: there is no file ", id="a missing document",
        ),
        pytest.param(
            f"swarms:\n- swarm: {SWARM}\n  job: {{script: nowhere.py}}", "pool.yaml:3:17: there is no file ",
            id="a missing script",
        ),
        pytest.param(
            "swarms:\n- swarm:\n    model: m\n    replica: 2\n  job: " + JOB, "pool.yaml:4:5: ", id="inside the swarm"
        ),
        pytest.param(
            "swarms:\n- config: a.yaml\n  overrides:\n    replica: 2\n  job: " + JOB, "pool.yaml:4:5: ", id="override"
        ),
        pytest.param(
            "swarms:\n- config: a.yaml\n- config: a.yaml\n", "pool.yaml:3:3: two swarms are called 'same'", id="twice"
        ),
        pytest.param("swarms:\n- config: b.yaml\n", "b.yaml:2:1: ", id="wrong in its own document"),
    ],
)  # fmt: skip
def test_what_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, expected: str) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, f"name: same\n{SWARM[1:-1].replace(', ', chr(10))}\n", "a.yaml")
    write(tmp_path, "model: m\nreplicass: 2\n", "b.yaml")
    write(tmp_path, text)
    with pytest.raises(InputError) as caught:
        plan_pool(load_pool("pool.yaml"), planning.facts_of(StatePaths(tmp_path / "home")))
    assert expected in str(caught.value)


def test_what_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REMUDA_HOME", str(tmp_path / "home"))
    folder = tmp_path / "deep"
    folder.mkdir()
    write(folder, f"{SWARM[1:-1].replace(', ', chr(10))}\n", "a.yaml")
    text = f"""
max_concurrent: 2
swarms:
- config: a.yaml
  name: first
  replicas: 1
  overrides: {{watchdog.max_restarts: 7, port: 9100}}
  queue_timeout: 2h
  job: {JOB}
- swarm: {SWARM}
  keep: true
  job: {{job: completion, input: /abs/in.parquet, output: out/, job_kwargs: {{temperature: 0.5}}, timeout: 1m}}
- swarm: {SWARM}
  job: {{script: run.py, args: --n 5 'a b'}}
"""
    write(folder, "", "run.py")
    pool = load_pool(write(folder, text, "Night Shift.yaml"))
    first, second, third = plan_pool(pool, planning.facts_of(StatePaths(tmp_path / "home")))
    assert pool.spec.bound == 2
    assert [one.name for one in (first, second, third)] == ["first", "night-shift-1", "night-shift-2"]
    assert first.planned.spec.watchdog.max_restarts == 7
    assert first.planned.spec.port == 9100
    assert first.said.queue_timeout == 7200.0
    assert first.said.job is not None
    assert (first.said.job.input, first.said.job.output) == (str(folder / "in.jsonl"), str(folder / "out.jsonl"))
    assert second.said.job is not None
    assert (second.said.job.input, second.said.job.output) == ("/abs/in.parquet", f"{folder}/out/")
    assert second.said.job.job_kwargs == {"temperature": 0.5}
    assert [one.said.stays for one in (first, second, third)] == [False, True, False]
    assert third.said.job is not None
    assert (third.said.job.script, third.said.job.args) == (str(folder / "run.py"), ("--n", "5", "a b"))
    again = plan_pool(load_pool(str(folder / "Night Shift.yaml")), planning.facts_of(StatePaths(tmp_path / "home")))
    assert [one.key for one in again] == [one.key for one in (first, second, third)], "typed again, it is the same"
    changed = write(folder, text.replace("0.5", "0.6"), "Night Shift.yaml")
    other = plan_pool(load_pool(changed), planning.facts_of(StatePaths(tmp_path / "home")))
    assert [a.key == b.key for a, b in zip(again, other, strict=True)] == [True, False, True]


def test_config_check_knows_pools(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REMUDA_HOME", str(tmp_path / "home"))
    (tmp_path / "in.jsonl").write_text('{"prompt": "x"}\n')
    good = write(tmp_path, f"swarms:\n- swarm: {SWARM}\n  name: one\n  job: {JOB}")
    assert main(["config", "check", str(good)]) == 0
    assert capsys.readouterr().out == f"{good}: good\n"
    bad = write(tmp_path, f"kind: pool\nswarms:\n- swarm: {SWARM}\n  jobb: {JOB}", "bad.yaml")
    assert main(["config", "check", str(bad)]) == 2
    assert f"{bad}:4:3: " in capsys.readouterr().err
