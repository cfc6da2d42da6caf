"""The help of the commands: every option of the parser, in both languages, and what a wrong option is answered."""

import importlib
import io
import re
import shlex
from collections import defaultdict
from contextlib import redirect_stdout
from dataclasses import fields, is_dataclass
from typing import get_type_hints

import pytest
import tyro

from addnorm.cli import commands, main
from addnorm.docstrings import field_docstrings
from addnorm.words import phrases

CHINESE = re.compile(r"[\u4e00-\u9fff]")
ENGLISH = re.compile(r"(?:[a-z]{2,}[ ,]+){2}[a-z]{2,}")
"""Three words in a row, which no Chinese sentence has."""
NAMES = re.compile(
    r"`[^`]*`|(?<![\w-])--[a-z][\w-]*|[\w./]*\w\.(?:json|yaml|py|svg|pdf|png|safetensors|html)\b|\b\d+\b"
)
"""What stands in a sentence of any language: code, options, files, numbers."""


def shown(name: str, language: str) -> str:
    with redirect_stdout(io.StringIO()) as out:
        assert main([name, "--help", "--lang", language]) == 0
    return out.getvalue()


def options_of(of: type) -> dict[str, str]:
    """The English text of each field, those of groups included."""
    hints, texts = get_type_hints(of), field_docstrings(of)
    found: dict[str, str] = {}
    for field in fields(of):
        if is_dataclass(hints[field.name]):
            found |= options_of(hints[field.name])
        else:
            found[field.name] = texts[field.name]
    return found


def module(name: str):
    return importlib.import_module(f"addnorm.cli.{name.replace('-', '_')}")


@pytest.mark.parametrize("name", list(commands()))
def test_the_help_has_the_options_that_the_parser_has(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    with pytest.raises(SystemExit):
        tyro.cli(
            module(name).Options,
            args=["--help"],
            prog=name,
            config=(tyro.conf.OmitArgPrefixes, tyro.conf.PositionalMetavarFromFieldName, tyro.conf.DisallowNone),
        )
    rows = re.findall(r"^[│ ] (\S.*)$", capsys.readouterr().out, re.M)
    parsed = {re.split(r"  +|, --", row)[0] for row in rows if re.match(r"--?\w|\[?[A-Z_]{3,}\b", row)}
    assert {"-h", "--json"} <= {word.split(",")[0] for word in parsed}
    text = shown(name, "en")
    for word in parsed:
        assert re.search(rf"^  .*{re.escape(word.split()[0].strip('[]'))}\b", text, re.M), word
        kind = word.split(maxsplit=1)[1:]
        assert not word.startswith("--") or not kind or kind[0].strip("{}") in text, word


@pytest.mark.parametrize("name", list(commands()))
def test_no_sentence_of_a_help_is_english(name: str) -> None:
    chinese = phrases("zh")
    for field, english in options_of(module(name).Options).items():
        text = chinese.words.get(f"option.{name}.{field}", chinese.words.get(f"option.any.{field}"))
        assert CHINESE.search(text or ""), f"{name} --{field}: {english}"
        assert not ENGLISH.search(NAMES.sub("", text or "")), f"{name} --{field}: {text}"
    text = shown(name, "zh")
    paragraphs = [part for part in text.split("\n\n") if not part.startswith("例如：")]
    assert [part for part in paragraphs if not CHINESE.search(part)] == []
    english = shown(name, "en")
    assert text.count("\n\n") == english.count("\n\n"), "as many paragraphs"
    block = english[english.index("For example:\n") :].split("\n\n")[0].split("\n")[1:]
    assert "\n".join(("例如：", *block)) in text, "the same commands"


@pytest.mark.parametrize("name", list(commands()))
def test_a_translation_has_the_code_and_the_numbers_of_its_english(name: str) -> None:
    for field, english in options_of(module(name).Options).items():
        text = phrases("zh").words.get(f"option.{name}.{field}")
        if text is not None:
            assert set(NAMES.findall(text)) == set(NAMES.findall(" ".join(english.split()))), field


def test_a_translation_that_commands_share_is_of_one_english_sentence() -> None:
    """Else a command's help would show the sentence of another's option."""
    words, english = phrases("zh").words, defaultdict(set)
    for name in commands():
        for field, text in options_of(module(name).Options).items():
            if f"option.{name}.{field}" not in words:
                english[field].add(" ".join(text.split()))
    assert {field: texts for field, texts in english.items() if len(texts) > 1} == {}


def test_every_translated_option_exists() -> None:
    known = {f"{name}.{field}" for name in commands() for field in options_of(module(name).Options)}
    known |= {f"any.{key.partition('.')[2]}" for key in known}
    given = {key.removeprefix("option.") for key in phrases("zh").words if key.startswith("option.")}
    assert given - known == set()
    details = {key.removeprefix("details.") for key in phrases("zh").words if key.startswith("details.")}
    assert details - set(commands()) == set()


def test_no_line_of_a_help_is_wider_than_a_page() -> None:
    from rich.cells import cell_len

    for name in commands():
        for language in ("en", "zh"):
            for line in shown(name, language).split("\n"):
                is_command = line.startswith("  addnorm ")
                assert is_command or cell_len(line) <= 100, line


def test_the_help_parses_its_own_examples() -> None:
    with redirect_stdout(io.StringIO()) as out:
        main(["run", "--help"])
    examples = re.findall(r"^  addnorm run (.*)$", out.getvalue(), re.M)
    assert len(examples) == 5
    for words in examples:
        tyro.cli(module("run").Options, args=module("run").expanded(shlex.split(words)))
