"""Which failures pass, and how long to wait: the only layer that retries."""

from __future__ import annotations

import asyncio
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final

from remuda.batch.pipeline.answer import RowError, Transient
from remuda.policy.backoff import backoff_s

#: HTTP answers after which the same request may succeed.
RETRYABLE: Final = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
_YEAR_S: Final = 366 * 86400.0
_FIRST_S: Final = 0.5
_MOST_S: Final = 30.0


def retry_after_s(header: str, now: float) -> float | None:
    """Seconds that a Retry-After header asks for.

    Args:
        header: a number of seconds or an HTTP date; anything else gives None.
        now: seconds since the epoch.

    Returns:
        0 to a year, or None when the header says nothing.
    """
    text = header.strip()
    if not text:
        return None
    try:
        wait = float(text)
    except ValueError:
        try:
            moment = parsedate_to_datetime(text)
        except (ValueError, TypeError, OverflowError):
            return None
        wait = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() - now
    return min(max(wait, 0.0), _YEAR_S) if wait == wait else None  # noqa: PLR0124 - false for NaN


def delay_s(failures: int, retry_after: str, *, key: str, now: float) -> float:
    """Seconds until the next try of a row.

    Args:
        failures: failed tries of the row so far, 1 or more.
        retry_after: the server's Retry-After header, empty without one; it is honoured, never undercut.
        key: spreads rows that failed together.
        now: seconds since the epoch.
    """
    backoff = backoff_s(failures, _FIRST_S, _MOST_S, key=key, jitter=0.5)
    asked = retry_after_s(retry_after, now)
    return backoff if asked is None else asked + min(backoff, 1.0) * 0.2


def judge(error: Exception) -> Transient | RowError:
    """What an exception out of a user's job means for its row.

    The `openai` client, aiohttp and the standard library are known by what their errors carry, not by import.
    """
    if isinstance(error, (Transient, RowError)):
        return error
    status = getattr(error, "status_code", None) or getattr(error, "status", None)
    if isinstance(status, int):
        message = _status_message(error, status)
        if status in RETRYABLE:
            headers = (
                getattr(getattr(error, "response", None), "headers", None) or getattr(error, "headers", None) or {}
            )
            return Transient(message, status=status, retry_after=str(headers.get("retry-after", "")))
        return RowError(message, status=status)
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if _is_connection(error):
        return Transient(text, sent=not _never_connected(error))
    return RowError(text)


def _status_message(error: Exception, status: int) -> str:
    body = getattr(error, "body", None)
    message = body.get("message") if isinstance(body, dict) else None
    return f"HTTP {status}: {message or error}"


def _names(error: BaseException) -> set[str]:
    return {kind.__name__ for kind in type(error).__mro__}


def _is_connection(error: Exception) -> bool:
    if isinstance(error, (ConnectionError, TimeoutError, asyncio.IncompleteReadError)):
        return True
    return bool(_names(error) & {"APIConnectionError", "APITimeoutError", "ClientConnectionError", "TransportError"})


def _never_connected(error: BaseException | None) -> bool:
    for _ in range(8):
        if error is None:
            return False
        if isinstance(error, ConnectionRefusedError) or _names(error) & {"ConnectError", "ClientConnectorError"}:
            return True
        error = error.__cause__ or error.__context__
    return False
