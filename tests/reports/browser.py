"""A page as a browser sees it, and what makes it invalid or not self-contained."""

import html
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
VOID = {"meta", "br", "img", "link", "input", "hr"}


class Checker(HTMLParser):
    """Collects what makes a page invalid or not self-contained."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.names: list[str] = []
        self.wrong: list[str] = []
        self.feed(text)
        pointed = re.findall(r'(?:aria-labelledby="|aria-describedby="|href="#|url\(#)([^")]+)', text)
        self.wrong += [f"<{tag}> is never closed" for tag in self.open]
        self.wrong += [f"id {name} twice" for name in set(self.names) if self.names.count(name) > 1]
        self.wrong += [f"no element {name}" for names in pointed for name in names.split() if name not in self.names]

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        if tag in ("script", "link", "iframe"):
            self.wrong.append(f"<{tag}>")
        for key, value in attributes:
            if key == "id" and value:
                self.names.append(value)
            if value and "://" in value and (tag, key) != ("a", "href"):  # a link is not loaded
                self.wrong.append(f"{key}={value}")

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrong.append(f"</{tag}> closes nothing")


MEASURE = """<!DOCTYPE html><body><iframe id="page" src="{page}" style="width:{width}px;height:900px"></iframe>
<pre id="found"></pre><script>
window.onload = () => {{
  const inner = document.getElementById("page").contentDocument;
  const sizes = [...inner.querySelectorAll("figure img")].map((image) => image.getBoundingClientRect());
  document.getElementById("found").textContent = JSON.stringify({{
    scroll: inner.documentElement.scrollWidth, client: inner.documentElement.clientWidth,
    body: inner.body.scrollWidth, charts: sizes.map((size) => [size.width, size.height]),
    cells: [...inner.querySelectorAll("tbody td, tbody th")].map((cell) => {{
      const box = cell.getBoundingClientRect();
      return [cell.dataset.label || "", box.left, box.right, box.height, box.top];
    }}),
  }});
}};
</script></body>"""


def browse(file: Path, profile: Path, *options: str) -> subprocess.CompletedProcess[str]:
    assert CHROMIUM is not None
    switches = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
    switches += (
        " --disable-component-update --disable-sync --allow-file-access-from-files --enable-logging=stderr --v=0"
    )
    command = [CHROMIUM, *switches.split(), f"--user-data-dir={profile}", *options, "--dump-dom", file.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def measure(page: Path, width: int) -> dict[str, Any]:
    """What `MEASURE` finds of `page` shown `width` pixels wide; fails on an error in the browser's console."""
    (page.parent / "measure.html").write_text(MEASURE.format(width=width, page=page.name))
    done = browse(page.parent / "measure.html", page.parent / "profile", "--window-size=1400,1000")
    assert "CONSOLE" not in done.stderr, done.stderr
    match = re.search(r'<pre id="found">(.+?)</pre>', done.stdout)
    assert match is not None, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(html.unescape(match[1]))
    return found
