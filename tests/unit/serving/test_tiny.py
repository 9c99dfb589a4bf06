"""The hand-made vocabulary and grammar of the tiny model."""

from __future__ import annotations

import itertools
import subprocess
import sys

import numpy as np

from remuda.serving.tiny import CLASSES, FOLLOW, WIDTH, WORDS, make_vocabulary, make_weights, printable_bytes


def test_every_byte_is_a_token_of_its_own() -> None:
    letters = printable_bytes()
    assert len(set(letters)) == 256
    assert (letters[0x20], letters[0x0A], letters[0x41]) == ("Ġ", "Ċ", "A")
    assert make_vocabulary().tokens[:256] == letters


def test_every_merge_makes_a_token_out_of_tokens() -> None:
    vocabulary = make_vocabulary()
    tokens = set(vocabulary.tokens)
    assert len(tokens) == len(vocabulary)
    for merge in vocabulary.merges:
        left, right = merge.split(" ")
        assert {left, right, left + right} <= tokens


def test_every_word_is_reached_by_its_merges() -> None:
    vocabulary = make_vocabulary()
    ranks = {merge: rank for rank, merge in enumerate(vocabulary.merges)}
    for words in WORDS.values():
        for word in words.split():
            parts = list(("Ġ" if words.startswith(" ") else "") + word)
            while len(parts) > 1:
                pairs = [f"{left} {right}" for left, right in itertools.pairwise(parts)]
                best = min(pairs, key=lambda pair: ranks.get(pair, len(ranks)))
                assert best in ranks, word
                at = pairs.index(best)
                parts[at : at + 2] = [parts[at] + parts[at + 1]]


def test_every_class_leads_somewhere_and_to_an_end() -> None:
    assert set(WORDS) < set(CLASSES)
    for last, shares in FOLLOW.items():
        assert abs(sum(shares.values()) - 1.0) < 1e-9, last
        assert set(shares) <= set(CLASSES)
        seen = {last}
        for _ in CLASSES:
            seen |= {following for name in seen for following in FOLLOW[name]}
        assert "end" in seen, last


def test_weights_are_finite_and_the_same_each_time() -> None:
    vocabulary = make_vocabulary()
    first, second = make_weights(vocabulary), make_weights(vocabulary)
    assert first.keys() == second.keys()
    assert first["token_embd.weight"].shape == (len(vocabulary), WIDTH)
    for name, tensor in first.items():
        assert tensor.dtype == np.float32
        assert np.isfinite(tensor).all()
        assert (tensor == second[name]).all()


def test_importing_the_package_is_light() -> None:
    code = (
        "import remuda.serving, remuda.serving.router, remuda.serving.tiny, remuda.serving.membership, sys;"
        "print(sorted({'numpy', 'gguf', 'xllamacpp', 'aiohttp', 'smg'} & set(sys.modules)))"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"
