"""Formulas: every built-in docstring's, and the notation piece by piece."""

import re
import xml.etree.ElementTree as ET

import pytest

from addnorm.catalogue import MECHANISM_ROOMS, ROOMS
from addnorm.reporting.formats.formula import prose, typeset

ALL = [(room, kind) for room in MECHANISM_ROOMS for kind in ROOMS[room].kinds()]


def plain(markup: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", markup)).strip()


@pytest.mark.parametrize(("room", "kind"), ALL, ids=lambda value: str(value))
def test_every_mechanisms_formula_is_whole_mathml(room, kind):
    formula = ROOMS[room].doc(kind).formula
    made = typeset(formula)
    root = ET.fromstring(f"<all>{made.replace('&#39;', chr(39))}</all>")
    assert len(root) >= 1
    shown = "".join(root.itertext())
    # Nothing is lost: every digit and every closing bracket of the text is in the formula or made a fraction of.
    assert re.findall(r"\d", shown) == re.findall(r"\d", re.sub(r"`", "", formula))
    assert "_" not in shown
    assert "^" not in shown


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x_{l+1}", "<msub><mrow><mi>x</mi></mrow><mrow><mi>l</mi><mo>+</mo><mn>1</mn></mrow></msub>"),
        ("1/sqrt(d_k)", "<mfrac><mrow><mn>1</mn></mrow><mrow><msqrt><mrow><msub>"),
        ("Q_m K_m^T", "<msubsup><mrow><mi>K</mi></mrow><mi>m</mi><mi>T</mi></msubsup>"),
        ("alpha", "<mi>α</mi>"),
        ("a <- b", "<mo>←</mo>"),
        ("sum_{i<=m} u_i", "<munder>"),
        ("Qt_m", "<mover><mi>Q</mi><mo>~</mo></mover>"),
        ("a = 1 at initialisation", "<mtext>\u00a0at</mtext><mtext>\u00a0initialisation</mtext>"),
    ],
)
def test_notation(text, expected):
    assert expected in typeset(text)


ODD = ["", "(", ")", "x_", "x^", "/", "1/", "sqrt", "{", "}{", "((((", "a_{b_{c", "<script>", "&", "∑ ∞", "x" * 500]


@pytest.mark.parametrize("text", ODD)
def test_what_does_not_fit_is_shown_all_the_same(text):
    made = typeset(text)
    assert "<script>" not in made
    ET.fromstring(f"<all>{made}</all>")


def test_a_bracket_among_words_stands_off_from_the_word_before():
    made = typeset("1 at the start (so it is `sum`)")
    assert "\u00a0start\u00a0</mtext><mrow><mo>(</mo><mtext>so</mtext>" in made


def test_words_are_kept_and_statements_part():
    made = typeset("y = x,        x = 0 at the start")
    assert made.count('<div class="statement">') == 2
    assert plain(made).replace("\u00a0", " ") == "y=xx=0 at the start"


def test_backticks_are_code_and_everything_is_escaped() -> None:
    assert prose("take `a < b` & ``c``") == "take <code>a &lt; b</code> &amp; <code>c</code>"
    assert prose("one ` alone <b>") == "one ` alone &lt;b&gt;"
