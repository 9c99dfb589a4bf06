from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from remuda.base.disk.files import file_system_type, is_network_file_system, read_whole, write_atomic, write_named
from remuda.base.errors import InputError


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "host.json"
    write_atomic(path, "{}")
    write_atomic(path, b"\x00\xff", mode=0o600)
    assert path.read_bytes() == b"\x00\xff"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_readers_never_see_half_a_file(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    texts = {letter * 100_000 for letter in "ab"}
    write_atomic(path, "a" * 100_000)
    done = threading.Event()

    def write() -> None:
        try:
            for turn in range(200):
                write_atomic(path, "ab"[turn % 2] * 100_000, sync=False)
        finally:
            done.set()

    writer = threading.Thread(target=write)
    writer.start()
    while not done.is_set():
        assert path.read_text() in texts
    writer.join()


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "report.json"
    write_atomic(path, "old")

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_atomic(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


MOUNTS = """\
/dev/sda1 / ext4 rw 0 0
proc /proc proc rw 0 0
server:/home /home nfs4 rw,vers=4.2 0 0
/dev/sdb /home/me/fast xfs rw 0 0
scratch /scratch lustre rw 0 0
me@far: /mnt/far\\040away fuse.sshfs rw 0 0
tmpfs /home/me/over tmpfs rw 0 0
server:/over /home/me/over nfs rw 0 0
broken
"""


@pytest.mark.parametrize(
    ("path", "kind", "network"),
    [
        ("/etc", "ext4", False),
        ("/home/me/.remuda", "nfs4", True),
        ("/home/me/fast/x", "xfs", False),
        ("/homes/me", "ext4", False),
        ("/scratch", "lustre", True),
        ("/mnt/far away/x", "fuse.sshfs", True),
        ("/home/me/over/x", "nfs", True),
    ],
)
def test_the_file_system_is_that_of_the_nearest_mount(tmp_path: Path, path: str, kind: str, network: bool) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(MOUNTS)
    assert file_system_type(Path(path), mounts=mounts) == kind
    assert is_network_file_system(Path(path), mounts=mounts) is network


def test_links_are_followed(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/sda / ext4 rw 0 0\nserver:/x {tmp_path}/far nfs rw 0 0\n")
    (tmp_path / "far").mkdir()
    (tmp_path / "near").symlink_to("far")
    assert is_network_file_system(tmp_path / "near" / "remuda.db", mounts=mounts)


def test_without_a_list_of_mounts_nothing_is_known(tmp_path: Path) -> None:
    assert file_system_type(tmp_path, mounts=tmp_path / "absent") == ""
    assert not is_network_file_system(tmp_path, mounts=tmp_path / "absent")


def test_a_file_that_a_person_named_is_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"abc")
    assert read_whole(path, 3) == b"abc"
    with pytest.raises(OSError, match="larger than 2 bytes"):
        read_whole(path, 2)
    with pytest.raises(IsADirectoryError):
        read_whole(tmp_path, 3)
    with pytest.raises(FileNotFoundError):
        read_whole(tmp_path / "y", 3)


def test_what_a_shell_passes_is_read() -> None:
    ours, theirs = os.pipe()
    with os.fdopen(ours, "rb"), os.fdopen(theirs, "wb") as sink:
        sink.write(b"model: m")
        sink.close()
        assert read_whole(Path(f"/dev/fd/{ours}"), 100) == b"model: m"


def test_a_file_that_was_named_and_cannot_be_written(tmp_path: Path) -> None:
    write_named(tmp_path / "out.html", "page")
    assert (tmp_path / "out.html").read_text() == "page"
    with pytest.raises(InputError, match=r"none/out\.html: cannot be written: no such file or directory"):
        write_named(tmp_path / "none/out.html", "page")
