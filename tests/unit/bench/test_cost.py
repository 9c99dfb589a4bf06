from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.bench.invented import keep, point

from remuda.base.errors import InputError
from remuda.bench import cost
from remuda.bench.cost import Price, cost_of, find_price, read_prices
from remuda.bench.generator.http_stream import RequestTarget
from remuda.bench.perform import BenchSession, JudgingTerms, MeasuredEndpoint
from remuda.cli import main
from remuda.client.bench.benchmarks import price_of, unpriced
from remuda.specs.benchmark import BenchmarkSpec

OURS = Path(cost.__file__).with_name("prices.yaml")


def test_the_nearest_types_are_named() -> None:
    def said(gpu_type: str, price: float = 0.0) -> str:
        return unpriced(BenchmarkSpec(endpoint=("http://h:1",), gpus=1, gpu_type=gpu_type, price=price))

    assert said("H1000").startswith("no price of 'H1000' is known, so nothing is said of money; did you mean H100 SXM ")
    assert said("Zork") == "no price of 'Zork' is known, so nothing is said of money; say --price"
    assert said("h100-sxm") == said("") == said("Zork", 2.5) == ""


def test_what_a_point_costs() -> None:
    metrics = {"window_s": 1800.0, "output_tok_s": 1000.0, "total_tok_s": 4000.0}
    found = cost_of(metrics, 8, Price("H100 SXM", 3.0, source="contract", as_of="2026-05-01"))
    assert found is not None
    assert found["total"] == pytest.approx(8 * 3.0 * 0.5)
    assert found["per_m_output"] == pytest.approx(12.0 / 1.8)
    assert found["per_m_total"] == pytest.approx(12.0 / 7.2)
    assert (found["currency"], found["per_gpu_hour"], found["source"], found["as_of"]) == (
        "USD",
        3.0,
        "contract",
        "2026-05-01",
    )


@pytest.mark.parametrize(
    ("gpus", "price", "seconds"),
    [
        pytest.param(0, Price("L4", 0.7), 30.0, id="no GPUs"),
        pytest.param(1, None, 30.0, id="no price"),
        pytest.param(1, Price("L4", 0.7), 0.0, id="no window"),
    ],
)
def test_without_gpus_a_price_or_a_window_nothing_is_said(gpus: int, price: Price | None, seconds: float) -> None:
    assert cost_of({"window_s": seconds, "output_tok_s": 10.0}, gpus, price) is None


def test_tokens_that_nobody_counted_cost_nothing_known() -> None:
    found = cost_of({"window_s": 30.0, "output_tok_s": 0.0}, 1, Price("L4", 0.7))
    assert found is not None
    assert (found["per_m_output"], found["per_m_total"]) == (None, None)


def test_a_point_keeps_the_price_that_it_used() -> None:
    one = point(gpus=4, price=Price("H200", 3.8, "EUR", "contract"))
    read = type(one).from_json(one.to_json())
    assert read.cost == one.cost
    assert (read.currency, read.output_per_gpu) == ("EUR", 125.0)
    assert read.per_million == pytest.approx(4 * 3.8 / 3600 / 500 * 1e6)
    assert point().per_million is None
    assert point().output_per_gpu is None


def test_our_prices_are_dated_and_say_what_they_are() -> None:
    prices = read_prices(OURS.read_text(), OURS.name)
    assert [price.type for price in prices] == [
        "H100 SXM", "H200", "B200", "A100 80GB", "L40S", "L4", "RTX 4090", "MI300X",
    ]  # fmt: skip
    assert {price.source for price in prices} == {"list price, on demand, USD"}
    assert {price.currency for price in prices} == {"USD"}
    assert all(price.as_of and 0.1 < price.per_gpu_hour < 20 for price in prices)


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("H100 SXM", "H100 SXM"), ("h100-sxm", "H100 SXM"), ("NVIDIA H100 80GB HBM3", "H100 SXM"),
        ("a100_80gb", "A100 80GB"), ("mi300x", "MI300X"), ("L4", "L4"), ("L40", ""), ("", ""), ("--", ""),
    ],
)  # fmt: skip
def test_a_type_has_more_than_one_name(said: str, found: str) -> None:
    price = find_price(read_prices(OURS.read_text(), OURS.name), said)
    assert (price.type if price else "") == found


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[", "p.yaml: is not valid YAML"),
        ("", "p.yaml: holds no list of prices"),
        ("{H100: 3}", "p.yaml: holds no list of prices"),
        ("[3]", "p.yaml: price 1: has no type"),
        ("[{type: A, per_gpu_hour: 1}, {type: B}]", "p.yaml: price 2: has per_gpu_hour = None, which is not a price"),
        ("[{type: A, per_gpu_hour: -1}]", "has per_gpu_hour = -1, which is not a price"),
        ("[{type: A, per_gpu_hour: .inf}]", "has per_gpu_hour = inf, which is not a price"),
        ("[{type: A, per_gpu_hour: yes}]", "has per_gpu_hour = True, which is not a price"),
        ("[{type: A, per_gpu_hour: 1, hourly: 2}]", "has hourly"),
        ("[{type: A, per_gpu_hour: 1, also: B}]", "has also = 'B', which is not a list of names"),
    ],
)
def test_a_wrong_list_says_where(text: str, words: str) -> None:
    with pytest.raises(InputError) as error:
        read_prices(text, "p.yaml")
    assert words in str(error.value)
    assert error.value.hint


# Where points are made


def test_a_point_is_priced_by_the_price_of_today() -> None:
    old = point(gpus=2, price=Price("L4", 0.7))
    session = BenchSession(MeasuredEndpoint(RequestTarget("http://host:8000")), JudgingTerms(price=Price("L4", 1.4)))
    assert session.priced(old).per_million == pytest.approx(2 * (old.per_million or 0))
    assert session.priced(point()).cost is None
    assert BenchSession(MeasuredEndpoint(RequestTarget("http://host:8000")), JudgingTerms()).priced(old) == old


def test_whose_price_it_is(tmp_path: Path) -> None:
    base = {"endpoint": ["http://host:8000"], "gpus": 2}
    assert price_of(BenchmarkSpec.model_validate(base)) is None
    ours = price_of(BenchmarkSpec.model_validate({**base, "gpu_type": "h200"}))
    assert ours is not None
    assert (ours.type, ours.source) == ("H200", "list price, on demand, USD")
    said = price_of(BenchmarkSpec.model_validate({**base, "gpu_type": "h200", "price": 2.5}))
    assert said == Price("h200", 2.5, source="said by the user")
    (tmp_path / "p.yaml").write_text("[{type: H200, per_gpu_hour: 1.25, currency: EUR}]")
    read = price_of(BenchmarkSpec.model_validate({**base, "gpu_type": "h200", "prices": str(tmp_path / "p.yaml")}))
    assert read == Price("H200", 1.25, "EUR")


def test_columns_of_gpus_and_money_are_there_when_a_point_knows_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    monkeypatch.setenv("REMUDA_HOME", str(home))
    keep([point("a")], home)
    assert main(["bench", "list"]) == 0
    out = capsys.readouterr().out
    assert "GPU" not in out
    assert "COST" not in out
    keep([priced := point("b", gpus=4, price=Price("H200", 3.8, source="contract", as_of="2026-05-01"))], home)
    assert main(["bench", "list"]) == 0
    out = capsys.readouterr().out
    assert "OUT TOK/S/GPU  COST/1M OUT  VERDICT" in out
    assert "8.44 USD" in out
    assert main(["bench", "show", priced.name]) == 0
    words = "8.44 USD for 1M output tokens: 4 GPUs at 3.8 USD an hour (contract, as of 2026-05-01)"
    assert words in capsys.readouterr().out
