"""Where a redirect may lead a question and its key, and how the place is shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from remuda.batch.pipeline.transport import safe_target, shown_location

ASKED = URL("http://herd.example:8000/v1/chat/completions")


@pytest.mark.parametrize(
    ("location", "target"),
    [
        ("/moved/v1/chat/completions", "http://herd.example:8000/moved/v1/chat/completions"),
        ("http://herd.example:8000/x?y=1", "http://herd.example:8000/x?y=1"),
        ("//herd.example:8000/x", "http://herd.example:8000/x"),
        ("http://herd.example:8001/x", ""),
        ("https://herd.example:8000/x", ""),
        ("https://herd.example/x", ""),
        ("http://herd.example/x", ""),
        ("http://other.example:8000/x", ""),
        ("//other.example:8000/x", ""),
        ("http://me:secret@herd.example:8000/x", ""),
        ("http://herd.example:8000@other.example/x", ""),
        ("\\\\other.example/x", ""),
        ("file:///etc/passwd", ""),
        ("", ""),
    ],
)
def test_a_question_stays_on_its_server(location: str, target: str) -> None:
    found = safe_target(ASKED, location)
    if location.startswith("\\"):
        assert found is None or found.origin() == ASKED.origin()
    else:
        assert str(found or "") == target


@pytest.mark.parametrize(
    ("asked", "location", "safe"),
    [
        ("http://herd.example/v1", "https://herd.example/v1", True),
        ("http://herd.example/v1", "https://herd.example:8443/v1", False),
        ("https://herd.example/v1", "http://herd.example/v1", False),
    ],
)
def test_the_same_host_may_ask_for_https_and_never_the_other_way(asked: str, location: str, safe: bool) -> None:
    assert (safe_target(URL(asked), location) is not None) is safe


@given(st.text(alphabet=st.characters(exclude_categories=())))
def test_any_location_can_be_shown_and_leads_to_nobody_else(location: str) -> None:
    shown_location(ASKED, location).encode()
    found = safe_target(ASKED, location)
    assert found is None or found.origin() == ASKED.origin()


def test_what_is_shown_has_no_password_and_no_parameters() -> None:
    shown = shown_location(ASKED, "https://me:secret@login.example/in?token=abc")
    assert shown == "https://login.example/in"
