"""A page as a browser would take it apart."""

from __future__ import annotations

from html.parser import HTMLParser


class Page(HTMLParser):
    """Fails where tags do not close; remembers what a browser would fetch or run."""

    VOID = frozenset({"meta", "br", "circle", "path"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.links: list[str] = []
        self.handlers: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [
            value or "" for name, value in attrs if name in ("src", "href", "xlink:href", "srcset", "action")
        ]
        self.handlers += [name for name, _ in attrs if name.startswith("on")]
        if tag not in self.VOID or (tag in ("circle", "path") and not self.is_closed):
            self.open.append(tag)

    @property
    def is_closed(self) -> bool:
        return (self.get_starttag_text() or "").endswith("/>")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] not in ("style", "script"):
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())
