"""The folders above a directory: who could put another one in its place."""

from __future__ import annotations

import grp
import pwd
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from remuda.base.disk.paths import StatePaths, state_paths
from remuda.base.disk.private import Exposure, check_above, exposures, group_name, make_private, told_above, user_name
from remuda.base.errors import NotPrivate
from remuda.look.run_dirs import told_elsewhere

if TYPE_CHECKING:
    from tests.strangers import Stranger

ME, BOB, LAB = 1000, 54_321, 54_400


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[int, list[str]]:
    """Members of groups; group 54400 is the lab's, and users have one of their own with their number."""
    members: dict[int, list[str]] = {LAB: ["alice", "bob"], ME: []}
    users = {ME: "alice", BOB: "bob"}
    groups = {LAB: "lab", ME: "alice", 100: "users", 0: "root"}

    def user(uid: int) -> pwd.struct_passwd:
        return pwd.struct_passwd((users[uid], "", uid, uid, "", "/", ""))

    def group(gid: int) -> grp.struct_group:
        return grp.struct_group((groups[gid], "", gid, members.get(gid, [])))

    monkeypatch.setattr(pwd, "getpwuid", user)
    monkeypatch.setattr(grp, "getgrgid", group)
    return members


@pytest.mark.parametrize(
    ("owner", "group", "mode", "to_all", "who"),
    [
        (ME, LAB, 0o40755, False, ()),
        (0, 0, 0o40755, False, ()),
        (0, 0, 0o41777, False, ()),  # /tmp
        (0, 0, 0o40775, False, ()),
        (0, LAB, 0o40770, False, ("all in group lab",)),
        (ME, LAB, 0o42775, False, ("all in group lab",)),
        (ME, LAB, 0o43775, False, ()),  # with the sticky bit
        (ME, ME, 0o40775, False, ()),  # the group of the user alone
        (ME, 100, 0o40775, False, ("all in group users",)),  # without listed members, but everybody's
        (ME, 7777, 0o40775, False, ("all in group 7777",)),
        (BOB, LAB, 0o40755, False, ("bob",)),
        (BOB, LAB, 0o41777, False, ("bob",)),
        (BOB, LAB, 0o42775, False, ("bob", "all in group lab")),
        (ME, ME, 0o40777, True, ()),
    ],
)
@pytest.mark.usefixtures("names")
def test_who_can(owner: int, group: int, mode: int, to_all: bool, who: tuple[str, ...]) -> None:
    found = Exposure(Path("/x"), owner, group, mode)
    assert (found.to_all, found.who(ME)) == (to_all, who)


def test_a_group_of_ones_own_name_with_another_member(names: dict[int, list[str]]) -> None:
    one = Exposure(Path("/x"), ME, ME, 0o40775)
    names[ME] = ["alice"]
    assert one.who(ME) == ()
    names[ME] = ["alice", "bob"]
    assert one.who(ME) == ("all in group alice",)


def test_below_ones_own_folders_nothing_is_said(tmp_path: Path) -> None:
    home = make_private(tmp_path / "home")
    assert list(exposures(home)) == []
    assert told_above(home) == ""
    check_above(home)


def test_everybody_is_refused(common: Path, stranger: Stranger, monkeypatch: pytest.MonkeyPatch) -> None:
    home = make_private(common / "mine" / "home")
    common.chmod(0o777)
    assert stranger.does(lambda: (common / "mine").rename(common / "away"))
    (common / "away").rename(common / "mine")
    said = f"any user can replace {home}: {common}, above it, is writable by all"
    with pytest.raises(NotPrivate, match=said) as caught:
        check_above(home)
    assert caught.value.hint.startswith(f"chmod o-w {common}, or set REMUDA_HOME")
    monkeypatch.setenv("REMUDA_HOME", str(home))
    with pytest.raises(NotPrivate, match=said):
        state_paths()
    with pytest.raises(NotPrivate, match=said) as caught:
        told_elsewhere(str(home), StatePaths(common / "other"))
    assert "set home_directory to one of your own" in caught.value.hint
    common.chmod(0o1777)
    assert not stranger.is_real or not stranger.does(lambda: (common / "mine").rename(common / "away"))
    check_above(home)


def test_a_home_that_is_not_there_yet_is_looked_at_too(common: Path) -> None:
    common.chmod(0o777)
    with pytest.raises(NotPrivate, match="any user can replace"):
        check_above(common / "a" / "b" / "home")


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch, common: Path) -> str:
    """The project's group, which is not the user's own whoever runs this."""
    gid = common.stat().st_gid
    monkeypatch.setattr(grp, "getgrgid", lambda _: grp.struct_group(("lab", "", gid, ["bob"])))
    return group_name(gid)


def test_a_group_is_told(common: Path, stranger: Stranger, lab: str) -> None:
    home = make_private(common / "mine" / "home")
    assert stranger.does(lambda: (common / "mine").rename(common / "away"))
    (common / "away").rename(common / "mine")
    check_above(home)
    assert told_above(home) == (
        f"all in group {lab} (in {common}) can put another directory in the place of {home}, and so run programs "
        "as you; if you do not trust them, set REMUDA_HOME to a directory of your own below folders that only you "
        "can write"
    )


def test_the_owner_of_a_folder_above_is_told(common: Path, stranger: Stranger) -> None:
    def make() -> None:
        (common / "theirs").mkdir()
        (common / "theirs").chmod(0o3777)

    assert stranger.does(make)
    common.chmod(0o755)
    home = common / "theirs" / "mine" / "home"
    home.mkdir(parents=True)
    assert stranger.does(lambda: (common / "theirs" / "mine").rename(common / "theirs" / "away"))
    stranger.see_as_foreign()
    check_above(home)
    assert f"{user_name(stranger.uid)} (in {common / 'theirs'}) can put another directory" in told_above(home)


def test_whoever_can_change_a_link_on_the_way_is_told(common: Path, tmp_path: Path, lab: str) -> None:
    """Of two links one after the other, both."""
    home = make_private(tmp_path / "home")
    (tmp_path / "here").symlink_to(common / "there")
    (common / "there").symlink_to("../" * 20 + str(home)[1:])
    assert f"all in group {lab} (in {common})" in told_above(tmp_path / "here" / "below")
    assert told_above(home) == ""
    (common / "round").symlink_to("round")
    assert told_above(common / "round" / "x")


def test_a_link_that_another_made_is_theirs(common: Path, tmp_path: Path, stranger: Stranger) -> None:
    common.chmod(0o1777)
    assert stranger.does(lambda: (common / "theirs").symlink_to(tmp_path))
    stranger.see_as_foreign()
    found = told_above(common / "theirs" / "home")
    assert f"{user_name(stranger.uid)} (in {common / 'theirs'})" in found


@pytest.mark.usefixtures("lab")
def test_a_command_asks_for_no_names(common: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They may be on a server far away: who it is is asked when it is told."""
    monkeypatch.setattr(grp, "getgrgid", lambda _: pytest.fail("asked"))
    check_above(make_private(common / "home"))
