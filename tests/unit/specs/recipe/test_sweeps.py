"""Which recipes a sweep stands for, and what is told of one that stands for none."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.base.errors import InputError
from remuda.specs.deployment import DeployedRole
from remuda.specs.reading.document import parse
from remuda.specs.reading.resolve import Override, Resolved, ValueOrigin, document_layer
from remuda.specs.recipe.load import build
from remuda.specs.recipe.sweeps import SweepPoint, expand

UNLIKE = "'>' not supported between instances of 'str' and 'int'"
TWO = "speed: '{speed}'\nname: x-{batch}-y\n"


def points(text: str) -> list[SweepPoint]:
    document = parse(text, "s.yaml")
    return expand(Resolved(document.data, (document_layer(document, ValueOrigin.FILE),)))


def labels(section: str, rest: str = TWO) -> list[str]:
    return [one.label for one in points(f"{rest}sweep: {section}\n")]


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        pytest.param(
            "{speed: [5, 10], batch: [x, y]}",
            ["speed=5 batch=x", "speed=5 batch=y", "speed=10 batch=x", "speed=10 batch=y"], id="srtctl's words",
        ),
        pytest.param("{grid: {speed: [5, 10], batch: x}}", ["speed=5 batch=x", "speed=10 batch=x"], id="grid"),
        pytest.param("{zip: {speed: [5, 10], batch: [x, y]}}", ["speed=5 batch=x", "speed=10 batch=y"], id="zip"),
        pytest.param("{zip: {speed: [5, 10], batch: [x]}}", ["speed=5 batch=x", "speed=10 batch=x"], id="zip with one"),
        pytest.param(
            "{points: [{speed: 5, batch: x}, {batch: y, speed: 9}]}", ["speed=5 batch=x", "speed=9 batch=y"],
            id="a list",
        ),
        pytest.param(
            "{grid: {speed: [5, 10]}, points: [{batch: x}, {batch: y}], order: batch}",
            ["speed=5 batch=x", "speed=10 batch=x", "speed=5 batch=y", "speed=10 batch=y"], id="together, and ordered",
        ),
        pytest.param(
            "{speed: [5, 10], batch: [x, y], order: [batch, speed]}",
            ["speed=5 batch=x", "speed=10 batch=x", "speed=5 batch=y", "speed=10 batch=y"], id="the first is slowest",
        ),
        pytest.param(
            "{speed: [5, 10], batch: [x, y], where: speed * 2 > 10 or batch == 'x'}",
            ["speed=5 batch=x", "speed=10 batch=x", "speed=10 batch=y"], id="where",
        ),
        pytest.param(
            "{speed: [5, 10, 20], batch: [x], where: [5 < speed <= 20, 'speed not in (10, 11)']}",
            ["speed=20 batch=x"], id="several comparisons",
        ),
        pytest.param("{speed: [true, false], batch: z, where: speed == true}", ["speed=true batch=z"], id="a boolean"),
    ],
)  # fmt: skip
def test_which_points_there_are(section: str, expected: list[str]) -> None:
    assert labels(section) == expected


@pytest.mark.parametrize(
    ("section", "rest", "sentence", "hint"),
    [
        ("7", TWO, "s.yaml:3:1: `sweep` has no parameters", "for example sweep: {speed: [5, 10]}"),
        ("{repeats: 2}", TWO, "s.yaml:3:1: `sweep` has no parameters", "for example sweep: {speed: [5, 10]}"),
        ("{grid: {}}", TWO, "s.yaml:3:1: `sweep` has no parameters", "for example sweep: {speed: [5, 10]}"),
        ("{grid: 7}", TWO, "s.yaml:3:9: `sweep.grid` must be a mapping of parameters to lists", ""),
        ("{speed: [], batch: x}", TWO, "s.yaml:3:9: `sweep.speed` has no values", "a list of them: speed: [5, 10]"),
        (
            "{speed: 5, grid: {batch: [x]}}", TWO, "s.yaml:3:9: `sweep.speed` stands beside `grid`",
            "write all parameters below `grid`",
        ),
        (
            "{grid: {speed: [5]}, zip: {speed: [6], batch: [x]}}", TWO,
            "s.yaml:3:35: `sweep.zip.speed` is said a second time, after `sweep.grid.speed`", "",
        ),
        (
            "{zip: {speed: [5, 6, 7], batch: [x, y]}}", TWO,
            "s.yaml:3:33: `sweep.zip.batch` has 2 values, and another has 3",
            "all lists have as many, or one",
        ),
        (
            "{points: {speed: 5}}", TWO, "s.yaml:3:9: `sweep.points` must be a list of mappings",
            "points: [{speed: 5}, {speed: 10}]",
        ),
        (
            "{speed: [5], batch: x, order: [speeed]}", TWO,
            "s.yaml:3:31: `sweep.order` names 'speeed', which is not a parameter", "did you mean 'speed'?",
        ),
        (
            "{speed: 5, batch: x, repeats: 0}", TWO,
            "s.yaml:3:29: `sweep.repeats` must be a whole number from 1 to 100, not 0", "",
        ),
        (
            "{speed: 5, batch: x, max_running: many}", TWO,
            "s.yaml:3:29: `sweep.max_running` must be a whole number from 1 to 10,000, not many", "",
        ),
        (
            "{speed: [5, 6], batch: x, where: speed > 6}", TWO,
            "s.yaml:3:34: `sweep.where` leaves no point of 2: 'speed > 6'", "",
        ),
        (
            "{speed: 5, batch: x, where: sped > 6}", TWO,
            "s.yaml:3:29: `sweep.where` names 'sped', which is not a parameter", "did you mean 'speed'?",
        ),
        (
            "{speed: 5, batch: x, where: [speed > 1, open('f')]}", TWO,
            "s.yaml:3:48: `sweep.where[1]` compares parameters only, not \"open('f')\"", "",
        ),
        (
            "{speed: 5, batch: x, where: speed.real > 6}", TWO,
            "s.yaml:3:29: `sweep.where` compares parameters only, not 'speed.real'", "",
        ),
        (
            "{speed: 5, batch: x, where: batch > 6}", TWO,
            f"s.yaml:3:29: `sweep.where` cannot be asked: 'batch > 6': {UNLIKE}", "there: speed, batch",
        ),
        (
            "{speed: 5}", TWO, "s.yaml:2:7: nobody fills '{batch}' in `name`", "there: speed",
        ),
        (
            "{speed: 5, batsh: x}", TWO, "s.yaml:2:7: nobody fills '{batch}' in `name`", "did you mean 'batsh'?",
        ),
        (
            "{points: [{speed: 5, batch: x}, {speed: 6}]}", TWO, "s.yaml:2:7: nobody fills '{batch}' in `name`",
            "there: speed, batch",
        ),
        (
            "{speed: 5, batch: x, more: 1}", TWO, "s.yaml:3:29: nobody uses the parameter 'more'",
            "write '{more}' where it goes, in quotes",
        ),
        (
            "{a: [1, 2]}", "args: [x, '{a}', '{b} {c}']\n",
            "s.yaml:1:18: nobody fills '{b}' in `args[2]`\ns.yaml:1:18: nobody fills '{c}' in `args[2]` (there: a)",
            "there: a",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_where_it_stands(section: str, rest: str, sentence: str, hint: str) -> None:
    with pytest.raises(InputError) as caught:
        labels(section, rest)
    assert (str(caught.value), caught.value.hint) == (sentence, hint)


def test_more_points_than_anybody_means_are_refused_before_they_are_made() -> None:
    many = ", ".join(f"p{n}: [{', '.join(map(str, range(100)))}]" for n in range(6))
    with pytest.raises(InputError, match=r"`sweep` has 1,000,000,000,000 points"):
        labels(f"{{{many}}}", "")


@pytest.mark.parametrize(
    ("value", "text", "expected"),
    [
        ("5", "'{a}'", 5), ("'5'", "'{a}'", "5"), ("1.5", "'{a}'", 1.5), ("true", "'{a}'", True), ("x", "'{a}'", "x"),
        ("[[1, 2]]", "'{a}'", [1, 2]), ("a mapping", "'{a}'", {"c": 1}), ("5", "'{a}24'", "524"),
        ("5", "'{a}k'", "5k"), ("[[1, 2]]", "'n={a}'", 'n=["1", "2"]'), ("5", "'${a} {{a}} {a}'", "${a} {{a}} 5"),
        ("5", "[7, ['{a}']]", [7, [5]]),
    ],
)  # fmt: skip
def test_alone_a_value_is_itself_and_within_text_its_text(value: str, text: str, expected: object) -> None:
    section = "{points: [{a: {c: 1}}]}" if value == "a mapping" else f"{{a: {value}}}"
    (point,) = points(f"roles: {{agg: {{args: {{v: {text}}}}}}}\nsweep: {section}\n")
    assert DeployedRole.model_validate({"args": point.resolved.data["roles"]["agg"]["args"]}).args["v"] == expected
    assert "sweep" not in point.resolved.data


def test_what_services_are_told_is_left_to_them() -> None:
    (point,) = points("services: [{command: [x, '{port}', '{a}']}]\nsweep: {a: 1}\n")
    assert point.resolved.data["services"][0]["command"] == ["x", "{port}", "1"]


def test_a_recipe_without_a_sweep_is_itself() -> None:
    (point,) = points("name: '{a}'\n")
    assert (point.label, point.resolved.data, point.repeats, point.max_running) == ("", {"name": "{a}"}, 1, 1)


NAMES = st.sampled_from(["a", "b", "c", "d"])
GRIDS = st.dictionaries(NAMES, st.lists(st.integers(0, 99), min_size=1, max_size=4, unique=True), min_size=1)


@given(GRIDS, st.integers(1, 9), st.data())
def test_a_grid_has_every_combination_once_and_order_moves_none(
    grid: dict[str, list[int]], repeats: int, data: st.DataObject
) -> None:
    order = data.draw(st.permutations(sorted(grid)))
    rest = "".join(f"k{name}: '{{{name}}}'\n" for name in grid)

    def made(more: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
        section = ", ".join(f"{name}: {value}" for name, value in {**grid, **more}.items())
        return [(one.label, dict(one.resolved.data)) for one in points(f"{rest}sweep: {{{section}}}\n")]

    plain = made({})
    assert len({label for label, _ in plain}) == len(plain) == math.prod(map(len, grid.values()))
    assert sorted(plain, key=repr) == sorted(made({"order": f"[{', '.join(order)}]", "repeats": repeats}), key=repr)
    for label, found in plain:
        assert label == " ".join(f"{name}={found[f'k{name}']}" for name in grid)


RECIPE = """\
name: r
model: {path: /m, container: c}
resources: {gpu_type: h100, agg_nodes: 1, agg_workers: 1, gpus_per_agg: '{gpus}'}
backend: {type: vllm, vllm_config: {aggregated: {max-num-seqs: '{seqs}'}}}
benchmark: {type: sa-bench, isl: '{isl}', osl: 16, concurrencies: [1, 2]}
"""


def test_a_recipe_of_srtctl_with_its_words() -> None:
    text = f"{RECIPE}sweep: {{gpus: [1, 2], seqs: [64], isl: [128, 256], max_running: 2}}\n"
    found = build(parse(text, "r.yaml"), sweep=True)
    asked = [(one.loaded.spec.by_name()["agg"], one.loaded.spec.benchmark.isl) for one in found]
    assert [(role.gpus, role.args["max-num-seqs"], isl) for role, isl in asked] == [
        (1, 64, 128), (1, 64, 256), (2, 64, 128), (2, 64, 256),
    ]  # fmt: skip
    assert {one.point.max_running for one in found if one.point is not None} == {2}
    with pytest.raises(InputError, match=r"r.yaml:6:1: `sweep` cannot be used: a sweep is several recipes"):
        build(parse(text, "r.yaml"))


def test_a_wrong_value_is_told_where_it_goes() -> None:
    text = f"{RECIPE}sweep: {{gpus: [1], seqs: [64], isl: [short]}}\n"
    with pytest.raises(InputError) as caught:
        build(parse(text, "r.yaml"), sweep=True)
    assert str(caught.value) == "r.yaml:5:34: `benchmark.isl` must be a whole number, not short"


def test_variants_are_points_and_the_command_line_has_the_last_word() -> None:
    whole = "".join(f"  {line}\n" for line in RECIPE.splitlines())
    text = f"base:\n{whole}  sweep: {{gpus: [1, 2], seqs: [64], isl: [8]}}\noverride_big: {{sweep: {{isl: [9]}}}}\n"
    found = build(parse(text, "r.yaml"), "*", [Override("sweep.gpus", 4, "--set sweep.gpus")], sweep=True)
    assert [(one.selector, one.point.label) for one in found if one.point is not None] == [
        ("base", "gpus=4 seqs=64 isl=8"), ("override_big", "gpus=4 seqs=64 isl=9"),
    ]  # fmt: skip
