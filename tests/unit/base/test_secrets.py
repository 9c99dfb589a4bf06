from __future__ import annotations

import shlex
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.base.errors import InputError
from remuda.base.secrets import SecretRef, lasting_secret, looks_secret
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


@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), min_size=1))
def test_a_shown_command_reads_back_as_it_was(argv: list[str]) -> None:
    assert shlex.split(show_command(argv)) == argv


def test_a_shown_command_carries_its_environment() -> None:
    assert show_command(["a", "$(touch x)"], {"K": "v w"}) == "K='v w' a '$(touch x)'"


def test_a_lasting_secret_is_made_once_and_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    made = lasting_secret(path)
    assert len(made) == 64
    assert lasting_secret(path) == made
    assert path.stat().st_mode & 0o777 == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["secret"]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_what_others_may_have_read_or_written_is_no_secret(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "secret"
    path.write_text("known to all")
    path.chmod(mode)
    made = lasting_secret(path)
    assert made != "known to all"
    assert path.stat().st_mode & 0o777 == 0o600
    assert lasting_secret(path) == made


def test_a_link_or_an_empty_file_is_no_secret(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    (tmp_path / "elsewhere").write_text("of another")
    path.symlink_to(tmp_path / "elsewhere")
    assert lasting_secret(path) != "of another"
    path.write_text("")
    assert len(lasting_secret(path)) == 64


def test_those_who_make_it_at_once_have_the_same(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(lambda _: lasting_secret(tmp_path / "secret"), range(64)))) == 1
