"""The gate of a deployment: does it serve indeed? `python -m remuda.enter gate NAME [-- COMMAND…]` asks once.

Healthy workers prove little: prefill may hand nothing over, and then all is green and no token comes. So the gate asks
the endpoint as a client does, and sees that tokens came and that prefill's own counter moved. It ends with code 0 then,
or goes on as COMMAND; else its last line says what was missing.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from remuda.base import prometheus
from remuda.base.errors import RemudaError, Unavailable
from remuda.base.ids import api_path
from remuda.base.secrets import SecretRef
from remuda.base.waiting import until
from remuda.client.http import connect
from remuda.serving.client import request
from remuda.serving.dynamo import instances

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PREFILL_COUNTERS: Final[Mapping[str, tuple[str, dict[str, frozenset[str]]]]] = {
    "dynamo": ("dynamo_component_requests_total", {"dynamo_endpoint": frozenset({"generate"})}),
    "smg": ("sglang:prompt_tokens_total", {}),
}
"""Router -> the counter of a prefill worker that moves with each request that it had: its name, and its labels."""
PATIENCE_S, PAUSE_S = 30.0, 0.2
"""How long workers that are ready may take until the frontend lists them, and between two looks."""
ANSWER_S: Final = 120.0
PROMPT: Final = "Count from one to ten, in words."
TOKENS: Final = 8


class Closed(RemudaError):
    """It does not serve; the message says what was missing."""


def look(name: str) -> list[str]:
    """Ask the deployment once.

    Returns:
        What was seen, a sentence each.

    Raises:
        Closed: it does not serve.
        RemudaError: the host does not answer.
    """
    view = _ready(name)
    router = "dynamo" if view["labels"].get("frontend") == "dynamo" else str(view["labels"].get("router", ""))
    seen = []
    if router == "dynamo":
        several = [task["url"].rstrip("/") for task in view["tasks"] if task["role"] == "frontend" and task["url"]]
        seen += [_listed(view, url) for url in several or [view["endpoint"]]]
    before = _prefill_counts(view, router)
    seen.append(_asked(view))
    if before is not None:
        seen.append(_moved(view, router, before))
    return seen


def _ready(name: str) -> dict[str, Any]:
    """The view of the deployment, once its front has an address."""

    def seen() -> dict[str, Any] | None:
        view: dict[str, Any] = connect(start=False).get(api_path(name))
        return view if view["endpoint"] else None

    if view := until(seen, PATIENCE_S, PAUSE_S):
        return view
    raise Closed(f"the endpoint of {name} has no address")


def _listed(view: dict[str, Any], url: str) -> str:
    """Every role is listed by Dynamo's frontend as often as it has workers that are ready."""
    wanted = Counter(task["role"] for task in _workers(view))
    listed: Counter[str] = Counter()

    def are_all() -> bool:
        listed.clear()
        listed.update({role.value: count for role, count in instances(_call("GET", url, "/health").json()).items()})
        listed["replica"] = listed["decode"]
        return wanted <= listed

    is_whole = until(are_all, PATIENCE_S, PAUSE_S)
    text = ", ".join(f"{role} {min(listed[role], count)}/{count}" for role, count in wanted.items())
    if not is_whole:
        raise Closed(f"the frontend at {url} lists {text}, though all of them are ready")
    return f"the frontend at {url} lists {text}"


def _asked(view: dict[str, Any]) -> str:
    """One request as a client sends it; a model without a chat template is asked for a completion."""
    began = time.monotonic()
    chat = {"model": view["model"], "messages": [{"role": "user", "content": PROMPT}], "max_tokens": TOKENS}
    key = SecretRef(file=view["api_key_file"]).read() if view["api_key_file"] else ""
    answer = _call("POST", view["endpoint"], "/v1/chat/completions", chat, key)
    if answer.status in (400, 404, 422):
        plain = {"model": view["model"], "prompt": PROMPT, "max_tokens": TOKENS}
        answer = _call("POST", view["endpoint"], "/v1/completions", plain, key)
    if answer.status != 200:
        text = answer.body[:200].decode(errors="replace").strip()
        raise Closed(f"a request was answered with HTTP {answer.status}: {text}")
    tokens = tokens_of(answer.json())
    if not tokens:
        raise Closed("a request was answered with no token: what prefill computes does not reach decode")
    return f"a request was answered with {tokens} tokens in {time.monotonic() - began:.2f} s"


def tokens_of(answer: Any) -> int:
    """Tokens of an answer that is not streamed: as its usage says, at least 1 where there is text."""
    if not isinstance(answer, dict):
        return 0
    usage = answer.get("usage")
    counted = usage.get("completion_tokens") if isinstance(usage, dict) else None
    if isinstance(counted, int) and not isinstance(counted, bool):
        return counted
    choices = answer.get("choices")
    texts = [
        (choice.get("message") or {}).get("content") or choice.get("text")
        for choice in (choices if isinstance(choices, list) else [])
        if isinstance(choice, dict)
    ]
    return int(any(texts))


def _prefill_counts(view: dict[str, Any], router: str) -> float | None:
    """What prefill counted so far, all workers together; None where there is nothing that counts."""
    urls = [task["url"].rstrip("/") for task in _workers(view) if task["role"] == "prefill"]
    if not urls or router not in PREFILL_COUNTERS:
        return None
    name, labels = PREFILL_COUNTERS[router]
    answers = [request("GET", f"{url}/metrics") for url in urls]
    counted = [prometheus.parse(answer.body.decode(errors="replace")) for answer in answers]
    return sum(prometheus.total(samples, name, **labels) for samples in counted)


def _moved(view: dict[str, Any], router: str, before: float) -> str:
    """Engines count when a request has ended, so the counter may be a moment late."""
    counter = PREFILL_COUNTERS[router][0]
    more = until(lambda: max(0.0, (_prefill_counts(view, router) or 0.0) - before), PATIENCE_S, PAUSE_S)
    if not more:
        raise Closed(f"the request bypassed the prefill workers: {counter} did not change")
    return f"{counter} of prefill: {before:g} → {before + more:g}"


def _workers(view: dict[str, Any]) -> list[dict[str, Any]]:
    ready = [task for task in view["tasks"] if task["phase"] == "ready"]
    return [task for task in ready if task["role"] in ("prefill", "decode", "replica")]


def _call(method: str, base_url: str, path: str, body: Any = None, key: str = "") -> Any:
    try:
        return request(method, f"{base_url}{path}", body=body, key=key, timeout_s=ANSWER_S)
    except Unavailable as error:
        raise Closed(f"the endpoint does not answer: {error.message}") from error


def main(argv: Sequence[str]) -> int:
    """Ask, say what was seen, and go on as the command, if there is one."""
    name, *rest = argv
    try:
        for line in look(name):
            print(line, flush=True)  # noqa: T201 - this is its output
    except RemudaError as error:
        print(error.message, flush=True)  # noqa: T201
        return 1
    if rest[:1] == ["--"] and rest[1:]:
        os.execvp(rest[1], rest[1:])  # noqa: S606 - no shell, our own words
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
