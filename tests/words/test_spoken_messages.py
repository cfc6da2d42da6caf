"""Messages in the terminal's language: what is translated, that it is still in the sources, and a list of what is not.

The lists of what is not translated can only shrink: a new English text is translated in `words/zh/messages.toml` (messages) or
gets a key in `words/*/terminal.toml` (what commands print), or a number here is raised on purpose.
"""

import ast
import re
import string
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import addnorm
from addnorm.words import environment_language, phrases, say, speaking, spoken, translated
from addnorm.words.catalogue import _read
from addnorm.words.spoken import _message

SOURCE = Path(addnorm.__file__).parent
FIRST_HOUR = (
    "cli",
    "data",
    "errors.py",
    "fields.py",
    "shape.py",
    "store",
    "study",
    "supervision",
    "training",
    "user_code.py",
)
"""Rooms whose messages the commands plan, run, status and rank show before anything is unusual."""
PASSED_ON = {
    "corpus file {}: expected UTF-8, got byte 0x{} at offset {}. {}",
    "corpus file {}: expected text, got a NUL byte at offset {}. {}",
    "{}. Otherwise a prompt would be cut. Set it to {}.",
    "{}. Set tokenizer: bytes.",
    "corpus '{}': expected training text, got none. {} Give other text to train on, or hold out other text.",
    "corpus '{}': expected text, got {} documents without any. {}",
    "{}, line {}: {} Restore the ledger from a copy.",
    "{}, got {}.",
    "expected {} as in the study's training, got {}. {}: set training.{} for the whole study, or make a second study.",
    "{} reads the parts of a model of addnorm (residual, scores, norms, …), got one of others: {}. {}",
    "{}: {}no profile {}{}",
    "{}: $.plugins: {}",
    "--set {}: {}: no variant {}{}",
    "{}: $.variants: no variant {}{}",
    "plugin {}: {}",
    "study '{}': $.corpus: {}",
    "expected at least {} + 1 {} tokens, one sequence and its last target, got {} bytes. Use more text, another held_out "
    "share, or a shorter sequence. {}",
    "{} cannot be imported ({}). {}",
    "{} Check that the folder is writable and that no other process writes the index.",
    "{} Free some space on that disk.",
    "{}: {}",
    "{}{}: {}: {}: {}",
    "{}: expected a run with spec.json, got none. {}",
    "no {} {}{}",
    "expected a kind of {} or a mapping with 'kind', got {}{}{}",
    "expected {}a mapping with the fields of {}, got {}.",
}
"""Errors with a sentence of another place in the place of a value, which is translated there; all others are translated."""
ERRORS = ("InputError", "FieldError", "JobError", "DiskError", "DiskFull", "Damaged", "add", "add_with_line")
"""Names of what makes an error, or adds one to those of a study file."""
COMPOSED = set(tomllib.loads((SOURCE / "words/zh/audit.toml").read_text(encoding="utf-8"))["message"])
"""Sentences of audits, whose clauses the sources put together from several texts."""
UNTRANSLATED_OUTPUT = {
    "__init__": 1,
    "_audit": 1,
    "_rank": 12,
    "audit": 5,
    "doctor": 8,
    "export": 3,
    "list": 2,
    "rank": 1,
    "report": 2,
}
"""Number of texts by file of the command line that are printed in English. Files without any are not listed."""


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def text_of(node: ast.expr) -> str | None:
    """A literal or an f-string as a template, `{}` in the place of each value; None for anything else."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(part) or "{}" for part in node.values)
    return None


def template(text: str) -> str:
    return "".join(letters + ("" if name is None else "{}") for letters, name, *_ in string.Formatter().parse(text))


def files(room: str) -> list[Path]:
    path = SOURCE / room
    return [path] if path.is_file() else sorted(path.rglob("*.py"))


def errors(room: str) -> Iterator[str]:
    """Templates of the errors that a room raises, makes for others to raise, or collects."""
    for path in files(room):
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Raise):
                node = node.exc or node
            elif not isinstance(node, ast.Call) or _called(node) not in ERRORS:
                continue
            if isinstance(node, ast.Call) and node.args:
                text = text_of(node.args[-1])
                if text is not None and " " in text:
                    yield text


def _called(call: ast.Call) -> str:
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


def prose(text: str) -> bool:
    return re.search(r"[a-z]{2,} [a-z]{2,}", text) is not None


def printed(path: Path) -> Iterator[str]:
    """Texts of a file that are neither docstrings nor errors."""
    docstrings = {id(node.value) for node in ast.walk(tree(path)) if isinstance(node, ast.Expr)}
    raised = {id(part) for node in ast.walk(tree(path)) if isinstance(node, ast.Raise) for part in ast.walk(node)}
    parts = {id(part) for node in ast.walk(tree(path)) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Constant | ast.JoinedStr) and id(node) not in docstrings | raised | parts:
            text = text_of(node)
            if text is not None and prose(text):
                yield text


def is_translated(text: str) -> bool:
    """True if the text, with any values in its places, is translated."""
    sentences = re.sub(r"(?<!\$\.)(?<=[.?!)])(\{\})+", "", text)  # such as ` Did you mean 'add'?`
    sentences = re.sub(r"(?<=\w )\{\}\{\}$", "{}.", sentences)  # an unknown name, and the nearest known one
    return _message(sentences.replace("{}", "X0"), phrases("zh")) is not None


@pytest.mark.parametrize("room", FIRST_HOUR)
def test_no_error_is_without_its_translation(room: str) -> None:
    assert [text for text in errors(room) if text not in PASSED_ON and not is_translated(text)] == []


def test_errors_that_pass_another_sentence_on_are_still_raised() -> None:
    assert {text for room in FIRST_HOUR for text in errors(room)} >= PASSED_ON


@pytest.mark.parametrize(
    "message",
    [
        "study 'mine': $.corpus: corpus 'stdlib': expected text, got 0 documents without any. Raise max_bytes.",
        "study 'mine': $.corpus: corpus file c.txt: expected UTF-8, got byte 0xd5 at offset 0. It seems to be GB18030. Convert "
        "it: mv c.txt d.txt && iconv -f GB18030 -t UTF-8 < d.txt > c.txt",
        "mine.yaml: no profile 'quik', did you mean 'quick'? Known: quick.",
        "mine.yaml: $.plugins: plugin /a/b.py: no such file (looked in /a). Rename it to end in .py.",
        "mine.yaml, --set variants.bas.width=3: $.variants: no variant 'bas', did you mean 'base'? Known: base, zero.",
        "mine.yaml: $.compare[0]: no variant 'scald', did you mean 'scaled'? Known: base, scaled.",
        "mine.yaml: $.variants.a: heads must divide the width: width 16 / heads 3 leaves 1. The same in b.",
    ],
)
def test_a_sentence_that_is_passed_on_is_translated_where_it_stands(message: str) -> None:
    chinese = translated(message, phrases("zh"))
    assert chinese != message
    assert not re.search(r"\b(expected|got|the|of|Write|Give|Raise|leaves)\b", chinese), chinese


def test_what_commands_print_in_english_is_counted() -> None:
    left = [
        (path.relative_to(SOURCE / "cli").parts[0].removesuffix(".py"), text)
        for path in files("cli")
        for text in printed(path)
        if not is_translated(text)
    ]
    counts = Counter(name for name, _ in left)
    more = {name for name, count in counts.items() if count > UNTRANSLATED_OUTPUT.get(name, 0)}
    assert not more, "\n".join(f"{name}: {text}" for name, text in left if name in more)


def test_every_translated_message_is_in_the_sources() -> None:
    source = "\n".join(
        text
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(tree(path))
        if isinstance(node, ast.expr) and (text := text_of(node)) is not None
    )
    known = [key.removeprefix("message.") for key in _read("zh") if key.startswith("message.")]
    assert len(known) > 100
    # `'{name}'` of an f-string is `{name}` of a template, whose value has the quotes.
    plain = source.replace("'{}'", "{}")
    left = {text for text in known if template(text) not in plain and not in_pieces(template(text), plain)}
    assert left <= COMPOSED
    assert [text for text in left if not composed(template(text), plain)] == []


def in_pieces(text: str, source: str) -> bool:
    """True of a template that the sources put together from several texts: all of its words are there."""
    return all(piece.strip(" .,:()?") in source for piece in text.split("{}"))


def composed(text: str, source: str) -> bool:
    """True of a template whose pieces are at most one text of the sources for each four words, and two at least."""
    for piece in text.split("{}"):
        words, texts = piece.strip(" .,:;()").split(), 0
        most = max(2, 1 + len(words) // 4)
        while words:
            longest = next((end for end in range(len(words), 0, -1) if " ".join(words[:end]) in source), 0)
            texts, words = texts + 1, words[longest:]
            if not longest or texts > most:
                return False
    return True


def yielded(room: str) -> Iterator[str]:
    """Texts of the warnings that a room's functions yield one by one, or that its `warnings` append to a list."""
    for path in files(room):
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Yield) and node.value is not None:
                text = text_of(node.value)
            elif isinstance(node, ast.Call) and ast.unparse(node.func) == "sentences.append":
                text = text_of(node.args[0])
            else:
                continue
            if text is not None and prose(text):
                yield text


def test_no_warning_is_without_its_translation() -> None:
    texts = [text for room in ("statistics", "store", "study", "supervision") for text in yielded(room)]
    assert len(texts) > 10
    assert [text for text in texts if not is_translated(text)] == []


@pytest.mark.parametrize(
    ("english", "chinese"),
    [
        (
            "mine.yaml: $.variants.x.residual: ReZero has no field 'alpha_int', did you mean 'alpha_init'? Known: alpha_init.",
            "mine.yaml: $.variants.x.residual: ReZero 没有字段 'alpha_int'，是否指 'alpha_init'？已知：alpha_init。",
        ),
        (
            "$.training.batch: expected a whole number, got 2.0. Write 2.",
            "$.training.batch: 应为整数，实为 2.0。请写 2。",
        ),
        ("s.yaml: 2 problems.\n$.seeds: expected a list, got 3.", "s.yaml: 2 处问题。\n$.seeds: 应为列表，实为 3。"),
        ("study file s.yaml: expected a file, got a folder.", "研究文件 s.yaml: 应为文件，实为文件夹。"),
        (
            "adding the same number to all entries changes nothing; a.bias and b.bias can absorb 8 of 16; layer_norm in norm1 "
            "requires it constant along axis 2.",
            "所有分量加上同一个数，输出不变；a.bias 与 b.bias 可以吸收其中 16 个方向里的 8 个；"
            "norm1 中的 layer_norm 要求它沿轴 2 为常数。",
        ),
        ("loss: expected a file, got a folder.", "loss: 应为文件，实为文件夹。"),  # the name of a column or a folder
    ],
)
def test_places_and_values_stay_and_sentences_are_translated(english: str, chinese: str) -> None:
    assert translated(english, phrases("zh")) == chinese
    assert translated(english, phrases("en")) == english


@pytest.mark.parametrize(
    "text",
    [
        "something that nobody has translated happened.",
        "adding the same number to all entries changes nothing; the moon is full.",
        "$.training.batch: expected a number of apples, got 2.5.",  # not half of it
        "$.seeds: expected a list, got 3. Think again.",
        "$.seeds: expected a list, got 3.\nThink again.",
        "a.py: seed 3 failed",  # `{which} {state}` is no template to recognise a text by
    ],
)
def test_a_text_that_is_not_known_in_all_its_parts_stays_english(text: str) -> None:
    assert translated(text, phrases("zh")) == text


def test_a_sentence_that_lost_its_note_is_recognised() -> None:
    sentence = say("tuning_first", ended=2, runs=6)
    assert translated(f"runs/x: {sentence}", phrases("zh")) == f"runs/x: {phrases('zh').note(sentence.note)}"


@pytest.mark.parametrize(
    ("environment", "language"),
    [
        ({}, "en"),
        ({"LANG": "C.UTF-8"}, "en"),
        ({"LANG": "zh_CN.UTF-8"}, "zh"),
        ({"LANG": "zh"}, "zh"),
        ({"LANG": "zh_TW.UTF-8", "LC_ALL": ""}, "zh"),
        ({"LANG": "zh_CN.UTF-8", "LC_ALL": "en_US.UTF-8"}, "en"),
        ({"LANG": "de_DE.UTF-8", "LC_MESSAGES": "zh_CN"}, "zh"),
        ({"LANG": "zhx_CN"}, "en"),
    ],
)
def test_the_environment_decides_as_it_does_for_other_programs(environment: dict[str, str], language: str) -> None:
    assert environment_language(environment) == language


def test_the_language_ends_with_its_context() -> None:
    with speaking("zh"):
        assert spoken().language == "zh"
        assert translated("no such file.") == "没有该文件。"
    assert spoken().language == "en"
