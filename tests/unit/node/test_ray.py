"""What Ray says, and when it counts as well."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from remuda.node.guard.ray import RayView, guard
from remuda.wire.spread import Spread

if TYPE_CHECKING:
    from collections.abc import Iterator

SPREAD = Spread(2, [], gpus=8, probe_timeout_s=10, probe_interval_s=5)


@pytest.fixture
def view() -> Iterator[RayView]:
    asker = subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE)
    with asker:
        asker.wait()
        yield RayView(asker, SPREAD, 0.0)


def line(nodes: int, gpus: float) -> bytes:
    return json.dumps({"nodes": nodes, "gpus": gpus}).encode()


def test_all_nodes_and_gpus_for_so_long(view: RayView) -> None:
    assert view.sentence == "Ray has not answered yet"
    view.hear(line(1, 4), 1)
    assert view.sentence == "Ray has 1 of 2 nodes and 4 of 8 GPUs"
    view.hear(line(2, 8), 2)
    assert view.is_well_for(0, 2)
    assert not view.is_well_for(3, 4)
    view.hear(line(2, 8), 5)
    assert view.is_well_for(3, 5)
    view.hear(line(2, 7), 6)
    assert not view.is_well_for(0, 6)
    assert view.ill_for(8) == 2


def test_silence_counts_from_the_last_answer(view: RayView) -> None:
    view.hear(line(2, 8), 1)
    for second in range(1, 17):
        view.read(second)
    assert view.is_well_for(0, 16)
    view.read(17)
    assert view.sentence == "Ray gave no answer for 16 s"
    assert view.ill_for(17) == 16
    view.hear(line(2, 8), 18)
    assert view.ill_for(18) == 0


def test_a_time_in_which_nobody_asked_is_nobodys_silence(view: RayView) -> None:
    view.hear(line(2, 8), 1)
    view.read(1)
    view.read(7200)
    assert view.is_well_for(0, 7200)
    view.hear(line(2, 7), 7201)
    view.read(7201)
    view.read(9000)
    assert view.ill_for(9000) == 0
    view.read(9003)
    assert view.ill_for(9003) == 3


@pytest.mark.parametrize("text", [b"", b"[]", b"2026 INFO worker", b'{"nodes": 2}', b'{"nodes": null, "gpus": 1}'])
def test_what_is_no_answer_is_passed_over(view: RayView, text: bytes) -> None:
    view.hear(line(2, 8), 1)
    view.hear(text, 2)
    assert view.is_well_for(1, 2)


def test_answers_come_in_pieces() -> None:
    read, write = os.pipe()
    with os.fdopen(read, "rb", buffering=0) as pipe:
        asker = subprocess.Popen([sys.executable, "-c", ""])
        asker.wait()
        asker.stdout = pipe
        view = RayView(asker, SPREAD, 0.0)
        os.write(write, line(2, 8)[:5])
        view.read(1)
        assert not view.is_well_for(0, 1)
        os.write(write, line(2, 8)[5:] + b"\n")
        view.read(2)
        assert view.is_well_for(0, 2)
        os.close(write)


@pytest.mark.parametrize(
    ("version", "is_guarded"),
    [("2.52.0", True), ("2.60.0", True), ("3.0.0.dev0", True), ("2.51.9", False), ("1.13.0", False), ("?", False)],
)
def test_a_ray_that_cannot_ask_for_a_token_is_named(view: RayView, version: str, is_guarded: bool) -> None:
    view.hear(json.dumps({"nodes": 2, "gpus": 8, "version": version}).encode(), 1)
    assert view.unguarded == ("" if is_guarded else version)


def test_the_token_is_one_of_its_own_and_reaches_images_too() -> None:
    one, other = guard(), guard()
    assert one["RAY_AUTH_MODE"] == "token"
    assert len(one["RAY_AUTH_TOKEN"]) == 64
    assert one["APPTAINERENV_RAY_AUTH_TOKEN"] == one["SINGULARITYENV_RAY_AUTH_TOKEN"] == one["RAY_AUTH_TOKEN"]
    assert one["RAY_AUTH_TOKEN"] != other["RAY_AUTH_TOKEN"]
