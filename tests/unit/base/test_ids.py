from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.base.errors import InputError
from remuda.base.ids import check_name, new_suffix, slug


@pytest.mark.parametrize("name", ["a", "0", "llama-3.1_8b", "a" * 63, "x7"])
def test_good_names(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize(
    "name",
    ["", "-a", "a-", ".a", "A", "a b", "a/b", "..", "a\n", "$(touch x)", "é", "a" * 64, "a;b", "a\0b"],
)
def test_bad_names(name: str) -> None:
    with pytest.raises(InputError, match="cannot be a name") as caught:
        check_name(name, where="swarm.yaml:1:7")
    assert str(caught.value).startswith("swarm.yaml:1:7: ")


@given(st.text(max_size=100))
def test_a_slug_is_a_name(text: str) -> None:
    assert check_name(slug(text)) == slug(text)
    assert len(slug(text)) <= 40


@pytest.mark.parametrize(
    ("text", "name"),
    [("Qwen/Qwen2.5-7B_Instruct", "qwen-qwen2-5-7b-instruct"), ("///", "swarm"), ("", "swarm"), ("a" * 50, "a" * 40)],
)
def test_slugs(text: str, name: str) -> None:
    assert slug(text) == name


def test_suffixes_differ_and_have_no_look_alikes() -> None:
    made = {new_suffix() for _ in range(1000)}
    assert len(made) > 990
    assert {len(suffix) for suffix in made} == {5}
    assert not set("".join(made)) & set("il1o0")
    assert len(new_suffix(12)) == 12
