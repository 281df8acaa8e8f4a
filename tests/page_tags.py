"""What a page opens, read as a browser reads it."""

from html.parser import HTMLParser


class Tags(HTMLParser):
    """`seen`: each tag with its attributes, in order."""

    def __init__(self, page: str = "") -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    @property
    def opened(self) -> list[str]:
        return [tag for tag, _ in self.seen]
