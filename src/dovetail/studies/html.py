"""A report as one file of HTML that needs nothing else: light and dark, narrow and wide."""

from __future__ import annotations

from html import escape

_STYLE = """
:root{color-scheme:light dark;--ink:#1c2430;--soft:#5b6675;--line:#d8dee6;--paper:#fff;--card:#f5f7fa;
--ca:#c2762b;--karpenter:#3b74c9;--dovetail:#1d8f6a}
@media(prefers-color-scheme:dark){:root{--ink:#e7ecf2;--soft:#9aa6b5;--line:#39424e;--paper:#14181d;--card:#1d232b;
--ca:#e0a058;--karpenter:#7fa8ee;--dovetail:#4fc79c}}
body{font:16px/1.55 system-ui,-apple-system,"Noto Sans KR",sans-serif;color:var(--ink);background:var(--paper);
max-width:1140px;margin:0 auto;padding:32px 20px 64px}
h1{font-size:1.7rem;line-height:1.25;margin:0 0 .4em}h2{margin:2em 0 .6em;font-size:1.25rem}h3{margin:0 0 .3em}
p.lead,p.note{color:var(--soft)}p.note{font-size:.86rem}
.short{background:var(--card);border-left:4px solid var(--dovetail);padding:12px 18px;border-radius:4px}
.short p{margin:.35em 0}
.wide{overflow-x:auto}table{border-collapse:collapse;font-size:.88rem;width:100%}
th,td{padding:7px 7px;border-bottom:1px solid var(--line);text-align:right;white-space:nowrap}
th:first-child,td:first-child{text-align:left}th{color:var(--soft);font-weight:600}
tr.first td{border-top:2px solid var(--line)}
td .dot{display:inline-block;width:9px;height:9px;border-radius:50%;margin-right:7px}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(430px,1fr));gap:18px}
.charts figure{margin:0;background:var(--card);border-radius:8px;padding:10px}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(290px,1fr));gap:18px}
.card{background:var(--card);border-radius:8px;padding:14px 18px;border-top:4px solid var(--line)}
.card h4{margin:.8em 0 .2em;font-size:.86rem;color:var(--soft)}.card ul,ul.effects{margin:.2em 0;padding-left:1.1em}
li{margin:.3em 0}code{background:var(--card);padding:2px 6px;border-radius:4px}
svg{width:100%;height:auto}svg text{font:12px system-ui,sans-serif;fill:var(--soft)}
svg .title{font-weight:600;fill:var(--ink)}
svg .scale{text-anchor:end}svg .tick{text-anchor:middle}svg .grid{stroke:var(--line);stroke-width:1}
svg .bound{stroke:var(--ink);stroke-width:2;stroke-dasharray:5 3;fill:none}
svg rect.ca{fill:var(--ca)}svg rect.karpenter{fill:var(--karpenter)}svg rect.dovetail{fill:var(--dovetail)}
svg path,svg line.ca,svg line.karpenter,svg line.dovetail{fill:none;stroke-width:2.2}
svg .ca{stroke:var(--ca)}svg .karpenter{stroke:var(--karpenter)}svg .dovetail{stroke:var(--dovetail)}
svg .all{stroke:var(--soft)}svg .ready{stroke:var(--dovetail)}svg .pending{stroke:var(--ca)}
svg rect{stroke:none!important}svg .pale{opacity:.5}
"""


def document(language: str, title: str, body: str) -> str:
    """The whole file; `body` is HTML already."""
    return (
        f'<!doctype html>\n<html lang="{language}"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width,initial-scale=1"><title>{escape(title)}</title>'
        f"<style>{_STYLE}</style></head><body>{body}</body></html>\n"
    )
