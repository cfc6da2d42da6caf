"""Writes docs/shipped-residuals.md, the unusual residuals of Transformers: `python docs/shipped_residuals.py`.

Rows come from the tables of `load_hf`, facts from the catalogue, counts from `addnorm.symmetries` on small models.
"""

import importlib
import json
import re
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

import addnorm
from addnorm.catalogue import ROOMS
from addnorm.model.shipped_presets import SHIPPED_PRESETS
from addnorm.outside.hugging_face.classes import CLASSES
from addnorm.outside.hugging_face.missing import missing_parts
from addnorm.outside.hugging_face.shipped.reading import TABLES
from addnorm.reduction import Reduction

SOURCE = "https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/models"
COUNTED: Mapping[str, Mapping[str, Any]] = {
    "variance_keeping": {"residual": "variance_keeping", "placement": "sandwich"},
    "stream_weight": {"residual": "stream_weight"},
    "affine": {"residual": "affine"},
    "initial_state": {"residual": "initial_state"},
    "block_attention": {"residual": {"kind": "block_attention", "block": 1}},
    "altup": {"residual": {"kind": "altup", "streams": 2, "rank": 1}},
    "gated": {"norm": {"kind": "gated", "rank": 2}},
}
"""The small model in which the numbers of a joint are counted."""
UNCOUNTED = {
    "gated_streams": "not counted: 46 directions are measured and not proven",
}
"""Joints whose count is not settled, with what `addnorm.symmetries` said."""
TABULATED = ("hyper_connections",)
"""Joints whose analysis takes minutes: their row of the stored table of learned numbers is read."""
DATA = Path(addnorm.__file__).parent / "insight" / "learned_numbers.json"
HEAD = """# Residuals of shipped architectures

The classes of Transformers 5.23 whose joints are unusual, each as a joint of this library.
`addnorm.load_hf` loads a checkpoint of every class of the first table: the stream, its reads and
its writes are `model.residual` of this library, and the parts named under "theirs" are the modules
of the class. Tests hold logits, cached decoding, left padding and gradients to those of the class,
with a difference below 1e-9 in float64.

`addnorm.preset` has the architectures with all joints of this library, at the released sizes; the
docstring of each says what else the class has. `python docs/shipped_residuals.py` writes this
page.

"""
NONE = "nothing known, but no table reads their weights"
NOT_BUILT = "not asked, because the class is not built from its default configuration here"
LACKING = """
## Classes that do not load

A specification has no room for these parts of the other classes that make logits of tokens, each
with its default configuration. `addnorm.load_hf` names them for a checkpoint, with the module,
field or argument that shows them: it reads them from the class's configuration, modules and code. A
class may have several, and further ones that are not seen. `addnorm audit` takes them as they are;
`addnorm inspect`, `addnorm.identities` and `addnorm.depth_matrix` those that read tokens, with the
reason where a stream cannot be followed; and `addnorm.joint` stands between branches of any module.

"""
_SIZES = {"vocab": 11, "width": 4, "depth": 2, "heads": 1, "kv_heads": 1, "hidden": 3, "max_seq": 9}


def equalities(room: str, kind: str) -> list[str]:
    """What a mechanism is proved to equal, and where."""
    return [_equality(reduction) for reduction in ROOMS[room].spec_class(kind).reduces_to() or ()]


def _equality(reduction: Reduction) -> str:
    other = ", ".join(f"{field} {_value(value)}" for field, value in reduction.to.items())
    held = [f"{name} {value}" for name, value in reduction.settings.items()]
    if reduction.parameters == "start":
        held.append("numbers as they start")
    else:
        held += [f"all of `{name}` {_number(value)}" for name, value in reduction.parameters.items()]
    held += [f"{name} {_value(value)}" for name, value in reduction.given.items()]
    where = f" with {', '.join(held)}" if held else ""
    return f"{other}{where}{'' if reduction.equal == 'exactly' else ', up to a factor of the stream'}"


def _number(value: Any) -> str:
    return "as at the start" if value == "start" else f"{value}"


def _value(value: Any) -> str:
    if not isinstance(value, Mapping):
        return f"`{value}`"
    further = ", ".join(f"{name} {field}" for name, field in value.items() if name != "kind")
    return f"`{value['kind']}`" + (f" ({further})" if further else "")


def count(kind: str) -> str:
    """The learned numbers of a joint that can matter, of all, in a small model."""
    if kind in TABULATED:
        row = json.loads(DATA.read_text(encoding="utf-8"))[f"residual.{kind}"]
        return (
            f"{row['matter']} of {row['numbers']} can matter in two layers of width 8 ([settings](learned-numbers.md))"
        )
    if kind not in COUNTED:
        return UNCOUNTED.get(kind, "no learned numbers")
    fields: Any = {**_SIZES, "position": "learned", **COUNTED[kind]}
    model = addnorm.preset("llama", **fields).build(seed=0).double().eval()
    random = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=random, dtype=parameter.dtype))
    parameters = dict(model.named_parameters())
    names = [name for name in parameters if name.startswith("residual.") or _of_gate(kind, name)]
    found = addnorm.symmetries(model, torch.arange(18).reshape(2, 9) % 11)
    return f"{found.effective_of(names)} of {sum(parameters[name].numel() for name in names)} can matter"


def _of_gate(kind: str, name: str) -> bool:
    return kind == "gated" and name.endswith(("norm.up", "norm.down"))


def rows() -> list[str]:
    """The table of the classes that load."""
    lines = []
    for kind, table in TABLES.items():
        room, joint = table.joint
        folder = preset = kind.removesuffix("_text")
        lines.append(
            f"| [{table.architecture}]({SOURCE}/{folder}/modeling_{folder}.py) | {room} `{joint}` | {table.theirs} | "
            f"{'`' + preset + '`' if preset in SHIPPED_PRESETS else '–'} | {table.note or '–'} |"
        )
    return lines


def missing() -> list[str]:
    """An entry per part that a specification cannot have, with the classes that have it; minutes."""
    found: dict[str, list[str]] = {}
    for kind, name in sorted(language_models().items()):
        if kind not in CLASSES.kinds() and name not in {table.architecture for table in TABLES.values()}:
            for part in parts(name):
                found.setdefault(part, []).append(f"`{kind}`")
    ordered = sorted(found.items(), key=lambda one: (one[0] in (NOT_BUILT, NONE), -len(one[1]), one[0]))
    return [wrapped(f"{part} ({len(kinds)}): {', '.join(kinds)}.", "- ") for part, kinds in ordered]


def language_models() -> dict[str, str]:
    """Classes of the installed Transformers that make logits of tokens, by `model_type`."""
    auto = importlib.import_module("transformers.models.auto.modeling_auto")
    masked, pairs = auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES, auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES
    return {**masked, **pairs, **auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES}


def parts(name: str) -> list[str]:
    """The parts that a specification lacks of a class with its default configuration, without the place of each."""
    try:
        cls = getattr(importlib.import_module("transformers"), name)
        found = missing_parts(cls.config_class().to_dict() | {"architectures": [name]})
    except Exception:  # noqa: BLE001 - a class may lack a package or refuse its own defaults with any exception
        return [NOT_BUILT]
    return [re.sub(r"^\d+ of \d+ | \(.*", "", part) for part in found] or [NONE]


def page(counts: Mapping[str, str] | None = None, lacking: str | None = None) -> str:
    """The text of docs/shipped-residuals.md.

    Args:
        counts: the counts by joint; None to make them.
        lacking: the list of missing parts; None to make it.
    """
    joints = sorted({table.joint for table in TABLES.values()})
    text = HEAD + "## Classes that load\n\n| class | joint | theirs | preset | |\n|---|---|---|---|---|\n"
    text += "\n".join(rows())
    text += (
        "\n\nNo other class of Transformers 5.23 has the signs of an unusual residual in its code; a test asks\n"
        "the installed one.\n\n## What the joints equal\n\n"
        "Every line is held in float64 with all other parameters at random. The count is that of\n"
        "`addnorm.symmetries` in a model of two layers of width 4: directions of the joint's numbers that\n"
        "no other parameter can undo.\n"
    )
    for room, kind in joints:
        spec = ROOMS[room].doc(kind)
        number = counts[kind] if counts is not None and kind in counts else count(kind)
        facts = [*(f"equals {line}" for line in equalities(room, kind)), f"learned numbers: {number}"]
        lines = "\n".join(
            wrapped(fact, "- ") for fact in (facts if len(facts) > 1 else ["equals nothing else", *facts])
        )
        text += f"\n### {room} `{kind}`\n\n{wrapped(spec.summary)}\n\n{lines}\n"
    return text + LACKING + (lacking if lacking is not None else "\n".join(missing()) + "\n")


def wrapped(text: str, mark: str = "") -> str:
    """A paragraph, or an entry of a list, in lines of at most 100 characters."""
    hang = " " * len(mark)
    return textwrap.fill(mark + text, 100, subsequent_indent=hang, break_long_words=False, break_on_hyphens=False)


if __name__ == "__main__":
    Path(__file__).with_name("shipped-residuals.md").write_text(page(), encoding="utf-8")
