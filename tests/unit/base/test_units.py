from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.base.errors import InputError
from remuda.base.units import (
    parse_duration,
    parse_size,
    show_count,
    show_counted,
    show_duration,
    show_energy,
    show_figures,
    show_money,
    show_ms,
    show_number,
    show_percent,
    show_share,
    show_size,
    show_tenths,
    show_value,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (90, 90.0),
        (1.5, 1.5),
        ("90", 90.0),
        ("90s", 90.0),
        (" 2.5 ", 2.5),
        ("1h30m", 5400.0),
        ("1h 30m", 5400.0),
        ("1.5H", 5400.0),
        ("2d", 172_800.0),
        ("1w", 604_800.0),
        ("250ms", 0.25),
        ("5min", 300.0),
        ("36:00:00", 129_600.0),
        ("10:30", 630.0),
        ("1-12:00", 129_600.0),
        ("1-12:00:30", 129_630.0),
    ],
)
def test_durations_as_people_and_schedulers_write_them(text: str | float, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "h", "1h,30m", "1m2", "-5s", "1:2:3:4", "1-2", "5 parsecs", True])
def test_other_durations_are_refused(text: str | float) -> None:
    with pytest.raises(InputError, match="is not a duration") as caught:
        parse_duration(text)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (4096, 4096),
        ("4096", 4096),
        ("4096B", 4096),
        ("1k", 1024),
        ("512MB", 512 * 2**20),
        ("512Mi", 512 * 2**20),
        ("512MiB", 512 * 2**20),
        ("1.5 TiB", 3 * 2**39),
        ("16g", 16 * 2**30),
        ("2P", 2**51),
    ],
)
def test_sizes(text: str | int, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "much", "-1", "1e9", "1 X", "GB", "1GBs"])
def test_other_sizes_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="is not a size"):
        parse_size(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0s"),
        (4.25, "4.2s"),
        (10, "10s"),
        (59.4, "59s"),
        (59.6, "1m"),
        (200, "3m 20s"),
        (3600, "1h"),
        (3605, "1h"),
        (3660, "1h 1m"),
        (100_800, "1d 4h"),
    ],
)
def test_durations_are_shown_in_two_units(seconds: float, text: str) -> None:
    assert show_duration(seconds) == text


@given(st.integers(10, 10**8))
def test_a_shown_duration_reads_back_almost_the_same(seconds: int) -> None:
    back = parse_duration(show_duration(seconds))
    unit = 86400 if seconds >= 86400 else 3600
    assert 0 <= seconds - back < (unit / 24 if unit == 86400 else 60)


@given(st.text(max_size=20) | st.from_regex(r"[0-9.]{1,4} ?[smhdkgtib]{0,3}[0-9]?[sm]?"))
def test_any_text_is_a_number_or_an_input_error(text: str) -> None:
    for parse in (parse_duration, parse_size):
        with suppress(InputError):
            assert parse(text) >= 0


@given(st.integers(0, 2**50))
def test_plain_bytes_are_exact(size: int) -> None:
    assert parse_size(size) == parse_size(str(size)) == size


def test_counts_have_separators() -> None:
    assert show_count(1_234_567.4) == "1,234,567"


def test_counts_have_their_words() -> None:
    assert [show_counted(count, "row") for count in (0, 1, 2000)] == ["0 rows", "1 row", "2,000 rows"]
    assert [show_counted(count, "task", "goes", "go") for count in (1, 2)] == ["1 task goes", "2 tasks go"]


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (7.25, "7.25"), (912, "912"), (999.6, "1.00k"), (12_534, "12.5k"), (100_000, "100k"), (3.07e6, "3.07M")],
)
def test_three_figures(number: float, text: str) -> None:
    assert show_figures(number) == text


@pytest.mark.parametrize(
    ("joules", "text"),
    [(None, "–"), (812, "812 J"), (45_000, "45.0 kJ"), (6_552_000, "1.82 kWh"), (3.6e9, "1,000 kWh")],
)
def test_joules_as_people_pay_for_them(joules: float | None, text: str) -> None:
    assert show_energy(joules) == text


@pytest.mark.parametrize(("share", "text"), [(None, "–"), (0, "0 %"), (0.001, "<1 %"), (0.999, ">99 %"), (1, "100 %")])
def test_some_is_not_nothing(share: float | None, text: str) -> None:
    assert show_share(share) == text


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (show_number(None), "–"),
        (show_number(0.0), "0"),
        (show_number(12.345), "12.3"),
        (show_number(0.5, 1000), "500"),
        (show_number(1234.4), "1,234"),
        (show_ms(None), "–"),
        (show_ms(0.0036), "3.6 ms"),
        (show_ms(1.234), "1,234 ms"),
        (show_percent(0.048), "4.8 %"),
        (show_percent(0.5), "50 %"),
        (show_tenths(0.04), "<0.1"),
        (show_tenths(7.0), "7"),
        (show_tenths(1234.5), "1,234"),
        (show_money(None, "USD"), "–"),
        (show_money(0.0341, "USD"), "0.034 USD"),
        (show_money(1234.5, "EUR"), "1,234.50 EUR"),
        (show_value(None), "-"),
        (show_value(None, none="built in"), "built in"),
        (show_value([1, "b"]), "1,b"),
        (show_value((), empty="any"), "any"),
        (show_value(True), "true"),
        (show_value(600.0), "600"),
        (show_size(512), "512 B"),
        (show_size(3 << 20), "3.0 MB"),
    ],
)
def test_numbers_with_their_units(shown: str, text: str) -> None:
    assert shown == text
