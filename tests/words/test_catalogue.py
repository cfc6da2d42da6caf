"""The catalogue of phrases: every key is used and known, placeholders agree, missing translations are listed."""

import ast
import json
import pickle
import re
import string
import tomllib
from collections.abc import Iterator
from pathlib import Path

import jinja2
import pytest

import addnorm
import addnorm.words as words
from addnorm.catalogue import MECHANISM_ROOMS, ROOMS
from addnorm.errors import UnknownName
from addnorm.reporting.figures import all_figures
from addnorm.reporting.measures import measures
from addnorm.study.built_in import study_about, study_names
from addnorm.words import LANGUAGES, Phrases, Sentence, listed, phrases, preferred, say
from addnorm.words.catalogue import _flat, _read

SOURCE = Path(addnorm.__file__).parent
TRANSLATIONS = [language for language in LANGUAGES if language != "en"]
DEFINED_ELSEWHERE = ("about", "mechanism", "formula", "measure", "figures", "message", "command", "details", "option")
"""First parts of keys whose English stands where the thing is defined."""


def places(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}


def texts(pattern: str) -> str:
    return "".join(path.read_text(encoding="utf-8") for path in SOURCE.rglob(pattern))


@pytest.fixture(scope="module")
def literals() -> set[str]:
    """Every quoted text of the sources, and the constant beginnings of those that are put together (`totals.`)."""
    source = texts("*.py") + texts("*.html")
    quoted = set(re.findall(r"""["']([\w.]+)["']""", source))
    return quoted | {f"{start}*" for start in re.findall(r"""["']([\w.]+[._])(?:\{[\w.()]+\}["']|["'] ~ )""", source)}


def test_every_phrase_is_used(literals: set[str]) -> None:
    starts = tuple(literal[:-1] for literal in literals if literal.endswith("*"))

    def is_used(key: str) -> bool:
        first, _, rest = key.partition(".")
        text = rest if first in ("note", "joint", "method") else key
        return key in literals or text in literals or text.startswith(starts)

    assert [key for key in _read("en") if not is_used(key)] == []


def test_every_phrase_that_is_asked_for_is_known() -> None:
    asked = set(
        re.findall(r"""\b(?:t|words|phrases\(\w+\))\(\s*["']([\w.]+)["']\s*[,)]""", texts("*.html") + texts("*.py"))
    )
    assert len(asked) > 200
    assert asked <= _read("en").keys()
    assert set(re.findall(r"""\bsay\(\s*"(\w+)\"""", texts("*.py"))) <= {
        key.removeprefix("note.") for key in _read("en")
    }


@pytest.mark.parametrize("language", TRANSLATIONS)
def test_translations_are_of_known_phrases_and_have_their_placeholders(language: str) -> None:
    english = _read("en")
    for key, text in _read(language).items():
        if key in english:
            assert places(text) == places(english[key]), key
        else:
            assert key.partition(".")[0] in DEFINED_ELSEWHERE, key


def test_translated_messages_have_the_placeholders_of_their_english() -> None:
    for language in TRANSLATIONS:
        messages = {
            key.removeprefix("message."): text for key, text in _read(language).items() if "message." in key[:8]
        }
        assert len(messages) > 100
        assert [english for english, text in messages.items() if places(text) != places(english)] == []


def python_calls() -> Iterator[tuple[str, str, set[str]]]:
    """Place, key and the names of the values of every call in Python that names a phrase and all of its values."""
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not node.args or not isinstance(node.args[0], ast.Constant):
                continue
            function = node.func.id if isinstance(node.func, ast.Name) else ""
            is_phrases = isinstance(node.func, ast.Call) and getattr(node.func.func, "id", "") in ("phrases", "spoken")
            key = node.args[0].value
            if (function in ("say", "t", "words") or is_phrases) and isinstance(key, str):
                given = {keyword.arg for keyword in node.keywords}
                if None not in given and len(node.args) == 1:  # ** and a mapping are seen when they are called
                    where = f"{path.relative_to(SOURCE)}:{node.lineno}"
                    yield where, f"note.{key}" if function == "say" else key, {str(name) for name in given}


def template_calls() -> Iterator[tuple[str, str, set[str]]]:
    """The same of templates."""
    for path in SOURCE.rglob("*.html"):
        for node in jinja2.Environment().parse(path.read_text(encoding="utf-8")).find_all(jinja2.nodes.Call):
            key = node.args[0] if node.args else None
            is_phrase = isinstance(node.node, jinja2.nodes.Name) and node.node.name == "t"
            if is_phrase and isinstance(key, jinja2.nodes.Const) and node.dyn_kwargs is None:
                yield f"{path.name}:{node.lineno}", key.value, {keyword.key for keyword in node.kwargs}


def test_callers_give_the_values_that_a_phrase_has_places_for() -> None:
    english = _read("en")
    calls = [call for call in (*python_calls(), *template_calls()) if call[1] in english]
    assert len(calls) > 700
    # A phrase without values is returned as it is, so a caller may show its places: none of these is found here.
    assert [
        (where, key, given ^ places(english[key])) for where, key, given in calls if given != places(english[key])
    ] == []


@pytest.mark.parametrize("language", TRANSLATIONS)
def test_missing_translations_are_listed(language: str) -> None:
    """A phrase without a translation is no error: English is shown. This test names such phrases by being skipped."""
    wanted = [*_read("en"), *(f"mechanism.{key}" for key in mechanism_texts()), *shown_texts()]
    missing = [key for key in wanted if key not in _read(language)]
    if missing:
        pytest.skip(f"shown in English on {language} pages: {', '.join(missing)}")


def shown_texts() -> list[str]:
    """Keys of the texts that stand in the files of figures and measures."""
    kinds = ("panel_title", "axis_label")
    return [
        *(f"figures.{figure.name}" for figure in all_figures()),
        *(f"measure.{name}.{kind}" for name in measures() for kind in kinds),
    ]


def mechanism_texts() -> dict[str, str]:
    """Docstring texts of the built-in mechanisms by `ROOM.KIND.PART`."""
    found = {}
    for room in MECHANISM_ROOMS:
        for kind in ROOMS[room].kinds():
            doc = ROOMS[room].doc(kind)
            if kind not in ROOMS[room].plugins:
                parts = {"summary": doc.summary, "why": doc.why, "differs": doc.differs}
                found |= {f"{room}.{kind}.{part}": text for part, text in parts.items() if text != "nothing."}
    return found


@pytest.mark.parametrize("language", TRANSLATIONS)
def test_translated_docstrings_belong_to_mechanisms_and_quote_the_same_code(language: str) -> None:
    english = mechanism_texts()
    translated = {
        key.removeprefix("mechanism."): text for key, text in _read(language).items() if key.startswith("mechanism.")
    }
    assert translated.keys() <= english.keys()
    others = {key for key in _read(language) if key.partition(".")[0] in ("figures", "measure")} - _read("en").keys()
    assert others <= set(shown_texts())
    for key, text in translated.items():
        assert set(re.findall(r"`[^`]+`", text)) == set(re.findall(r"`[^`]+`", english[key])), key


@pytest.mark.parametrize("language", ["en", *TRANSLATIONS])
def test_every_room_of_mechanisms_has_a_name(language: str) -> None:
    assert {f"room.{room}" for room in MECHANISM_ROOMS} <= _read(language).keys()


def test_chinese_is_chinese() -> None:
    same = {key for key, text in _read("zh").items() if not re.search(r"[\u4e00-\u9fff]", text)}
    assert same == {
        "answer.stop",
        "axis.flops",
        "verdicts.unit",
        "common.between_sentences",
        "note.ended",
        "note.ended_because",
        "note.lost",
        "note.text_error_of",
        "joint.comma",
        "joint.semicolon",
        "progress.line",
        "run.is_state",
        "status.ended",
        "text.heading",
        "text.name_in_unit",
    }


def test_a_variant_is_not_called_a_model_in_chinese() -> None:
    """A variant is 变体 wherever a study's models are meant. These phrases speak of a model that is no variant of a study."""
    files = [
        Path(words.__file__).parent / "zh" / f"{name}.toml" for name in ("statistics", "results", "pages", "report")
    ]
    named = {
        key for path in files for key, text in _flat(tomllib.loads(path.read_text(encoding="utf-8"))) if "模型" in text
    }
    assert named == {
        "depth.rescaled",
        "model.needs_parts",
        "note.audit_of_others",
        "note.noise_differs_between_studies",
        "note.not_exported",
        "note.not_trained",
        "note.two_objectives",
        "terms.empty",
        "terms.lede",
    }


def test_no_key_stands_in_two_files() -> None:
    for language in LANGUAGES:
        keys: list[str] = []
        for path in (Path(words.__file__).parent / language).glob("*.toml"):
            keys += [key for key, _ in _flat(tomllib.loads(path.read_text(encoding="utf-8")))]
        assert len(keys) == len(set(keys)), language


def test_a_missing_translation_is_shown_in_english() -> None:
    chinese = Phrases("zh", {"a": "甲"}, {"a": "one", "b": "two {n}", "note.c": "three"})
    assert (chinese("a"), chinese("b", n=3)) == ("甲", "two 3")
    assert chinese.translation("a", "one") == "甲"
    assert chinese.translation("mechanism.residual.mine.summary", "Mine.") == "Mine."
    assert chinese.note({"code": "c", "values": {}}) is None, "left to its own text, which is marked as English"
    more = chinese.extended({"mine.title": "Mine", "b": "not this"})
    assert (more("mine.title"), more("b", n=1), more("a")) == ("Mine", "two 1", "甲")
    with pytest.raises(KeyError):
        chinese("mine.title")


def test_a_sentence_within_a_sentence_is_translated() -> None:
    seeds = say("several_seeds", seeds=listed("comma", [1, 2]))
    endings = listed(
        "semicolon", [say("ended_because", which=seeds, state=say("state_failed"), reason="out of memory")]
    )
    sentence = say("lost_some", variant="<b>", endings=endings, seeds=5)
    assert sentence == "<b>: seeds 1, 2 failed (out of memory). Its mean is over what is left of 5 seeds."
    assert phrases("en").note(sentence.note) == sentence
    assert (
        phrases("zh").note(sentence.note) == "<b>：种子 1、2 失败（out of memory）。其均值只取自 5 个种子中余下的部分。"
    )
    assert phrases("zh").note(say("measured", sd=0.0123456).note) == "（实测）0.01235"


def test_a_sentence_survives_another_process_and_a_file() -> None:
    sentence = say("references_level", names=listed("and", ["a", "b"]))
    again = pickle.loads(pickle.dumps(sentence))
    assert (type(again), again, again.note) == (Sentence, sentence, sentence.note)
    assert phrases("en").note(json.loads(json.dumps(sentence.note))) == sentence


@pytest.mark.parametrize(
    "note",
    [
        {"code": "of another version", "values": {}},
        {"code": "measured", "values": {}},
        {"code": "measured", "values": {"sd": "a text"}},
        {"code": "lost", "values": None},
        {"joint": "and", "parts": 3},
        {},
        None,
        "a text",
    ],
)
def test_a_note_without_words_is_left_to_its_own_text(note: object) -> None:
    assert phrases("zh").note(note) is None


def test_an_unknown_language_is_refused() -> None:
    with pytest.raises(UnknownName, match="no language 'fr'"):
        phrases("fr")
    assert preferred("") == next(iter(LANGUAGES)) == "en"


def test_translated_abouts_are_those_of_built_in_studies() -> None:
    """A text about a study is translated by its English: one that is changed there is shown in English until it is here."""
    translated = {key.removeprefix("about.") for key in _read("zh") if key.startswith("about.")}
    assert {study_about(name) for name in study_names()} <= translated
