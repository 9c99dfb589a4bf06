"""Which requests wait in vain: nothing comes back on their connection while others are answered quickly.

A full listen queue or a busy acceptor leaves a connection that looks open and is heard by nobody. Its request would
wait for its whole timeout, so it is asked a second time on another connection, and whichever answer comes first counts.
What the kernel knows of the connection says whether that can cost anything. Decisions are pure: time is a parameter.
"""

from __future__ import annotations

import socket
import struct
from enum import Enum
from typing import Final

#: Nothing is asked again sooner.
SOONEST_S: Final = 1.0
_SILENT_S: Final = 2.0
#: An accepted request is asked again when it waits so many times longer than any recent answer took.
_LONGER: Final = 10.0
_WITNESSES: Final = 4
#: Of the requests that may cost tokens twice: so many, and one in so many.
_FEW: Final = 8
_ONE_IN: Final = 50
_WINDOW: Final = 128
_INFO_BYTES: Final = 136


class Silence(Enum):
    """How far a request has come that was not answered yet."""

    UNSENT = "it has no connection yet"
    UNHEARD = "the other side's kernel does not confirm what was sent"
    SILENT = "it was sent, and nothing ever came back on its connection"
    HEARD = "its connection was answered on before, or nobody knows"


class ReplyTimes:
    """How long answers of one endpoint take, and how many requests were asked a second time.

    Attributes:
        sent: requests so far.
        answers: answers so far.
        again: requests that were asked a second time.
    """

    def __init__(self) -> None:
        self.sent = 0
        self.answers = 0
        self.again = 0
        self._doubtful = 0
        self._slowest_s = 0.0
        self._slowest_before_s = 0.0

    def on_answer(self, latency_s: float) -> None:
        """A request was answered after `latency_s`."""
        self.answers += 1
        self._slowest_s = max(self._slowest_s, latency_s)
        if self.answers % _WINDOW == 0:
            self._slowest_before_s, self._slowest_s = self._slowest_s, 0.0

    def ask_again(self, silence: Silence, waited_s: float) -> bool:
        """Whether to ask a question a second time that was asked `waited_s` ago; a yes is counted.

        What the other side's kernel did not confirm costs nothing when it is sent twice. What it confirmed may lie
        where nobody takes it from, or be worked on: few of these, and only where others took far less time.
        """
        if silence is Silence.HEARD or waited_s < SOONEST_S or not self.answers:
            return False
        if silence is Silence.SILENT:
            slowest = max(self._slowest_s, self._slowest_before_s)
            if self.answers < _WITNESSES or waited_s < max(_SILENT_S, _LONGER * slowest):
                return False
            if self._doubtful >= _FEW + self.sent // _ONE_IN:
                return False
            self._doubtful += 1
        self.again += 1
        return True


def silence_of(fd: int) -> Silence:
    """What the kernel knows of a connection that waits for an answer."""
    try:
        with socket.fromfd(fd, socket.AF_INET, socket.SOCK_STREAM) as copy:
            info = copy.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)
    except (OSError, AttributeError):
        return Silence.HEARD
    if len(info) < _INFO_BYTES:
        return Silence.HEARD
    repeats = info[2]
    (unconfirmed,) = struct.unpack_from("=I", info, 24)
    (received,) = struct.unpack_from("=Q", info, 128)
    if repeats and unconfirmed:
        return Silence.UNHEARD
    return Silence.HEARD if received else Silence.SILENT
