"""A file with a base and overrides holds many recipes, and each value keeps its line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.base.errors import InputError
from remuda.specs.reading.document import parse
from remuda.specs.reading.resolve import ValueOrigin, document_layer
from remuda.specs.recipe.variants import Variant, lay, variants, without_null

FILE = """\
base:
  name: x
  resources: {nodes: 1, list: [1, 2]}
override_big:
  name: big
  resources: {nodes: 3}
override_less: {resources: {list: null}}
zip_override_tp:
  name: same
  resources:
    nodes: [2, 4]
    list: [[7, 8]]
"""


def of(text: str, selector: str = "") -> list[Variant]:
    return variants(document_layer(parse(text, "r.yaml"), ValueOrigin.FILE), selector)


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("", ["override_big", "override_less", "zip_override_tp[0]", "zip_override_tp[1]"]),
        ("base", ["base"]),
        ("override_big", ["override_big"]),
        ("big", ["override_big"]),
        ("tp", ["zip_override_tp[0]", "zip_override_tp[1]"]),
        ("zip_override_tp[1]", ["zip_override_tp[1]"]),
        ("tp[0]", ["zip_override_tp[0]"]),
        ("override_*", ["override_big", "override_less"]),
        ("*", ["base", "override_big", "override_less", "zip_override_tp[0]", "zip_override_tp[1]"]),
    ],
)
def test_what_a_selector_names(selector: str, names: list[str]) -> None:
    assert [one.selector for one in of(FILE, selector)] == names


def test_what_each_recipe_says() -> None:
    said = {one.selector: one.resolved.data for one in of(FILE, "*")}
    assert said == {
        "base": {"name": "x", "resources": {"nodes": "1", "list": ["1", "2"]}},
        "override_big": {"name": "big", "resources": {"nodes": "3", "list": ["1", "2"]}},
        "override_less": {"name": "x", "resources": {"nodes": "1"}},
        "zip_override_tp[0]": {"name": "same", "resources": {"nodes": "2", "list": ["7", "8"]}},
        "zip_override_tp[1]": {"name": "same", "resources": {"nodes": "4", "list": ["7", "8"]}},
    }


def test_each_value_keeps_its_line() -> None:
    (big,) = of(FILE, "big")
    assert big.resolved.origin(("resources", "nodes")).where == "r.yaml:6:22"
    assert big.resolved.origin(("resources", "list")).where == "r.yaml:3:31"


def test_a_file_without_a_base_is_one_recipe() -> None:
    (one,) = of("name: x\nmodel: {path: /m}\n")
    assert (one.selector, one.resolved.data) == ("", {"name": "x", "model": {"path": "/m"}})


@pytest.mark.parametrize(
    ("text", "selector", "where", "message", "hint"),
    [
        (FILE, "bigg", "", "has no recipe 'bigg'",
         "there: base, override_big, override_less, zip_override_tp[0], zip_override_tp[1]"),
        ("name: x\n", "big", "", "has one recipe, and not 'big'", "leave out what follows the file's name"),
        ("base: {a: 1}\nzip_override_z: 5\n", "", "r.yaml:2:1", "`zip_override_z` must be a mapping", ""),
        ("base: {a: 1}\noverride_x: [1]\n", "", "r.yaml:2:1", "`override_x` must be a mapping", ""),
        ("base: {a: 1}\noverridden: {}\n", "", "r.yaml:2:1", "unknown key 'overridden' beside `base`",
         "did you mean 'override_'?"),
        ("base: {a: 1}\nzip_override_z:\n  a: [1, 2]\n  b: [1, 2, 3]\n", "", "r.yaml:4:6",
         "`b` has 3 values, and `a` has 2",
         "lists of a zip have one length, or one value; a value that is a list stands in a list: [[1, 2]]"),
        ("base: {a: 1}\nzip_override_z: {a: []}\n", "", "r.yaml:2:21", "the list of `a` has 0 values", "1 to 10,000"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(text: str, selector: str, where: str, message: str, hint: str) -> None:
    with pytest.raises(InputError) as error:
        of(text, selector)
    assert (error.value.where, error.value.message.removeprefix(f"{where}: "), error.value.hint) == (
        where, message, hint,
    )  # fmt: skip


_VALUES = st.recursive(
    st.none() | st.integers(0, 3),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
_MAPPINGS = st.dictionaries(st.sampled_from("abc"), _VALUES, max_size=3)


@given(_MAPPINGS, _MAPPINGS)
def test_laying_twice_is_laying_once(low: dict[str, object], high: dict[str, object]) -> None:
    once = lay(low, high)
    assert without_null(lay(once, high)) == without_null(once)
    assert lay(once, {}) == once


FLAGS = """\
base:
  health_check: {max_attempts: null}
  backend:
    type: null
    trtllm_config: {prefill: {graphs: null, cache: {dtype: null}}, decode: null}
  roles: {agg: {gpus: null, args: {graphs: null}}}
override_all: {backend: {trtllm_config: {decode: {graphs: null}}}}
override_less: {backend: {trtllm_config: {prefill: {graphs: null}}}}
override_more: {backend: {trtllm_config: {prefill: {batch: "4"}}}}
"""


@pytest.mark.parametrize(
    ("selector", "config"),
    [
        ("base", {"prefill": {"graphs": None, "cache": {"dtype": None}}}),
        ("all", {"prefill": {"graphs": None, "cache": {"dtype": None}}, "decode": {"graphs": None}}),
        ("less", {"prefill": {"cache": {"dtype": None}}}),
        ("more", {"prefill": {"graphs": None, "cache": {"dtype": None}, "batch": "4"}}),
    ],
)
def test_null_is_a_value_of_an_engine_s_flags_and_deletes_what_a_base_says(
    selector: str, config: dict[str, object]
) -> None:
    (one,) = of(FLAGS, selector)
    assert one.resolved.data == {
        "health_check": {}, "backend": {"trtllm_config": config}, "roles": {"agg": {"args": {"graphs": None}}},
    }  # fmt: skip
