from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.base.errors import InputError
from remuda.base.secrets import MASK, SecretRef, looks_secret, mask_env
from remuda.base.shell import show_command

if TYPE_CHECKING:
    from pathlib import Path


def test_a_secret_is_read_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("  s3cret\n")
    ref = SecretRef(file=str(tmp_path / "key"))
    assert ref.read() == "s3cret"
    assert SecretRef(env="KEY").read({"KEY": "other"}) == "other"
    assert "s3cret" not in repr(ref) + ref.describe()


def test_the_process_environment_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REMUDA_TEST_KEY", "v")
    assert SecretRef(env="REMUDA_TEST_KEY").read() == "v"


def test_missing_and_empty_secrets_are_said(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(InputError, match=r"secret file .*absent' cannot be read: No such file"):
        SecretRef(file=str(tmp_path / "absent")).read()
    with pytest.raises(InputError, match=r"secret file .*empty is empty"):
        SecretRef(file=str(tmp_path / "empty")).read()
    with pytest.raises(InputError, match=r"secret \$KEY is empty"):
        SecretRef(env="KEY").read({})


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("OPENAI_API_KEY", True),
        ("HF_TOKEN", True),
        ("db_password", True),
        ("AWS_CREDENTIALS", True),
        ("MY_SECRET", True),
        ("PATH", False),
        ("CUDA_VISIBLE_DEVICES", False),
    ],
)
def test_names_that_look_secret(name: str, secret: bool) -> None:
    assert looks_secret(name) is secret
    assert mask_env({name: "v"}) == {name: MASK if secret else "v"}


@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), min_size=1))
def test_a_shown_command_reads_back_as_it_was(argv: list[str]) -> None:
    assert shlex.split(show_command(argv)) == argv


def test_a_shown_command_carries_its_environment() -> None:
    assert show_command(["a", "$(touch x)"], {"K": "v w"}) == "K='v w' a '$(touch x)'"
