"""Prompts: as long as asked, the same for the same seed, and alike only where that is meant."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.bench.generator.prompts import WORDS, PromptFit, Prompts
from remuda.bench.load import Cache


@given(words=st.integers(1, 3000), index=st.integers(-100, 100), cache=st.sampled_from(["cold", "warm", "shared:0.4"]))
def test_a_prompt_is_as_long_as_asked(words: int, index: int, cache: str) -> None:
    text = Prompts("3", Cache.parse(cache), common=4).text(index, words)
    assert len(text.split()) == words
    assert text == Prompts("3", Cache.parse(cache), common=4).text(index, words)


def test_longer_than_the_pool_of_words() -> None:
    assert len(Prompts("0", Cache()).text(0, 100_000).split()) == 100_000


def shared(one: list[str], other: list[str]) -> int:
    """Words that both begin with."""
    pairs = zip(one, other, strict=True)
    return next((number for number, (left, right) in enumerate(pairs) if left != right), len(one))


def test_cold_prompts_share_no_beginning() -> None:
    texts = [Prompts("0", Cache()).text(index, 200).split() for index in range(200)]
    assert max(shared(one, other) for one in texts[:20] for other in texts if one is not other) <= 3


def test_another_seed_is_another_experiment() -> None:
    assert Prompts("0", Cache()).text(0, 100) != Prompts("1", Cache()).text(0, 100)


def test_shared_prompts_share_their_part_and_no_more() -> None:
    texts = [Prompts("0", Cache.parse("shared:0.3")).text(index, 200).split() for index in range(50)]
    assert {shared(texts[0], other) for other in texts[1:]} <= set(range(60, 64))


def test_the_warm_up_of_a_warm_cache_sends_every_prompt() -> None:
    prompts = Prompts("0", Cache.parse("warm"), common=5)
    warm = {prompts.text(-1 - number, 50) for number in range(5)}
    assert {prompts.text(index, 50) for index in range(40)} == warm


@pytest.mark.parametrize(
    ("fit", "tokens", "words"), [(PromptFit(20, 1.25), 120, 80), (PromptFit(), 7, 7), (PromptFit(50, 1), 10, 1)]
)
def test_a_fit_gives_words(fit: PromptFit, tokens: int, words: int) -> None:
    assert fit.words(tokens) == words


def test_words_are_plain() -> None:
    assert len(set(WORDS)) == len(WORDS) > 150
    assert all(word.isascii() and word.islower() and word.isalpha() for word in WORDS)
