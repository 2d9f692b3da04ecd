"""What a reader sees of a page, and what a browser would fetch for it."""

from __future__ import annotations

import re
from html.parser import HTMLParser

_URL = re.compile(r"url\((.*?)\)|@import\s+(\S+)")


class Page(HTMLParser):
    """The words of a page, the addresses it would load, and those it only links to."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.loads: set[str] = set()
        self.links: set[str] = set()
        self._words: list[str] = []
        self._hidden = 0
        self.feed(html)

    @property
    def text(self) -> str:
        return " ".join("".join(self._words).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._hidden += tag in ("script", "style")
        for name, value in attrs:
            if name in ("src", "srcset", "data", "poster") or (tag, name) == ("link", "href"):
                self.loads.add(value or "")
            elif name == "href":
                self.links.add(value or "")
            elif name == "style":
                self._load(value or "")

    def handle_endtag(self, tag: str) -> None:
        self._hidden -= tag in ("script", "style")

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self._words.append(data)
        else:
            self._load(data)

    def _load(self, css: str) -> None:
        self.loads |= {"".join(found) for found in _URL.findall(css)}
