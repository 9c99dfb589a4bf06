"""What is typed where nothing can be planned is a sentence, with a host and without."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from remuda.base.errors import InputError
from remuda.client import submission
from remuda.look.kinds.run import kept_variable

if TYPE_CHECKING:
    from pathlib import Path


def test_a_working_directory_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(InputError, match=r"^the working directory is gone$"):
        submission.ask("run", scripts=["train.sh"], given={})


@pytest.mark.parametrize("is_here", [True, False], ids=["directory", "script"])
def test_a_name_that_is_not_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_here: bool) -> None:
    odd = tmp_path / os.fsdecode(b"d\xff")
    odd.mkdir()
    monkeypatch.chdir(odd if is_here else tmp_path)
    name = f"{tmp_path}/d?" if is_here else "d?/train.sh"
    script = "train.sh" if is_here else f"{odd.name}/train.sh"
    with pytest.raises(InputError) as caught:
        submission.ask("run", scripts=[script], given={})
    assert str(caught.value) == f"'{name}' is not valid UTF-8"


def test_values_of_secrets_stay_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """All others are handed over: a plan may need them."""
    for name in ("HF_TOKEN", "MY_API_KEY", "DATABASE_URL", "EDITOR"):
        monkeypatch.setenv(name, "v")
    env = submission.caller()["env"]
    assert [env[name] for name in ("HF_TOKEN", "MY_API_KEY", "DATABASE_URL", "EDITOR")] == ["", "", "v", "v"]


def test_a_value_that_is_not_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ODD", os.fsdecode(b"\xff\xfe"))
    with pytest.raises(InputError, match=r"^--env ODD: the value of ODD is not valid UTF-8$"):
        kept_variable("ODD")
