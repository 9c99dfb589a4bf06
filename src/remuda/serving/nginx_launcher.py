"""Starts nginx and changes its members: `python -m remuda.enter nginx --host H --port P …`.

nginx reads its members from a file; this process writes the file, reloads nginx, and takes new members from the
endpoint itself (`PUT /remuda/members`), so that the host needs no access to this machine's files.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import shutil
import signal
import socketserver
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from remuda.base import descriptors
from remuda.base.disk.files import write_atomic
from remuda.base.errors import InputError
from remuda.base.waiting import until
from remuda.serving.flags import Parser
from remuda.serving.nginx import POLICIES, Site, connections, render
from remuda.serving.smg_launcher import Answering, end_with_parent

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

INSTALL: Final = "install it (Debian and Ubuntu: apt-get install nginx-light) or set the router to smg"
LIMIT: Final = 1 << 20
RETIRE_S: Final = 20.0
"""Longest wait for the workers of the configuration before: they retire in milliseconds, later on a busy machine."""


def parser() -> Parser:
    """All flags."""
    made = Parser("nginx")
    made.add_argument("--host", default="127.0.0.1", help="address to listen on")
    made.add_argument("--port", type=int, required=True, help="port to listen on")
    made.add_argument("--policy", choices=sorted(POLICIES), default="least_conn")
    made.add_argument("--timeout-s", type=float, default=3600.0, help="longest silence of a replica")
    made.add_argument("--api-key-env", default="", help="environment variable with the key that clients send")
    made.add_argument("--control-key-env", default="", help="environment variable with the key that sets members")
    made.add_argument("--nginx", default="nginx", help="program")
    made.add_argument("--image", default="", help="Singularity or Apptainer image that holds it")
    return made


@dataclass
class Nginx:
    """One running nginx and what it was told."""

    site: Site
    program: tuple[str, ...]
    """The words before nginx's own arguments."""
    process: subprocess.Popen[bytes] | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def file(self) -> Path:
        """The configuration, readable by nobody else: keys are in it."""
        return Path(self.site.directory) / "nginx.conf"

    def start(self) -> None:
        """Write the configuration and start."""
        write_atomic(self.file, render(self.site), mode=0o600, sync=False)
        parent = os.getpid()
        self.process = subprocess.Popen(
            [*self.program, "-p", self.site.directory, "-c", str(self.file)],
            preexec_fn=lambda: end_with_parent(parent),  # noqa: PLW1509 - no other thread forks here
        )

    def change(self, members: tuple[str, ...], worker_key: str) -> int:
        """Take new members; the version that `/remuda/version` will say.

        Raises:
            InputError: a member is no address.
        """
        with self.lock:
            site = replace(self.site, members=members, worker_key=worker_key, version=self.site.version + 1)
            write_atomic(self.file, render(site), mode=0o600, sync=False)
            self.site = site
            if self.process is not None:
                master = self.master(self.process)
                old = workers(master)
                os.kill(master, signal.SIGHUP)
                # They share the listening socket until they hear of it, and know only the members before.
                until(lambda: all(map(is_retired, old)), RETIRE_S, 0.01)
            return site.version

    def master(self, process: subprocess.Popen[bytes]) -> int:
        """Pid of nginx itself: what starts it in an image may be another process that waits for it."""
        try:
            return int((Path(self.site.directory) / "nginx.pid").read_text())
        except (OSError, ValueError):
            return process.pid

    def end(self) -> None:
        """Ask it to end."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.master(self.process), signal.SIGTERM)
            self.process.terminate()


def workers(master: int) -> frozenset[int]:
    """Processes of nginx that accept connections."""
    with contextlib.suppress(OSError):
        children = Path(f"/proc/{master}/task/{master}/children").read_text().split()
        return frozenset(pid for pid in map(int, children) if not is_retired(pid))
    return frozenset()


def is_retired(pid: int) -> bool:
    """Whether a worker accepts no more connections: nginx renames it just before, or it has ended."""
    try:
        title = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return True
    return not title or b"shutting down" in title


class Control(Answering):
    """Members over the unix socket that nginx forwards to."""

    nginx: Nginx

    def do_GET(self) -> None:  # noqa: N802 - so it is called
        """Tell the members."""
        site = self.nginx.site
        self.answer(200, {"members": list(site.members), "version": site.version})

    def do_PUT(self) -> None:  # noqa: N802 - so it is called
        """Set the members."""
        try:
            length = int(self.headers.get("content-length") or 0)
            document = json.loads(self.rfile.read(min(length, LIMIT)))
            members = tuple(str(url) for url in document["members"])
            version = self.nginx.change(members, str(document.get("worker_key") or ""))
        except (ValueError, KeyError, TypeError, InputError) as error:
            self.answer(400, {"error": str(error)})
        else:
            self.answer(200, {"version": version})

    def address_string(self) -> str:
        """Nobody: a unix socket has no addresses."""
        return "unix"


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Entry point; ends with nginx."""
    options = (flags := parser()).parse_args(argv)
    api_key, control_key = flags.take(options.api_key_env), flags.take(options.control_key_env)
    with tempfile.TemporaryDirectory(prefix="remuda-nginx-", ignore_cleanup_errors=True) as folder:
        try:
            program = words(options.nginx, options.image, folder)
            sys.exit(run(options, folder, program, api_key, control_key))
        except InputError as error:
            flags.error(f"{error.message}: {error.hint}")


def words(nginx: str, image: str, folder: str) -> tuple[str, ...]:
    """What starts nginx: a program of this machine, or one in an image, which sees `folder`, too.

    Raises:
        InputError: it is not there, or what runs images is not.
    """
    if image:
        runtime = shutil.which("apptainer") or shutil.which("singularity")
        if runtime is None:
            raise InputError("neither apptainer nor singularity is there", hint="leave endpoint.nginx_image out")
        return (runtime, "exec", "--bind", folder, image, nginx)
    program = shutil.which(nginx) or shutil.which(nginx, path="/usr/sbin:/usr/local/sbin:/sbin")
    if program is None:
        raise InputError(f"{nginx!r} is not there", hint=INSTALL)
    return (program,)


def run(options: argparse.Namespace, folder: str, program: tuple[str, ...], api_key: str, control_key: str) -> int:
    """Nginx's exit code, 0 when it was asked to end."""
    user = pwd.getpwuid(os.geteuid()).pw_name if os.geteuid() == 0 else ""
    site = Site(
        host=options.host,
        port=options.port,
        directory=folder,
        policy=options.policy,
        timeout_s=options.timeout_s,
        api_key=api_key,
        control_key=control_key,
        user=user,
        connections=connections(descriptors.raise_limit()),
    )
    nginx = Nginx(site, program)
    Control.nginx = nginx
    server = socketserver.ThreadingUnixStreamServer(f"{folder}/control.sock", Control)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    asked: list[int] = []

    def end(number: int, _: object) -> None:
        asked.append(number)
        nginx.end()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    nginx.start()
    assert nginx.process is not None
    code = nginx.process.wait()
    return 0 if asked else code or 1


if __name__ == "__main__":
    main()
