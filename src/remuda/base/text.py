"""What others wrote, made fit for a terminal: it may have words and lines, and nothing that acts on what shows them."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

# None of these patterns goes back and forth in what strangers wrote: time is in proportion to its length.
_SEQUENCES: Final = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # colours, movements of the cursor
    # titles, links, the clipboard
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x90\x98\x9c-\x9f\n]*+(?:\x07|\x1b\\|\x9c)"
    r"|\x1b[ -/]*[0-~]"
)
#: Controls; marks that turn the direction of writing; characters that nobody sees; halves of characters.
_UNSEEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)
_RETURNS: Final = re.compile(r"(?<!\r)\r++(?=\n|\Z)")
_SPACES: Final = re.compile(r"(?<! ) *+[\t\n]\s*+")


def clean(text: str, *, one_line: bool = False) -> str:
    r"""`text` without what terminals obey; characters that nobody would see are spelt out, as `\x08`.

    Colours and movements are dropped. Where a carriage return would hide what was before it, a line begins instead.

    Args:
        text: as it came.
        one_line: lines and tabs become spaces, for cells and for sentences.
    """
    if not text.isprintable():
        text = _RETURNS.sub("", text)
        text = _SEQUENCES.sub("", text).replace("\r", "\n")
    text = _UNSEEN.sub(_spelt, text)
    return _SPACES.sub(" ", text).strip("\n") if one_line else text


def short(text: str, length: int = 80) -> str:
    """One line of at most that many characters: names come from strangers, and may be a book."""
    line = " ".join(clean(text[: 4 * length], one_line=True).split())
    return line if len(line) <= length and len(text) <= 4 * length else f"{line[: length - 1]}…"


def first_line(error: BaseException) -> str:
    """What an error says first; its class where it says nothing."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def plain_cell(value: object) -> object:
    """A cell of CSV that no spreadsheet takes for a formula: text that begins like one gets an apostrophe before it."""
    return f"'{value}" if isinstance(value, str) and value[:1] in set("=+-@\t\r") else value


def clean_json(document: str) -> str:
    """The same for JSON: what it says does not change, as its own escapes say it."""
    return _UNSEEN.sub(_escaped, document)


def _spelt(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _escaped(match: re.Match[str]) -> str:
    raw = match[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{raw[at]:02x}{raw[at + 1]:02x}" for at in range(0, len(raw), 2))


def brief(text: str) -> str:
    """What of a user's word goes into a sentence: at most 80 characters."""
    return text if len(text) <= 80 else f"{text[:79]}…"


def did_you_mean(word: str, known: Iterable[str], otherwise: str = "", *, most: int = 1, cutoff: float = 0.6) -> str:
    """A hint with the nearest known words, never with the word itself; `otherwise` where none is near.

    Of thousands of known words some word is always a little near: they want a higher `cutoff`.
    """
    near = difflib.get_close_matches(word, [one for one in known if one != word], most, cutoff)
    return f"did you mean {', '.join(map(repr, near))}?" if near else otherwise
