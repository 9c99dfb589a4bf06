"""What is missing on this machine is one sentence, before anything is recorded."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest
from tests import plans

from remuda.base.disk.paths import StatePaths
from remuda.base.errors import InputError
from remuda.look import caller, preflight
from remuda.specs.reading.load import mapping_overrides

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _without_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caller, "present_gpus", lambda: ())


def check(tmp_path: Path, **fields: Any) -> None:
    """Plan a swarm on this machine, and look for what it needs."""
    document = {"name": "herd", "model": "m", "replicas": 1, "router": "none", "backend": {"type": "local"}, **fields}
    paths = StatePaths(tmp_path / "home")
    plans.check(plans.swarm(None, mapping_overrides(document, "test"), paths), paths)
    assert not paths.root.exists(), "nothing is written"


def refusal(tmp_path: Path, **fields: Any) -> InputError:
    with pytest.raises(InputError) as caught:
        check(tmp_path, **fields)
    return caught.value


def python(tmp_path: Path, says: str) -> str:
    """An interpreter that says whether it has a module."""
    path = tmp_path / "python3"
    path.write_text(f"#!/bin/sh\necho 'remuda: {says}'\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize("command", [["no-such-server"], ["./no-such-server"], ["/no/such-server"]])
def test_a_program_that_is_not_there(tmp_path: Path, command: list[str]) -> None:
    error = refusal(tmp_path, engine="command", command=command)
    assert f"there is no program {command[0]!r} on this machine" in error.message


def test_a_program_where_the_document_looks_for_it(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "my-server"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    check(tmp_path, engine="command", command=["my-server"], env={"PATH": str(program.parent)})
    check(tmp_path, engine="command", command=["./my-server"], cwd=str(program.parent))
    program.chmod(0o644)
    assert "my-server" in refusal(tmp_path, engine="command", command=[str(program)]).message


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_an_interpreter_without_the_engine(tmp_path: Path, engine: str) -> None:
    error = refusal(tmp_path, engine=engine, engine_path=python(tmp_path, "no"))
    assert error.message.endswith(f"{tmp_path}/python3 has no {engine}, so it cannot start the {engine} engine")
    assert error.hint.startswith("pip install ")
    check(tmp_path, engine=engine, engine_path=python(tmp_path, "yes"))
    check(tmp_path, engine=engine, engine_path=python(tmp_path, "something that nobody understands"))


def test_the_engine_behind_our_own_launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "m.gguf").touch()
    monkeypatch.setattr(preflight, "_lacks", lambda *asked: asked[1] == "xllamacpp")
    error = refusal(tmp_path, engine="llamacpp", model=str(tmp_path / "m.gguf"))
    assert error.message == f"{sys.executable} has no xllamacpp, so it cannot start the llamacpp engine"
    assert "remuda[llamacpp]" in error.hint


@pytest.mark.parametrize(("router", "hint"), [("smg", "remuda[router]"), ("nginx", "apt-get install")])
def test_a_router_that_is_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, router: str, hint: str
) -> None:
    monkeypatch.setattr(preflight, "_lacks", lambda *asked: asked[1] == "smg")
    monkeypatch.setattr("shutil.which", lambda name, path=None: None if name == "nginx" else f"/bin/{name}")
    error = refusal(tmp_path, engine="command", command=["sh"], router=router)
    assert error.message.endswith(f"the router {router} is not installed")
    assert hint in error.hint
    check(tmp_path, engine="command", command=["sh"], router="none")


def test_an_image_brings_its_own_engine(tmp_path: Path) -> None:
    image = tmp_path / "vllm.sif"
    image.touch()
    check(tmp_path, engine="vllm", image=str(image))
