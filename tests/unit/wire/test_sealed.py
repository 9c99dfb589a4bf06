"""The last word on its way through hands that are not ours: whole or shorter, and never another's."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from remuda.wire.exit import ExitRecord, seal, unseal

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6000)


@given(TEXT, TEXT, st.integers(0, 40))
def test_it_fits_and_comes_back(tail: str, reason: str, faults: int) -> None:
    fault = {"kind": "node", "name": "xid", "line": "é" * 100, "at": 1.0, "device": "0"}
    record = ExitRecord("t", 1, 3, 5.0, 3, reason=reason[:1000], log_tail=tail[-4000:], faults=[fault] * faults,
                        metrics={f"m{number}": 1.0 for number in range(faults)}, ran_s=2.0)  # fmt: skip
    sealed = seal(record, "key")
    assert len(sealed) <= 3500
    back = unseal(sealed.decode(), "key", "t")
    assert back is not None
    assert (back.code, back.child_exit_code, back.ran_s) == (3, 3, 2.0)
    assert record.log_tail.endswith(back.log_tail)
    assert record.reason.startswith(back.reason)


def test_a_small_one_is_whole() -> None:
    record = ExitRecord("t", 1, 0, 5.0, 0, reason="exit code 0", log_tail="a\nb\n", metrics={"progress_step": 3.0})
    assert unseal(seal(record, "key").decode(), "key", "t") == record


def test_what_others_wrote_is_nothing() -> None:
    sealed = seal(ExitRecord("t", 1, 0, 5.0, 0), "key").decode()
    assert unseal(sealed, "other", "t") is None
    assert unseal(sealed, "key", "u") is None
    assert unseal(sealed.replace('"code":0', '"code":1'), "key", "t") is None
    assert unseal("", "key", "t") is None
    assert unseal("loss 0.3\n", "key", "t") is None
