"""Prompts of a given length that share as much as the load says. Pure.

A prompt is common words in random order. What makes two of them differ stands at their beginning, so a prefix cache
finds nothing in common but what is meant to be.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from remuda.bench.load import Cache

#: Most tokenizers have each of these, with the space before it, as one token.
_TEXT: Final = (
    "time year people way day man thing woman life child world school state family student group country problem "
    "hand part place case week company system program question work government number night point home water room "
    "mother area money story fact month lot right study book eye job word business issue side kind head house "
    "service friend father power hour game line end member law car city community name president team minute idea "
    "kid body information back parent face others level office door health person art war history party result "
    "change morning reason research girl guy moment air teacher force education foot boy age policy music market "
    "sense nation plan college interest death experience effect use class control field development role effort "
    "rate heart drug show leader light voice wife police mind price report decision son view relationship town "
    "road arm difference value building action season society tax director position player record paper space "
    "ground form event matter center couple site project activity star table need court american oil situation "
    "cost industry figure street image "
)
WORDS: Final = tuple(_TEXT.split())
_POOL: Final = 1 << 15
#: Words at a prompt's beginning that no other prompt has in this order.
_OWN: Final = 24


#: How the lengths of prompts come about: words that the endpoint's tokenizer says are one token each; numbers of tokens
#: in place of text; words, of which probes say how many tokens they are in the mean.
TOKENIZE: Final = "tokenize"
NUMBERS: Final = "token ids"
CALIBRATED: Final = "calibrated"


@dataclass(frozen=True)
class PromptFit:
    """What prompts are made of, and how many tokens one of so many words has: `base + slope·words`.

    Attributes:
        base: tokens of the chat template and whatever else is always there, as the endpoint counts.
        slope: tokens a word; 1 where each is one token.
        lengths: `TOKENIZE`, `NUMBERS` or `CALIBRATED`.
        pool: words that are drawn, numbers of tokens in the second case.
        head: word that each prompt begins with; what follows it has a space before it. Counts to the base.
    """

    base: float = 0.0
    slope: float = 1.0
    lengths: str = CALIBRATED
    pool: tuple[str, ...] = WORDS
    head: str = ""

    @property
    def is_exact(self) -> bool:
        """Whether a prompt has exactly as many tokens as asked."""
        return self.lengths != CALIBRATED

    def words(self, tokens: int) -> int:
        """Words of a prompt with that many input tokens; at least one."""
        return max(1, round((tokens - self.base) / self.slope))


_PLAIN: Final = PromptFit()


class Prompts:
    """Texts by index; the same seed gives the same texts.

    Args:
        seed: any text.
        cache: what they share.
        common: how many different ones there are when all were sent before (`warm`).
        fit: what they are made of.
    """

    def __init__(self, seed: str, cache: Cache, *, common: int = 1, fit: PromptFit = _PLAIN) -> None:
        self._seed = seed
        self._cache = cache
        self._common = max(1, common)
        self._fit = fit
        draw = random.Random(f"{seed}/pool")
        self._pool = draw.choices(fit.pool, k=_POOL)
        self._shared = draw.choices(fit.pool, k=_POOL)

    def of(self, index: int, words: int) -> str | list[int]:
        """The prompt of that index as it is sent: text, or numbers of tokens."""
        text = self.text(index, words)
        return [int(word) for word in text.split()] if self._fit.lengths == NUMBERS else text

    def text(self, index: int, words: int) -> str:
        """The prompt of that index, that many words long behind its head."""
        if self._cache.kind == "warm":
            index %= self._common
        same = int(words * self._cache.share) if self._cache.kind == "shared" else 0
        draw = random.Random(f"{self._seed}/{index}/text")
        own = draw.choices(self._fit.pool, k=min(_OWN, words - same))
        start = draw.randrange(_POOL)
        head = [self._fit.head] if self._fit.head else []
        rest = _cycle(self._pool, start, words - same - len(own))
        return " ".join([*head, *_cycle(self._shared, 0, same), *own, *rest])


def _cycle(pool: list[str], start: int, count: int) -> list[str]:
    """`count` words of the pool from `start` on, round and round."""
    start %= len(pool)
    found = pool[start : start + count]
    while len(found) < count:
        found += pool[: count - len(found)]
    return found
