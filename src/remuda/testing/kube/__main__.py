"""`python -m remuda.testing.kube up | drill | status | down DIRECTORY`: what `remuda try kubernetes` runs.

The cluster lives in a process of its own (`serve`), which takes orders on a socket in the directory.
"""

from __future__ import annotations

import json
import os
import select
import shlex
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingUnixStreamServer
from typing import TYPE_CHECKING, Any, Final

from remuda.base.disk.private import check_private, make_private
from remuda.base.errors import InputError, NotFound, NotPrivate, Unavailable, from_json, to_json
from remuda.base.words import DRILLS
from remuda.testing import program
from remuda.testing.kube.bed import KubeBed
from remuda.testing.kube.nodes import GPU, needs
from remuda.testing.program import put, say

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

_SOCKET: Final = "control.sock"
_LOG: Final = "serve.log"
_LONGEST: Final = 80
"""Characters of the directory: the path of a socket has room for 107."""
_WAIT_S: Final = 30.0
"""For its start, and for its end."""


def parser() -> argparse.ArgumentParser:
    """The arguments."""
    about = "A stand-in of a Kubernetes cluster in one directory."
    return program.parser("remuda.testing.kube", about, DRILLS["kubernetes"], "node; of `advance`: seconds")[0]


def up(options: argparse.Namespace) -> None:
    """Start a cluster, if none runs there, and say how it is used."""
    root = options.directory.absolute()
    if len(str(root)) > _LONGEST:
        raise InputError(f"{root}: the path of a practice cluster has at most {_LONGEST} characters")
    begin, is_new = time.monotonic(), not _is_up(root)
    if is_new:
        _start(root)
    seen = _ask(root, "status")
    if options.json:
        put(json.dumps(seen, indent=2))
        return
    say(f"A stand-in of Kubernetes is up in {root}" + (f" after {time.monotonic() - begin:.1f} s" if is_new else ""))
    _describe(seen)
    _advise(options.called_as, next(iter(seen["nodes"])))
    put(f"export KUBECONFIG={shlex.quote(seen['kubeconfig'])}")


def status(options: argparse.Namespace) -> None:
    """Say how a cluster is."""
    seen = _ask(options.directory, "status")
    if options.json:
        put(json.dumps(seen, indent=2))
        return
    say(f"A stand-in of Kubernetes in {seen['directory']}")
    _describe(seen)


def drill(options: argparse.Namespace) -> None:
    """Break a node, mend it, or let the cluster's time pass."""
    say(_ask(options.directory, options.drill, options.target))


def down(options: argparse.Namespace) -> None:
    """End a cluster and remove its directory; says the names of its nodes."""
    root = options.directory.absolute()
    if _is_up(root):
        put(",".join(_ask(root, "down")))
    elif not _is_ours(root):
        raise _nothing_in(root)
    shutil.rmtree(root, ignore_errors=True)
    say(f"{root} is removed, and nothing of it runs")


def serve(root: Path) -> int:
    """Be the cluster, until somebody says `down`."""
    with KubeBed(root) as bed, ThreadingUnixStreamServer(str(root / _SOCKET), _Order) as server:
        server.bed = bed  # type: ignore[attr-defined]
        bed.kubeconfig()
        server.serve_forever()
    return 0


class _Order(StreamRequestHandler):
    """One line with what is wanted, one with what came of it."""

    def handle(self) -> None:
        bed: KubeBed = self.server.bed  # type: ignore[attr-defined]
        try:
            verb, target = json.loads(self.rfile.readline())
            said = {"said": _done(bed, verb, target)}
        except InputError as error:
            said = {"error": to_json(error)}
        self.wfile.write(json.dumps(said).encode() + b"\n")
        if verb == "down":
            threading.Thread(target=self.server.shutdown).start()


def _done(bed: KubeBed, verb: str, target: str) -> Any:
    names = [one["metadata"]["name"] for one in bed.objects.every("nodes")]
    if verb == "status":
        return _look(bed)
    if verb == "down":
        return names
    if verb == "advance":
        try:
            bed.later(float(target))
        except ValueError:
            raise InputError(f"advance takes seconds, not {target!r}") from None
        return f"{target} s have passed on the cluster's clock: deadlines, evictions and TTLs come so much sooner"
    if target not in names:
        raise InputError(f"there is no node {target!r}", hint=f"nodes: {', '.join(names)}")
    if verb == "crash":
        bed.crash(target)
        return f"{target}: its power has failed; `start` brings it back"
    bed.revive(target)
    return f"{target}: started"


def _look(bed: KubeBed) -> dict[str, Any]:
    """Nodes with their GPUs and pods: `directory`, `kubeconfig`, `server`, `nodes`."""
    used: dict[str, Counter[str]] = {}
    for pod in bed.objects.every("pods"):
        if (node := pod["spec"].get("nodeName")) and pod["status"]["phase"] not in ("Succeeded", "Failed"):
            used.setdefault(node, Counter()).update(needs(pod))
    nodes = {
        (name := one["metadata"]["name"]): {
            "state": "NotReady" if name in bed.nodes.dead else "Ready",
            "gpus": int(one["status"]["capacity"][GPU]),
            "gpus_used": int(used.get(name, Counter())[GPU]),
            "pods": int(used.get(name, Counter())["pods"]),
        }
        for one in bed.objects.every("nodes")
    }
    config = str(bed.root / "kubeconfig.token")
    return {"directory": str(bed.root), "kubeconfig": config, "server": bed.url, "nodes": nodes}


def _start(root: Path) -> None:
    if _is_ours(root):  # of a cluster that was killed; its containers ended with it
        shutil.rmtree(root, ignore_errors=True)
    make_private(root, instead="name another directory: --dir")
    if any(root.iterdir()):
        raise InputError(f"{root} is not empty", hint="name another directory: --dir")
    argv = [sys.executable, "-P", "-m", "remuda.testing.kube", "serve", str(root)]
    with (root / _LOG).open("wb") as log:
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd="/"
        )
    deadline = time.monotonic() + _WAIT_S
    while not _is_up(root):
        if process.poll() is not None or time.monotonic() > deadline:
            last = (root / _LOG).read_text(errors="replace").strip().splitlines()
            raise Unavailable(f"the cluster did not start: {last[-1] if last else 'it said nothing'}")
        time.sleep(0.02)


def _is_ours(root: Path) -> bool:
    """Whether a cluster was started in a directory, and nobody else could have written there."""
    with suppress(OSError, NotPrivate):
        check_private(root)
        return (root / _LOG).is_file()
    return False


def _is_up(root: Path) -> bool:
    with suppress(OSError), _connected(root):
        return _is_ours(root)
    return False


def _connected(root: Path) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        made.connect(str(root / _SOCKET))
    except OSError:
        made.close()
        raise
    return made


def _nothing_in(root: Path) -> NotFound:
    return NotFound(f"there is no practice cluster in {root}")


def _ask(directory: Path, verb: str, target: str = "") -> Any:
    root = directory.absolute()
    if not _is_up(root):
        raise _nothing_in(root)
    with _connected(root) as line, line.makefile("rwb") as file:
        file.write(json.dumps([verb, target]).encode() + b"\n")
        file.flush()
        answer = json.loads(file.readline())
        if "error" in answer:
            raise from_json(answer["error"])
        if verb == "down":
            pid = struct.unpack("3i", line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
            with suppress(ProcessLookupError):
                select.select([os.pidfd_open(pid)], [], [], _WAIT_S)
    return answer["said"]


def _describe(seen: dict[str, Any]) -> None:
    for name, node in seen["nodes"].items():
        count = node["pods"]
        say(f"  {name:8}  {node['state']:8}  {node['gpus_used']} of {node['gpus']} GPU used  "
            f"{count} {'pod' if count == 1 else 'pods'}")  # fmt: skip
    say("  images are names: containers are processes of this machine, with its files; GPUs are only counted")


def _advise(called_as: str, node: str) -> None:
    if not called_as:
        return
    say("\nUse it in this shell, which both `remuda` and `kubectl` then do:")
    say(f'  eval "$({called_as})"')
    say("Then try:")
    for command, about in (
        ("remuda run train.sh --backend kubernetes --image any:1 --gpus 1", "a run that remuda keeps alive"),
        (f"{called_as} --drill crash {node}", "the power of a node fails"),
        (f"{called_as} --drill advance 300", "five minutes later the cluster gives up its pods"),
        ("remuda explain train", "why it waits, or where it came back"),
    ):
        say(f"  {command:65}  # {about}")
    say(f"Remove it: {called_as} --down")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one action; its exit code, as for all commands of remuda."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["serve"]:
        return serve(Path(words[1]))
    options = parser().parse_args(words)
    return program.ended({"up": up, "status": status, "drill": drill, "down": down}[options.action], options)


if __name__ == "__main__":
    os.umask(0o077)
    sys.exit(main())
