"""Servers that are slow, deaf, rude, wrong or strangers, as the probes see them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.component.node.conftest import IMPATIENT, ONCE, PYTHON, QUICK, SERVER, SOON, alive, until
from tests.ports import free_port

from remuda.wire import exit as codes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.component.node.conftest import Allocation
    from tests.strangers import Squatter, Stranger


def test_a_server_becomes_ready_and_says_where_it_is(allocation: Allocation) -> None:
    allocation.server(port=23456)
    report = allocation.state("ready")
    assert report.http_status == 200
    assert alive(report.pid)
    host, _, port = report.url.removeprefix("http://").partition(":")
    socket.create_connection((host, int(port))).close()
    assert allocation.stop() == codes.STOPPED
    assert allocation.states() == ["starting", "ready", "stopping", "exited"]


@pytest.mark.parametrize(
    ("mode", "status", "word"),
    [
        ("500", 500, "HTTP status 500"),
        ("deaf", 0, "no answer in time"),
        ("rude", 0, "onnection"),
        ("garbage", 0, "not HTTP"),
        ("slow", 0, "did not end in time"),
    ],
)
def test_it_falls_ill_and_heals(allocation: Allocation, mode: str, status: int, word: str) -> None:
    probe = IMPATIENT if "in time" in word else QUICK
    allocation.server(probe=replace(probe, unhealthy_restart_after_s=1000))
    pid = allocation.state("ready").pid
    allocation.control.write_text(mode)
    # On a slow machine another reason may come first.
    report = until(lambda: word in (seen := allocation.state("unhealthy")).reason and seen)
    assert report.http_status == status
    allocation.control.write_text("ok")
    assert allocation.state("ready", pid=pid).restarts == 0


def test_ill_for_too_long_it_is_restarted_and_then_given_up(allocation: Allocation) -> None:
    allocation.server(
        restart=replace(SOON, max_restarts=1), probe=replace(QUICK, timeout_s=10, unhealthy_restart_after_s=0.5)
    )
    first = allocation.state("ready").pid
    allocation.control.write_text("deaf")
    until(lambda: not alive(first))
    allocation.control.write_text("ok")
    second = allocation.state("ready", restarts=1).pid
    assert second != first
    allocation.control.write_text("500")
    assert allocation.code() == codes.HUNG
    assert "unhealthy for" in allocation.record().reason


def test_a_dead_server_is_reported_without_waiting_for_a_probe_or_a_heartbeat(allocation: Allocation) -> None:
    allocation.server(
        probe=replace(QUICK, interval_s=9000),
        report_every_s=9000,
        restart=replace(SOON, backoff_initial_s=9000, backoff_max_s=9000),
    )
    pid = allocation.state("ready").pid
    os.kill(pid, signal.SIGKILL)
    assert allocation.state("backoff").signal == 9


def test_a_frozen_server_does_not_freeze_the_program(allocation: Allocation) -> None:
    allocation.server(probe=replace(IMPATIENT, unhealthy_restart_after_s=1000))
    pid = allocation.state("ready").pid
    os.kill(pid, signal.SIGSTOP)
    until(lambda: "no answer in time" in allocation.state("unhealthy").reason)
    os.kill(pid, signal.SIGCONT)
    allocation.state("ready", pid=pid)


def test_the_probe_brings_its_key(allocation: Allocation, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("a key for probes\n")
    source = {"NEED_KEY": {"file": str(tmp_path / "key")}}
    allocation.server(secret_env=source, probe=replace(QUICK, bearer="NEED_KEY"))
    allocation.state("ready")


def test_metrics_travel_with_the_heartbeat(allocation: Allocation) -> None:
    allocation.server(probe=replace(QUICK, timeout_s=5), metrics_path="/metrics")
    allocation.counts({"running": 2.0, "waiting": 1.0, "prompt_tokens": 30.0})
    allocation.control.write_text("chunked")
    allocation.counts({"running": 9.0})
    allocation.control.write_text("deaf")
    allocation.state("unhealthy")


def stranger() -> tuple[subprocess.Popen[bytes], int]:
    """A healthy server that is not ours."""
    for _ in range(20):
        port = free_port()
        process = subprocess.Popen([*PYTHON, SERVER, str(port)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert process.stdout is not None
        with process.stdout:
            if process.stdout.readline() == b"listening\n":
                return process, port
        process.wait()  # somebody was faster
    raise AssertionError("no port of twenty can be had")


def test_a_taken_port_is_passed_over(allocation: Allocation) -> None:
    other, port = stranger()
    try:
        allocation.server(port=port)
        report = allocation.state("ready")
        assert int(report.url.rpartition(":")[2]) > port
    finally:
        other.kill()
        other.wait()


def test_a_fixed_port_that_is_taken_ends_it(allocation: Allocation) -> None:
    other, port = stranger()
    try:
        allocation.server(port=port, port_fixed=True)
        assert allocation.code() == codes.PORT_TAKEN
        assert f"port {port} on 127.0.0.1 is in use" in allocation.record().reason
    finally:
        other.kill()
        other.wait()


def test_a_stranger_on_the_port_is_not_taken_for_the_child(allocation: Allocation, tmp_path: Path) -> None:
    """The child is told to listen late; meanwhile a healthy stranger took the port and answers in its name."""
    gate = tmp_path / "gate"
    script = f"until [ -e {gate} ]; do sleep 0.01; done; exec {' '.join([*PYTHON, SERVER])} $0"
    allocation.start(["/bin/sh", "-c", script, "__REMUDA_PORT__"], probe=QUICK, restart=SOON)
    port = int(allocation.state("starting").url.rpartition(":")[2])
    other = subprocess.Popen([*PYTHON, SERVER, str(port)], stdout=subprocess.DEVNULL)
    try:
        report = allocation.state("starting", reason=f"another process answers on port {port}")
        assert report.http_status == 200
        gate.touch()
        report = allocation.state("ready")
        assert int(report.url.rpartition(":")[2]) != port
        assert report.restarts == 0
    finally:
        other.kill()
        other.wait()
    assert "ddress already in use" in allocation.log()


def test_who_answers_and_lets_go_of_the_port_is_not_taken_for_the_child(
    allocation: Allocation, squatter: Squatter, tmp_path: Path
) -> None:
    """Another user has the port first; whenever it is looked who listens, nobody does."""
    (tmp_path / "key").write_text("a key for probes\n")
    gate = tmp_path / "gate"
    script = f"until [ -e {gate} ]; do sleep 0.01; done; exec {' '.join([*PYTHON, SERVER])} $0"
    probe = replace(QUICK, bearer="NEED_KEY")
    source = {"NEED_KEY": {"file": str(tmp_path / "key")}}
    allocation.start(["/bin/sh", "-c", script, "__REMUDA_PORT__"], probe=probe, restart=SOON, secret_env=source)
    port = int(allocation.state("starting").url.rpartition(":")[2])
    pid = squatter.takes(port, lets_go=True, answer=b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfine")
    until(lambda: squatter.served >= 5)
    report = allocation.state("starting")
    assert allocation.states() == ["starting"]
    if squatter.stranger.is_real:  # else they are us, and may hear it
        assert b"key" not in squatter.heard
    os.kill(pid, signal.SIGKILL)
    until(lambda: not alive(pid))
    gate.touch()
    assert allocation.state("ready").url == report.url


def test_a_server_that_lets_go_of_its_port_is_ready_no_more(allocation: Allocation, squatter: Squatter) -> None:
    """Whoever comes after it is asked nothing, and counts for nothing."""
    allocation.server(probe=replace(QUICK, unhealthy_restart_after_s=1000), metrics_path="/metrics")
    port = int(allocation.state("ready").url.rpartition(":")[2])
    allocation.control.write_text("leave")
    allocation.state("unhealthy")
    assert allocation.states() == ["starting", "ready", "unhealthy"]
    [reason] = [event.reason for event in allocation.events() if event.state == "unhealthy"]
    assert reason == f"what answered on port {port} does not listen there any more"
    squatter.takes(port, answer=b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfine")
    until(lambda: squatter.served >= 3)
    if squatter.stranger.is_real:
        allocation.state("unhealthy", reason=f"another process answers on port {port}")
        assert squatter.heard == b""


def test_two_programs_that_want_one_port_get_two(make_allocation: Callable[[str], Allocation], tmp_path: Path) -> None:
    allocations = [make_allocation(name) for name in "abcd"]
    # Where nobody but these looks for ports: their locks are not those of others.
    fields = {"port": free_port(), "port_locks": str(tmp_path / "locks")}
    threads = [threading.Thread(target=item.server, kwargs=fields) for item in allocations]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    urls = {item.state("ready").url for item in allocations}
    assert len(urls) == 4
    assert [item.states() for item in allocations] == [["starting", "ready"]] * 4
    allocations[0].stop()
    assert (tmp_path / "locks").stat().st_mode & 0o777 == 0o700


def test_a_stranger_s_folder_of_locks_stops_nobody(
    make_allocation: Callable[[str], Allocation], common: Path, stranger: Stranger, tmp_path: Path
) -> None:
    assert stranger.does((common / "locks").mkdir)
    if not stranger.is_real:
        (common / "locks").chmod(0o777)
    places = {"port_locks": str(common / "locks"), "port_locks_own": str(tmp_path / "ports")}
    first, second, port = make_allocation("a"), make_allocation("b"), free_port()
    first.start(["/bin/sleep", "1000"], port=port, port_fixed=True, **places)
    first.state("ready")
    second.start(["/bin/sleep", "1000"], port=port, port_fixed=True, **places)
    assert second.code() == codes.PORT_TAKEN
    assert [path.name for path in (tmp_path / "ports" / os.uname().nodename).iterdir()] == [f"{port}.lock"]


def test_a_fixed_port_held_by_another_allocation(make_allocation: Callable[[str], Allocation], tmp_path: Path) -> None:
    first, second, port = make_allocation("a"), make_allocation("b"), free_port()
    locks = str(tmp_path / "locks")
    first.start(["/bin/sleep", "1000"], port=port, port_fixed=True, port_locks=locks)
    first.state("ready")
    second.start(["/bin/sleep", "1000"], port=port, port_fixed=True, port_locks=locks)
    assert second.code() == codes.PORT_TAKEN
    assert "held by another allocation" in second.record().reason


def test_locks_in_a_directory_that_others_can_write_are_refused(allocation: Allocation, tmp_path: Path) -> None:
    (tmp_path / "locks").mkdir()
    (tmp_path / "locks").chmod(0o777)
    allocation.server(restart=ONCE, port_locks=str(tmp_path / "locks"))
    assert allocation.code() == codes.CANNOT_START
    assert "only this user" in allocation.record().reason


def test_a_server_that_is_asked_nothing_is_well_as_long_as_its_port_takes_connections(allocation: Allocation) -> None:
    allocation.control.write_text("garbage")
    allocation.server(probe=replace(QUICK, path=""), restart=SOON)
    first = allocation.state("ready")
    assert first.http_status == 0
    os.kill(first.pid, signal.SIGKILL)
    again = until(lambda: (seen := allocation.state("ready")).pid != first.pid and seen)
    assert again.url == first.url
