"""Check every link of the built site: ``python docs/check_links.py build/docs``.

Links within the site must lead to a page, and to an anchor on it. Addresses of other sites must be
well formed; whether they are found, Sphinx's own builder ``linkcheck`` says (``make links``).
"""

import argparse
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """Links and anchors of a page."""

    def __init__(self, text: str):
        super().__init__()
        self.links: set[str] = set()
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take a tag's name, and what it links to or shows."""
        given = {key: value for key, value in attrs if value}
        self.anchors |= {given[key] for key in ("id", "name") if key in given}
        self.links |= {given[key] for key in ("href", "src") if key in given}


def broken_inside(pages: dict[Path, Page]) -> Iterator[str]:
    """Say which links within the site lead nowhere."""
    for path, page in pages.items():
        for link in sorted(page.links):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.is_file():
                yield f"{path}: {link}: no such file"
            elif target in pages and unquote(parts.fragment) not in pages[target].anchors | {""}:
                yield f"{path}: {link}: no such anchor"


def elsewhere(link: str) -> bool:
    """Whether a link leads to another site."""
    parts = urlsplit(link)
    return parts.scheme not in ("", "data") or bool(parts.netloc)


def malformed(link: str) -> bool:
    """Whether an address has no public host, or characters that none has."""
    parts = urlsplit(link)
    return (
        parts.scheme not in ("http", "https")
        or "." not in parts.netloc
        or not set(link).isdisjoint(" $<>{}|")
    )


def main(arguments: list[str] | None = None) -> int:
    """Print broken links; return 1 if there are any, and 0 otherwise."""
    parser = argparse.ArgumentParser(description="Check the links of the built site.")
    parser.add_argument("site", type=Path, help="its folder")
    options = parser.parse_args(arguments)
    # In _static are templates of the theme.
    files = (file for file in options.site.resolve().rglob("*.html") if "_static" not in file.parts)
    pages = {file: Page(file.read_text(encoding="utf-8")) for file in sorted(files)}
    links = {link for page in pages.values() for link in page.links}
    outside = sorted(link for link in links if elsewhere(link))
    broken = list(broken_inside(pages))
    broken += [f"{link}: malformed" for link in outside if malformed(link)]
    print(
        f"{len(pages)} pages, {len(links)} different links, {len(outside)} of them to other sites"
    )
    print("\n".join(broken) if broken else "No link is broken.")
    return 1 if broken or not pages else 0


if __name__ == "__main__":
    sys.exit(main())
