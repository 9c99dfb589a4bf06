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


@dataclass(frozen=True)
class Fit:
    """How many tokens a prompt of so many words has: `base + slope·words`, as the endpoint counts.

    Attributes:
        base: tokens of the chat template and whatever else is always there.
        slope: tokens a word.
    """

    base: float = 0.0
    slope: float = 1.0

    def words(self, tokens: int) -> int:
        """Words of a prompt with that many input tokens; at least one."""
        return max(1, round((tokens - self.base) / self.slope))


class Prompts:
    """Texts by index; the same seed gives the same texts.

    Args:
        seed: any text.
        cache: what they share.
        common: how many different ones there are when all were sent before (`warm`).
    """

    def __init__(self, seed: str, cache: Cache, *, common: int = 1) -> None:
        self._seed = seed
        self._cache = cache
        self._common = max(1, common)
        draw = random.Random(f"{seed}/pool")
        self._pool = draw.choices(WORDS, k=_POOL)
        self._shared = draw.choices(WORDS, k=_POOL)

    def text(self, index: int, words: int) -> str:
        """The prompt of that index, that many words long."""
        if self._cache.kind == "warm":
            index %= self._common
        same = int(words * self._cache.share) if self._cache.kind == "shared" else 0
        draw = random.Random(f"{self._seed}/{index}/text")
        own = draw.choices(WORDS, k=min(_OWN, words - same))
        start = draw.randrange(_POOL)
        return " ".join([*_cycle(self._shared, 0, same), *own, *_cycle(self._pool, start, words - same - len(own))])


def _cycle(pool: list[str], start: int, count: int) -> list[str]:
    """`count` words of the pool from `start` on, round and round."""
    start %= len(pool)
    found = pool[start : start + count]
    while len(found) < count:
        found += pool[: count - len(found)]
    return found
