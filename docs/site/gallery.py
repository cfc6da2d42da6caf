"""Gallery of mechanisms from the catalogue: formula, code, depth matrix, and the studies that use them."""

import html
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

import addnorm
from addnorm.catalogue import MECHANISM_ROOMS, ROOMS, Spec
from addnorm.cli.list import LEARNED_NUMBERS
from addnorm.errors import AddnormError
from addnorm.insight.depth.matrix import READERS
from addnorm.reporting.formats.formula import typeset
from addnorm.study.loading import load_study, study_names

SIZES = {"vocab": 32, "width": 16, "depth": 4, "heads": 2, "kv_heads": 2, "hidden": 32, "max_seq": 16}
_FIELDS = {"bias": "qk_bias"}
"""Fields of a model's spec that are not named after their room."""
_MOST_VARIANTS = 6
"""Named per study."""


def write(root: Path, folder: Path) -> dict[str, str]:
    """Write a page per room. Returns them for the navigation."""
    folder.mkdir(parents=True)
    used = users(study_names())
    reports = {path.stem for path in (root / "docs/studies").glob("*.md")}
    navigation, rows = {}, []
    for name in MECHANISM_ROOMS:
        room = ROOMS[name]
        parts = [_mechanism(root, name, kind, used.get((name, kind), {}), reports) for kind in room.kinds()]
        (folder / f"{name}.md").write_text(f"# Mechanisms: {name}\n\n{''.join(parts)}", encoding="utf-8")
        navigation[name] = f"mechanisms/{name}.md"
        rows.append(f"| [{name}]({name}.md) | {', '.join(f'[`{k}`]({name}.md#{k})' for k in room.kinds())} |\n")
    about = "Every mechanism that `addnorm list` knows, from its own file: formula, reason, source, code."
    text = f"# Mechanisms\n\n{about}\n\n| room | mechanisms |\n|---|---|\n{''.join(rows)}"
    (folder / "index.md").write_text(text, encoding="utf-8")
    return {"All": "mechanisms/index.md", **navigation}


def _mechanism(root: Path, room: str, kind: str, studies: Mapping[str, Sequence[str]], reports: set[str]) -> str:
    doc = ROOMS[room].doc(kind)
    file = root / "src" / "addnorm" / room / f"{kind}.py"
    parts = [f"## `{kind}` {{ #{kind} }}\n\n{doc.summary}\n\n"]
    if doc.formula:
        parts.append(f'<div class="formula">{_formula(room, doc.formula)}</div>\n\n')
    parts += [f"**{title}.** {text}\n\n" for title, text in (("Why", doc.why), ("Source", doc.source)) if text]
    if doc.differs and doc.differs != "nothing.":
        parts.append(f"**Differs from the source.** {doc.differs}\n\n")
    parts.append(_learned(room, kind))
    parts.append(_matrix(room, kind))
    parts.append(_studies(studies, reports))
    parts.append(f'```python title="src/addnorm/{room}/{kind}.py"\n{_code(file)}\n```\n\n')
    return "".join(parts)


def _learned(room: str, kind: str) -> str:
    """How many of its learned numbers can matter, from the table of docs/learned_numbers.py."""
    counts = json.loads(LEARNED_NUMBERS.read_text(encoding="utf-8")).get(f"{room}.{kind}", {})
    if not counts.get("numbers") or counts.get("matter") is None:
        return ""
    return (
        f"**Learned numbers.** {counts['numbers']} in two layers of width 8, of which {counts['matter']} "
        "[can matter](../docs/learned-numbers.md).\n\n"
    )


def users(studies: Sequence[str]) -> dict[tuple[str, str], dict[str, list[str]]]:
    """By room and kind: the studies with a variant of it, each with these variants; presets are resolved."""
    by_mechanism: dict[tuple[str, str], dict[str, list[str]]] = {}
    for study in studies:
        for variant, spec in load_study(study).variants.items():
            for room in MECHANISM_ROOMS:
                mechanism = getattr(spec, _FIELDS.get(room, room), None)
                if isinstance(mechanism, Spec) and (room != "bias" or spec.bias.q or spec.bias.k):
                    by_mechanism.setdefault((room, mechanism.kind), {}).setdefault(study, []).append(variant)
    return by_mechanism


def _studies(studies: Mapping[str, Sequence[str]], reports: set[str]) -> str:
    if not studies:
        return "**Studies.** No built-in study uses it.\n\n"
    named = []
    for study, variants in studies.items():
        shown = f"[{study}](../docs/studies/{study}.md)" if study in reports else f"`{study}`"
        more = f" and {len(variants) - _MOST_VARIANTS} more" if len(variants) > _MOST_VARIANTS else ""
        named.append(f"{shown} ({', '.join(f'`{variant}`' for variant in variants[:_MOST_VARIANTS])}{more})")
    return f"**Studies** with it, and their variants: {'; '.join(named)}.\n\n"


def _formula(room: str, text: str) -> str:
    """Every line as MathML, with the condition under which it holds; settings by their names."""
    shown = []
    for line in text.splitlines():
        formula, _, condition = re.sub(rf"\b{room}\.([a-z_]+)", r"\1", line).partition("   if ")
        note = f'<span class="condition">if <code>{html.escape(condition.strip())}</code></span>' if condition else ""
        shown.append(f"<div>{typeset(formula)}{note}</div>")
    return "".join(shown)


def _code(file: Path) -> str:
    """The file without its docstring, which the page shows already."""
    text = file.read_text(encoding="utf-8")
    return re.sub(r'\A(?:r|R)?"""(?:.|\n)*?"""\n+', "", text).strip()


def _matrix(room: str, kind: str) -> str:
    """The depth matrix of a model of four layers at its start; nothing for a mechanism that plain sizes cannot build."""
    if room not in READERS:
        return ""
    try:
        model = addnorm.preset("base", **SIZES, **{room: kind}).build(seed=0).eval()
        weights = addnorm.depth_matrix(model, torch.arange(16).reshape(1, 16), room).weights
    except AddnormError as error:
        return f"No depth matrix at plain sizes: {html.escape(str(error))}\n\n"
    rows, columns = weights.shape
    if (weights[weights != 0] == 1).all() and room == "residual":
        return "Every read has the weight 1 of every source before it at the start.\n\n"
    largest = float(weights.abs().max()) or 1.0
    cells = "".join(
        f'<rect x="{c}" y="{r}" width="1" height="1" fill-opacity="{abs(float(weights[r, c])) / largest:.2f}">'
        f"<title>{float(weights[r, c]):.3g}</title></rect>"
        for r in range(rows)
        for c in range(columns)
        if float(weights[r, c])
    )
    caption = f"Weights at the start, 4 layers: rows read, columns are read. Darkest: {largest:.3g}."
    frame = f'<rect class="frame" width="{columns}" height="{rows}"/>'
    svg = f'<svg viewBox="0 0 {columns} {rows}" role="img" aria-label="{caption}">{frame}{cells}</svg>'
    return f'<figure class="depth">{svg}<figcaption>{caption}</figcaption></figure>\n\n'
