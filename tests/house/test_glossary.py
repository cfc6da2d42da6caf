"""The glossary gives each concept one word, in both languages, and the source keeps to it."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
ENGLISH, CHINESE = ROOT / "docs" / "glossary.md", ROOT / "docs" / "glossary.zh-CN.md"
SOURCES = sorted((ROOT / "src" / "addnorm").rglob("*.py"))
CHINESE_TEXTS = sorted(
    [
        *(ROOT / "src" / "addnorm" / "words" / "zh").glob("*.toml"),
        *(ROOT / "docs" / "guide").glob("*.zh-CN.md"),
        ROOT / "README.zh-CN.md",
    ]
)

KEPT_STRINGS = re.compile(r"--[\w-]+|[\w./-]*\w\.(?:jsonl?|md)\b|\bmirrors?/|^(?:stretch|stretches|mirrors?|looks?)$")
"""Options, files and JSON keys that keep their name although the word is not used any more."""


PHRASES = ("told of", "is no folder", "that is none")
"""Turns of phrase that readers had to decode."""


def rows(path: Path) -> list[list[str]]:
    lines = path.read_text(encoding="utf-8").splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    return [row for row in cells if row[0] not in ("word", "中文")]


def former_words() -> set[str]:
    return {word.strip() for row in rows(ENGLISH) for word in row[3].split(",") if word.strip()}


def room_of(path: Path) -> str:
    return path.relative_to(ROOT / "src" / "addnorm").parts[0]


@cache  # names come again and again
def parts(text: str) -> frozenset[str]:
    """Words of a text or of a name in snake_case or CamelCase."""
    return frozenset(word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", text))


@cache
def nodes(path: Path) -> list[ast.AST]:
    """Every node of a source file, parsed once for all tests."""
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def words_of(path: Path) -> Iterator[tuple[int, frozenset[str]]]:
    source = path.read_text(encoding="utf-8")
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.NAME:
            yield token.start[0], parts(token.string)
        elif token.type == tokenize.COMMENT:
            yield token.start[0], parts(KEPT_STRINGS.sub("", token.string))
    for node in nodes(path):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, parts(KEPT_STRINGS.sub("", node.value))


def test_no_word_is_defined_twice() -> None:
    for path in (ENGLISH, CHINESE):
        for column in (0, 2) if path == ENGLISH else (0, 1):
            words = [word.strip() for row in rows(path) for word in row[column].split(",")]
            twice = {word for word in words if words.count(word) > 1}
            assert not twice, path.name


def test_both_languages_have_the_same_concepts() -> None:
    assert [(row[0], row[2]) for row in rows(ENGLISH)] == [(row[1], row[0]) for row in rows(CHINESE)]


def test_a_word_is_not_defined_in_the_architecture_again() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    assert "docs/glossary.md" in text
    assert "| word | meaning |" not in text


def test_former_words_do_not_return() -> None:
    former = former_words()
    returned: dict[str, list[str]] = {}
    for path in SOURCES:
        text = path.read_text(encoding="utf-8")
        for phrase in PHRASES:
            if phrase in text:
                returned.setdefault(room_of(path), []).append(f"{path.relative_to(ROOT)}: {phrase}")
        if not former & parts(text):
            continue  # most files, and reading them token by token takes long
        for line, words in words_of(path):
            for word in sorted(words & former):
                returned.setdefault(room_of(path), []).append(f"{path.relative_to(ROOT)}:{line}: {word}")
    assert returned == {}


def test_chinese_texts_keep_to_the_words_too() -> None:
    former = [word.strip() for row in rows(CHINESE) for word in row[3].split(",") if word.strip()]
    assert {"参考模型", "未定", "等价"} <= set(former)
    assert len(CHINESE_TEXTS) > 10
    returned = [
        f"{path.name}:{number}: {word}"
        for path in CHINESE_TEXTS
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        for word in former
        if word in line
    ]
    assert returned == []


QUESTION = re.compile(r"\s*(?:What|Whether|How|Which|Where|Who|Why)\b")
QUOTED_QUESTION = re.compile(f'"""{QUESTION.pattern}')


def docstrings(path: Path) -> Iterator[tuple[int, str]]:
    """Docstrings of modules, classes, functions and attributes."""
    for node in nodes(path):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value


def test_a_docstring_begins_with_a_verb_or_a_noun() -> None:
    questions: dict[str, list[str]] = {}
    for path in SOURCES:
        if not QUOTED_QUESTION.search(path.read_text(encoding="utf-8")):
            continue
        for line, text in docstrings(path):
            if QUESTION.match(text):
                questions.setdefault(room_of(path), []).append(f"{path.relative_to(ROOT)}:{line}: {text.strip()[:60]}")
    assert questions == {}


EMPTY_NAMES = frozenset({"found", "said", "told", "mine"})
"""Names of variables that do not say what they hold."""


def empty_names(tree: ast.AST) -> list[int]:
    """Lines that give a variable such a name."""
    stored = (each for each in ast.walk(tree) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store))
    arguments = (each for each in ast.walk(tree) if isinstance(each, ast.arg))
    return [each.lineno for each in stored if each.id in EMPTY_NAMES] + [
        each.lineno for each in arguments if each.arg in EMPTY_NAMES
    ]


def test_variables_say_what_they_hold() -> None:
    assert empty_names(ast.parse("def f(found): ...\ntold, right = 1, 2\n")) == [2, 1]
    lines = {str(path.relative_to(ROOT)): empty_names(ast.parse(path.read_text(encoding="utf-8"))) for path in SOURCES}
    assert {path: each for path, each in lines.items() if each} == {}


def test_these_rules_catch_what_they_are_for() -> None:
    assert parts("num_stretches") == {"num", "stretches"}
    assert parts("CareOf") == {"care", "of"}
    assert KEPT_STRINGS.sub("", "run STUDY --mirror trackio") == "run STUDY  trackio"
    assert QUESTION.match("Whether a run ended.")
    assert QUOTED_QUESTION.search('"""Whether a run ended."""')
    assert not QUESTION.match("Whatever")
    assert {"stretch", "passage", "loud", "mirror", "care"} <= former_words()
