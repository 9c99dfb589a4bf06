"""Where beds lie: everybody can guess it, and nobody else gets anything by being there first."""

from __future__ import annotations

import json
import os
import shutil
import socket
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from remuda.base.disk.private import user_name
from remuda.base.errors import NotFound, NotPrivate
from remuda.testing.slurm import SlurmBed, network, registry, sweep
from remuda.testing.slurm.config import BedLayout
from remuda.testing.slurm.topology import DEFAULT

if TYPE_CHECKING:
    from tests.strangers import Stranger


@pytest.fixture
def temporary(common: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stands for /tmp."""
    common.chmod(0o1777)
    monkeypatch.setattr(registry, "Path", lambda path: common if path == "/tmp" else Path(path))
    return common


def document(root: Path) -> str:
    """Of a bed whose owner is dead, so that it is swept."""
    layout = BedLayout(
        root=root, slot=3, host=socket.gethostname(), user="u", topology=DEFAULT, accounting=False, isolated=False,
        preempt="partition", extra=(), owner="1/1/gone",
    )  # fmt: skip
    return json.dumps(layout.to_json())


def test_a_registry_that_another_made_is_refused(temporary: Path, stranger: Stranger) -> None:
    place = temporary / f"remuda-slurm-{os.getuid()}"
    assert stranger.does(lambda: place.mkdir(mode=0o777))
    stranger.see_as_foreign()
    mine = temporary / f"remuda-slurm-{os.getuid()}"
    if mine != place:
        place.rename(mine)
    with pytest.raises(NotPrivate, match=f"{mine} belongs to {user_name(stranger.uid)}"):
        registry.registry()
    assert list(mine.iterdir()) == []


def test_a_link_in_its_place_is_not_followed(temporary: Path, tmp_path: Path, stranger: Stranger) -> None:
    stranger.see_as_foreign()
    place = temporary / f"remuda-slurm-{os.getuid()}"
    assert stranger.does(lambda: place.symlink_to(tmp_path))
    with pytest.raises(NotPrivate, match=f"is a link that {user_name(stranger.uid)} made"):
        registry.registry()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("loose")
def test_it_is_made_for_its_user_alone(temporary: Path) -> None:
    assert registry.registry().parent == temporary
    assert stat.S_IMODE(registry.registry().stat().st_mode) == 0o700


def test_a_bed_that_another_left_is_not_opened(temporary: Path, stranger: Stranger) -> None:
    place = temporary / "remuda-try-0-1"

    def make() -> None:
        place.mkdir(mode=0o755)
        (place / registry.BED_FILE).write_text(document(place))

    assert stranger.does(make)
    stranger.see_as_foreign()
    for begin in (lambda: SlurmBed.open(place), lambda: SlurmBed(place).up()):
        with pytest.raises(NotPrivate, match=f"{place} belongs to {user_name(stranger.uid)}") as caught:
            begin()
        assert caught.value.hint == "name another directory"
    assert registry.layout_in(place) is None


def test_a_link_to_a_folder_of_ours_is_not_followed(temporary: Path, tmp_path: Path, stranger: Stranger) -> None:
    (tmp_path / "private").mkdir(mode=0o700)
    place = temporary / "remuda-try-0-1"
    assert stranger.does(lambda: place.symlink_to(tmp_path / "private"))
    stranger.see_as_foreign()
    with pytest.raises(NotPrivate, match=f"is a link that {user_name(stranger.uid)} made"):
        SlurmBed(place)
    assert stat.S_IMODE((tmp_path / "private").stat().st_mode) == 0o700


def test_below_a_folder_of_everybody_there_is_no_bed(common: Path) -> None:
    common.chmod(0o777)
    with pytest.raises(NotPrivate, match="any user can replace"):
        SlurmBed(common / "bed")


def test_one_that_another_left_where_ours_was_is_swept_like_one_that_is_gone(
    temporary: Path, tmp_path: Path, stranger: Stranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing that its file says is done."""
    place = temporary / "rmsl1"
    monkeypatch.setattr(network, "remove", lambda _: None)
    monkeypatch.setattr(registry, "registry", lambda: tmp_path)
    stranger.see_as_foreign()
    (tmp_path / "slot-3").write_text(f"{place}\n")

    def make() -> None:
        place.mkdir(mode=0o755)
        (place / registry.BED_FILE).write_text(document(place))
        (place / "theirs").touch()

    assert stranger.does(make)
    assert sweep() == [place]
    assert (place / "theirs").exists()
    assert registry.taken() == {}


def test_a_bed_of_ours_is_found_again(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        SlurmBed.open(tmp_path / "bed")
    (tmp_path / "bed").mkdir(mode=0o755)
    (tmp_path / "bed" / registry.BED_FILE).write_text(document(tmp_path / "bed"))
    assert SlurmBed.open(tmp_path / "bed").layout.slot == 3
    shutil.rmtree(tmp_path / "bed")
