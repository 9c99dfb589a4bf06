from __future__ import annotations

import logging
from pathlib import Path

import pytest

from remuda.base import log
from remuda.base.paths import StatePaths, state_paths
from remuda.base.settings import KNOWN, PREFIXES, setting, setting_with_origin, variable


@pytest.fixture(autouse=True)
def _bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings but those of the test; home and current folder of its own."""
    for name in KNOWN:
        for prefix in (*PREFIXES, ""):
            monkeypatch.delenv(prefix + name, raising=False)
    (tmp_path / "home" / ".remuda").mkdir(parents=True)
    (tmp_path / "here").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "here")


def test_an_unset_setting_is_empty() -> None:
    assert setting_with_origin("LOG_LEVEL") == ("", "")


def test_our_own_prefix_wins_over_the_old_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOMYN_SWARM_LOG_LEVEL", "debug")
    assert setting_with_origin("LOG_LEVEL") == ("debug", "environment DOMYN_SWARM_LOG_LEVEL")
    monkeypatch.setenv("REMUDA_LOG_LEVEL", "error")
    assert setting_with_origin("LOG_LEVEL") == ("error", "environment REMUDA_LOG_LEVEL")


def test_names_of_other_tools_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_TOKEN", "t")
    assert setting("API_TOKEN") == "t"


def test_files_are_read_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    far, near = tmp_path / "home" / ".remuda" / ".env", tmp_path / "here" / ".env"
    far.write_text("REMUDA_MAIL_USER=far\nREMUDA_DEFAULTS=far\nEMPTY\n")
    near.write_text("# comment\nexport REMUDA_MAIL_USER='near'\n")
    assert setting_with_origin("DEFAULTS") == ("far", f"{far} REMUDA_DEFAULTS")
    assert setting_with_origin("MAIL_USER") == ("near", f"{near} REMUDA_MAIL_USER")
    assert variable("EMPTY") == ("", "")
    monkeypatch.setenv("REMUDA_MAIL_USER", "nearest")
    assert setting("MAIL_USER") == "nearest"


def test_an_empty_variable_is_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here" / ".env").write_text("REMUDA_MAIL_USER=file\n")
    monkeypatch.setenv("REMUDA_MAIL_USER", "")
    assert setting("MAIL_USER") == ""


def test_the_state_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert state_paths().root == tmp_path / "home" / ".remuda"
    monkeypatch.setenv("REMUDA_HOME", "~/elsewhere")
    assert state_paths().root == tmp_path / "home" / "elsewhere"
    monkeypatch.setenv("REMUDA_HOME", "relative")
    assert state_paths().root == tmp_path / "here" / "relative"


def test_the_state_directory_is_private(tmp_path: Path) -> None:
    paths = StatePaths(tmp_path / "state")
    paths.prepare()
    paths.prepare()
    folders = (paths.root, paths.workloads, paths.jobs)
    assert {folder.stat().st_mode & 0o777 for folder in folders} == {0o700}
    assert paths.workload("w").parent == paths.workloads
    assert {paths.database.parent, paths.host_log.parent, paths.host_file.parent} == {paths.root}


def test_a_socket_path_is_never_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/1")
    short, deep = StatePaths(Path("/s")), StatePaths(Path("/s") / ("d" * 120))
    assert short.socket == Path("/s/host.sock")
    assert len(str(deep.socket)) < 100
    assert deep.socket != StatePaths(Path("/s") / ("e" * 120)).socket


@pytest.mark.parametrize(
    ("level", "expected"), [("debug", "DEBUG"), ("", "INFO"), ("loud", "INFO"), ("ERROR", "ERROR")]
)
def test_the_log_level(level: str, expected: str) -> None:
    root = logging.getLogger()
    before, handlers = root.level, root.handlers[:]
    root.handlers.clear()
    try:
        log.setup(level)
        assert logging.getLevelName(root.level) == expected
    finally:
        root.setLevel(before)
        root.handlers[:] = handlers
