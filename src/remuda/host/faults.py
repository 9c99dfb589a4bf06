"""What nobody foresaw is told as a sentence with an id, and the host's log has the rest under that id."""

from __future__ import annotations

import logging
import secrets
from typing import TYPE_CHECKING

from fastapi.responses import JSONResponse
from starlette.requests import ClientDisconnect

from remuda.base.asker import HEADER, asking
from remuda.base.errors import HostFault
from remuda.base.text import short

if TYPE_CHECKING:
    from pathlib import Path

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_LOG = logging.getLogger("remuda.host")
_MOST = 200


class ErrorBoundary:
    """Stands around the whole application: no exception reaches a client as a bare status 500.

    Args:
        app: what answers.
        log: where the host's log is, for the hint.
    """

    def __init__(self, app: ASGIApp, log: Path) -> None:
        self._app = app
        self._log = log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and who asks; an exception becomes its answer, or the end of one that has begun."""
        has_begun = False
        name = dict(scope.get("headers", ())).get(HEADER.lower().encode(), b"").decode(errors="replace")
        asking.set(short(name))  # strangers may have made it

        async def noted(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await self._app(scope, receive, noted)
        except ClientDisconnect:
            return  # nobody is there to be told
        except Exception as error:
            mark = secrets.token_hex(4)
            _LOG.exception("fault %s: %s %s", mark, scope.get("method", ""), scope.get("path", ""))
            if has_begun:
                raise
            await JSONResponse({"error": self._content(error, mark)}, status_code=500)(scope, receive, send)

    def _content(self, error: Exception, mark: str) -> dict[str, str]:
        what = " ".join(f"{type(error).__name__}: {error}".split())[:_MOST].rstrip(": ")
        return {
            "type": HostFault.__name__,
            "message": f"unexpected internal error ({what}), id {mark}",
            "hint": f"please report it with what the host's log says under that id: grep -A 40 {mark} {self._log}",
        }
