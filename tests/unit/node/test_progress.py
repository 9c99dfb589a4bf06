"""What is read from a script's progress file, and when a script is taken for hung."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.node.script.progress import MAX_METRICS, environment, install, parse, tools_beside
from remuda.node.script.watch import stalled
from remuda.wire.report import Report


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"step": 3, "total": 9}', {"progress_step": 3, "progress_total": 9}),
        ('{"step": "3", "total": null}', {"progress_step": 3}),
        ('{"step": true, "message": "on", "at": 17}', {}),
        ('{"metrics": {"loss": 2.5, "lr": "1e-4"}, "epoch": 2}', {"loss": 2.5, "lr": 0.0001, "epoch": 2}),
        ('{"loss": NaN, "x": Infinity, "y": 1e999, "z": 4}', {"z": 4}),
        ('{"metrics": [1], "a": {"b": 1}}', {}),
        ('{"progress_step": 7, "": 1, "a\\nb": 1}', {}),
        ("[1, 2]", {}),
        ('{"step": 3', {}),
        ("", {}),
        ("[" * 100_000, {}),
    ],
)
def test_parse(text: str, expected: dict[str, float]) -> None:
    assert parse(text.encode()) == expected


def test_the_number_of_metrics_is_bounded() -> None:
    found = parse(json.dumps({"step": 1, **{f"m{number}": number for number in range(1000)}}).encode())
    assert len(found) == MAX_METRICS + 1


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(), lambda inner: st.lists(inner, max_size=3)
)


@settings(deadline=None)
@given(st.dictionaries(st.text(), values | st.dictionaries(st.text(), values)))
def test_whatever_a_script_writes_makes_a_good_report(data: dict[str, object]) -> None:
    found = parse(json.dumps(data).encode())
    assert all(math.isfinite(value) for value in found.values())
    report = Report("t", 1, 1, 0.0, "ready", metrics=found)
    assert Report.from_json(report.to_json()) == report


@settings(deadline=None)
@given(st.binary())
def test_any_bytes_are_taken(data: bytes) -> None:
    parse(data)


@pytest.mark.parametrize(
    ("program", "tools"),
    [
        ("/h/node/remuda-node-1a2b.pyz/remuda/node/progress.py", "/h/node/remuda-node-1a2b-tools"),
        ("/src/remuda/node/progress.py", "/r"),
    ],
)
def test_the_tools_lie_beside_the_archive(program: str, tools: str) -> None:
    """A purge of run directories does not take them."""
    assert tools_beside(program, Path("/r")) == Path(tools)


def test_the_environment_keeps_what_was_there() -> None:
    folder = Path("/r")
    assert environment(folder, {"PATH": "/bin", "PYTHONPATH": "/mine"}) == {
        "REMUDA_PROGRESS_FILE": "/r/progress.json",
        "REMUDA_RESULT_FILE": "/r/result.json",
        "PATH": "/r/bin:/bin",
        "PYTHONPATH": "/mine:/r/python",
    }
    assert environment(folder, {})["PYTHONPATH"] == "/r/python"


@pytest.mark.parametrize(
    ("limit", "now", "progress_at", "output_at", "why"),
    [
        (0, 10**6, 0, 0, ""),
        (60, 159, 0, 0, ""),
        (60, 160, 0, 0, "nothing was printed, and no progress file was written, for 60 s; 60 s are allowed"),
        (60, 160, 0, 101, ""),
        (60, 161, 0, 101, "nothing was printed, and no progress file was written, for 60 s; 60 s are allowed"),
        (60, 170, 105, 169, "the progress file did not change for 65 s; 60 s are allowed"),
        (60, 170, 111, 0, ""),
    ],
)
def test_stalled(limit: float, now: float, progress_at: float, output_at: float, why: str) -> None:
    assert stalled(limit, now, 100.0, progress_at, output_at) == why


BROKEN_PLACES = {
    "the folder is gone": 'rm -rf "$FOLDER"',
    "the disk is full": "REMUDA_PROGRESS_FILE=/dev/full/progress.json",
    "no file may grow": "ulimit -f 0",
    "something lies in its way": 'rm -f "$FOLDER/progress.json"; mkdir -p "$FOLDER/progress.json/x"',
    "nobody hears errors": "exec 2>&-",
}


@pytest.mark.parametrize("place", BROKEN_PLACES)
@pytest.mark.parametrize("words", ["3/10 --metric loss=2.5", "nonsense", "--step", "--metric x=y", "--nothing 1", ""])
def test_the_tools_never_fail_their_caller(place: str, words: str, tmp_path: Path) -> None:
    """A training script with `set -euo pipefail` goes on, and so does one in Python."""
    folder, tools = tmp_path / "attempt", tmp_path / "tools"
    folder.mkdir()
    install(folder, tools)
    env = {**os.environ, **environment(folder, dict(os.environ), tools)}
    python = "from remuda_progress import progress; progress(3, 10, loss=2.5); progress(object(), message=b'x', a=[])"
    python = f'{sys.executable} -c "{python}; progress(); progress(1, 2, chr(120), 3)"'
    script = f"set -euo pipefail\n{BROKEN_PLACES[place]}\nremuda-progress {words}\n{python}\necho on"
    done = subprocess.run(
        ["bash", "-c", script], env={**env, "FOLDER": str(folder)}, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "on\n"), done.stderr
    assert not list(folder.glob("progress.json.*")), "no draft is left"
