"""YAML and JSON to data: text stays what the user wrote, and everything has its place."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from remuda.base.errors import InputError
from remuda.specs.reading.document import Mark, parse
from remuda.specs.reading.load import build
from remuda.specs.strict import Plain, plain_value
from remuda.specs.swarm import SwarmSpec


def load(text: str) -> SwarmSpec:
    spec = build(parse(text, "s.yaml")).spec
    assert isinstance(spec, SwarmSpec)
    return spec


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("no", "no"),
        ("on", "on"),
        ("010", "010"),
        ("1:30", "1:30"),
        ("36:00:00", "36:00:00"),
        ("1_000", "1_000"),
        ("0x1F", "0x1F"),
        ("1e3", "1e3"),
        ("1.10", "1.10"),
        ("2026-11-21", "2026-11-21"),
        ("true", "true"),
        ("'5'", "5"),
        ('"a\\tb"', "a\tb"),
        ("$(touch /tmp/x)", "$(touch /tmp/x)"),
        ("${HOME}", "${HOME}"),
        ("~/models", "~/models"),
        ("=", "="),
    ],
)
def test_text_stays_as_it_was_written(written: str, text: str) -> None:
    assert load(f"model: m\nenv:\n  A: {written}").env == {"A": text}


@pytest.mark.parametrize("written", ["36:00:00", '"36:00:00"'])
def test_a_time_limit_is_not_a_number_of_base_60(written: str) -> None:
    slurm = f"{{type: slurm, partition: p, account: a, qos: q, time_limit: {written}}}"
    assert load(f"model: m\nbackend: {slurm}").backend.model_dump()["time_limit"] == "36:00:00"


@pytest.mark.parametrize(
    ("written", "seconds"), [("90", 90), ("90s", 90), ("1:30", 90), ("2m", 120), ("'1h30m'", 5400), ("1.5", 1.5)]
)
def test_durations(written: str, seconds: float) -> None:
    assert load(f"model: m\nwait_endpoint_s: {written}").wait_endpoint_s == seconds


@pytest.mark.parametrize(
    ("written", "is_on"), [("yes", True), ("on", True), ("True", True), ("off", False), ("no", False)]
)
def test_booleans(written: str, is_on: bool) -> None:
    assert load(f"model: m\nwatchdog: {{enabled: {written}}}").watchdog.enabled is is_on


@pytest.mark.parametrize("written", ["", "~", "null", "Null"])
def test_null_is_as_if_nobody_had_said_it(written: str) -> None:
    text = f"model: m\nenv: {written}\nargs: {written}\nreplicas: {written}\nbackend: {{type: local, gpus: {written}}}"
    assert load(text) == load("model: m")


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("--a 1 --b 'x y'", ("--a", "1", "--b", "x y")),
        ("--json '{\"a\": 1}'", ("--json", '{"a": 1}')),
        ("--x $(touch /tmp/x) *", ("--x", "$(touch", "/tmp/x)", "*")),
        ("--x '$(touch /tmp/x)'", ("--x", "$(touch /tmp/x)")),
        (["--x", "$(touch /tmp/x)", 5, True], ("--x", "$(touch /tmp/x)", "5", "true")),
        ("--a \\\n  --b", ("--a", "--b")),
        ("", ()),
    ],
)
def test_words(written: object, words: tuple[str, ...]) -> None:
    assert load(json.dumps({"model": "m", "args": written})).args == words


def test_places_of_keys_and_values() -> None:
    document = parse("model: m\nwatchdog:\n  ray:\n    enabled: true\nenv: {A: 1}", "s.yaml")
    assert document.keys["watchdog", "ray", "enabled"] == Mark(4, 5)
    assert document.values["watchdog", "ray", "enabled"] == Mark(4, 14)
    assert document.values["env", "A"] == Mark(5, 10)


def test_merge_keys_and_aliases() -> None:
    text = "base: &b {probe_interval: 5, max_restarts: 1}\nwatchdog:\n  <<: *b\n  max_restarts: 9"
    document = parse(text, "s.yaml")
    assert document.data["watchdog"] == {"probe_interval": "5", "max_restarts": "9"}
    assert document.values["watchdog", "probe_interval"] == Mark(1, 27)
    assert document.values["watchdog", "max_restarts"] == Mark(4, 17)


def test_json_with_tabs_and_surrogates() -> None:
    spec = load('{\n\t"model": "m",\n\t"env": {"A": "\\ud83d\\ude00", "B": "a\\/b\\u00e9"}\n}')
    assert spec.env == {"A": "😀", "B": "a/bé"}


def test_byte_order_mark_is_no_text(tmp_path: Any) -> None:
    from remuda.specs.reading.load import read_document

    (tmp_path / "s.yaml").write_bytes(b"\xef\xbb\xbfmodel: m\n")
    assert read_document(tmp_path / "s.yaml").data == {"model": "m"}


def test_unquoted_values_where_anything_goes() -> None:
    values = ["null", "true", "5", "-1", "1.5", "1e3", "010", "text", "1.2.3"]
    assert [plain_value(text) for text in values] == [None, True, 5, -1, 1.5, 1000.0, "010", "text", "1.2.3"]
    backend = "{type: lepton, workspace_id: w, endpoint: {mounts: [{path: /, size: 5, ro: null, s: '5'}]}}"
    mounts = load(f"model: m\nbackend: {backend}").backend.model_dump()["endpoint"]["mounts"]
    assert mounts == ({"path": "/", "size": 5, "ro": None, "s": "5"},)


texts = st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=30)
names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,10}", fullmatch=True)


@given(
    env=st.dictionaries(names, texts, max_size=4), args=st.lists(texts, max_size=4), model=texts.map(lambda t: f"m{t}")
)
def test_all_text_arrives_verbatim_from_yaml_and_json(env: dict[str, str], args: list[str], model: str) -> None:
    data = {"model": model, "env": env, "args": args}
    for text in (yaml.safe_dump(data), json.dumps(data), yaml.safe_dump(data, allow_unicode=True)):
        spec = load(text)
        assert (spec.model, spec.env, spec.args) == (model, env, tuple(args))


@given(
    spec=st.builds(
        SwarmSpec,
        model=texts.map(lambda t: f"m{t}"),
        replicas=st.integers(1, 99),
        port=st.integers(1, 65535),
        env=st.dictionaries(names, texts, max_size=3),
        args=st.lists(texts, max_size=3),
        wait_endpoint_s=st.floats(0, 1e6),
        ready=st.sampled_from(["first", "all"]),
    )
)
def test_a_spec_that_is_written_down_is_read_back(spec: SwarmSpec) -> None:
    data = spec.model_dump(mode="json")
    assert load(yaml.safe_dump(data)) == spec
    assert load(json.dumps(data)) == spec


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(InputError):
        assert build(parse(text, "s.yaml")).kind == "swarm"


def test_plain_text_does_not_stay_in_specs() -> None:
    spec = load("model: m\nenv: {A: 5}\nargs: [x]")
    assert not any(isinstance(value, Plain) for value in (spec.model, spec.env["A"], spec.args[0]))
