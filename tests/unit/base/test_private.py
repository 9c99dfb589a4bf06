"""What only the user can write: made so, whatever the umask, or refused with a sentence."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

import pytest

from remuda.base.disk.paths import StatePaths, state_paths
from remuda.base.disk.private import check_private, complaint, make_missing, make_private, user_name
from remuda.base.errors import NotPrivate
from remuda.specs.reading.load import read_defaults

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.strangers import Stranger

ME, OTHER = 1000, 54_321


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode) & 0o777


@pytest.mark.parametrize(
    ("owner", "bits", "said"),
    [
        (ME, 0o40700, ""),
        (ME, 0o40755, ""),
        (ME, 0o42755, ""),
        (ME, 0o42775, "can be written by others than user 1000 (mode 2775)"),
        (ME, 0o40777, "can be written by others than user 1000 (mode 0777)"),
        (ME, 0o41777, "can be written by others than user 1000 (mode 1777)"),
        (OTHER, 0o40700, "belongs to user 54321 and not to user 1000 (mode 0700)"),
        (0, 0o40755, "belongs to root and not to user 1000 (mode 0755)"),
    ],
)
def test_what_speaks_against_it(owner: int, bits: int, said: str) -> None:
    assert complaint(owner, bits, ME) == said.replace("user 1000", user_name(ME)).replace("root", user_name(0))


@pytest.mark.usefixtures("loose")
@pytest.mark.parametrize("make", [make_private, make_missing])
def test_all_that_is_made_is_closed_whatever_the_umask(common: Path, make: Callable[[Path], object]) -> None:
    make(common / "home" / "workloads" / "w")
    made = [common / "home", common / "home" / "workloads", common / "home" / "workloads" / "w"]
    assert [mode(path) for path in made] == [0o700] * 3


@pytest.mark.usefixtures("loose")
def test_in_a_folder_of_a_project_nobody_gets_in(common: Path, stranger: Stranger) -> None:
    home = make_private(common / "home")
    assert stranger.does((common / "theirs").touch), "the project is theirs, too"
    if stranger.is_real:
        assert not stranger.does((home / "theirs").touch)
    assert mode(home) == 0o700


def test_a_home_that_others_only_read_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir(mode=0o755)
    (tmp_path / "home").chmod(0o755)
    make_private(tmp_path / "home")
    assert mode(tmp_path / "home") == 0o755


def test_a_project_folder_itself_is_refused(common: Path) -> None:
    with pytest.raises(NotPrivate, match=r"can be written by others than .* \(mode 2775\)") as caught:
        make_private(common)
    assert f"chmod 700 {common}" in caught.value.hint
    assert "REMUDA_HOME" in caught.value.hint
    assert caught.value.exit_code == 4


def test_what_a_stranger_made_is_refused(common: Path, stranger: Stranger) -> None:
    assert stranger.does(lambda: (common / "home").mkdir(mode=0o700))
    stranger.see_as_foreign()
    with pytest.raises(NotPrivate, match=f"home belongs to {user_name(stranger.uid)} and not to") as caught:
        make_private(common / "home")
    assert "REMUDA_HOME" in caught.value.hint
    assert "chmod" not in caught.value.hint, "they cannot change its mode"


def test_a_link_counts_if_we_made_it(common: Path, tmp_path: Path, stranger: Stranger) -> None:
    (tmp_path / "scratch").mkdir(mode=0o700)
    (common / "ours").symlink_to(tmp_path / "scratch")
    make_private(common / "ours")
    assert stranger.does(lambda: (common / "theirs").symlink_to(tmp_path / "scratch"))
    stranger.see_as_foreign()
    with pytest.raises(NotPrivate, match="is a link that"):
        make_private(common / "theirs")


def test_inside_a_closed_home_what_is_ours_is_closed_too(tmp_path: Path) -> None:
    home = make_private(tmp_path / "home")
    for folder in (home / "workloads", home / "workloads" / "w"):
        folder.mkdir()
        folder.chmod(0o775)
    make_private(home / "workloads" / "w" / "r", below=home)
    assert [mode(home / "workloads"), mode(home / "workloads" / "w")] == [0o755, 0o755]


def test_inside_a_home_that_others_enter_it_is_refused(tmp_path: Path) -> None:
    home = make_private(tmp_path / "home")
    home.chmod(0o755)
    (home / "workloads").mkdir()
    (home / "workloads").chmod(0o775)
    with pytest.raises(NotPrivate, match="workloads can be written by others"):
        make_private(home / "workloads" / "w", below=home)
    assert not (home / "workloads" / "w").exists()


def test_every_level_is_looked_at(common: Path, stranger: Stranger) -> None:
    home = make_private(common / "home")
    home.chmod(0o777)
    assert stranger.does(lambda: (home / "workloads").mkdir(mode=0o777))
    home.chmod(0o700)
    stranger.see_as_foreign()
    with pytest.raises(NotPrivate, match="belongs to"):
        make_private(home / "workloads" / "w", below=home / "workloads")


def test_a_database_that_was_put_there_is_not_read(common: Path, stranger: Stranger) -> None:
    paths = StatePaths(common / "home")
    paths.root.mkdir()
    paths.root.chmod(0o777)
    assert stranger.does(paths.database.touch)
    paths.root.chmod(0o700)
    stranger.see_as_foreign()
    with pytest.raises(NotPrivate, match=r"belongs to"):
        paths.prepare()


@pytest.mark.usefixtures("loose")
def test_the_folder_of_a_socket_elsewhere_is_made_private_or_refused(
    common: Path, stranger: Stranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(common))
    mine, theirs = (StatePaths(common / name / ("d" * 90)) for name in ("a", "b"))
    mine.prepare()
    assert mine.socket.parent.parent == common
    assert mode(mine.socket.parent) == 0o700
    folder = theirs.socket.parent
    assert stranger.does(lambda: folder.mkdir(mode=0o777)), "ours to others than root: then the group may write it"
    (common / "b").mkdir(mode=0o700)
    with pytest.raises(NotPrivate, match="others" if not stranger.is_real else "belongs to") as caught:
        theirs.prepare()
    assert "XDG_RUNTIME_DIR" in caught.value.hint


def test_defaults_that_others_could_have_written_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They set the environment of scripts."""
    home = tmp_path / "home"
    home.mkdir(mode=0o755)
    home.chmod(0o755)
    monkeypatch.setenv("REMUDA_HOME", str(home))
    monkeypatch.delenv("REMUDA_DEFAULTS", raising=False)
    (home / "defaults.yaml").write_text("engine: llamacpp\n")
    assert read_defaults() is not None
    (home / "defaults.yaml").chmod(0o664)
    with pytest.raises(NotPrivate, match=r"defaults\.yaml can be written by others"):
        read_defaults()
    home.chmod(0o700)
    assert read_defaults() is not None, "nobody else gets there"


def test_the_state_directory_in_force_is_refused_before_anything_is_read(
    common: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REMUDA_HOME", str(common))
    with pytest.raises(NotPrivate, match="2775"):
        state_paths()
    monkeypatch.setenv("REMUDA_HOME", str(common / "home"))
    assert state_paths().root == common / "home"
    assert list(common.iterdir()) == [], "nothing was made"


def test_a_file_is_looked_at_like_a_folder(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    file = tmp_path / "defaults.yaml"
    check_private(file)
    file.touch()
    file.chmod(0o664)
    with pytest.raises(NotPrivate) as caught:
        check_private(file)
    assert f"chmod 600 {file}" in caught.value.hint
