"""Reports over TCP: they arrive when the host is there, and never hold anything up when it is not."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING

from tests.component.node.conftest import QUICK, SECRET, SOON, until

from remuda.wire import exit as codes
from remuda.wire.report import Key, Report, parse_line

if TYPE_CHECKING:
    from tests.component.node.conftest import Allocation, Host


def reports(host: Host) -> list[Report]:
    parsed = [parse_line(line) for line in host.pump()]
    assert all(isinstance(item, (Key, Report)) for item in parsed)
    return [item for item in parsed if isinstance(item, Report)]


def test_reports_arrive_with_the_key_first_and_the_end_last(allocation: Allocation, host: Host) -> None:
    host.open()
    allocation.server(host_file=str(host.file))
    until(lambda: any(report.state == "ready" for report in reports(host)))
    first = parse_line(host.lines[0])
    assert isinstance(first, Key)
    assert first.matches(SECRET)
    count = len(reports(host))
    until(lambda: len(reports(host)) > count + 1)
    assert allocation.stop() == codes.STOPPED
    until(lambda: reports(host)[-1].state == "exited")
    seqs = [report.seq for report in reports(host)]
    assert seqs == sorted(set(seqs))


def test_a_host_that_is_not_there_holds_nothing_up(allocation: Allocation, host: Host) -> None:
    allocation.server(host_file=str(host.file))
    allocation.state("ready")
    host.open()
    until(lambda: any(report.state == "ready" for report in reports(host)))


def test_a_host_that_comes_back_on_another_port_is_found(allocation: Allocation, host: Host) -> None:
    host.open()
    allocation.server(host_file=str(host.file))
    until(lambda: any(report.state == "ready" for report in reports(host)))
    host.close()
    allocation.control.write_text("500")
    allocation.state("unhealthy")
    allocation.control.write_text("ok")
    allocation.state("ready")
    host.lines.clear()
    host.open()
    until(lambda: any(report.state == "ready" for report in reports(host)))
    assert isinstance(parse_line(host.lines[0]), Key)


def test_a_host_that_hangs_up_is_asked_less_and_less(allocation: Allocation, host: Host) -> None:
    """As a host does that does not like the key: no storm of connections, and supervision goes on."""
    host.open()
    allocation.server(host_file=str(host.file))
    attempts: list[float] = []

    def asked_thrice() -> bool:
        host.pump()
        if host.lines:
            attempts.append(time.monotonic())
            host.lines.clear()
            host.hang_up()
        return len(attempts) == 3

    until(asked_thrice)
    first, _, third = attempts
    assert third - first >= 0.3, "a pause before each, longer than the one before"
    allocation.state("ready")


def test_a_host_that_does_not_read_holds_nothing_up(allocation: Allocation, host: Host) -> None:
    host.open()
    allocation.server(host_file=str(host.file), report_every_s=0.01)
    allocation.state("ready")
    allocation.control.write_text("500")
    allocation.state("unhealthy")
    assert allocation.stop() == codes.STOPPED


def test_a_host_file_of_nonsense_holds_nothing_up(allocation: Allocation, host: Host) -> None:
    for text in ("{", "[]", '{"report_host": "no address", "report_port": 1}'):
        host.file.write_text(text)
        if not allocation.processes:
            allocation.server(host_file=str(host.file))
        allocation.state("ready")
    assert allocation.stop() == codes.STOPPED


def test_a_port_where_nobody_answers_holds_nothing_up(allocation: Allocation, host: Host) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        host.file.write_text(f'{{"report_host": "127.0.0.1", "report_port": {port}}}')
        allocation.server(host_file=str(host.file))
        allocation.state("ready")
        assert allocation.stop() == codes.STOPPED


def test_signs_of_life_go_over_the_line_and_not_into_files(allocation: Allocation, host: Host) -> None:
    host.open()
    allocation.server(host_file=str(host.file), report_every_s=9000, beat_s=0.05)
    ready = allocation.state("ready")
    until(lambda: len(reports(host)) > ready.seq + 5)
    written = allocation.report()
    assert written is not None
    assert written.seq == ready.seq
    assert reports(host)[-1].state == "ready"
    assert allocation.stop() == codes.STOPPED


def test_a_server_that_loads_says_what_it_printed_last(allocation: Allocation) -> None:
    allocation.start(["/bin/sh", "-c", "echo loading shard 2 of 8; sleep 9000"], probe=QUICK, restart=SOON, port=23500)
    report = until(lambda: (seen := allocation.report()) and "log: loading shard 2 of 8" in seen.reason and seen)
    assert report.state == "starting"
    assert allocation.stop() == codes.STOPPED
