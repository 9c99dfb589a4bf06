"""Stand-ins for Apptainer, enroot and `srun` with Pyxis, strict about the words that the real ones take.

`python containers.py apptainer exec …`: what they are asked is noted as one line of JSON in the file `$ASKED`, then the
command is run without an image. Of Apptainer and enroot: only what the real program passes on reaches the command. Of
Pyxis: the real `srun` runs the rest. Standard library only; it is run as a file.
"""

from __future__ import annotations

import json
import os
import sys

FLAGS = {"--nv", "--rocm", "--cleanenv", "-e", "--containall"}
VALUES = {"--bind", "-B", "--pwd", "--env", "--env-file"}
PYXIS = ("--container-image=", "--container-mounts=", "--container-workdir=", "--container-env=")


def apptainer(words: list[str]) -> None:
    """`apptainer exec [flags] IMAGE COMMAND…`; ends as the real one does when something is wrong."""
    if not words or words[0] != "exec":
        sys.exit(f'Error: unknown command "{words[0] if words else ""}" for "apptainer"')
    rest, binds, flags = words[1:], [], []
    while rest and rest[0].startswith("-"):
        word = rest.pop(0)
        if word in FLAGS:
            flags.append(word)
        elif word in VALUES and rest:
            binds.append(rest.pop(0))
        else:
            sys.exit(f'Error for command "exec": unknown flag: {word}')
    if len(rest) < 2:
        sys.exit('Error for command "exec": requires at least 2 arg(s)')
    image, command = rest[0], rest[1:]
    if not os.path.exists(image):  # noqa: PTH110
        sys.stderr.write(f"FATAL:   could not open image {image}: no such file or directory\n")
        sys.exit(255)
    for bind in binds:
        if not os.path.exists(bind.split(":")[0]):  # noqa: PTH110
            sys.stderr.write(f"FATAL:   container creation failed: mount source {bind} doesn't exist\n")
            sys.exit(255)
    env = {
        name: value for name, value in os.environ.items() if not name.startswith(("APPTAINERENV_", "SINGULARITYENV_"))
    }
    env |= {name[13:]: value for name, value in os.environ.items() if name.startswith("APPTAINERENV_")}
    note({"program": "apptainer", "flags": flags, "binds": binds, "image": image, "command": command})
    os.execvpe(command[0], command, env)


def enroot(words: list[str]) -> None:
    """`enroot start [options] IMAGE COMMAND…`: nothing of the environment gets in but what is named."""
    if not words or words[0] != "start":
        sys.exit(f"[ERROR] Invalid argument: {words[0] if words else ''}")
    rest, env, mounts, rc = words[1:], {"PATH": os.environ["PATH"], "HOME": "/root"}, [], ""
    while rest and rest[0].startswith("-"):
        word = rest.pop(0)
        if word == "--env" and rest:
            name, sign, value = rest.pop(0).partition("=")
            env[name] = value if sign else os.environ.get(name, "")
        elif word == "--mount" and rest:
            mounts.append(rest.pop(0))
        elif word == "--rc" and rest:
            rc = rest.pop(0)
        elif word != "--rw":
            sys.exit(f"[ERROR] Invalid argument: {word}")
    for path in (rest[0], rc, *(mount.split(":")[0] for mount in mounts)):
        if not os.path.exists(path):  # noqa: PTH110
            sys.exit(f"[ERROR] No such file or directory: {path}")
    note({"program": "enroot", "mounts": mounts, "image": rest[0], "env": sorted(env), "command": rest[1:]})
    os.execve("/bin/sh", ["sh", rc, *rest[1:]], env)


def srun(words: list[str]) -> None:
    """`srun` of a cluster with Pyxis: takes its options away and passes the others on to the real one."""
    options: list[str] = []
    rest = list(words)
    while rest and rest[0].startswith("-"):
        options.append(rest.pop(0))
    pyxis = [word for word in options if word.startswith("--container-")]
    if wrong := [word for word in pyxis if not word.startswith(PYXIS)]:
        sys.exit(f"srun: unrecognized option '{wrong[0]}'")
    plain = [word for word in options if word not in pyxis]
    if pyxis:
        note({"program": "srun", "pyxis": pyxis, "options": plain, "command": rest})
    os.execv(os.environ["REAL_SRUN"], ["srun", *plain, *rest])


def note(asked: dict[str, object]) -> None:
    """Append what was asked."""
    with open(os.environ["ASKED"], "a", encoding="utf-8") as file:  # noqa: PTH123
        file.write(json.dumps(asked) + "\n")


if __name__ == "__main__":
    {"apptainer": apptainer, "enroot": enroot, "srun": srun}[sys.argv[1]](sys.argv[2:])
