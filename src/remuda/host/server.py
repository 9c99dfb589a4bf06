"""One server process per state directory: takes the lease, runs the loop, listens, and ends when it is told to."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import sys
import time
from contextlib import closing, nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING

import uvicorn

from remuda.backends import registry
from remuda.base import log
from remuda.base.clock import SystemClock
from remuda.base.disk import starting
from remuda.base.disk.files import write_atomic
from remuda.base.disk.locks import Lock
from remuda.base.disk.paths import StatePaths, state_paths
from remuda.base.errors import Conflict, Fenced, RemudaError, Unwritable
from remuda.base.secrets import lasting_secret
from remuda.base.settings import database_url
from remuda.host.app import App
from remuda.host.fleet.fleet import Fleet
from remuda.host.reconcilers.campaigns import Campaigns
from remuda.host.reconcilers.every import every
from remuda.host.reconcilers.job_rows import JobKeeper
from remuda.host.reconcilers.reach import Reach
from remuda.host.reporting import LOOPBACK, report_host
from remuda.host.reports import ReportServer
from remuda.host.service import Service
from remuda.look import run_dirs
from remuda.store import lease as leases
from remuda.store.engine import open_store
from remuda.store.room import keep, log_kept
from remuda.store.timeshift import believe, keep_offset, kept_offset
from remuda.supervise.loop import Supervisor
from remuda.supervise.records import StoreJournal
from remuda.views.unknown_allocs import forgotten, note
from remuda.wire.process import identify

if TYPE_CHECKING:
    from remuda.store.database import Store

_LOG = logging.getLogger("remuda.host")
LEASE_TTL_S = 20.0
RENEW_EVERY_S = 5.0
CARE_EVERY_S = 5.0
"""Between two looks whether what the log holds can be written into the database, and whether there is room in it.
Whoever loses the log, as a copy of the database file alone does, loses what was written in so long."""


def main() -> int:
    """Run the host until it is told to stop. Returns its exit code."""
    paths = state_paths()
    log.setup(path=paths.host_log)
    paths.prepare()
    if said := paths.told():
        _LOG.warning("%s", said)
    # A host outlives what started it: it must not be taken for a process of that task.
    os.environ.pop("REMUDA_TOKEN", None)
    _wait_without_threads()
    try:
        # At once, and without waiting for a lease to expire.
        with closing(Lock(paths.host_lock, "a host of this state directory runs on this machine already")):
            starting.say(paths, "opens its database")
            with open_store(database_url(paths)) as store, log_kept(store):
                _serve(paths, store)
    except RemudaError as error:
        return _tell(error)
    finally:
        starting.over(paths)
    return 0


def _tell(error: RemudaError) -> int:
    """The last words of a host that cannot go on; its exit code."""
    _LOG.error("%s%s", error, f" ({error.hint})" if error.hint else "")
    return error.exit_code


def _serve(paths: StatePaths, store: Store) -> None:
    try:
        asyncio.run(Host(paths, store).run())
    except RemudaError as error:
        if store.files.are_ours:
            raise
        _tell(error)
    if not store.files.are_ours:
        _LOG.error("%s was removed or replaced, and is left as it is", store.address.shown)
        logging.shutdown()
        # Closing it as usual would remove the log of whatever lies in its place now.
        os._exit(Unwritable.exit_code)


def _wait_without_threads() -> None:
    """Let the kernel say when a command has ended; before Python 3.12 asyncio starts a thread for each."""
    if sys.version_info >= (3, 12):
        return
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):  # no Linux, or an older one than 5.3
        return
    asyncio.set_child_watcher(asyncio.PidfdChildWatcher())


class Host:
    """The parts of one running host."""

    def __init__(self, paths: StatePaths, store: Store) -> None:
        self.paths = paths
        self.store = store
        self.clock = SystemClock(kept_offset(store))
        """Goes on where the last host's was; that it was set meanwhile is then seen like in one that runs on."""
        self._stop = asyncio.Event()
        self._announced: object = None
        self._socket_inode = -1

    async def run(self) -> None:
        """Serve until SIGTERM, SIGINT or a stop over the API.

        Raises:
            Conflict: another machine's host holds the lease.
            Fenced: another host took over.
        """
        starting.say(self.paths, "puts the node program in its place")
        await asyncio.to_thread(_install, self.paths)
        starting.say(self.paths, "asks whether another host is in charge")
        me = identify(os.getpid())
        taken = leases.acquire(self.store, me, LEASE_TTL_S, time.time())
        if isinstance(taken, leases.Held):
            raise Conflict(
                f"the host of {self.paths.root} runs as {taken}",
                hint="use remuda on that machine, or stop it there: remuda host stop",
            )
        keep_offset(self.store, taken.fence, self.clock.offset)
        believe(self.store, taken.fence, self.clock.now())
        starting.say(self.paths, "reads what is recorded")
        journal = StoreJournal(self.store, taken.fence)
        supervisor = Supervisor(journal, registry.backends(self.paths, self.clock), self.clock)
        service = Service(journal, supervisor, self.paths, self.clock)
        uids = {name: want.workload.uid for name, want in supervisor.wants.items()}
        service.forgotten = await asyncio.to_thread(forgotten, self.paths, uids)
        await asyncio.to_thread(run_dirs.clean, self.paths, uids)
        if service.forgotten:
            _LOG.warning("%s", note(service.forgotten))
        jobs = JobKeeper(journal, supervisor, self.paths, self.clock)
        campaigns = Campaigns(service, jobs)
        supervisor.after = every(service, jobs, campaigns)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._stop.set)
        starting.say(self.paths, "begins to listen")
        reach = Reach(service)
        reports = ReportServer(lasting_secret(self.paths.report_secret), reach.take)
        await self._be_heard(service, reports)
        facts = {"pid": me.pid, "node": me.node, "home": str(self.paths.root), "database": self.store.address.shown,
                 "started_at": time.time()}  # fmt: skip
        app = App(service, reports, facts, self._stop.set, jobs, campaigns,
                  Fleet(self.paths, partial(self._be_heard, service, reports), reach.take))  # fmt: skip
        listener = self._listen()
        starting.over(self.paths)
        _LOG.info("host %d serves %s, lease %d", me.pid, self.paths.root, taken.fence)
        try:
            await self._until_stopped(app, listener, taken)
        finally:
            await reports.stop()
            await reach.close()
            await app.fleet.close()
            for one in supervisor.after:
                await one.close()
            listener.close()
            self._remove_own_files()
            self._release(taken)
            _LOG.info("host %d ended; workloads go on running", me.pid)

    async def _until_stopped(self, app: App, listener: socket.socket, lease: leases.Lease) -> None:
        """Run all parts until the first ends, then end the others. What a part raised is raised here."""
        service, server = app.service, _server(app)
        app.jobs.turns.wake()
        app.campaigns.turns.wake()
        parts = [
            asyncio.create_task(service.supervisor.run(), name="supervisor"),
            asyncio.create_task(self._renew(lease, service), name="lease"),
            asyncio.create_task(self._care(), name="database"),
            asyncio.create_task(self.clock.keep(), name="clock"),
            asyncio.create_task(app.fleet.keep(), name="fleet"),
            asyncio.create_task(server.serve(sockets=[listener]), name="api"),
            asyncio.create_task(self._stop.wait(), name="stop"),
        ]
        await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
        await app.feed.end()
        server.end()
        for part in parts:
            if part.get_name() != "api":
                part.cancel()
        results = await asyncio.gather(*parts, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception):
                raise result

    async def _care(self) -> None:
        """Look after the database's files for ever, beside the loop."""
        while True:
            try:
                await asyncio.to_thread(keep, self.store)
            except RemudaError as error:
                _LOG.warning("the database could not be looked after: %s", error)
            await self.clock.sleep(CARE_EVERY_S)

    async def _renew(self, lease: leases.Lease, service: Service) -> None:
        """Prolong the lease for ever; one passing fault of the database does not end the host.

        Raises:
            Fenced: another host took over, or the socket is gone.
        """
        while True:
            await self.clock.sleep(RENEW_EVERY_S)
            if not self._has_socket():
                raise Fenced(f"{self.paths.socket} was removed or replaced: this host is unreachable")
            try:
                lease = leases.renew(self.store, lease, LEASE_TTL_S, time.time())
                service.settle()
            except Fenced:
                raise
            except RemudaError as error:
                _LOG.warning("the lease could not be renewed: %s", error)

    def _release(self, lease: leases.Lease) -> None:
        """Without it the next host needs to see that this process is dead, or to wait."""
        try:
            leases.release(self.store, lease, time.time())
        except RemudaError as error:
            _LOG.warning("the lease could not be given back: %s", error)

    async def _be_heard(self, service: Service, reports: ReportServer) -> None:
        """Take reports where nodes reach this machine: at the start, and when it has become the head of a fleet."""
        host = await asyncio.to_thread(report_host, registry.environment(self.paths))
        if not self._announced or host != service.address:
            service.address, port = await self._take_reports(reports, host)
            self._announce(service.address, port)

    async def _take_reports(self, reports: ReportServer, host: str) -> tuple[str, int]:
        """Listen at an address; where that fails the run directories still carry the reports."""
        before, port = self.paths.report_port, 0
        with suppress(OSError, ValueError):
            port = int(before.read_text())
        try:
            taken = await reports.start(host, port if 0 < port < 1 << 16 else 0)
            if taken != port:
                with suppress(OSError):  # what is told once is told anew by its next attempt
                    write_atomic(before, f"{taken}\n", mode=0o600)
            return host, taken
        except OSError as error:
            _LOG.warning(
                "cannot take reports at %s (%s): set REMUDA_REPORT_HOST to an address of this machine", host, error
            )
            return LOOPBACK, await reports.start(LOOPBACK)

    def _announce(self, host: str, port: int) -> None:
        """Tell node programs where to report; they read this file again whenever their connection breaks."""
        where = {"pid": os.getpid(), "report_host": host, "report_port": port}
        self._announced = where
        try:
            write_atomic(self.paths.host_file, json.dumps(where), mode=0o600)
        except OSError as error:  # reports come by files then
            _LOG.warning("%s cannot be written: %s", self.paths.host_file, error)

    def _has_socket(self) -> bool:
        try:
            return self.paths.socket.stat().st_ino == self._socket_inode
        except FileNotFoundError:
            return False

    def _remove_own_files(self) -> None:
        """A host that took over on another machine may have put its own there; `host.json` tells of one that died."""
        with suppress(OSError, ValueError):
            if self._has_socket():
                self.paths.socket.unlink()
            if self._stop.is_set() and json.loads(self.paths.host_file.read_text()) == self._announced:
                self.paths.host_file.unlink()

    def _listen(self) -> socket.socket:
        """The unix socket, mode 0600. The machine's lock makes sure that an old one belongs to nobody."""
        path = self.paths.socket
        with suppress(FileNotFoundError):
            path.unlink()
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        old = os.umask(0o177)
        try:
            listener.bind(str(path))
        finally:
            os.umask(old)
        self._socket_inode = path.stat().st_ino
        listener.listen(128)
        return listener


def _install(paths: StatePaths) -> None:
    try:
        registry.install_node_program(paths)
    except OSError as error:
        raise RemudaError(f"the node program cannot be written below {paths.node}: {error}") from error


class _ApiServer(uvicorn.Server):
    """Without uvicorn's ten wake-ups a second, which an idle machine would notice."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._ended = asyncio.Event()

    async def main_loop(self) -> None:
        """Wait for the end; the first tick sets what answers need."""
        await self.on_tick(0)
        await self._ended.wait()

    def end(self) -> None:
        """Close all connections, also those that are in use, and return from `serve`."""
        self.should_exit = True
        self.force_exit = True
        self._ended.set()


def _is_fault(record: logging.LogRecord) -> bool:
    """Whether a record is more than an answer that was cut short because the host ends: followers go on at the next."""
    return record.exc_info is None or not isinstance(record.exc_info[1], asyncio.CancelledError)


def _server(app: App) -> _ApiServer:
    # The parser is named here: else it would be whichever is installed for something else.
    config = uvicorn.Config(
        app.make(), http="h11", log_config=None, access_log=False, lifespan="off", timeout_graceful_shutdown=1,
        date_header=False,
    )  # fmt: skip
    server = _ApiServer(config)
    logging.getLogger("uvicorn.error").addFilter(_is_fault)
    # The host handles signals itself, for all of its parts.
    server.capture_signals = nullcontext  # type: ignore[method-assign, assignment]
    return server
