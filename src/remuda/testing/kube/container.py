"""What a container is here: a process with process numbers, a host name and mounts of its own, on this machine's files.

It is run as a file by an interpreter that loads the standard library alone: `container.py SPEC`. The program is number
1 of its world as in a real container, so that all it started ends with it, and SIGTERM does nothing that it does not
handle. This process waits, hands SIGTERM on, and ends as the program does; the kernel ends both with what started them.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

_NEWNS, _NEWUTS, _NEWUSER, _NEWPID = 0x00020000, 0x04000000, 0x10000000, 0x20000000
_RDONLY, _REMOUNT, _BIND, _REC, _PRIVATE = 1, 32, 4096, 16384, 1 << 18
_PDEATHSIG = 1
NO_SUCH_PROGRAM = 128
libc = ctypes.CDLL(None, use_errno=True)


def checked(result: int, what: str) -> None:
    """Raise what a call of the C library says."""
    if result:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def mount(source: str, at: str, kind: str | None = None, flags: int = 0) -> None:
    """Mount; what is left out is nothing."""
    named = [None if text is None else os.fsencode(text) for text in (source, at, kind)]
    checked(libc.mount(*named, ctypes.c_ulong(flags), None), f"mount {source} at {at}")


def isolate() -> None:
    """Leave the world of the parent, as root of an own one where this user is not root."""
    user, group = os.geteuid(), os.getegid()
    flags = _NEWNS | _NEWUTS | _NEWPID
    checked(libc.unshare(flags | (_NEWUSER if user else 0)), "unshare")
    if user:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    mount("none", "/", None, _REC | _PRIVATE)


def mirror(real: str, at: str, wanted: list[str]) -> None:
    """Show at one place what lies at another, with room for mounts that are wanted below it."""
    mount("tmpfs", at, "tmpfs")
    for entry in os.scandir(real):
        path, copy = os.path.join(real, entry.name), os.path.join(at, entry.name)  # noqa: PTH118 - paths of another root
        if path == "/proc" or path in wanted:
            continue
        if entry.is_symlink():
            Path(copy).symlink_to(Path(path).readlink())
        elif not entry.is_dir():
            bind(path, copy)
        elif any(one.startswith(f"{path}/") for one in wanted):
            Path(copy).mkdir()
            mirror(path, copy, wanted)
        else:
            bind(path, copy)


def bind(source: str, at: str, *, read_only: bool = False) -> None:
    """Show a file or folder at a place of the same kind, which is made."""
    place = Path(at)
    if Path(source).is_dir():
        place.mkdir(parents=True, exist_ok=True)
    else:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch()
    mount(source, at, None, _BIND | _REC)
    if read_only:
        with suppress(OSError):  # flags of a foreign mount are locked where this user is not root; it can be read
            mount("none", at, None, _BIND | _REMOUNT | _RDONLY)


def furnish(root: str, mounts: list[dict[str, str]], hostname: str) -> None:
    """Make the container's files and go in."""
    wanted = {os.path.realpath(one["path"]): one for one in mounts}
    mirror("/", root, list(wanted))
    for path, one in sorted(wanted.items()):
        bind(one["source"], root + path, read_only=bool(one["read_only"]))
    Path(root, "proc").mkdir()
    try:
        mount("proc", f"{root}/proc", "proc")
    except OSError:
        mount("/proc", f"{root}/proc", None, _BIND | _REC)
    checked(libc.sethostname(os.fsencode(hostname), len(os.fsencode(hostname))), "sethostname")
    os.chroot(root)


def inside(spec: dict[str, object], failed: int) -> None:
    """Become the program."""
    libc.prctl(_PDEATHSIG, signal.SIGKILL)
    for number in (signal.SIGTERM, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    try:
        argv, env = spec["argv"], spec["env"]
        furnish(spec["root"], spec["mounts"], spec["hostname"])  # type: ignore[arg-type]
        os.chdir(str(spec["cwd"]))
        if spec["user"] and os.geteuid() == 0:
            os.setgroups([])
            os.setgid(0)
            os.setuid(int(str(spec["user"])))
        os.execvpe(argv[0], argv, env)  # type: ignore[arg-type, index]  # noqa: S606 - no shell is the point
    except OSError as error:
        os.write(failed, str(error).encode())
        os._exit(NO_SUCH_PROGRAM)


def main() -> int:
    """Run the container that a file describes; its exit code, 128 and more for a signal."""
    spec = json.loads(Path(sys.argv[1]).read_text())
    failed = os.open(spec["failed"], os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC)
    libc.prctl(_PDEATHSIG, signal.SIGKILL)
    isolate()
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    child = os.fork()
    if not child:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
        inside(spec, failed)
    signal.signal(signal.SIGTERM, lambda *_: os.kill(child, signal.SIGTERM))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
