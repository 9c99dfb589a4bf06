"""Who wins, and who is named: command line, file, environment, defaults, built-in."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from remuda.base import settings
from remuda.base.errors import InputError
from remuda.base.secrets import MASK
from remuda.specs.reading.document import parse
from remuda.specs.reading.load import Loaded, assignment, build, load, load_swarm
from remuda.specs.reading.resolve import Override

if TYPE_CHECKING:
    from pathlib import Path

    from remuda.specs.strict import Strict

DEFAULTS = """\
image: defaults.sif
log_level: error
home_directory: /defaults
env: {A: low, B: low}
slurm:
  partition: p
  account: a
  qos: q
  endpoint: {port: 9100}
  mail_user: defaults@example.org
"""
ENVIRONMENT = {
    "HOME": ("/env", "environment REMUDA_HOME"),
    "LOG_LEVEL": ("WARNING", "environment REMUDA_LOG_LEVEL"),
    "MAIL_USER": ("env@example.org", "environment REMUDA_MAIL_USER"),
    "LEPTON_WORKSPACE_ID": ("w1", "environment LEPTON_WORKSPACE_ID"),
}


def resolved(text: str, *overrides: Override) -> Loaded[Strict]:
    return build(
        parse(text, "swarm.yaml"), overrides, defaults=parse(DEFAULTS, "~/.remuda/defaults.yaml"), settings=ENVIRONMENT
    )


def shown(loaded: Loaded[Strict]) -> dict[str, tuple[object, str]]:
    return {row.path: (row.value, row.origin) for row in loaded.show()}


FULL = "model: m\nlog_level: debug\nreplicas: 2\nbackend:\n  type: slurm\n"


@pytest.mark.parametrize(
    ("text", "overrides", "path", "value", "origin"),
    [
        ("model: m\nlog_level: debug", ["log_level"], "log_level", "info", "--log_level"),
        ("model: m\nlog_level: debug", [], "log_level", "debug", "swarm.yaml:2"),
        ("model: m", [], "log_level", "warning", "environment REMUDA_LOG_LEVEL"),
        ("model: m", [], "home_directory", "/env", "environment REMUDA_HOME"),
        ("model: m", [], "image", "defaults.sif", "~/.remuda/defaults.yaml:1"),
        ("model: m\nimage: null", [], "image", None, "built-in"),
        ("model: m", [], "port", 8000, "built-in"),
        ("model: m\nenv: {A: high}", [], "env.A", "high", "swarm.yaml:2"),
        ("model: m\nenv: {A: high}", [], "env.B", "low", "~/.remuda/defaults.yaml:4"),
        (FULL, [], "backend.partition", "p", "~/.remuda/defaults.yaml:6"),
        (FULL, [], "backend.endpoint.port", 9100, "~/.remuda/defaults.yaml:9"),
        (FULL, [], "backend.mail_user", "env@example.org", "environment REMUDA_MAIL_USER"),
        (FULL + "  partition: mine", [], "backend.partition", "mine", "swarm.yaml:6"),
        (FULL, [], "backend.type", "slurm", "swarm.yaml:5"),
        ("model: m\nbackend: slurm", [], "backend.type", "slurm", "swarm.yaml:2"),
        ("model: m\nbackend: {workspace_id: w2}", [], "backend.type", "lepton", "swarm.yaml:2"),
        ("model: m\nbackend: lepton", [], "backend.workspace_id", "w1", "environment LEPTON_WORKSPACE_ID"),
        ("model: m", [], "backend.type", "local", "built-in"),
        ("model: m\nrouter: nginx", [], "router.type", "nginx", "swarm.yaml:2"),
    ],
)
def test_precedence(text: str, overrides: list[str], path: str, value: object, origin: str) -> None:
    flags = [Override(name, "info", f"--{name}") for name in overrides]
    assert shown(resolved(text, *flags))[path] == (value, origin)


def test_an_override_inside_the_backend_keeps_its_type() -> None:
    rows = shown(resolved(FULL, Override("backend.endpoint.port", 9001, "--port")))
    assert rows["backend.endpoint.port"] == (9001, "--port")
    assert rows["backend.type"] == ("slurm", "swarm.yaml:5")


def test_another_backend_on_the_command_line_drops_the_files_settings() -> None:
    rows = shown(resolved(FULL + "  partition: mine", Override("backend", "local", "--backend")))
    assert rows["backend.type"] == ("local", "--backend")
    assert "backend.partition" not in rows


def test_the_defaults_may_choose_the_backend() -> None:
    defaults = parse("backend: slurm\n" + DEFAULTS, "d.yaml")
    loaded = build(parse("model: m\nbackend: {endpoint: {port: 9300}}", "s.yaml"), defaults=defaults)
    assert shown(loaded)["backend.endpoint.port"] == (9300, "s.yaml:2")
    assert shown(loaded)["backend.type"] == ("slurm", "d.yaml:1")


def test_no_file_at_all() -> None:
    rows = shown(build(None, [Override("model", "m", "--model"), Override("args", "--a 'b c'", "--args")]))
    assert rows["model"] == ("m", "--model")
    assert rows["args"] == (["--a", "b c"], "--args")


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        ("watchdog.max_restarts=5", "watchdog.max_restarts", 5),
        ("args=--a 'b c'", "args", ["--a", "b c"]),
        ("env.A=x=y", "env.A", "x=y"),
        ("backend=slurm", "backend.type", "slurm"),
    ],
)
def test_assignments(text: str, path: str, value: object) -> None:
    rows = shown(resolved("model: m", assignment(text)))
    assert rows[path] == (value, f"--set {text.split('=', maxsplit=1)[0]}")


def test_an_assignment_of_nothing_hides_what_is_below() -> None:
    assert shown(resolved("model: m\nimage: x", assignment("image=")))["image"] == (None, "built-in")
    with pytest.raises(InputError, match="'image' is not KEY=VALUE"):
        assignment("image")


def test_secrets_are_masked() -> None:
    rows = shown(resolved("model: m\nenv: {HF_TOKEN: abc, X: abc}\napi_key: {env: KEY}"))
    assert rows["env.HF_TOKEN"] == (MASK, "swarm.yaml:2")
    assert rows["env.X"] == ("abc", "swarm.yaml:2")
    assert rows["api_key.env"] == ("KEY", "swarm.yaml:3")


def test_unknown_keys_in_defaults_are_errors_even_where_they_are_not_used() -> None:
    defaults = parse("imagee: x\nslurm:\n  partitoin: p\n  endpoint: {prt: 1}\n", "defaults.yaml")
    with pytest.raises(InputError) as caught:
        build(parse("model: m", "s.yaml"), defaults=defaults)
    assert str(caught.value).splitlines() == [
        "defaults.yaml:1:1: unknown key 'imagee' in the defaults",
        "defaults.yaml:3:3: unknown key 'partitoin' in the defaults (did you mean 'partition'?)",
        "defaults.yaml:4:14: unknown key 'prt' in the defaults (did you mean 'port'?)",
    ]


def test_a_wrong_value_in_the_defaults_is_found_there() -> None:
    with pytest.raises(InputError) as caught:
        build(parse("model: m", "s.yaml"), defaults=parse("port: many", "defaults.yaml"))
    assert str(caught.value) == "defaults.yaml:1:7: `port` must be a whole number, not many"


def test_locate_gives_a_place_to_errors_of_pure_rooms() -> None:
    loaded = resolved("model: m\nreplicas: 3", Override("port", 80, "--port"))
    assert str(loaded.locate(InputError("no", where="replicas"))) == "swarm.yaml:2:1: no"
    assert str(loaded.locate(InputError("no", where="port"))) == "--port: no"
    assert str(loaded.locate(InputError("no", where="nodes"))) == "swarm.yaml: no"
    assert str(loaded.locate(InputError("no"))) == "no"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in list(os.environ):
        if name.startswith(("REMUDA_", "DOMYN_SWARM_")) or name in ("API_TOKEN", "LEPTON_WORKSPACE_ID"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    settings._dotenv.cache_clear()
    return tmp_path


def test_load_reads_the_real_places(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / ".remuda").mkdir()
    (home / ".remuda" / "defaults.yaml").write_text("port: 8100\n")
    (home / "s.yaml").write_text("model: m\n")
    monkeypatch.setenv("DOMYN_SWARM_LOG_LEVEL", "DEBUG")
    rows = shown(load("s.yaml"))
    assert rows["port"] == (8100, "~/.remuda/defaults.yaml:1")
    assert rows["log_level"] == ("debug", "environment DOMYN_SWARM_LOG_LEVEL")


def test_a_defaults_file_that_was_named_must_exist(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "s.yaml").write_text("model: m\n")
    assert load_swarm("s.yaml").spec.port == 8000
    monkeypatch.setenv("DOMYN_SWARM_DEFAULTS", str(home / "none.yml"))
    with pytest.raises(InputError, match=r"none.yml: there is no such file"):
        load_swarm("s.yaml")
