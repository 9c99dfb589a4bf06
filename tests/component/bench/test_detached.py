"""`remuda bench --detach`: a job whose driver may die, and whose verdict is the outcome."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING, Any

import pytest
from tests.component.bench.test_command import LOOSE, SMALL, engine, points, serving
from tests.conftest import until

if TYPE_CHECKING:
    from tests.conftest import Home

__all__ = ["engine"]
#: No client is never late.
LATE = [flag for rule in ("V6.lag=0", "V6.valid=0", "V6.suspect=0") for flag in ("--validity", rule)]


def outcome(home: Home, job: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(home.run("job", "status", job, "--json").stdout)
    return found


@pytest.mark.parametrize(
    ("words", "code", "said"), [(["--allow-changed-rules"], 0, "2 valid"), ([], 11, "2 valid"),
                                (LATE, 10, "2 invalid")],
)  # fmt: skip
def test_the_verdict_is_the_outcome(home: Home, engine: str, words: list[str], code: int, said: str) -> None:
    small = [word for word in SMALL if word != "--allow-changed-rules"]
    job = home.run("bench", "--endpoint", engine, "-C", "1,2", *small, *words, "--detach").stdout.strip()
    assert home.run("job", "wait", job, check=False).returncode == code
    state = outcome(home, job)
    assert (state["state"], state["kind"], state["reason"]) == ("DONE", "benchmark", said)
    assert state["summary"]["exit_code"] == code
    assert [point["meta"]["job"] for point in points(home, "list")] == [job, job], "an invalid one is measured once"
    until(lambda: home.view(job)["phase"] == "DONE", "its driver has ended well")


def test_a_driver_that_is_killed_goes_on_behind_what_it_has_measured(home: Home, engine: str) -> None:
    words = ["--isl", "40", "--osl", "8", "--duration", "2s", *LOOSE, "--allow-changed-rules"]
    job = home.run("bench", "--endpoint", engine, "-C", "1,2,3", *words, "--detach").stdout.strip()
    until(lambda: len(points(home, "list")) == 1, "the first point")
    os.kill(int(home.task(job, "driver/0")["pid"]), signal.SIGKILL)
    assert home.run("job", "wait", job, check=False).returncode == 0
    assert [point["load"]["concurrency"] for point in points(home, "list")] == [1, 2, 3]
    assert outcome(home, job)["summary"]["points"] == 3


def test_what_cannot_be_measured_ends_the_job(home: Home) -> None:
    with serving("--api-key-env", "KEY_OF_ENGINE", env={"KEY_OF_ENGINE": "secret"}) as url:
        job = home.run("bench", "--endpoint", url, *SMALL, "--detach").stdout.strip()
        assert home.run("job", "wait", job, check=False).returncode == 1
        state = outcome(home, job)
        assert state["state"] == "FAILED"
        assert state["reason"] == f"{url} refuses the API key (HTTP 401)"
        assert points(home, "list") == []
        flags, env = ["--api-key-env", "MY_KEY", "--detach"], {"MY_KEY": "secret"}
        job = home.run("bench", "--endpoint", url, *SMALL, *flags, env=env).stdout.strip()
        code = home.run("job", "wait", job, check=False).returncode
        assert code in (0, 11), outcome(home, job)  # it is measured; a busy machine may make the point suspect
    kept = home.paths.root / "bench"
    texts = [path.read_text() for root in (kept, home.paths.jobs) for path in root.rglob("*.json")]
    assert len(texts) >= 2
    assert not any("secret" in text for text in texts), "a key is named, and never written"
