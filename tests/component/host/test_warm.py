"""A host that was forked for the tests gives its tasks what one has that a user's command started."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.conftest import Home

SCRIPT = """#!/bin/bash
#REMUDA --backend local
env | sort
ulimit -a
umask
pwd
readlink /proc/$PPID/cwd
grep -E "^(SigBlk|SigIgn|SigCgt|Cap|NoNew|Seccomp)" /proc/self/status
ls -l /proc/self/fd | grep -c .
"""


def told(home: Home) -> list[str]:
    """What a task finds, without what is another's each time."""
    script = home.root / "look.sh"
    script.write_text(SCRIPT)
    home.run("run", str(script), "--name", "look", "--wait")
    said = home.run("logs", "look").stdout.replace(str(home.root), "ROOT")
    said = re.sub(r"(?<=attempt-1-)[a-z0-9]+|(?<=_TOKEN=)\S+|(?<=_KEY=)\S+", "N", said)
    return said.splitlines()


def test_a_forked_host_is_like_any_other(home: Home, cold_home: Home) -> None:
    assert home.command != cold_home.command
    assert told(home) == told(cold_home)
