"""First process of an isolated node: `nodeinit.py NAME ADDRESS HEAD HOSTS RESOLV SLURMD ARGUMENTS…`.

It runs in namespaces of its own (network, host name, mounts, processes) and waits for one byte on its standard input:
then the cable is in. It reaps orphans, as an init does, and keeps slurmd as a service: SIGTERM ends slurmd, SIGUSR1
starts it again, so jobs outlive slurmd. The node dies with this process. It is run as a file, without site packages.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys

SIGNALS = {signal.SIGTERM, signal.SIGUSR1, signal.SIGCHLD}


def furnish(name: str, address: str, head: str, hosts: str, resolv: str) -> None:
    """Give the node its name, its hosts file, its address, and locks of ports that no other node sees."""
    socket.sethostname(name)
    for ours, theirs in ((hosts, "/etc/hosts"), (resolv, "/etc/resolv.conf")):
        if os.path.exists(theirs):  # noqa: PTH110 - pathlib doubles the time that this program takes to start
            subprocess.run(["mount", "--bind", ours, os.path.realpath(theirs)], check=True)
    locks = f"/tmp/remuda-ports-{os.getuid()}"  # noqa: S108 - /tmp is shared with the other nodes, ports are not
    os.makedirs(locks, mode=0o700, exist_ok=True)  # noqa: PTH103
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=0700", "tmpfs", locks], check=True)
    orders = f"link set lo up\naddr add {address}/24 dev eth0\nlink set eth0 up\nroute add default via {head}\n"
    subprocess.run(["ip", "-batch", "-"], input=orders, text=True, check=True)


def serve(argv: list[str]) -> None:
    """Keep slurmd as told by signals; never returns."""

    def start() -> int:
        unblock = lambda: signal.pthread_sigmask(signal.SIG_SETMASK, [])  # noqa: E731 - runs between fork and exec
        return subprocess.Popen(argv, stdin=subprocess.DEVNULL, preexec_fn=unblock, start_new_session=True).pid  # noqa: PLW1509

    slurmd = start()
    while True:
        number = signal.sigwait(SIGNALS)
        if number == signal.SIGTERM and slurmd:
            os.kill(slurmd, signal.SIGTERM)
        elif number == signal.SIGUSR1 and not slurmd:
            slurmd = start()
        elif number == signal.SIGCHLD:
            slurmd = 0 if slurmd in reap() else slurmd


def reap() -> list[int]:
    """Pids of all children that have ended since the last call."""
    gone: list[int] = []
    try:
        while True:
            pid, _ = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return gone
            gone.append(pid)
    except ChildProcessError:
        return gone


def main() -> None:
    """Wait for the cable, furnish, serve."""
    name, address, head, hosts, resolv, *argv = sys.argv[1:]
    if not os.read(0, 1):
        sys.exit("nobody connected this node")
    furnish(name, address, head, hosts, resolv)
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    serve(argv)


if __name__ == "__main__":
    main()
