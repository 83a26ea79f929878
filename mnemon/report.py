"""Building blocks of a report: one HTML file with its pictures inside, that needs no network and no scripts.

Every block is a function that returns HTML. Text goes in plain: it is escaped here, and `words between backticks`
become code. Images are shown as ink on paper (a pixel of 1 is dark), and the other way round in a dark scheme.
"""

from __future__ import annotations

import base64
import html
import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, NewType

from matplotlib.figure import Figure
from PIL import Image
from torch import Tensor

from mnemon import plots
from mnemon.core.state import atomic_path

Html = NewType("Html", str)
"""Text that is HTML already; a plain str is not, and is escaped."""

STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #5b636d; --paper: #ffffff; --card: #f4f6f8;
  --line: #dfe3e8; --accent: #2a6f97; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e8eb; --soft: #a0a8b2; --paper: #141414; --card: #202224; --line: #3a3d41; --accent: #7cbcdf; }
  img { filter: invert(0.92) hue-rotate(180deg); }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.55 system-ui, -apple-system, "Segoe UI",
  Roboto, "Helvetica Neue", Arial, sans-serif; }
header, main, footer { max-width: 62rem; margin: 0 auto; padding: 0 1.25rem; }
header { padding-top: 2.5rem; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 0.6rem; }
h2 { font-size: 1.25rem; line-height: 1.3; margin: 0 0 0.5rem; }
h3 { font-size: 1.05rem; line-height: 1.3; margin: 1.5rem 0 0.3rem; }
h4 { font-size: 0.95rem; line-height: 1.3; margin: 1.2rem 0 0.2rem; }
a { color: var(--accent); }
.contents { list-style: none; display: flex; flex-wrap: wrap; gap: 0.3rem 1.2rem; margin: 1.2rem 0 0; padding: 0; }
section { border-top: 1px solid var(--line); margin-top: 2rem; padding-top: 1.5rem; }
p { margin: 0 0 0.8rem; max-width: 46rem; }
.lead { font-size: 1.1rem; }
.keys { display: grid; grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr)); gap: 0.75rem; margin: 1.5rem 0 0;
  padding: 0; }
.keys div { background: var(--card); border-radius: 0.5rem; padding: 0.8rem 0.9rem; display: flex;
  flex-direction: column-reverse; justify-content: flex-end; }
.keys dd { margin: 0; font-size: 1.45rem; font-weight: 600; color: var(--accent); line-height: 1.25; }
.keys dt { font-size: 0.85rem; line-height: 1.4; color: var(--soft); }
.columns { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(20rem, 100%), 1fr)); gap: 1rem 2.5rem;
  align-items: start; }
.columns > * { min-width: 0; }
.columns figure { margin-top: 0.2rem; }
figure { margin: 0.5rem 0 1rem; }
figcaption { color: var(--soft); font-size: 0.9rem; margin-top: 0.5rem; max-width: 46rem; }
img { display: block; max-width: 100%; height: auto; }
.strip { display: grid; grid-template-columns: 9rem 1fr; gap: 0.75rem; align-items: center; margin-bottom: 0.4rem;
  font-size: 0.9rem; }
.strip > span { text-align: right; line-height: 1.3; }
.strip > img, .ends + img { width: 100%; }
.ends { display: flex; justify-content: space-between; font-size: 0.85rem; color: var(--soft); }
.table { overflow-x: auto; margin: 0.5rem 0 1rem; }
table { border-collapse: collapse; width: 100%; font-size: 0.95rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; color: var(--soft); font-size: 0.9rem; caption-side: bottom; padding-top: 0.5rem; }
th, td { padding: 0.4rem 0.7rem 0.4rem 0; border-bottom: 1px solid var(--line); text-align: right; }
thead th { color: var(--soft); font-weight: 500; font-size: 0.85rem; line-height: 1.35; vertical-align: bottom; }
td { white-space: nowrap; }
th:first-child { text-align: left; font-weight: 500; }
th:last-child, td:last-child { padding-right: 0; }
code { font: 0.92em ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
pre { background: var(--card); border-radius: 0.5rem; padding: 0.9rem 1rem; overflow-x: auto; font-size: 0.88rem;
  line-height: 1.5; margin: 0.3rem 0 1rem; }
footer { color: var(--soft); font-size: 0.85rem; padding-top: 1rem; padding-bottom: 3rem; }
@media (max-width: 60rem) { .keys { grid-template-columns: repeat(3, 1fr); } }
@media (max-width: 36rem) {
  header { padding-top: 1.5rem; }
  h1 { font-size: 1.5rem; }
  .strip { grid-template-columns: 1fr; gap: 0.1rem; }
  .strip > span { text-align: left; color: var(--soft); }
  .keys { grid-template-columns: 1fr 1fr; }
  table { font-size: 0.88rem; }
  td { white-space: normal; width: 1%; }
}
@media print { section { break-inside: avoid; } }
"""


def page(title: str, lead: Sequence[Html], sections: Sequence[Html], *, footer: str, style: str = "") -> Html:
    """The whole document: a heading with what follows it, the sections, and a line at the end. `style`: rules of CSS
    beside those of every report."""
    return Html(
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>{STYLE}{style}</style>\n</head>\n<body>\n"
        f"<header>\n<h1>{inline(title)}</h1>\n{''.join(lead)}</header>\n"
        f"<main>\n{''.join(sections)}</main>\n<footer><p>{inline(footer)}</p></footer>\n</body>\n</html>\n"
    )


def save(document: Html, path: Path) -> None:
    """Write a page; an existing file is replaced only by a complete new one."""
    with atomic_path(path) as temporary:
        Path(temporary).write_text(document, encoding="utf-8")


def section(title: str, *parts: Html, anchor: str = "") -> Html:
    opening = f'<section id="{anchor}">' if anchor else "<section>"
    return Html(f"{opening}\n<h2>{inline(title)}</h2>\n{''.join(parts)}</section>\n")


def heading(text: str, *, anchor: str = "", level: Literal[3, 4] = 3) -> Html:
    """Within a section, or within a part of one."""
    opening = f'<h{level} id="{anchor}">' if anchor else f"<h{level}>"
    return Html(f"{opening}{inline(text)}</h{level}>\n")


def contents(places: Mapping[str, str], *, of: str = "") -> Html:
    """Links to parts of a page, by their anchors; of: the section whose parts they are, if not the page's."""
    links = "".join(f'<li><a href="#{anchor}">{inline(title)}</a></li>' for anchor, title in places.items())
    label = f"Contents of {of}" if of else "Contents"
    return Html(f'<nav aria-label="{html.escape(label)}"><ul class="contents">{links}</ul></nav>\n')


def paragraph(text: str, *, lead: bool = False) -> Html:
    opening = '<p class="lead">' if lead else "<p>"
    return Html(f"{opening}{inline(text)}</p>\n")


def columns(*parts: Html) -> Html:
    """Side by side where the window is wide enough, else one below another."""
    cells = "".join(f"<div>{part}</div>\n" for part in parts)
    return Html(f'<div class="columns">\n{cells}</div>\n')


def key_numbers(numbers: Sequence[tuple[str, str]]) -> Html:
    """A row of cards, each a value and what it is."""
    cards = "".join(f"<div><dt>{inline(what)}</dt><dd>{inline(value)}</dd></div>\n" for value, what in numbers)
    return Html(f'<dl class="keys">\n{cards}</dl>\n')


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, caption: str = "") -> Html:
    """The first cell of a row names it; the others are numbers, set to the right."""
    for row in rows:
        if len(row) != len(headings):
            raise ValueError(f"table: expected {len(headings)} cells in each row, got {len(row)}: {list(row)}")
    head = "".join(f'<th scope="col">{inline(text)}</th>' for text in headings)
    body = "".join(
        f'<tr><th scope="row">{inline(row[0])}</th>{"".join(f"<td>{inline(cell)}</td>" for cell in row[1:])}</tr>\n'
        for row in rows
    )
    below = f"<caption>{inline(caption)}</caption>\n" if caption else ""
    return Html(
        f'<div class="table"><table>\n{below}<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody>\n</table></div>\n'
    )


def picture_grid(
    images: Tensor, *, alt: str, caption: str, ends: tuple[str, str] | None = None, width: str = "100%"
) -> Html:
    """A table of images as one picture; `ends` are words above its left and right ends. Shapes: (rows, columns, *X)"""
    above = ""
    if ends is not None:
        above = f'<div class="ends"><span>{inline(ends[0])}</span><span>{inline(ends[1])}</span></div>\n'
    body = f'{above}<img src="{_ink(images)}" alt="{html.escape(alt)}" style="width: {width}">\n'
    return _figure(body, caption)


def picture_strips(rows: Mapping[str, Tensor], *, caption: str) -> Html:
    """Rows of images with their names at the left, or above in a narrow window. Shapes: (n, *X) each"""
    body = "".join(
        f'<div class="strip"><span>{inline(name)}</span><img src="{_ink(images[None])}" '
        f'alt="{len(images)} small images: {html.escape(name)}"></div>\n'
        for name, images in rows.items()
    )
    return _figure(body, caption)


def plot(figure: Figure, *, alt: str, caption: str) -> Html:
    """A matplotlib figure."""
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=150, facecolor="white")
    return _figure(f'<img src="{_data(stream.getvalue())}" alt="{html.escape(alt)}">\n', caption)


def code(text: str) -> Html:
    return Html(f"<pre><code>{html.escape(text.strip())}</code></pre>\n")


def bytes_text(size: float) -> str:
    """A size for people: 812 bytes, 23.9 kB, 2.4 MB."""
    if size < 1000:
        return f"{size:.0f} bytes"
    return f"{size / 1e3:.1f} kB" if size < 1e6 else f"{size / 1e6:.1f} MB"


def _figure(body: str, caption: str) -> Html:
    return Html(f"<figure>\n{body}<figcaption>{inline(caption)}</figcaption>\n</figure>\n")


def inline(text: str) -> str:
    """Plain text as HTML; what stands between backticks is code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text, quote=False))


def _ink(images: Tensor) -> str:
    """Shapes: (rows, columns, *X) in [0, 1]"""
    stream = io.BytesIO()
    Image.fromarray(plots.tile(1 - images.clamp(0, 1))).save(stream, format="PNG", optimize=True)
    return _data(stream.getvalue())


def _data(png: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(png).decode("ascii")
