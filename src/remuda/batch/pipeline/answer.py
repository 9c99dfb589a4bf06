"""What may come of one row: an answer, an error of its own, or a reason to try again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class RowAnswer:
    """The outputs of one row.

    Attributes:
        outputs: one JSON-able value per output column, in their order.
        prompt_tokens: as the server counted; 0 where it does not say. Sums over the row's requests.
        completion_tokens: likewise.
        cached_tokens: prompt tokens that the server took from its cache; 0 where it does not say. Not stored.
        finish_reason: why the last reply ended (`stop`, `length`, ...), empty where the server does not say.
    """

    outputs: list[Any]
    prompt_tokens: int = 0
    completion_tokens: int = 0
    finish_reason: str = ""
    cached_tokens: int = 0


class RowError(Exception):
    """This row cannot be answered, and asking again would not help. The message is kept with the row.

    Args:
        message: what the row's error says.
        status: HTTP status, 0 when the endpoint had no part in it.
    """

    def __init__(self, message: str, *, status: int = 0) -> None:
        super().__init__(message)
        self.message = message
        self.status = status


class Transient(Exception):
    """The try failed for a reason that may pass.

    Args:
        message: what the row's error says when no try is left.
        status: HTTP status, 0 when there was none (connection, timeout).
        retry_after: the Retry-After header as it came, empty without one.
        sent: False when the request cannot have reached the server, so that the try costs the row nothing.
    """

    def __init__(self, message: str, *, status: int = 0, retry_after: str = "", sent: bool = True) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.retry_after = retry_after
        self.sent = sent
