"""Prompts of exact length: which words they are made of, and where nobody can tell."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from string import ascii_lowercase
from typing import TYPE_CHECKING

import pytest
from tests.fakes import engine
from tests.fakes.engine import TEMPLATE, Behaviour, Engine, pieces

from remuda.bench.generator.http_stream import RequestTarget
from remuda.bench.generator.prompts import CALIBRATED, NUMBERS, TOKENIZE, WORDS, Prompts
from remuda.bench.generator.tokenizer import single
from remuda.bench.load import Cache, Load
from remuda.bench.probe import fit

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable


class Counter:
    """A tokenizer that counts how often it was asked."""

    def __init__(self, tokens: Callable[[str], int]) -> None:
        self.asked = 0
        self._tokens = tokens

    async def __call__(self, text: str) -> int:
        self.asked += 1
        return self._tokens(text)


async def test_where_each_word_is_a_token_two_questions_tell() -> None:
    size = Counter(lambda text: len(text.split()))
    assert await single(WORDS, size) == list(WORDS[1:])
    assert size.asked == 2


@pytest.mark.parametrize("odd", [{"way"}, {"year", "image"}, set(WORDS[10:14]), set(WORDS[1:])])
async def test_words_of_two_tokens_are_left_out(odd: set[str]) -> None:
    """The word before all others may be as long as it likes: it is always there."""
    size = Counter(lambda text: 3 + sum(1 + (word in odd) for word in text.split()[1:]))
    assert set(await single(WORDS, size, most=1000)) == set(WORDS[1:]) - odd


async def test_questions_are_bounded() -> None:
    size = Counter(len)
    assert await single(WORDS, size, most=20) == []
    assert size.asked == 21


@asynccontextmanager
async def serving(behaviour: Behaviour) -> AsyncIterator[RequestTarget]:
    tiny = Engine("tiny", behaviour)
    server = await asyncio.start_server(tiny.converse, "127.0.0.1", 0)
    yield RequestTarget(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    server.close()


@pytest.mark.parametrize("form", ["vllm", "llama.cpp"])
@pytest.mark.parametrize("api", ["chat", "completions"])
async def test_lengths_are_exact_where_there_is_a_tokenizer(form: str, api: str) -> None:
    async with serving(Behaviour(tokenizer=form)) as place:
        found = (await fit(place, Load(isl=100, osl=4, api=api), "tiny")).fit
    assert (found.lengths, found.slope, found.base) == (TOKENIZE, 1.0, TEMPLATE + 1)
    assert all(len(word) <= 5 for word in found.pool)
    prompts = Prompts("0", Cache.parse("shared:0.3"), fit=found)
    for tokens in (9, 40, 100, 3000):
        text = prompts.of(tokens, found.words(tokens))
        assert isinstance(text, str)
        assert TEMPLATE + len(pieces(text)) == tokens


async def test_numbers_of_tokens_where_they_are_taken() -> None:
    async with serving(Behaviour()) as place:
        found = (await fit(place, Load(isl=100, osl=4, api="completions"), "tiny")).fit
        other = (await fit(place, Load(isl=100, osl=4), "tiny")).fit
    assert (found.lengths, found.base) == (NUMBERS, 0)
    numbers = Prompts("0", Cache(), fit=found).of(3, found.words(100))
    assert len(numbers) == 100
    assert all(isinstance(number, int) for number in numbers)
    assert other.lengths == CALIBRATED, "a chat has no numbers"


async def test_a_tokenizer_that_disagrees_with_usage_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Engine, "_count", lambda _, body: round(1.3 * len(str(body).split())))
    async with serving(Behaviour(tokenizer="vllm")) as place:
        assert (await fit(place, Load(isl=100, osl=4), "tiny")).fit.lengths == CALIBRATED


async def test_letters_stand_in_where_words_have_many_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "pieces", lambda text: [0] * len(text.replace(" ", "")))
    async with serving(Behaviour(tokenizer="llama.cpp")) as place:
        found = (await fit(place, Load(isl=100, osl=4), "tiny")).fit
    assert (found.lengths, found.base) == (TOKENIZE, TEMPLATE + len(WORDS[0]))
    assert set(found.pool) == set(ascii_lowercase)
