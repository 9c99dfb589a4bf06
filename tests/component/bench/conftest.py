"""The server with known truth, and the typed command against it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.fakes.truth import Truth, build

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.conftest import Home

#: What only says that this machine is busy, or that a test is short.
LOOSE = (
    "V6.lag=10s", "V7.cpu=100", "V7.throttled=1000s", "V7.waiting=100", "V8.lag=10s", "V8.rate=0", "V9.share=0",
    "V12.requests=1", "V12.window=0", "V12.e2e=0", "V16.times=1000",
    "V21.share=0.6",
)  # fmt: skip
STEADY = ("V11.slope=1000", "V11.first=1000")


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("truth"))


@pytest.fixture
def truth(program: Path, tmp_path: Path) -> Iterator[Callable[..., Truth]]:
    """Start the server with these flags."""
    made: list[Truth] = []

    def start(**flags: float) -> Truth:
        made.append(Truth(program, tmp_path / f"records-{len(made)}.jsonl", **flags))
        return made[-1]

    yield start
    for one in made:
        one.close()


def words(
    url: str, *more: str, rules: tuple[str, ...] = (*LOOSE, *STEADY), load: str = "-C 4 --requests 40"
) -> list[str]:
    """A small benchmark as it is typed."""
    lengths = [] if "--isl" in more else ["--isl", "64"]
    return [
        "bench", "--endpoint", url, *lengths, "--osl", "12", *load.split(), "--timeout", "60s", "--json",
        "--allow-changed-rules", *(word for rule in rules for word in ("--validity", rule)), *more,
    ]  # fmt: skip


def point_of(home: Home, argv: list[str]) -> dict[str, Any]:
    """Run it; its only point, whose exit code belongs to its verdict."""
    done = home.run(*argv, check=False)
    assert done.returncode in (0, 10, 11), done.stderr
    (point,) = json.loads(done.stdout)
    assert done.returncode == {"valid": 0, "invalid": 10, "suspect": 11}[point["verdict"]]
    return {**point, "states": {check["code"]: check["state"] for check in point["checks"]}}
