"""What users read when a document is wrong: `tests/cases/specs/NAME.yaml` gives exactly the text of `NAME.txt`."""

from __future__ import annotations

from pathlib import Path

import pytest

from remuda.base.errors import InputError
from remuda.look import recipes
from remuda.specs.reading.document import parse
from remuda.specs.reading.load import build, read_document
from remuda.specs.reading.resolve import Override

CASES = Path(__file__).parents[2] / "cases" / "specs"


@pytest.mark.parametrize("file", sorted(CASES.glob("*.yaml")), ids=lambda path: path.stem)
def test_sentences(file: Path) -> None:
    with pytest.raises(InputError) as caught:
        build(parse(file.read_text(), file.name))
    hint = f"hint: {caught.value.hint}"
    said = [line.rstrip() for line in (*str(caught.value).splitlines(), hint)]
    assert said == [line.rstrip() for line in file.with_suffix(".txt").read_text().splitlines()]


def test_every_case_is_whole() -> None:
    assert {path.stem for path in CASES.glob("*.yaml")} == {path.stem for path in CASES.glob("*.txt")}


def test_the_flag_is_named_when_it_is_wrong() -> None:
    with pytest.raises(InputError) as caught:
        build(parse("model: m", "s.yaml"), [Override("replicas", "many", "--replicas")])
    assert str(caught.value) == "--replicas: `replicas` must be a whole number, not 'many'"


def test_the_variable_is_named_when_it_is_wrong() -> None:
    settings = {"LOG_LEVEL": ("LOUD", "environment REMUDA_LOG_LEVEL")}
    with pytest.raises(InputError) as caught:
        build(parse("model: m", "s.yaml"), settings=settings)
    sentence = "`log_level` must be one of debug, info, warning, error, not 'loud'"
    assert str(caught.value) == f"environment REMUDA_LOG_LEVEL: {sentence}"


def test_missing_file_names_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "swarm.yaml").write_text("model: m")
    with pytest.raises(InputError, match="there is no such file") as caught:
        read_document(tmp_path / "swram.yaml")
    assert caught.value.hint == "there: swarm.yaml"
    with pytest.raises(InputError) as caught:
        read_document(tmp_path / "no" / "swarm.yaml")
    assert caught.value.hint == f"there is no directory {str(tmp_path / 'no')!r} either"


@pytest.mark.parametrize(
    ("said", "is_recipe"),
    [
        ("name: r\nmodel: {path: /m}\nresources: {}\n", True),
        ("base: {name: r}\noverride_a: {}\n", True),
        ("kind: deployment\nname: r\n", True),
        ("repos: []\n", False),
        ("model: m\n", False),
        ("kind: gang\nranks: 2\n", False),
        ("model: {path\n", False),
        ("", False),
    ],
)
def test_a_missing_recipe_names_files_that_hold_some(tmp_path: Path, said: str, is_recipe: bool) -> None:
    for name in ("one.yaml", ".hidden.yaml", "one.txt"):
        (tmp_path / name).write_text(said)
    with pytest.raises(InputError, match="there is no such file") as caught:
        recipes.resolve(str(tmp_path / "nope.yaml"), sweep=True)
    assert caught.value.hint == ("there: one.yaml" if is_recipe else "")


def test_directory_and_bytes_are_no_documents(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a directory"):
        read_document(tmp_path)
    (tmp_path / "x.yaml").write_bytes(b"model: \xff\xfe")
    with pytest.raises(InputError, match=r"is not UTF-8 text \(byte 7\)"):
        read_document(tmp_path / "x.yaml")


def test_nested_aliases_do_not_explode() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    with pytest.raises(InputError, match="more than 50,000 values"):
        parse("\n".join(lines), "bomb.yaml")


@pytest.mark.parametrize("opening", ["[", "{a: ", "- "])
def test_depth_is_bounded(opening: str) -> None:
    with pytest.raises(InputError, match="more than 100 levels"):
        parse("a: " * (opening != "- ") + opening * 100_000, "deep.yaml")


def test_alias_within_itself_is_an_error() -> None:
    with pytest.raises(InputError, match="an alias contains itself"):
        parse("model: &a [*a]", "loop.yaml")


def test_long_values_are_cut() -> None:
    with pytest.raises(InputError) as caught:
        build(parse(f"model: m\nreplicas: {'x' * 500}", "s.yaml"))
    assert len(str(caught.value)) < 150
