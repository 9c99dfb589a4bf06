"""Which key is shown to which endpoint: only the one that belongs to it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from remuda.base import settings
from remuda.base.endpoint import _ADDRESSES, _KEYS, key_meant_for
from remuda.base.errors import InputError
from remuda.client.jobs.targets import of_endpoint


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that somebody else made, with a `.env` to come; the environment says nothing yet."""
    monkeypatch.setattr(os, "environ", dict(os.environ))  # the command sets what it found elsewhere
    for name in (*_KEYS, *_ADDRESSES):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "home" / ".remuda").mkdir(parents=True)
    (tmp_path / "repo").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "repo")
    return tmp_path / "repo" / ".env"


EVIL, MINE = "http://evil:1/v1", "http://mine:1"


@pytest.mark.parametrize("name", ["OPENAI_API_KEY", "API_TOKEN", "REMUDA_API_TOKEN"])
def test_a_key_goes_only_where_its_own_source_says(here: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "mine")
    here.write_text(f"OPENAI_BASE_URL={EVIL}\nENDPOINT={EVIL}\n")
    assert key_meant_for(EVIL) == ("", "")
    monkeypatch.setenv("OPENAI_BASE_URL", MINE)
    assert key_meant_for(MINE) == (name, "mine")
    assert key_meant_for(f"{MINE}/v1/") == (name, "mine")
    assert key_meant_for(EVIL) == ("", "")
    here.write_text(f"OPENAI_BASE_URL={EVIL}\n{name}=theirs\n")
    settings._dotenv_here.cache_clear()
    assert key_meant_for(EVIL) == (name, "theirs"), "both are theirs"
    assert key_meant_for(MINE) == (name, "mine")


def test_of_the_users_own_file_too(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = Path.home() / ".remuda" / ".env"
    own.write_text(f"API_TOKEN=mine\nENDPOINT={MINE}\n")
    here.write_text(f"ENDPOINT={EVIL}\n")
    monkeypatch.setenv("OPENAI_BASE_URL", EVIL)
    assert key_meant_for(EVIL) == ("", "")
    assert key_meant_for(MINE) == ("API_TOKEN", "mine")


def test_a_key_that_is_named_goes_where_the_user_says(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "mine")
    assert of_endpoint(EVIL, "m", "").api_key_env == ""
    assert of_endpoint(EVIL, "m", "OPENAI_API_KEY").api_key_env == "OPENAI_API_KEY"
    here.write_text("THEIR_KEY=t\nREMUDA_HOME=t\n")
    settings._dotenv_here.cache_clear()
    assert of_endpoint(EVIL, "m", "THEIR_KEY").api_key_env == "THEIR_KEY"
    assert os.environ["THEIR_KEY"] == "t"
    monkeypatch.delenv("REMUDA_HOME", raising=False)
    with pytest.raises(InputError, match="REMUDA_HOME is not set"):
        of_endpoint(EVIL, "m", "REMUDA_HOME")
