"""Words that are one token each, as the endpoint's own tokenizer says: prompts of them are as long as asked."""

from __future__ import annotations

from string import ascii_lowercase
from typing import TYPE_CHECKING, Any, Final

import orjson

from remuda.bench.generator.http_stream import HttpStream
from remuda.bench.generator.prompts import NUMBERS, TOKENIZE, WORDS, PromptFit

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from remuda.bench.generator.http_stream import RequestTarget

_PATH: Final = "/tokenize"
_ASK_S: Final = 10.0
#: Questions of which words are one token.
_MOST: Final = 60
#: Prompts of fewer words would be alike.
_LEAST: Final = 16
#: What is drawn where words have many tokens, as in vocabularies of a few hundred.
_LETTERS: Final = (WORDS[0], *ascii_lowercase)
#: Numbers of tokens that any vocabulary of a language has, and that are no signs of a chat template.
_IDS: Final = range(1000, 3000)


async def candidates(place: RequestTarget, api: str, model: str) -> list[PromptFit]:
    """What prompts of exact length could be made of here, the best first; their base is not known yet.

    Args:
        place: who has the tokenizer.
        api: `chat` or `completions`.
        model: as it names it.
    """
    found = []
    pool = await _one_token_words(place, model)
    if len(pool) >= _LEAST:
        found.append(PromptFit(lengths=TOKENIZE, pool=tuple(pool), head=WORDS[0]))
    if api == "completions":
        found.append(PromptFit(lengths=NUMBERS, pool=tuple(map(str, _IDS))))
    return found


async def _one_token_words(place: RequestTarget, model: str) -> list[str]:
    vllm, llama = ("prompt", {"model": model, "add_special_tokens": False}), ("content", {"add_special": False})
    for form in (vllm, llama):  # SGLang takes what vLLM does.
        asker = _Asker(place, *form)
        try:
            found = await single(WORDS, asker.size)
            return found if len(found) >= _LEAST else await single(_LETTERS, asker.size)
        except (ValueError, OSError):
            continue
        finally:
            asker.close()
    return []


class _Asker:
    """Asks how many tokens a text has, on one connection for as long as the server keeps it."""

    def __init__(self, place: RequestTarget, key: str, more: dict[str, Any]) -> None:
        self._place, self._key, self._more = place, key, more
        self._line: HttpStream | None = None

    async def size(self, text: str) -> int:
        """Tokens.

        Raises:
            ValueError: there is no such answer.
            OSError: nobody listens.
        """
        if self._line is None or not self._line.is_open:
            self._line = await HttpStream.connect(self._place)
        question = orjson.dumps({self._key: text, **self._more})
        answer = await self._line.start(self._place.request(_PATH, question), _ASK_S)
        told = orjson.loads(b"".join(answer.pieces)) if not answer.error and answer.status == 200 else None
        tokens = told.get("tokens") if isinstance(told, dict) else None
        if not isinstance(tokens, list) or not tokens:
            raise ValueError(answer.error or f"HTTP {answer.status}, and no tokens")
        return len(tokens)

    def close(self) -> None:
        """End it."""
        if self._line is not None:
            self._line.close()


async def single(words: Sequence[str], size: Callable[[str], Awaitable[int]], most: int = _MOST) -> list[str]:
    """Those that are one token with a space before them.

    Args:
        words: the first stands before all others.
        size: tokens of a text. Asked about halves of what is not known yet, as most words are one token.
        most: how often it may be asked; what is not known by then is left out.
    """
    head, *rest = words
    alone = await size(head)
    found: list[str] = []
    groups = [rest]
    for _ in range(most):
        if not groups:
            break
        group = groups.pop()
        middle = len(group) // 2
        if await size(" ".join([head, *group])) - alone == len(group):
            found += group
        elif middle:
            groups += [group[middle:], group[:middle]]
    return found
