"""A stranger's program writes what terminals obey: its user sees words, on all faces."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
from tests.conftest import until

if TYPE_CHECKING:
    from tests.conftest import Home

EVIL = "\x1b]0;owned\x07\x1b[2J\x1b[31mred\x1b[0m \x9b5m hidden\rshown \u202eback\b\b"
WORDS = "red  hidden\nshown \\u202eback\\x08\\x08"
ACTS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]")
FACES = (
    ("status", "evil"), ("status", "-a"), ("list",), ("explain", "evil"), ("events", "evil"),
    ("host", "logs", "-n", "0"), ("logs", "evil"), ("logs", "evil", "--stderr"),
)  # fmt: skip


@pytest.fixture(scope="module")
def evil(shared_home: Home) -> Home:
    """A run whose program says evil things and fails."""
    home = shared_home
    (home.root / "say").write_text(EVIL + "\n")
    (home.root / "evil.sh").write_text(
        "#!/bin/bash\n#REMUDA --backend local --kill-grace 3 --max-retries 0\n"
        f"cat {home.root}/say; cat {home.root}/say >&2; exit 3\n"
    )
    home.run("run", "evil.sh")
    until(lambda: home.view("evil")["phase"] == "FAILED", "it has failed")
    return home


@pytest.mark.parametrize("face", FACES, ids=" ".join)
def test_people_see_words(evil: Home, face: tuple[str, ...]) -> None:
    done = evil.run(*face)
    assert ACTS.findall(done.stdout + done.stderr) == []


def test_the_words_are_there(evil: Home) -> None:
    assert evil.run("logs", "evil").stdout == WORDS + "\n"
    assert "red  hidden" in evil.run("explain", "evil").stdout


def test_raw_is_raw_and_json_says_it_all(evil: Home) -> None:
    assert evil.run("logs", "evil", "--raw").stdout == EVIL.replace("\r", "\n") + "\n"  # read as text: \r is a line
    line = evil.run("logs", "evil", "--json").stdout
    assert json.loads(line) == {"line": EVIL}
    assert ACTS.findall(line) == []
    for face in (("status", "evil"), ("explain", "evil"), ("events", "evil")):
        text = evil.run(*face, "--json").stdout
        json.loads(text)
        assert ACTS.findall(text) == []


def test_an_error_that_names_a_file_is_words(evil: Home) -> None:
    done = evil.run("up", "-c", f"{evil.root}/no\x1b[2Jsuch\u202e.yaml", check=False)
    assert done.returncode != 0
    assert "nosuch" in done.stderr
    assert ACTS.findall(done.stderr) == []
