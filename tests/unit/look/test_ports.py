"""The endpoint's port: free in every sense, and nobody else's."""

from __future__ import annotations

import fcntl
import os
import socket
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.unit.supervise.build import group, key, workload

from remuda.base.errors import Conflict
from remuda.look.ports import Reserved, choose_port
from remuda.node.child.ports import PortClaim, UnsafeDirectory
from remuda.plan.model import Endpoint, Listen
from remuda.supervise.model import Phase, Task, Want
from remuda.supervise.reconciler import Moment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.strangers import Stranger

HOST = "127.0.0.1"
HOME = Path("/home/me/.remuda")


@pytest.fixture
def taken() -> Iterator[int]:
    """A port on which somebody listens, with free ones behind it."""
    with closing(socket.socket()) as server:
        server.bind((HOST, 0))
        server.listen()
        yield server.getsockname()[1]


@pytest.fixture
def free(taken: int) -> int:
    """A port that is free now."""
    return choose_port(Listen(port=min(taken + 1, 65000)), {}, HOST, Reserved(_nowhere(), HOME))


def _nowhere() -> Path:
    return Path("/nowhere/at/all")


def hold(locks: Path, port: int) -> int:
    locks.mkdir(exist_ok=True)
    descriptor = os.open(locks / f"{port}.lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


def test_the_preferred_port_is_taken_when_it_is_free(free: int, tmp_path: Path) -> None:
    assert choose_port(Listen(port=free), {}, HOST, Reserved(tmp_path, HOME)) == free
    assert choose_port(Listen(port=free, fixed=True), {}, HOST, Reserved(tmp_path, HOME)) == free


def test_without_a_wish_it_begins_at_9000(tmp_path: Path) -> None:
    used = dict.fromkeys(range(9000, 9100), "others")
    assert choose_port(Listen(), used, HOST, Reserved(tmp_path, HOME)) >= 9100


def test_one_that_listens_is_passed_over(taken: int, tmp_path: Path) -> None:
    assert choose_port(Listen(port=taken), {}, HOST, Reserved(tmp_path, HOME)) > taken
    with pytest.raises(Conflict, match=f"port {taken} on {HOST} is in use by another program"):
        choose_port(Listen(port=taken, fixed=True), {}, HOST, Reserved(tmp_path, HOME))


def test_one_that_is_locked_is_passed_over_and_one_that_was_is_not(free: int, tmp_path: Path) -> None:
    descriptor = hold(tmp_path, free)
    assert choose_port(Listen(port=free), {}, HOST, Reserved(tmp_path, HOME)) > free
    with pytest.raises(Conflict, match="in use by another program"):
        choose_port(Listen(port=free, fixed=True), {}, HOST, Reserved(tmp_path, HOME))
    os.close(descriptor)
    assert choose_port(Listen(port=free), {}, HOST, Reserved(tmp_path, HOME)) == free


def test_another_workload_owns_its_port_while_nobody_listens(free: int, tmp_path: Path) -> None:
    assert choose_port(Listen(port=free), {free: "herd"}, HOST, Reserved(tmp_path, HOME)) > free
    with pytest.raises(Conflict, match=f"port {free} belongs to 'herd'"):
        choose_port(Listen(port=free, fixed=True), {free: "herd"}, HOST, Reserved(tmp_path, HOME))


def test_when_none_is_free_it_says_so(tmp_path: Path) -> None:
    used = dict.fromkeys(range(20000, 21000), "others")
    with pytest.raises(Conflict, match="none of the ports 20000 to 20499 is free"):
        choose_port(Listen(port=20000), used, HOST, Reserved(tmp_path, HOME))


def test_at_the_end_of_the_range_it_ends(tmp_path: Path) -> None:
    used = dict.fromkeys(range(65500, 65536), "others")
    with pytest.raises(Conflict):
        choose_port(Listen(port=65500), used, HOST, Reserved(tmp_path, HOME))


def test_an_address_of_another_machine_is_an_error_of_its_own(free: int, tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"(?i)assign"):
        choose_port(Listen(port=free), {}, "192.0.2.1", Reserved(tmp_path, HOME))


def homes(folder: Path) -> tuple[Reserved, Reserved]:
    """Two state directories on one machine."""
    for name in ("a", "b"):
        (folder / name).mkdir()
    return Reserved(folder / "locks", folder / "a"), Reserved(folder / "locks", folder / "b")


def test_two_homes_do_not_choose_the_same_port(free: int, tmp_path: Path) -> None:
    """Although nothing listens yet; what belongs to a home that was removed is free."""
    first, second = homes(tmp_path)
    with first.choosing():
        first.take("herd", free)
    assert choose_port(Listen(port=free), {}, HOST, second) > free
    with pytest.raises(Conflict, match=rf"port {free} belongs to a workload of {tmp_path}/a$"):
        choose_port(Listen(port=free, fixed=True), {}, HOST, second)
    assert choose_port(Listen(port=free), {}, HOST, first) == free, "its own are in the list of workloads"
    second.give_back("herd", free)
    assert second.other(free), "it is not theirs to give"
    (tmp_path / "a").rmdir()
    assert choose_port(Listen(port=free), {}, HOST, second) == free


async def test_what_has_ended_with_one_of_its_groups_keeps_no_port(free: int, tmp_path: Path) -> None:
    first, second = homes(tmp_path)
    made = workload(group(count=1), endpoint=Endpoint(port=free))
    want = Want(made.model_copy(update={"ends_with": key().group}), running=True, generation=1)
    over = {key(): Task(key(), "fake", Phase.DONE, generation=1)}
    others = {key(0, "other"): Task(key(0, "other"), "fake", Phase.STOPPING)}
    first.step(Moment(want, {}))
    assert second.other(free)
    first.step(Moment(want, over | others))
    assert second.other(free), "something of it is left"
    first.step(Moment(want, over))
    assert not second.other(free)
    first.step(Moment(replace(want, generation=2), over))
    assert second.other(free), "wanted again"


async def test_a_port_is_kept_while_the_workload_lives(free: int, tmp_path: Path) -> None:
    first, second = homes(tmp_path)
    want = Want(workload(endpoint=Endpoint(port=free)), running=True)
    live = {key(): Task(key(), "fake", Phase.READY)}
    over = {key(): Task(key(), "fake", Phase.STOPPED)}
    first.step(Moment(want, {}))
    assert second.other(free)
    down = replace(want, running=False)
    first.step(Moment(down, live))
    assert second.other(free), "something of it is left"
    first.step(Moment(down, over))
    assert not second.other(free)
    first.step(Moment(want, over))
    assert second.other(free), "wanted again"

    again = Reserved(tmp_path / "locks", tmp_path / "a")
    (tmp_path / "locks" / f"{free}.owner").unlink()
    again.step(Moment(want, live))
    assert second.other(free), "another host of the same home, after the machine was started anew"
    Reserved(tmp_path / "locks", tmp_path / "a").step(Moment(down, over))
    assert not second.other(free)
    second.take("theirs", free)
    again.step(Moment(replace(want, workload=want.workload.model_copy(update={"name": "other"})), live))
    assert first.other(free) == str(tmp_path / "b"), "it is not taken away"


def test_a_folder_or_file_of_somebody_else_is_not_used(free: int, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    for name in ("link", "open"):
        with pytest.raises(Conflict, match="ports cannot be reserved"), Reserved(tmp_path / name, HOME).choosing():
            pass
    reserved = Reserved(tmp_path / "real", HOME)
    secret = tmp_path / "secret"
    secret.write_text(str(tmp_path))
    (tmp_path / "real" / f"{free}.owner").symlink_to(secret)
    assert reserved.other(free) == ""
    reserved.take("herd", free)
    assert secret.read_text() == str(tmp_path), "a link is replaced, not followed"


@pytest.mark.parametrize("made", ["folder", "file", "link"])
def test_where_a_stranger_made_the_folder_hosts_and_nodes_meet_in_one_of_ours(
    common: Path, stranger: Stranger, free: int, made: str
) -> None:
    """Anybody can make a folder of that name; no command may stop because of it, and no port be given out twice."""
    locks, own = common / "locks", common / "home" / "ports"
    own.parent.mkdir(mode=0o700)
    deeds = {"folder": lambda: locks.mkdir(mode=0o777), "file": locks.touch, "link": lambda: locks.symlink_to("/tmp")}
    assert stranger.does(deeds[made])
    reserved = Reserved(locks, own.parent, own)
    with reserved.choosing():
        reserved.take("herd", free + 1)
    assert reserved.locks == own / os.uname().nodename
    assert [folder.stat().st_mode & 0o777 for folder in (own, reserved.locks)] == [0o700, 0o700]
    # A node program of the same state directory holds the port: the host sees it, and so does another one.
    claim, other = PortClaim(locks, HOST, own), PortClaim(locks, HOST, own)
    assert claim.take_free(free, "a") == free
    assert choose_port(Listen(port=free), {}, HOST, reserved) > free
    assert other.take_free(free, "b") > free
    claim.release()
    other.release()


def test_a_node_program_leaves_the_address_of_a_workload_alone(common: Path, free: int) -> None:
    """Killed together, a router that is begun again a moment before the relay would have the address for ever."""
    home = common / "home"
    reserved = Reserved(common / "locks", home, home / "ports")
    with reserved.choosing():
        reserved.take("herd", free)
    router, relay = (PortClaim(common / "locks", HOST, home / "ports") for _ in range(2))
    home.mkdir()
    assert router.take_free(free, "router") > free
    assert relay.take_fixed(free) == free
    relay.release()
    reserved.give_back("herd", free)
    assert PortClaim(common / "locks", HOST, home / "ports").take_free(free, "router") == free


def test_the_address_of_a_home_that_is_gone_is_nobody_s(common: Path, free: int) -> None:
    reserved = Reserved(common / "locks", common / "gone")
    with reserved.choosing():
        reserved.take("herd", free)
    assert PortClaim(common / "locks", HOST).take_free(free, "a") == free


def test_where_nothing_is_wrong_all_homes_share_one_folder(common: Path, free: int) -> None:
    claim = PortClaim(common / "locks", HOST, common / "home" / "ports")
    assert claim.take_free(free, "a") == free
    assert choose_port(Listen(port=free), {}, HOST, Reserved(common / "locks", HOME)) > free
    assert not (common / "home").exists()
    claim.release()


def test_a_place_of_ones_own_is_looked_at_too(common: Path, stranger: Stranger, free: int) -> None:
    for name in ("locks", "ports"):
        assert stranger.does((common / name).mkdir)
    stranger.see_as_foreign()
    with pytest.raises(UnsafeDirectory, match="ports"):
        PortClaim(common / "locks", HOST, common / "ports").take_free(free, "a")
    with (
        pytest.raises(Conflict, match="ports cannot be reserved"),
        Reserved(common / "locks", HOME, common / "ports").choosing(),
    ):
        pass
