from __future__ import annotations

import logging
from pathlib import Path

import pytest

from remuda.base import log
from remuda.base.disk.paths import StatePaths, state_paths
from remuda.base.errors import NotPrivate
from remuda.base.settings import FROM_HERE, KNOWN, PREFIXES, setting, setting_with_origin, variable


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


def test_what_chooses_is_not_read_from_the_working_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Anybody may have written that file."""
    (tmp_path / "here" / ".env").write_text(
        "REMUDA_HOME=/evil\nDOMYN_SWARM_HOME=/evil\nREMUDA_DEFAULTS=/evil\nREMUDA_DATABASE_URL=sqlite:////evil\n"
        "REMUDA_REPORT_HOST=evil\nREMUDA_SLURM_POLL_S=9999\nREMUDA_NEWER=evil\nLEPTON_WORKSPACE_ID=evil\n"
        "REMUDA_MAIL_USER=me\nREMUDA_LOG_LEVEL=debug\nSBATCH_ACCOUNT=lab\nPATH=/evil\nANY=thing\n"
    )
    refused = ["HOME", "DEFAULTS", "DATABASE_URL", "REPORT_HOST", "SLURM_POLL_S", "NEWER", "LEPTON_WORKSPACE_ID"]
    assert [setting(name) for name in refused] == [""] * len(refused)
    assert state_paths().root == tmp_path / "home" / ".remuda"
    assert [setting("MAIL_USER"), setting("LOG_LEVEL"), variable("SBATCH_ACCOUNT")[0]] == ["me", "debug", "lab"]
    assert variable("ANY") == ("", ""), "nobody asked for it"
    assert variable("ANY", named=True) == ("thing", f"{tmp_path}/here/.env ANY")
    assert variable("REMUDA_HOME", named=True) == ("", "")
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1, "it is said once"
    assert f"{tmp_path}/here/.env sets REMUDA_HOME, DOMYN_SWARM_HOME, REMUDA_DEFAULTS, REMUDA_DATABASE_URL" in said.err
    assert "MAIL_USER" not in said.err


def test_every_setting_is_either_data_or_not(tmp_path: Path) -> None:
    """One that is new comes from the user's own places until somebody has thought about it."""
    (tmp_path / "here" / ".env").write_text("".join(f"REMUDA_{name}=x\n" for name in KNOWN))
    assert {name for name in KNOWN if setting(name)} == {"LOG_LEVEL", "API_TOKEN", "MAIL_USER"}
    assert {name for name in KNOWN if setting(name)} <= FROM_HERE


def test_what_is_said_is_said_only_of_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "here" / ".env").write_text("REMUDA_HOME=/evil\n")
    monkeypatch.setenv("REMUDA_HOME", str(tmp_path / "mine"))
    assert state_paths().root == tmp_path / "mine"
    assert capsys.readouterr().err == ""


def test_no_value_is_made_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An address with a key in it would tell the key."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    (tmp_path / "here" / ".env").write_text("REMUDA_MAIL_USER=${OPENAI_API_KEY}@evil\n")
    assert "sk-secret" not in setting("MAIL_USER")


@pytest.mark.parametrize("text", [b"\xff\xfe\x00REMUDA_HOME=/evil", b"REMUDA_\x1b]0;x\x07=1\n", b"=\n'\n"])
def test_a_broken_file_of_somebody_stops_nothing(
    tmp_path: Path, text: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "here" / ".env").write_bytes(text)
    assert state_paths().root == tmp_path / "home" / ".remuda"
    assert all(letter.isprintable() for letter in capsys.readouterr().err.removesuffix("\n"))


def test_the_users_own_file_may_choose_also_from_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "home" / ".remuda" / ".env"
    own.write_text(f"REMUDA_HOME={tmp_path}/mine\n")
    monkeypatch.chdir(own.parent)
    assert state_paths().root == tmp_path / "mine"


def test_the_users_own_file_is_read_only_if_nobody_else_writes_it(tmp_path: Path) -> None:
    own = tmp_path / "home" / ".remuda" / ".env"
    own.parent.chmod(0o755)
    own.write_text("REMUDA_HOME=/evil\n")
    own.chmod(0o666)
    with pytest.raises(NotPrivate, match=r"\.env can be written by others"):
        state_paths()


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
