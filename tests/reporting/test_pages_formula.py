"""Formulas: every built-in docstring's, and the notation piece by piece."""

import re
import xml.etree.ElementTree as ET

import pytest

from addnorm.catalogue import MECHANISM_ROOMS, ROOMS
from addnorm.reporting.formats.formula import prose, translated, typeset
from addnorm.reporting.sections.model import mechanisms
from addnorm.words import LANGUAGES, phrases

ALL = [(room, kind) for room in MECHANISM_ROOMS for kind in ROOMS[room].kinds()]
NAMES = frozenset(
    """
    attention batch bucket dim erf feedforward gelu hidden ij key last layer mean mid mod norm post pre relu score scores seq
    silu sink slope sum token tokens values window write zeta f1 f2
    """.split()  # noqa: SIM905
)
"""Of functions, numbers and indices in formulas: they are no words of a language."""
SETTING = re.compile(r"\b[a-z]+\.[a-z_]+")


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


def formulas() -> list[str]:
    """Every line of every built-in formula, without its condition."""
    lines = [line for room, kind in ALL for line in ROOMS[room].doc(kind).formula.splitlines()]
    return [re.split(r"\s{2,}if ", line)[0] for line in lines]


def words_in(made: str) -> set[str]:
    return {word.strip("\u00a0") for word in re.findall(r"<mtext>([^<]*)</mtext>", made)}


@pytest.mark.parametrize("language", [language for language in LANGUAGES if language != "en"])
def test_words_of_formulas_are_translated(language):
    """One that is not is no error: it is shown in English. This test names such words by being skipped."""
    text = "\n".join(formulas())
    wordings = [key.removeprefix("formula.") for key in phrases(language).words if key.startswith("formula.")]
    assert [wording for wording in wordings if wording not in text] == []
    shown = words_in(typeset(SETTING.sub("1", text), language))
    left = {word for word in shown if word.isascii()} - NAMES
    if left:
        pytest.skip(f"shown in English in formulas of {language} pages: {', '.join(sorted(left))}")


def test_a_page_shows_a_formula_in_its_language():
    spec = {"residual": {"kind": "rezero", "alpha_init": 0.25}}
    shown = {language: mechanisms(spec, language)[0].formula for language in LANGUAGES}
    assert "<mtext>\u00a0at</mtext><mtext>\u00a0initialisation</mtext>" in shown["en"]
    assert "<mn>0.25</mn><mtext>（初始时）</mtext>" in shown["zh"]
    assert "initialisation" not in shown["zh"]


def test_the_longest_wording_counts_and_no_part_of_a_name():
    assert translated("at initialisation (so it starts as `sum`)", "zh") == "（初始时，即从 `sum` 开始）"
    assert translated("entries_l = embeddings(token)", "zh") == "entries_l = embeddings(token)"
    assert translated("at initialisation", "en") == "at initialisation"


def test_a_fraction_has_all_of_its_words_below():
    made = typeset("A = relu(scores)^2 / (number of visible keys)")
    assert plain(made.partition("</mfrac>")[0]).replace("\u00a0", " ").endswith("number of visible keys")
