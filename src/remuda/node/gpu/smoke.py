"""Whether the GPUs work: a short use of each, in a process that may crash or hang without harm.

Outcomes: `ok` · `no-cuda` (there is no driver library: a CPU or AMD node, or a container without it; no fault) ·
`broken` · `timeout`. As a command: `smoke [--json] [--gpus N] [--timeout S]`.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import remuda
from remuda.node.gpu.decoding import pci
from remuda.node.script.patterns import CUDA_CODES, CUDA_STUB

if TYPE_CHECKING:
    from collections.abc import Mapping

OK, NO_CUDA, BROKEN, TIMEOUT = "ok", "no-cuda", "broken", "timeout"
EXIT_CODES = {OK: 0, BROKEN: 1, NO_CUDA: 3, TIMEOUT: 4}
DEFAULT_TIMEOUT_S = 60.0
USAGE = "usage: remuda-node smoke [--json] [--gpus N] [--timeout SECONDS]\n"
_WORKER = "import sys; sys.path.insert(0, sys.argv[1]); from remuda.node.gpu.cuda import main; sys.exit(main())"


@dataclass(frozen=True)
class GpuSmokeResult:
    """What was found."""

    outcome: str
    error: str = ""
    """One sentence, empty when all is well."""
    code: int = 0
    """Of the CUDA driver, 0 for none."""
    fault: str = ""
    """Short name of what is broken, e.g. `cuda-999`, `cuda-crash`; empty when nothing is."""
    devices: list[dict[str, Any]] = field(default_factory=list)
    """`{index, name, address, ok, error, code}` each."""
    driver: int = 0
    """CUDA version of the driver, e.g. 12040."""
    seconds: float = 0.0

    def addresses(self) -> dict[str, str]:
        """PCI address of each GPU, `0000:3b:00`, by its index."""
        return {str(device["index"]): pci(device["address"]) for device in self.devices if device["address"]}


class Smoke:
    """A test under way; never waited for.

    Args:
        env: environment of the program that shall use the GPUs: its library path counts.
        timeout_s: after this the process is killed.
        now: on the clock that `expire` is asked with.
    """

    def __init__(self, env: Mapping[str, str], timeout_s: float, now: float) -> None:
        self.result: GpuSmokeResult | None = None
        self.deadline = now + timeout_s
        self._timeout_s = timeout_s
        self._began = time.monotonic()
        self.fd, write = os.pipe()
        os.set_blocking(self.fd, False)
        home = str(Path(remuda.__file__).parent.parent)  # a directory, or the zipapp
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _WORKER, home],
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=write,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        finally:
            os.close(write)

    def ended(self, returncode: int) -> None:
        """Take in that the process was reaped; `returncode` as `Popen` has it."""
        self.process.returncode = returncode
        if self.result is None:
            self._finish("" if returncode == 0 else _how(returncode), is_late=False)

    def expire(self) -> None:
        """End it because its time is over. The process may stay: a call that hangs in the driver cannot be killed."""
        os.kill(self.process.pid, signal.SIGKILL)
        self._finish(f"there was no end within {self._timeout_s:g} s", is_late=True)

    def cancel(self) -> None:
        """End it because nobody wants to know any more."""
        if self.result is None:
            self.expire()

    def _finish(self, problem: str, *, is_late: bool) -> None:
        text = b""
        try:
            while True:
                data = os.read(self.fd, 1 << 16)
                if not data:
                    break
                text += data
        except BlockingIOError:
            pass
        os.close(self.fd)
        seconds = round(time.monotonic() - self._began, 3)
        self.result = judge(text.decode("utf-8", "replace"), problem, is_late=is_late, seconds=seconds)


def run(env: Mapping[str, str], gpus: int, timeout_s: float) -> GpuSmokeResult:
    """Test and wait for the result, at most a moment longer than `timeout_s`.

    Args:
        env: see `Smoke`.
        gpus: that must be there at least.
        timeout_s: limit in seconds.
    """
    smoke = Smoke(env, timeout_s, time.monotonic())
    poll = select.poll()
    poll.register(smoke.fd, select.POLLHUP)  # its end is the end of the process, and of nothing before
    if poll.poll(max(0.0, timeout_s) * 1000):
        try:
            smoke.ended(smoke.process.wait(2.0))
        except subprocess.TimeoutExpired:
            smoke.expire()
    else:
        smoke.expire()
        _wait_a_moment(smoke.process)
    result = smoke.result or GpuSmokeResult(BROKEN)
    if result.outcome == OK and len(result.devices) < gpus:
        error = f"{gpus} GPUs were asked for and CUDA sees {len(result.devices)}"
        return GpuSmokeResult(BROKEN, error, 0, "gpu-missing", result.devices, result.driver, result.seconds)
    return result


def _wait_a_moment(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(2.0)
    except subprocess.TimeoutExpired:
        process.returncode = -signal.SIGKILL  # it hangs in the driver; nothing more can be done for it


def judge(text: str, problem: str, *, is_late: bool, seconds: float = 0.0) -> GpuSmokeResult:
    """What the worker's lines mean. Pure.

    Args:
        text: what it printed.
        problem: how it failed to end in order, empty when it did not.
        is_late: whether it was ended because of its time.
        seconds: how long it took.
    """
    steps = [json.loads(line) for line in text.split("\n")[:-1]]
    devices = [{key: step[key] for key in step if key != "step"} for step in steps if step["step"] == "done"]
    last: dict[str, Any] = steps[-1] if steps else {"step": "begin"}
    driver = next((int(step["driver"]) for step in steps if step["step"] == "count"), 0)
    if last["step"] == "library":
        return GpuSmokeResult(NO_CUDA, f"no CUDA driver library: {last['missing']}", seconds=seconds)
    if last["step"] == "init":
        if last["code"] == CUDA_STUB:
            return GpuSmokeResult(NO_CUDA, "the CUDA driver library is a stub for building", CUDA_STUB, seconds=seconds)
        error = f"{last['function']} returned {explained(last['code'])}"
        return GpuSmokeResult(BROKEN, error, last["code"], _name(last["code"]), seconds=seconds)
    if problem or last["step"] != "end":
        where = f" at GPU {last['index']}" if last["step"] == "device" else ""
        if last["step"] == "device":
            devices.append(
                {"index": last["index"], "name": "", "address": "", "ok": False, "error": problem, "code": 0}
            )
        outcome, fault = (TIMEOUT, "cuda-hang") if is_late else (BROKEN, "cuda-crash")
        error = f"the test of the GPUs failed{where}: {problem or 'it ended too early'}"
        return GpuSmokeResult(outcome, error, 0, fault, devices, driver, seconds)
    bad = next((device for device in devices if not device["ok"]), None)
    if bad is not None:
        code = int(bad["code"])
        what = f"{bad['error']}{': ' + CUDA_CODES[code].meaning if code in CUDA_CODES else ''}"
        named = f"GPU {bad['index']}{' (' + bad['address'] + ')' if bad['address'] else ''}"
        fault = _name(code) if code else "cuda-wrong-result"
        return GpuSmokeResult(BROKEN, f"{named}: {what}", code, fault, devices, driver, seconds)
    return GpuSmokeResult(OK, "", 0, "", devices, driver, seconds)


def explained(code: int) -> str:
    """An error code of the CUDA driver with its meaning, where we know it."""
    return f"{code} ({CUDA_CODES[code].meaning})" if code in CUDA_CODES else str(code)


def _name(code: int) -> str:
    return f"cuda-{code}" if code > 0 else "cuda-library"


def _how(returncode: int) -> str:
    return f"it was ended by signal {-returncode}" if returncode < 0 else f"it ended with code {returncode}"


def main(arguments: list[str]) -> int:
    """The command: print the result, and end with a code of `EXIT_CODES` (2: wrong arguments)."""
    options = {"--gpus": 0.0, "--timeout": DEFAULT_TIMEOUT_S}
    words = [word for word in arguments if word != "--json"]
    as_json = len(words) < len(arguments)
    try:
        for name, value in zip(words[::2], words[1::2]):
            options[name] = float(value)
    except ValueError:
        options[""] = 0.0
    if len(options) != 2 or len(words) % 2:
        sys.stderr.write(USAGE)
        return 2
    result = run(os.environ, int(options["--gpus"]), options["--timeout"])
    plain = f"{result.outcome}: {result.error or f'GPUs that work: {len(result.devices)}'}"
    sys.stdout.write((json.dumps(asdict(result)) if as_json else plain) + "\n")
    return EXIT_CODES[result.outcome]
