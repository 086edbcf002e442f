"""A report as data, and its HTML: one file that needs nothing from outside."""

from __future__ import annotations

import base64
import dataclasses
import html
from collections.abc import Sequence

_STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.55 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; color: #1f2933;
  background: #fff; margin: 0 auto; max-width: 1080px; padding: 2rem 1.25rem 5rem; }
h1 { font-size: 1.8rem; line-height: 1.2; margin: 0 0 .3rem; }
h2 { font-size: 1.3rem; margin: 2.6rem 0 .6rem; padding-top: .8rem; border-top: 1px solid #d5dbe1; }
h3 { font-size: 1.05rem; margin: 1.4rem 0 .4rem; }
p, ul { max-width: 78ch; margin: .5rem 0; }
.lead { color: #52606d; margin-top: 0; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1.2rem; margin: 1rem 0;
  padding: .8rem 1rem; background: #f4f6f8; border-radius: 6px; font-size: .92rem; }
dt { color: #52606d; } dd { margin: 0; overflow-wrap: anywhere; }
nav { font-size: .92rem; columns: 2; margin: 1rem 0; } nav a { display: block; }
a { color: #1a5276; }
figure { margin: 1rem 0 1.4rem; } figure img { max-width: 100%; height: auto; display: block; }
figcaption { color: #3e4c59; font-size: .92rem; max-width: 92ch; margin-top: .4rem; }
.table { overflow-x: auto; margin: .8rem 0; }
table { border-collapse: collapse; font-size: .84rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; color: #3e4c59; padding-bottom: .35rem; }
th, td { padding: .22rem .55rem .22rem 0; text-align: right; white-space: nowrap;
  border-bottom: 1px solid #e4e7eb; }
th { color: #52606d; font-weight: 600; vertical-align: bottom; }
th:first-child, td:first-child { text-align: left; }
tr.strong td { font-weight: 700; background: #eaf2f8; }
details { margin: .8rem 0; } summary { cursor: pointer; color: #1a5276; }
code { font-family: ui-monospace, "DejaVu Sans Mono", monospace; font-size: .9em; }
.note { border-left: 4px solid #d68910; padding: .3rem .9rem; background: #fdf5e6; }
"""


@dataclasses.dataclass(frozen=True, slots=True)
class Text:
    """Paragraphs; with ``note`` set off from the rest."""

    paragraphs: Sequence[str]
    note: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Items:
    """A list of sentences; with ``note`` set off from the rest."""

    items: Sequence[str]
    note: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Table:
    """A table; the rows whose index is in ``strong`` stand out, ``folded`` hides it until asked."""

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    strong: frozenset[int] = frozenset()
    folded: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Picture:
    """A picture with what it shows (for who cannot see it) and how to read it."""

    data: bytes
    shows: str
    caption: str
    kind: str = "svg+xml"


Block = Text | Items | Table | Picture


@dataclasses.dataclass(frozen=True, slots=True)
class Section:
    """A heading and what stands below it."""

    title: str
    blocks: Sequence[Block]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A whole report.

    Parameters
    ----------
    title, lead
        What it is about, in a line and in a sentence or two.
    facts
        What was run: names and values.
    sections
        In the order of reading.
    """

    title: str
    lead: str
    facts: Sequence[tuple[str, str]]
    sections: Sequence[Section]

    @property
    def pictures(self) -> int:
        """How many pictures the page holds."""
        return sum(isinstance(b, Picture) for section in self.sections for b in section.blocks)


def render(page: Page) -> str:
    """Return a page as HTML; pictures are inside, and all text is escaped.

    Examples
    --------
    >>> page = Page(title="a < b", lead="", facts=[], sections=[Section("c", [Text(["d"])])])
    >>> text = render(page)
    >>> "<h1>a &lt; b</h1>" in text, "http" in text
    (True, False)
    """
    facts = "".join(f"<dt>{_e(name)}</dt><dd>{_e(value)}</dd>" for name, value in page.facts)
    links = "".join(f'<a href="#s{i}">{_e(s.title)}</a>' for i, s in enumerate(page.sections))
    sections = "".join(
        f'<section id="s{i}"><h2>{_e(section.title)}</h2>'
        f"{''.join(_block(block) for block in section.blocks)}</section>\n"
        for i, section in enumerate(page.sections)
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<link rel="icon" href="data:,"><title>{_e(page.title)}</title>'
        f"<style>{_STYLE}</style></head>\n<body>"
        f'<h1>{_e(page.title)}</h1><p class="lead">{_e(page.lead)}</p>'
        f"<dl>{facts}</dl><nav>{links}</nav>\n{sections}</body></html>\n"
    )


def _block(block: Block) -> str:
    match block:
        case Text(paragraphs=paragraphs, note=note):
            inner = "".join(f"<p>{_e(text)}</p>" for text in paragraphs)
            return f'<div class="note">{inner}</div>' if note else inner
        case Items(items=items, note=note):
            inner = f"<ul>{''.join(f'<li>{_e(text)}</li>' for text in items)}</ul>"
            return f'<div class="note">{inner}</div>' if note else inner
        case Picture(data=data, shows=shows, caption=caption, kind=kind):
            source = base64.b64encode(data).decode()
            return (
                f'<figure><img src="data:image/{kind};base64,{source}" alt="{_e(shows)}">'
                f"<figcaption>{_e(caption)}</figcaption></figure>"
            )
        case Table():
            return _table(block)


def _table(table: Table) -> str:
    head = "".join(f"<th>{_e(text)}</th>" for text in table.head)
    rows = "".join(
        f"<tr{' class=strong' if index in table.strong else ''}>"
        f"{''.join(f'<td>{_e(cell)}</td>' for cell in row)}</tr>"
        for index, row in enumerate(table.rows)
    )
    caption = "" if table.folded else f"<caption>{_e(table.caption)}</caption>"
    inner = (
        f'<div class="table"><table>{caption}<thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )
    if not table.folded:
        return inner
    return f"<details><summary>{_e(table.caption)}</summary>{inner}</details>"


def _e(text: str) -> str:
    return html.escape(text, quote=True)
