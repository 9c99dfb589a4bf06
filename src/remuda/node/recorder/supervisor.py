"""The recorder beside the node program's child: started with it, spared from sweeps, asked for news, ended after it.

Nothing here waits, but at the very end, and nothing touches the child: what goes wrong is a sentence in the report.
"""

from __future__ import annotations

import subprocess
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remuda.node.child.launch import node_program
from remuda.node.child.process import spare
from remuda.wire.process import boot_id
from remuda.wire.recording import Status
from remuda.wire.report import GPU_FIGURES
from remuda.wire.spool import STATUS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from remuda.node.journal import NodeLog
    from remuda.wire.child import ChildSpec

FOLDER = "recording"
"""In the run directory."""
LOG = "recorder.log"
MAX_STARTS = 4
"""The first, and three more of one that died."""
END_S, LOOK_S = 5.0, 1.0


class ChildRecorder:
    """The recorder of one allocation; without an interval in the document there is none, and nothing is done.

    Args:
        spec: the document.
        journal: log of who starts it.
        node: of a job of several, where it is not the first.
    """

    def __init__(self, spec: ChildSpec, journal: NodeLog, node: str = "") -> None:
        self._spec, self._journal = spec, journal
        self._folder = Path(spec.run_dir, FOLDER, node)
        self._env: dict[str, str] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._starts = 0
        self._why = ""
        """Why there is none although it was asked for."""
        self._news: dict[str, Any] = {}
        self._due = 0.0

    def starts(self, env: Mapping[str, str]) -> None:
        """The child was started with this environment; for its restarts the recorder goes on."""
        if self._spec.record_interval_s <= 0 or self._starts:
            return
        self._env = {name: value for name, value in env.items() if name not in self._spec.secret_env}
        self._start()

    def look(self, now: float) -> dict[str, Any]:
        """The fields of a report that tell of it, at most a second old; starts one again that died."""
        if self._starts and now >= self._due:
            self._due = now + LOOK_S
            self._news = self._fresh()
        return self._news

    def _fresh(self) -> dict[str, Any]:
        status = self._status()
        if self._process is not None and self._process.poll() is not None:
            self._process = None
            if status is None or status.state not in ("ended", "nothing"):
                self._died()
        if self._why or status is None:
            return {"recording": self._why or "the recorder begins"}
        gpus = [{name: gpu[name] for name in GPU_FIGURES if name in gpu} for gpu in status.gpus]
        words = status.reason if status.state in ("ended", "nothing") else status.state
        more = status.reason if status.reason not in ("", words) else ""
        return {
            "recording": "; ".join(filter(None, (words, more))),
            "gpus": gpus,
            "faults": list(status.faults),
            "boot": boot_id(),
        }

    def end(self) -> None:
        """The child has ended: let the recorder write its last word, and wait for that, but not for long."""
        process, self._process = self._process, None
        self._due = 0.0  # its last word is news
        if process is None:
            return
        with suppress(OSError):
            process.terminate()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.5)  # what is in the driver for ever is left there

    def _died(self) -> None:
        if self._starts >= MAX_STARTS:
            self._why = f"the recorder died {self._starts} times, see {FOLDER}/{LOG}"
            self._journal.say("warning", self._why)
            return
        self._journal.say("warning", "the recorder died and is started again")
        self._start()

    def _start(self) -> None:
        self._starts += 1
        spec = self._spec
        words = [str(self._folder), "--interval-s", str(spec.record_interval_s), "--token", spec.token]
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with (self._folder / LOG).open("ab") as log:
                self._process = subprocess.Popen(
                    [*node_program(), "recorder", *words],
                    env=self._env,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=log,
                    start_new_session=True,
                )
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            self._why = f"the recorder cannot be started: {error}"
            self._journal.say("warning", self._why)
            return
        spare(self._process.pid)

    def _status(self) -> Status | None:
        try:
            return Status.from_json((self._folder / STATUS).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
