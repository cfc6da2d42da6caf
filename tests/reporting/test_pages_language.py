"""Both languages have the same words with the same places, all of them used, none of them missing."""

import json
import pickle
import re
import string
from pathlib import Path

import pytest

import addnorm.reporting.pages as pages
from addnorm.catalogue import MECHANISM_ROOMS, ROOMS
from addnorm.errors import UnknownName
from addnorm.reporting.figures import FIGURES, ON_DEMAND
from addnorm.reporting.pages import LANGUAGES, phrases, preferred
from addnorm.reporting.pages.curves import METRICS
from addnorm.reporting.pages.explained import VERDICTS
from addnorm.reporting.pages.insight import MEASURES
from addnorm.reporting.pages.insight import VERDICTS as VERDICTS_OF_AUDIT
from addnorm.reporting.pages.language import mechanism_words
from addnorm.reporting.pages.numbers import duration
from addnorm.statistics import JOINTS, SENTENCES, Sentence, listed, say

HERE = Path(pages.__file__).parent
BUILT = {
    "state": ("finished", "running", "queued", "interrupted", "blocked", "diverged", "failed"),
    "totals": ("finished", "running", "queued", "interrupted", "blocked", "diverged", "failed"),
    "tier": ("level", "among", "above", "below", "between", "open", "reference", "failed"),
    "verdict": ("better", "worse", "equivalent", "undecided", "failed", "none"),
    "verdicts": ("needed_difference", "needed_equivalence"),
    "curves": ("note_mean", "note_seeds"),
    "metric": METRICS,
    "insight": MEASURES,
    "audit": VERDICTS_OF_AUDIT,
    "scalars": (*VERDICTS.values(), "more", "again"),
    "lengths": ("window", "ending", "loss", "accuracy"),
    "room": ("residual", "scores", "norm", "placement", "bias", "position"),
    "page": tuple(pages.PAGES),
    "time": ("unknown", "seconds", "minutes", "hours", "days"),
    "figures": (*FIGURES, *ON_DEMAND, "title"),
    "method": ("title", "data", "statistics", "looks", "insight", "limits"),
    "environment": ("title",),
    "reproduce": ("title",),
    "note": tuple(SENTENCES),
    "joint": tuple(JOINTS),
}
"""Keys that templates put together from a part that they write and one that they are given."""


def places(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}


def used() -> set[str]:
    sources = [*HERE.rglob("*.html"), *HERE.rglob("*.py"), *(HERE.parents[1] / "web").rglob("*.py")]
    text = "".join(path.read_text(encoding="utf-8") for path in sources)
    written = set(re.findall(r"""\b(?:t|words)\(\s*["']([\w.]+)["']\s*[,)]""", text))
    report = (HERE.parent / "reproduce.py").read_text(encoding="utf-8")
    written |= set(re.findall(r"""["'](reproduce\.\w+)["']""", report))
    behind = (HERE.parent / "tables" / "figure.py").read_text(encoding="utf-8")
    written |= set(re.findall(r"""["']((?:figures|common|ladder|scalars|insight|terms)\.\w+)["']""", behind))
    method = (HERE.parent / "method.py").read_text(encoding="utf-8")
    pairs = re.findall(r"""(?<!get)\(\s*"(\w+)"(?:[^,()]*"(\w+)")?,\s*\{""", method)
    written |= {f"method.{key}" for pair in pairs for key in pair if key}
    return written | {f"{room}.{key}" for room, keys in BUILT.items() for key in keys}


def test_the_languages_have_the_same_words():
    english, chinese = phrases("en").words, phrases("zh").words
    assert english.keys() == chinese.keys()
    for key, text in english.items():
        assert places(text) == places(chinese[key]), key


def test_every_word_is_used_and_none_is_missing():
    assert used() == phrases("en").words.keys()


def test_chinese_is_chinese():
    same = {key for key, text in phrases("zh").words.items() if not re.search(r"[\u4e00-\u9fff]", text)}
    assert same == {
        "verdicts.unit",
        "common.between_sentences",
        "note.ended",
        "note.ended_because",
        "note.lost",
        "joint.comma",
        "joint.semicolon",
    }


def test_every_built_in_mechanism_is_explained_in_chinese():
    words = mechanism_words("zh")
    for room in MECHANISM_ROOMS:
        kinds = {kind for kind in ROOMS[room].kinds() if kind not in ROOMS[room].plugins}
        assert words[room].keys() == kinds, f"{room}: to be added to, or taken out of words/mechanisms.zh.toml"
        for kind, texts in words[room].items():
            doc = ROOMS[room].doc(kind)
            said = {"summary", "why", "differs"} if doc.differs != "nothing." else {"summary", "why"}
            assert texts.keys() == said, f"{room} {kind}"
            assert all(re.search(r"[\u4e00-\u9fff]", text) for text in texts.values())
            # What is quoted in code is the same in both.
            quoted = {part: set(re.findall(r"`[^`]+`", getattr(doc, part))) for part in said}
            assert {part: set(re.findall(r"`[^`]+`", texts[part])) for part in said} == quoted, f"{room} {kind}"
    assert mechanism_words("en") == {}


def test_english_says_what_the_statistics_say_word_by_word():
    words = phrases("en").words
    for code, text in SENTENCES.items():
        assert words[f"note.{code}"] == text
    for joint, text in JOINTS.items():
        assert words[f"joint.{joint}"] == text


def test_a_sentence_within_a_sentence_is_said_in_the_language():
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


def test_a_sentence_survives_another_process_and_a_file():
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
def test_a_note_without_words_is_left_to_its_own_text(note):
    assert phrases("zh").note(note) is None


def test_an_unknown_language_is_refused():
    with pytest.raises(UnknownName, match="no language 'fr'"):
        phrases("fr")
    assert preferred("") == next(iter(LANGUAGES)) == "en"


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "0 s"),
        (99.4, "99 s"),
        (100, "2 min"),
        (5999, "100 min"),
        (6000, "1 h 40 min"),
        (172799, "47 h 59 min"),
        (172800, "2 days"),
    ],
)
def test_durations(seconds, said):
    key, values = duration(seconds)
    assert phrases("en")(key, **values) == said
