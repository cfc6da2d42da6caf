r"""A mechanism's formula, from the plain text of its docstring to MathML.

    x_{l+1} = x_l + alpha_l * f_l(x_l),        alpha_l = 0 at initialisation

The docstrings' notation is small: scripts with `_` and `^`, braces that group, `sqrt(…)`, `sum_{…}`, `/` for a fraction,
names of Greek letters, words that stay words, and eight blanks between statements. What does not fit becomes a word, never
an error, so that no formula prevents a page from being shown.
"""

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from markupsafe import Markup, escape

from addnorm.words import phrases

_GREEK = {
    "alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "eps": "ε", "epsilon": "ε", "theta": "θ", "lambda": "λ",
    "mu": "μ", "rho": "ρ", "sigma": "σ", "tau": "τ", "phi": "φ", "psi": "ψ", "omega": "ω", "pi": "π", "eta": "η",
}  # fmt: skip
_FUNCTIONS = frozenset(
    "softmax mean var sin cos tanh exp log max min rms head logits embedding table".split()  # noqa: SIM905
)
_SIGNS = {"<-": "←", "->": "→", "<=": "≤", ">=": "≥", "*": "⋅", "-": "−", "~": "∼"}
_RELATIONS = frozenset(("=", "<-", "->", "<=", ">=", "<", ">", "+", "-", ",", ";", ":", "~", "in", "for"))
_IDEOGRAPHS = "\u3000-\u30ff\u4e00-\u9fff\uff00-\uffef"
"""Chinese characters and punctuation, which stand together without blanks."""
_TOKEN = re.compile(rf"\s*(<-|->|<=|>=|`[^`]*`|\d+(?:\.\d+)?|[A-Za-z]+\d*|[{_IDEOGRAPHS}]+|[^\sA-Za-z0-9])")
_IS_CHINESE = re.compile(f"[{_IDEOGRAPHS}]")
_CLOSING = {"(": ")", "[": "]", "{": "}"}


def prose(text: str) -> Markup:
    """A docstring's text as HTML: what stands between backticks is code, everything is escaped."""
    parts = text.replace("``", "`").split("`")
    if len(parts) % 2 == 0:  # a backtick without a partner
        return escape(text)
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if i % 2 else escape(part) for i, part in enumerate(parts)
    )


def typeset(text: str, language: str = "en") -> Markup:
    """The formula's lines as MathML blocks, one per statement, with their words in the language."""
    blocks = [
        Markup('<div class="statement"><math displaystyle="true" alttext="{}">{}</math></div>').format(
            part, _mathml(part)
        )
        for line in text.splitlines()
        for part in (translated(piece.rstrip(","), language) for piece in re.split(r"\s{2,}", line.strip()))
        if part
    ]
    return Markup("").join(blocks)


def translated(statement: str, language: str) -> str:
    """A formula's statement with the words between its symbols in the language; what has no translation stays.

    Example:
        >>> translated("w_l = 0 at initialisation", "zh")
        'w_l = 0 （初始时）'
    """
    pattern, known = _wordings(language)
    return pattern.sub(lambda matched: known[matched[0]], statement) if known else statement


@functools.cache
def _wordings(language: str) -> tuple[re.Pattern[str], Mapping[str, str]]:
    """The words of formulas in a language by their English, and what finds these, the longest first."""
    start = "formula."
    words = phrases(language).words.items()
    known = {key.removeprefix(start): text for key, text in words if key.startswith(start)}
    longest_first = "|".join(map(re.escape, sorted(known, key=len, reverse=True)))
    return re.compile(rf"(?<![A-Za-z_])(?:{longest_first})(?![A-Za-z_(])"), known


_WORD_BEFORE = re.compile(r"(?<!<msub>)(?<!<msup>)(<mtext>[^<]*)(?=</mtext><m(?:i|n|sub|sup|frac|sqrt)[ >])")
"""A word that a symbol follows, but for a word that the symbol is an index of."""


@dataclass(frozen=True)
class _Part:
    markup: Markup
    bare: Markup
    """The same without its brackets, for places that need none: a fraction's ends, a root."""


def _mathml(statement: str) -> Markup:
    tokens = _Tokens(statement)
    rows = []
    while tokens.here is not None:
        rows.append(_row(tokens, None))
        if tokens.here is not None:  # a closing bracket that nothing opened
            rows.append(_operator(tokens.take()))
    whole = _element("mrow", *rows)
    # A bracket among words takes the blank before it, not the one after; a name or a number after a word takes one too.
    text = str(whole).replace("</mtext><mrow><mo>(</mo><mtext>\u00a0", "\u00a0</mtext><mrow><mo>(</mo><mtext>")
    return Markup(_WORD_BEFORE.sub("\\1\u00a0", text))


# A parser by hand, because the notation is prose for people first: docstrings have to be read in a terminal. LaTeX in
# docstrings could be handed to a library, and would be read by nobody; translating this notation to LaTeX takes the
# same parser (fractions need the extent of what stands before a stroke), which then only prints other tags. See
# docs/decisions/0072-pages.md.
#
# _row: everything between brackets; _chain: factors up to a relation; _factor: an atom or a bracket with its scripts.
# Each takes at least one token or returns, so that every text ends, also one with unbalanced brackets.
class _Tokens:
    def __init__(self, text: str) -> None:
        self._left: Iterator[str] = iter(_TOKEN.findall(text))
        self.here: str | None = next(self._left, None)

    def take(self) -> str:
        taken = self.here or ""
        self.here = next(self._left, None)
        return taken


def _row(tokens: _Tokens, until: str | None) -> Markup:
    """Everything up to a closing bracket: chains of factors between relations."""
    parts = []
    while tokens.here is not None and tokens.here != until and tokens.here not in _CLOSING.values():
        if tokens.here in _RELATIONS:
            sign = tokens.take()
            parts.append(_word(sign) if sign.isalpha() and sign != "in" else _operator("∈" if sign == "in" else sign))
        else:
            parts.append(_chain(tokens))
    return Markup("").join(parts)


def _chain(tokens: _Tokens) -> Markup:
    """Adjacent factors. A stroke makes a fraction of all that stands before it in the chain."""
    factors: list[_Part] = []
    while tokens.here is not None and tokens.here not in _RELATIONS and tokens.here not in _CLOSING.values():
        if tokens.here == "/" and factors:
            tokens.take()
            above = factors[0].bare if len(factors) == 1 else _joined(factors)
            below = _factor(tokens) if tokens.here is not None else _Part(Markup(""), Markup(""))
            factors = [_both(_element("mfrac", _element("mrow", above), _element("mrow", below.bare)))]
        else:
            factors.append(_factor(tokens))
    return _joined(factors)


def _joined(factors: list[_Part]) -> Markup:
    return Markup("").join(part.markup for part in factors)


def _factor(tokens: _Tokens) -> _Part:
    token = tokens.take()
    if token == "sqrt":
        inner = _factor(tokens) if tokens.here is not None else _Part(Markup(""), Markup(""))
        return _scripts(_both(_element("msqrt", inner.bare)), tokens)
    if token in _CLOSING:
        inner_row = _row(tokens, _CLOSING[token])
        closing = tokens.take()
        whole = _element("mrow", _operator(token), inner_row, _operator(closing))
        return _scripts(_Part(whole, _element("mrow", inner_row)), tokens)
    if token == "sum":
        return _scripts(_both(Markup('<mo largeop="true" movablelimits="false">∑</mo>')), tokens, under=True)
    return _scripts(_both(_atom(token)), tokens)


def _scripts(base: _Part, tokens: _Tokens, *, under: bool = False) -> _Part:
    below = above = None
    while tokens.here in ("_", "^"):
        kind = tokens.take()
        script = _script(tokens)
        below, above = (script, above) if kind == "_" else (below, script)
    if below is None and above is None:
        return base
    tag = "munder" if under and above is None else "msub" if above is None else "msup" if below is None else "msubsup"
    scripts = (part for part in (below, above) if part is not None)
    return _both(_element(tag, _element("mrow", base.markup), *scripts))


def _script(tokens: _Tokens) -> Markup:
    if tokens.here == "{":
        tokens.take()
        inner = _row(tokens, "}")
        tokens.take()
        return _element("mrow", inner)
    return _atom(tokens.take())


def _atom(token: str) -> Markup:
    if token[:1].isdigit():
        return _element("mn", token)
    if token in _GREEK:
        return _element("mi", _GREEK[token])
    if re.fullmatch(r"[A-Z]t", token):  # Qt, Kt: with a tilde
        return _element("mover", _element("mi", token[0]), _element("mo", "~"))
    matched = re.fullmatch(r"([A-Z])(\d)", token)
    if matched:  # N1, N2
        return _element("msub", _element("mi", matched[1]), _element("mn", matched[2]))
    if len(token) == 1 and token.isalpha():
        return _element("mi", token)
    if token in _FUNCTIONS:
        return Markup('<mi mathvariant="normal">{}</mi>').format(token)
    is_word = token[:1].isalpha() or token.startswith("`") or _IS_CHINESE.match(token)
    return _word(token) if is_word else _operator(token)


def _word(token: str) -> Markup:
    # MathML drops plain blanks at the ends of a text, and words of a sentence must not run into each other.
    return _element("mtext", token if _IS_CHINESE.match(token) else f"\u00a0{token.strip('`')}")


def _operator(token: str) -> Markup:
    return _element("mo", _SIGNS.get(token, token))


def _element(tag: str, *content: str) -> Markup:
    """An element; what is no markup yet is escaped."""
    return Markup(f"<{tag}>{{}}</{tag}>").format(Markup("").join(content))


def _both(markup: Markup) -> _Part:
    return _Part(markup, markup)
