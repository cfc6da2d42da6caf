"""The text of a new mechanism's file, which `addnorm new --mechanism` writes. Imports no torch."""

import re
import textwrap
from pathlib import Path

from addnorm.catalogue import ROOMS

EXAMPLES = {
    "residual": "rezero",
    "scores": "weighted",
    "values": "normed",
    "sink": "constant",
    "column": "earlier",
    "attended": "head_scale",
    "norm": "dyt",
    "placement": "sandwich",
    "block": "parallel",
    "bias": "scalar",
    "position": "alibi",
}
"""The mechanism of each room whose file a new one begins with: short, and with what most of its room have."""
_STEPS = """\
# A mechanism of your own for the room `{room}`: it computes what `{example}` does until you change it.
#   1. Say in the text above what you try. The indented lines are the formula that pages and reports show.
#   2. Change the module. The docstring of addnorm.{room} says what each method gets and returns:
#      python -c "import addnorm.{room}; help(addnorm.{room})"
#   3. Say in `reduces_to` what it equals, and where: that proves that the file does what it says.
#   4. addnorm list {room} --plugin {file}     checks it against every law of the built-in mechanisms
#   5. Name it in a study (addnorm new --blank):   plugins: [{file}]
#                                                  variants: {{mine: {{{field}: {kind}}}}}
# The laws, one by one: docs/guide/own-mechanism.md.
"""
_COMMENTS = {
    "    @classmethod\n    def reduces_to(": (
        "With these settings and parameters it equals another mechanism, held in float64; () if it equals none."
    ),
    "    def build(": "Makes the module, once per model or layer. `shape` has the model's sizes, such as shape.width.",
    "    parameter_roles": "What each parameter is, for weight decay; one without a role is not decayed.",
    "    def write(": "`state` is the stream [batch, seq, width], `y` the branch's output, `site` its place in the model.",
    "    def weights(": "The weights of the joining layers, earliest first: numbers, or a tensor on the model's device.",
    "    def join(": "`own` are the layer's values, `earlier` those of the layers before it.",
    "    def logits(": "One number per head, which competes with the scores of all positions.",
    "    def sources(": "Earlier layers whose keys and values this layer's queries also see.",
    "    def forward(": "Constants must be made of the input's dtype and on its device.",
    "    def sockets(": "The sockets that hold a norm.",
    "    def sites(": "The branches of a layer, in order.",
    "    def spread(": "The bias as one vector for all heads.",
    "    def measure(": "What depends on distances alone, computed once for all layers.",
    "    def bias(": "Added to the scores at each distance, before the softmax.",
}
"""Comments of the lines that begin so."""


def mechanism_source(room: str, path: Path) -> str:
    """The text of a new mechanism's file: the room's example under another name, with comments.

    Args:
        room: one of the rooms of mechanisms.
        path: the file, whose name is the mechanism's kind.
    """
    # Made from a built-in file and not from a template of its own: that file passes the contract in every test session, so
    # what a newcomer starts from cannot go out of date.
    home, kind = ROOMS[room], EXAMPLES[room]
    source = home.module_file(kind).read_text(encoding="utf-8")
    body = source[
        source.index("\nfrom __future__") if "\nfrom __future__" in source else source.index('"""\n', 5) + 4 :
    ]
    title = "".join(word.capitalize() for word in path.stem.split("_"))
    spec = next(name for name in re.findall(r"^class (\w+)\(", body, re.M) if name.lower() == kind.replace("_", ""))
    body = re.sub(rf"\b{spec}(?=[A-Z]?\w*\b)", title, body)
    for start, comment in _COMMENTS.items():
        lines = textwrap.fill(comment, 110, initial_indent="    # ", subsequent_indent="    # ")
        body = re.sub(rf"^({re.escape(start)})", rf"{lines}\n\1", body, count=1, flags=re.M)
    doc = home.doc(kind)
    formula = textwrap.indent(textwrap.dedent(doc.formula), "    ")
    field = "qk_bias" if room == "bias" else room
    steps = _STEPS.format(room=room, example=kind, file=path.name, kind=path.stem, field=field)
    return (
        f'r"""{title}: one sentence about what you try, which now is that of {kind}.\n\n{formula}\n\n'
        f"Why: the idea behind it.\n\nSource: none.\nDiffers from the source: nothing.\n"
        f'"""\n\n{steps}\n{body.lstrip()}'
    )
