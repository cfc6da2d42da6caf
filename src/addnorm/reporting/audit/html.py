"""An audit as one HTML file that needs nothing else: no script, no network, no font of its own."""

from collections.abc import Mapping
from html import escape
from typing import Any

from addnorm.reporting.audit.table import FindingRow, rows, size_in_words, summary

Json = Mapping[str, Any]

_COLOURS = {
    "redundant": "#b3261e",
    "partly redundant": "#c4541a",
    "foldable": "#8a6d00",
    "negligible": "#7b3fa0",
    "unproved": "#8a6d00",
    "undecided": "#7b3fa0",
    "effective": "#2e7d32",
}

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem;
  color: #1b1b1b; background: #fff }
table { border-collapse: collapse; width: 100% }
th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid #ddd; vertical-align: top }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums }
code { font-family: ui-monospace, monospace; font-size: .9em; overflow-wrap: anywhere }
details summary { cursor: pointer }
@media (prefers-color-scheme: dark) {
  body { color: #e6e6e6; background: #161616 } th, td { border-color: #333 } b { filter: brightness(1.6) }
}
"""


def html(audit: Json) -> str:
    """The whole page.

    Args:
        audit: the JSON of an audit.
    """
    title = f"Audit of {audit['model']}"
    head, *rest = summary(audit)
    by_name = {finding["parameter"]: finding for finding in audit["findings"]}
    body = "\n".join(_row(row, by_name) for row in rows(audit))
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width">
<title>{escape(title)}</title>
<style>{_STYLE}</style>
</head>
<body>
<h1>{escape(title)}</h1>
<p>{escape(head)}</p>
<table>
<thead><tr><th>parameter</th><th>verdict</th><th class="number">size</th><th class="number">free</th>
<th class="number">foldable</th><th class="number">norm</th><th class="number">largest</th><th class="number">idle</th>
<th>why</th></tr></thead>
<tbody>
{body}
</tbody>
</table>
<ul>
{"".join(f"<li>{escape(line.strip())}</li>" for line in rest)}
</ul>
</body>
</html>
"""


def _row(row: FindingRow, by_name: Mapping[str, Json]) -> str:
    colour = _COLOURS.get(row.verdict, "inherit")
    return (
        f"<tr><td><code>{escape(row.parameters)}</code></td>"
        f'<td><b style="color:{colour}">{escape(row.verdict)}</b></td>'
        f'<td class="number">{row.size}</td><td class="number">{row.free}</td><td class="number">{row.absorbable}</td>'
        f"{''.join(f'<td class=number>{size_in_words(size)}</td>' for size in row.sizes)}"
        f"<td>{escape(row.why)}{_details(by_name[row.names[0]])}</td></tr>"
    )


def _details(finding: Json) -> str:
    """Target of the fold and cause of the redundancy, for the first parameter of a row."""
    folds = [f"<li><code>{escape(fold['formula'])}</code></li>" for fold in finding["fold_into"]]
    blocks = [
        f"<li>{escape(blocked['op'])} in <code>{escape(blocked['module'])}</code> holds {blocked['rank']}: "
        f"{escape(blocked['why'])} <code>{escape(blocked['where'])}</code></li>"
        for blocked in finding["blocked_by"]
    ]
    parts = [("folds into", folds), ("held by", blocks)]
    shown = "".join(f"<p>{name}</p><ul>{''.join(items)}</ul>" for name, items in parts if items)
    name = escape(finding["parameter"])
    return f"<details><summary>details of <code>{name}</code></summary>{shown}</details>" if shown else ""
