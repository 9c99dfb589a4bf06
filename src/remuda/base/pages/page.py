"""One page that needs nothing else: style for light and dark, wide and narrow, and the script of its tips."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from remuda import __version__
from remuda.base.pages.charts import draw, escape
from remuda.base.text import short

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from remuda.base.pages.charts import Chart

#: Neighbours differ in lightness, not in hue alone. On dark paper the same hues are lighter.
CSS: Final = """
:root{--paper:#fff;--ink:#16191d;--soft:#59616b;--rule:#e3e6ea;--card:#f6f7f9;--front:#d5dae1;
--s0:#1f4e9e;--s1:#e07a00;--s2:#007a68;--s3:#b3378a;--s4:#4aa3df;--s5:#6e5200;--s6:#7d858f;--s7:#7a1f35;
--good:#12703c;--warn:#8a5a00;--bad:#b3261e;color-scheme:light dark}
@media(prefers-color-scheme:dark){:root{--paper:#121518;--ink:#e9ecef;--soft:#a3acb6;--rule:#2b3138;--card:#1a1e23;
--front:#3a424c;--s0:#7aa7ff;--s1:#ffbe5c;--s2:#2fb896;--s3:#e07cc0;--s4:#b5e0ff;--s5:#c4a032;--s6:#98a1ab;
--s7:#ff8f8f;--good:#5fce8f;--warn:#f0b54a;--bad:#ff8a80}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,
"Helvetica Neue",Arial,sans-serif;-webkit-text-size-adjust:100%;overflow-wrap:anywhere}
main{max-width:1080px;margin:0 auto;padding:40px 24px 64px}
h1{font-size:30px;line-height:1.2;letter-spacing:-.015em;margin:0 0 6px;font-weight:650}
h2{font-size:18px;line-height:1.3;margin:0 0 2px;font-weight:650;letter-spacing:-.005em}
section{margin-top:44px}
p{margin:0 0 10px;max-width:72ch}.soft,figcaption{color:var(--soft)}
figcaption{font-size:14px;margin-bottom:10px;max-width:110ch}
figure{margin:0;min-width:0;display:flex;flex-direction:column}figure svg.chart{margin-top:auto}
dl.facts{display:grid;grid-template-columns:max-content minmax(0,1fr);gap:4px 20px;margin:20px 0 0;font-size:14px}
dl.facts dt{color:var(--soft)}dl.facts dd{margin:0}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(170px,1fr));gap:12px;margin:28px 0 0;padding:0;
list-style:none}
.tiles li{background:var(--card);border-radius:8px;padding:14px 16px}
.tiles b{display:block;font-size:26px;line-height:1.2;font-weight:650;letter-spacing:-.02em;
font-variant-numeric:tabular-nums}
.tiles b small{font-size:14px;font-weight:500;letter-spacing:0;color:var(--soft)}
.tiles span{display:block;font-size:13px;color:var(--soft);line-height:1.4}
.tiles .what{color:var(--ink);margin-bottom:4px}
.pair{display:grid;grid-template-columns:repeat(2,minmax(0,1fr));gap:40px 36px}
.key{list-style:none;display:flex;flex-wrap:wrap;gap:4px 20px;margin:0 0 10px;padding:0;font-size:13px;
color:var(--soft)}
.key svg{width:28px;height:12px;margin-right:7px;vertical-align:-1px}
svg.chart{display:block;width:100%;height:auto}svg.narrow{display:none}
svg text{font:12.5px system-ui,-apple-system,"Segoe UI",Roboto,Arial,sans-serif;fill:var(--soft)}
svg .tick{font-size:12px;font-variant-numeric:tabular-nums}svg .label{fill:var(--soft)}
svg .name{fill:var(--c);font-weight:600}
svg .halo{paint-order:stroke;stroke:var(--paper);stroke-width:4px;stroke-linejoin:round;font-size:13.5px}
.grid{stroke:var(--rule);stroke-width:1}.axis{stroke:var(--soft);stroke-width:1;fill:none;opacity:.7}
.heat{fill:var(--s0)}.leader{stroke:var(--soft);stroke-width:.8;opacity:.45;fill:none}
.line{fill:none;stroke:var(--c);stroke-width:2;stroke-linejoin:round}
.dashed{stroke-dasharray:5 4;stroke-width:1.6}
.frontier{fill:none;stroke:var(--front);stroke-width:11;stroke-linejoin:round;stroke-linecap:round}
.mark{fill:var(--c);stroke:var(--paper);stroke-width:1.2}
.mark.hollow{fill:var(--paper);stroke:var(--c);stroke-width:1.8}.mark.upper{opacity:.8}
.mark:hover{stroke:var(--ink);stroke-width:2}
.c0{--c:var(--s0)}.c1{--c:var(--s1)}.c2{--c:var(--s2)}.c3{--c:var(--s3)}.c4{--c:var(--s4)}.c5{--c:var(--s5)}
.c6{--c:var(--s6)}.c7{--c:var(--s7)}.soft-ink{--c:var(--soft)}
.scroll{overflow-x:auto;margin-top:12px;border-bottom:1px solid var(--rule)}
.scroll+p{margin-top:8px;font-size:13px}
table{border-collapse:collapse;width:100%;font-size:13px;font-variant-numeric:tabular-nums}
th{font-weight:550;color:var(--soft);text-align:right;vertical-align:bottom;border-bottom:1px solid var(--soft)}
td{text-align:right;border-top:1px solid var(--rule);overflow-wrap:normal}
th,td{padding:6px 10px 6px 0;white-space:nowrap}
th.l,td.l{text-align:left}td.n{white-space:normal;min-width:11em;max-width:24em;overflow-wrap:anywhere}
.valid{color:var(--good)}.suspect{color:var(--warn)}.invalid{color:var(--bad)}
ul.why{list-style:none;margin:14px 0 0;padding:0;font-size:14px}
ul.why>li{border-top:1px solid var(--rule);padding:8px 0}
ul.why ul{margin:4px 0 0;padding-left:18px;color:var(--soft)}
code,.code{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
dl.words{font-size:14px;margin:12px 0 0}dl.words dt{font-weight:600;margin-top:8px}
dl.words dd{margin:0;color:var(--soft);max-width:80ch}
summary{cursor:pointer}footer{margin-top:52px;font-size:13px;color:var(--soft)}
#tip{position:fixed;pointer-events:none;background:var(--ink);color:var(--paper);font-size:13px;line-height:1.4;
padding:7px 10px;border-radius:6px;max-width:min(320px,90vw);white-space:pre-line;z-index:9}
@media(max-width:700px){main{padding:24px 16px 48px}h1{font-size:24px}.pair{grid-template-columns:minmax(0,1fr)}
svg.wide{display:none}svg.narrow{display:block}section{margin-top:36px}
dl.facts{grid-template-columns:minmax(0,1fr);gap:0}dl.facts dd{margin-bottom:6px}
.tiles{grid-template-columns:repeat(2,minmax(0,1fr));gap:8px}.tiles b{font-size:21px}.tiles li{padding:12px}}
@media print{main{max-width:none;padding:0}section,figure{break-inside:avoid}.scroll{overflow:visible}}
"""

#: Without it, browsers show the same words on their own, later and smaller.
SCRIPT: Final = """
(()=>{const tip=document.createElement('div');tip.id='tip';tip.hidden=true;document.body.append(tip);
for(const t of document.querySelectorAll('svg .mark>title')){t.parentNode.tip=t.textContent;t.remove()}
document.addEventListener('pointermove',e=>{const words=e.target.tip;tip.hidden=!words;if(!words)return;
tip.textContent=words;const w=tip.offsetWidth,h=tip.offsetHeight;
tip.style.left=Math.max(6,Math.min(e.clientX+14,innerWidth-w-6))+'px';
tip.style.top=(e.clientY+h+24>innerHeight?e.clientY-h-12:e.clientY+16)+'px'});
document.addEventListener('scroll',()=>{tip.hidden=true},{passive:true})})();
"""


def document(heading: str, body: Iterable[str], now: float) -> str:
    """The whole page.

    Args:
        heading: its title, escaped.
        body: its parts, as HTML.
        now: seconds since 1970.
    """
    footer = f"<footer>Written by remuda {said(__version__)} on {day(now)}. This page loads nothing.</footer>"
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{heading}</title>'
        f'<meta name="viewport" content="width=device-width,initial-scale=1"><style>{CSS}</style></head>\n'
        f"<body><main>{''.join(body)}{footer}</main><script>{SCRIPT}</script></body></html>\n"
    )


def said(text: str, length: int = 120) -> str:
    """What others wrote, cut and escaped."""
    return escape(short(text, length))


def day(at: float) -> str:
    """The day of a time, in UTC."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d")


def facts(rows: Iterable[tuple[str, str]]) -> str:
    """Names and what is known of them (escaped), without those of which nothing is."""
    return f'<dl class="facts">{"".join(f"<dt>{name}</dt><dd>{text}</dd>" for name, text in rows if text)}</dl>'


def tile(what: str, number: str, unit: str, words: str) -> str:
    """One of the numbers that people ask for first; all but `what` escaped here."""
    return (
        f'<li><span class="what">{what}</span><b>{escape(number)} <small>{said(unit)}</small></b>'
        f"<span>{said(words, 60)}</span></li>"
    )


def tiles(items: Sequence[str]) -> str:
    """All of them."""
    return f'<ul class="tiles">{"".join(items)}</ul>' if items else ""


def figure(chart: Chart, words: str, size: tuple[int, int], *, with_tips: bool = False, key: str = "") -> str:
    """A chart for wide and for narrow screens, with what is said of it."""
    wide = draw(chart, *size, with_tips=with_tips, kind="wide")
    narrow = draw(chart, 360, 300, with_tips=False, kind="narrow")
    return (
        f"<figure><h2>{escape(chart.title)}</h2><figcaption>{said(words, 400)}</figcaption>{key}{wide}{narrow}</figure>"
    )


def table(title: str, columns: Sequence[tuple[str, str]], rows: Iterable[Sequence[str]]) -> str:
    """A table that scrolls for itself.

    Args:
        title: above it, escaped.
        columns: heading as HTML, and class: `l` for words.
        rows: cells as HTML.
    """
    head = "".join(f'<th scope="col" class="{kind[:1]}">{name}</th>' for name, kind in columns)
    cells = (
        "".join(f'<td class="{kind}">{cell}</td>' for (_, kind), cell in zip(columns, row, strict=True)) for row in rows
    )
    body = "".join(f"<tr>{row}</tr>" for row in cells)
    return (
        f'<section><h2>{title}</h2><div class="scroll" tabindex="0" role="region" aria-label="{title}"><table>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div></section>"
    )


def words(items: Iterable[tuple[str, str]]) -> str:
    """What numbers mean."""
    return (
        f'<dl class="words">{"".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in items)}</dl>'
    )
