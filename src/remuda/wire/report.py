"""What the program on a node says: the latest report wins, so a lost one does no harm.

Over TCP it is one JSON object a line, the first line being `{"key": ..., "token": ...}`; in the run directory it is
`report.json`, replaced whole. Python 3.9, standard library only.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Callable, Union

from remuda.wire.fault import Fault
from remuda.wire.fields import floats, is_int, is_number, read

STATES = ("starting", "ready", "unhealthy", "backoff", "stopping", "exited")
MAX_LINE_BYTES = 65536
MAX_FAULTS = 20
MAX_GPUS = 64
GPU_FIGURES = ("index", "uuid", "busy", "memory", "memory_bytes", "power", "temperature")
"""Of a GPU: its place and name in the driver, and as `wire.recording.VALUES` and `Gpu` have them."""
LOG_SAID = "; log: "
"""In a reason, before the last line of output of a server that loads."""


@dataclass(frozen=True)
class Report:
    """State of one supervised child at one moment."""

    token: str
    attempt: int
    seq: int
    """Rises by one with every report of this allocation; a lower one than seen is stale."""
    at: float
    """Seconds since the epoch on the node's clock."""
    state: str
    """One of `STATES`. `backoff`: ended, or being ended, and will be started again in place."""
    node: str = ""
    url: str = ""
    """`http://host:port` of the child, empty while unknown."""
    pid: int = 0
    http_status: int = 0
    """Of the last probe; 0 when there was no answer."""
    restarts: int = 0
    """In place, within this allocation."""
    exit_code: int | None = None
    """Of the child when it last ended by itself; None while it never did."""
    signal: int = 0
    """That ended the child, 0 for none."""
    reason: str = ""
    """One sentence: why it is in this state."""
    start: int = -1
    """How often the scheduler had put the allocation back into its queue when its node program began; -1: not told."""
    metrics: dict[str, float] = field(default_factory=dict)
    """`running`, `waiting` (requests), `prompt_tokens`, `generated_tokens` (totals), where the child tells."""
    recording: str = ""
    """Of its GPUs: `recording`, or in a sentence why there is none, and what its user should know; empty: none is asked
    for."""
    gpus: list[dict[str, Any]] = field(default_factory=list)
    """The latest of each GPU that is recorded: `GPU_FIGURES`, each missing or None where it is not known."""
    faults: list[dict[str, Any]] = field(default_factory=list)
    """`wire.fault.Fault`s that the recorder saw, oldest first, at most `MAX_FAULTS`. They end nothing."""
    boot: str = ""
    """Id of the machine's boot, where its GPUs are recorded."""

    ports: dict[str, int] = field(default_factory=dict)
    """Ports that the child asked for by name -> number."""

    def to_json(self) -> str:
        """One line, without the newline."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> Report:
        """Read one report; fields of newer versions are ignored.

        Raises:
            ValueError: not a report.
        """
        report = read(cls, text, "a report")
        wrong = _wrong_field(report)
        if wrong:
            raise ValueError(f"field {wrong!r} of the report has a wrong type or value")
        metrics, gpus, faults = floats(report.metrics), report.gpus[:MAX_GPUS], report.faults[-MAX_FAULTS:]
        return replace(report, at=float(report.at), metrics=metrics, gpus=gpus, faults=faults)


def without_log(reason: str) -> str:
    """A reason without the last line of output, which is new all the time."""
    return reason.partition(LOG_SAID)[0]


KEY_FILE = "report.key"
"""In the run directory of an allocation, readable for its owner only: with what it may report, and only for itself."""


def key_for(secret: str, token: str) -> str:
    """The key of one allocation: made of the host's secret, so that nobody needs a table and none tells of another."""
    import hmac  # here, because it loads the crypto library, which a node never needs

    return hmac.new(secret.encode(), f"report {token}".encode(), "sha256").hexdigest()


@dataclass(frozen=True)
class Key:
    """First line of a connection: who reports, and what shows that it may."""

    key: str
    token: str = ""

    def matches(self, secret: str) -> bool:
        """Whether it is the key of its token, compared in constant time; an empty `secret` matches nothing."""
        import hmac

        known = key_for(secret, self.token)
        return bool(secret and self.token) and hmac.compare_digest(self.key.encode(), known.encode())

    def to_json(self) -> str:
        """One line, without the newline."""
        return json.dumps(asdict(self))


@dataclass(frozen=True)
class MalformedLine:
    """A line that is neither a report nor a key: to be counted, not to be believed."""

    reason: str


Line = Union[Report, Key, MalformedLine]


def parse_line(line: bytes) -> Line:
    """Read one line of a reporter's connection, with or without its newline. Never raises.

    Oversized lines (over `MAX_LINE_BYTES`) are refused unread.
    """
    if len(line) > MAX_LINE_BYTES:
        return MalformedLine(f"a line of {len(line)} bytes; at most {MAX_LINE_BYTES} are taken")
    try:
        data: Any = json.loads(line)
        if isinstance(data, dict) and set(data) == {"key", "token"} and all(map(_is_text, data.values())):
            return Key(data["key"], data["token"])
        return Report.from_json(line)
    except ValueError as error:
        return MalformedLine(str(error)[:200])
    except RecursionError:
        return MalformedLine("nested too deeply")


def _is_text(value: object) -> bool:
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:  # a lone surrogate would fail later, in the database
        return False
    return True


def _is_gpu(value: object) -> bool:
    if not isinstance(value, dict) or not all(map(_is_text, value)):
        return False
    return all(
        one is None or (_is_text(one) if name == "uuid" else is_number(one)) for name, one in value.items()
    )  # fmt: skip


def _is_fault(value: object) -> bool:
    if not isinstance(value, dict):
        return False
    try:
        fault = Fault.from_dict(value)
    except ValueError:
        return False
    return all(map(_is_text, (fault.kind, fault.name, fault.line, fault.device))) and is_number(fault.at)


def _is_map(value: object, is_good: Callable[[object], bool]) -> bool:
    return isinstance(value, dict) and all(_is_text(key) and is_good(one) for key, one in value.items())


_GOOD: dict[str, Callable[[Any], bool]] = {
    "metrics": lambda value: _is_map(value, is_number),
    "ports": lambda value: _is_map(value, is_int),
    "gpus": lambda value: isinstance(value, list) and all(map(_is_gpu, value)),
    "faults": lambda value: isinstance(value, list) and all(map(_is_fault, value)),
    "exit_code": lambda value: value is None or is_int(value),
    "at": is_number,
    **dict.fromkeys(("attempt", "seq", "pid", "http_status", "restarts", "signal", "start"), is_int),
    "state": STATES.__contains__,
    "token": lambda value: _is_text(value) and bool(value),
}
"""What is asked of the fields that are more, or less, than any text."""


def _wrong_field(report: Report) -> str:
    """Name of the first field that JSON filled with something else than promised, empty when all are right."""
    names = (item.name for item in fields(report))
    return next((name for name in names if not _GOOD.get(name, _is_text)(getattr(report, name))), "")
