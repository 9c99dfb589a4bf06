"""Secrets travel as files that only the user can read, and never in anything that is shown or kept."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.unit.supervise.build import group, workload

from remuda.base.errors import InputError
from remuda.client.submission import body
from remuda.host.accept import with_secrets
from remuda.look import run_dirs
from remuda.look.caller import kept_environment
from remuda.look.planning import secrets_by_file
from remuda.plan.compile import secret_folder
from remuda.plan.front import CONTROL_KEY
from remuda.plan.model import Command, Endpoint, Secret, Workload

if TYPE_CHECKING:
    from collections.abc import Mapping


def asking(tmp_path: Path, secrets: Mapping[str, Secret], api_key: Secret | None = None) -> Workload:
    one = group().model_copy(update={"command": Command(argv=("server",), secret_env=dict(secrets))})
    endpoint = Endpoint(api_key=api_key)
    return workload(one, endpoint=endpoint).model_copy(update={"run_dir": str(tmp_path / "w")})


def delivered_of(asked: Workload) -> Workload:
    """What a command and the host make of a workload, together."""
    workload, names = secrets_by_file(asked)
    plan = {"secrets": names, "workload": {}, "document": ""}
    Path(asked.run_dir).mkdir(parents=True, exist_ok=True)
    run_dirs.write_files(with_secrets(workload, body(plan)["secrets"]).files, below=Path(asked.run_dir).parent)
    return workload


def test_a_variable_becomes_a_file_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SESAME", "open up")
    asked = asking(tmp_path, {"KEY": Secret(env="SESAME")}, Secret(env="SESAME"))
    delivered = delivered_of(asked)
    secret = delivered.groups[0].command.secret_env["KEY"]
    assert (secret.env, Path(secret.file).read_text()) == ("", "open up")
    assert delivered.endpoint is not None
    assert delivered.endpoint.api_key == secret
    assert "open up" not in delivered.model_dump_json()
    folder = Path(secret_folder(asked.run_dir, asked.uid))
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()} == {
        "SESAME": 0o600,
        CONTROL_KEY: 0o600,
    }


def test_every_creation_has_a_control_key_of_its_own(tmp_path: Path) -> None:
    keys = set()
    for uid in ("u1", "u2"):
        folder = secret_folder(str(tmp_path / "w"), uid)
        asked = {"ROUTER": Secret(file=f"{folder}/{CONTROL_KEY}")}
        one = asking(tmp_path, asked).model_copy(update={"uid": uid})
        delivered_of(one)
        keys.add((Path(secret_folder(one.run_dir, uid)) / CONTROL_KEY).read_text())
    assert len(keys) == 2
    assert all(len(key) >= 32 for key in keys)


def test_a_file_stays_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "key").write_text("open up")
    monkeypatch.chdir(tmp_path)
    delivered = delivered_of(asking(tmp_path, {"KEY": Secret(file="key")}))
    assert delivered.groups[0].command.secret_env["KEY"] == Secret(file=str(tmp_path / "key"))


@pytest.mark.parametrize(
    ("secret", "sentence"),
    [
        (
            Secret(env="NOBODY_SET_THIS"),
            "environment variable NOBODY_SET_THIS is not set, and a secret is read from it",
        ),
        (Secret(file="/no/such/key"), "secret file '/no/such/key' does not exist"),
    ],
)
def test_what_is_missing_is_named(tmp_path: Path, secret: Secret, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        delivered_of(asking(tmp_path, {"KEY": secret}))
    with pytest.raises(InputError, match=sentence):
        delivered_of(asking(tmp_path, {}, secret))


SECRET_NAMES = ["HF_TOKEN", "HUGGINGFACE_API_KEY", "VLLM_API_KEY", "SGLANG_SECRET", "HF_HUB_TOKEN_X", "RAY_PASSWORD"]


def test_secret_looking_names_are_never_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [*SECRET_NAMES, "OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "MY_VARIABLE", "CUDA_VISIBLE_DEVICES"]:
        monkeypatch.setenv(name, "sesame")
    monkeypatch.setenv("HF_HOME", "/models")
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    kept = kept_environment()
    assert "sesame" not in kept.values()
    assert (kept["HF_HOME"], kept["OMP_NUM_THREADS"], kept["PATH"]) == ("/models", "4", os.environ["PATH"])
