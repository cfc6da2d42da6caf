"""Reasons not to count some runs, from columns that are not read.

A cell counts if its words say so (`node 7 died`, `DO NOT USE`), or if it answers the name of its column: an empty `end_time`,
a `progress` of 0.62, `keep` no. Of names and words that settings have too (`keep`, `mean`, `tokens`), only those count that
differ between runs of one variant: a setting is the same for all of them.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from addnorm.statistics.run_tables.columns import ENDINGS, Names, RunRow, ending, folded, last_part
from addnorm.statistics.run_tables.endings import SUMMARIES, may_tell_a_bad_end
from addnorm.statistics.run_tables.numerals import NotANumber, Notation, is_missing, number, words_of
from addnorm.words import Sentence, listed, say

_SHOWN = 6
"""Words and columns that a warning names."""
_DATA = words_of(
    "dataset dataset_name data data_path data_dir data_file corpus tokenizer vocab_size split subset partition unit units "
    "loss_unit metric metric_name loss_type eval_context"
)
_HELD_OUT = words_of("val valid validation eval evaluation test")
_OF_TEXT = words_of(
    "data set file files path tokens split corpus dataset seq length context len ctx batches iters samples"
)
"""One of each in the name of a column: of what text the losses are."""
_SETTINGS = words_of(
    "lr learning_rate base_lr max_lr peak_lr batch_size bs global_batch_size precision dtype width d_model hidden_size n_embd "
    "dim depth layers n_layer n_layers num_layers heads n_head n_heads num_heads seq_len block_size context_length "
    "weight_decay wd optimizer optim warmup warmup_steps dropout momentum beta1 beta2 schedule scheduler n_params num_params "
    "params parameters model_size model arch architecture norm activation config_hash code_version"
)
_WEIGHTS = words_of("checkpoint ckpt selection which weights evaluated")
_OF_WEIGHTS = words_of("best last final latest ema swa average averaged raw min minimum")
"""Words by which a column of such a name tells at which weights a run was evaluated; others are paths."""
_COUNTS = words_of(
    "step steps iter iters iteration iterations epoch epochs update updates batches tokens samples examples timestep timesteps "
    "ksteps kiters kimg nimg episodes schritt schritte epochen étapes pasos passi шаг шаги эпохи 步数 轮数 迭代次数 "
    "ステップ エポック 스텝 에폭"
)
_NO_COUNTS = words_of(
    "best time sec secs second seconds s ms per speed rate throughput avg mean first start resumed nan skipped warmup eval log "
    "save size"
)
"""Beside a count's name: a number that may differ between runs of one length."""
_OF_EPOCHS, _OF_STEPS = words_of("epoch epochs"), words_of("step steps iter iters iteration iterations update updates")
_PLANNED = words_of("max total num n planned target budget")
_PROGRESS = words_of("progress completion completed complete finished done 进度 进展 fortschritt avancement progreso")
_LEFT = words_of("remaining eta left")
_TIMES = words_of("time at on date datetime timestamp ts utc sec secs seconds s hours")
_ENDS = words_of("end ended finish finished complete completed completion stop stopped terminated closed")
_WHOLE_ENDS = words_of("endtime end 结束时间 完成时间 終了時刻 ende fin")
_SURELY_BAD = words_of(
    "error errors err exception crash crashes fail failure failures failed nan nans signal exit abort invalid"
)
_BAD = _SURELY_BAD | words_of(
    "broken exclude excluded ignore ignored discard discarded drop dropped skip outlier debug corrupt void rejected stale "
    "suspect flagged 排除 剔除"
)
_YES = words_of("true yes y t x ✓ ✔ ✅ ☑ ja j oui si sí sim да 是 はい 예 네")
_NO = words_of("false no n f ✗ ✘ ☐ nein non não нет 否 いいえ 아니요")
_PART = re.compile(r"(\d+)\s*(?:/|of|von|из)\s*(\d+)")
_SET_ASIDE = re.compile(
    r"\b(?:do not (?:use|count)|don'?t (?:use|count)|ignore|exclude|discard|outlier|unusable|invalid|debug|buggy?|bad|wrong"
    r"|partial|truncated|not (?:finished|done|complete)|still running|wip|todo|re-?run|unvollständig|abgeschnitten"
    r"|nicht verwenden|ungültig|ne pas utiliser|no usar)(?![^\W\d_])|作废|无效|勿用|剔除|異常値|使用禁止|무효",
    re.IGNORECASE,
)
_COUNTED = re.compile(r"\d[\d.,]*\s*[kmbgt]", re.IGNORECASE)
_PATH = re.compile(r"[^\s/\\]*(?:[/\\][^\s/\\]+)+")
_NUMERIC = re.compile(r"[-+.\deE]*")
_Run = tuple[str, str]


@lru_cache(maxsize=4096)
def _words(column: str) -> frozenset[str]:
    return frozenset(re.findall(r"[^\W\d_]+", folded(column)))


@lru_cache(maxsize=4096)
def _kind(column: str) -> str | None:
    """The question that a column's name puts to every run; None if only its words are looked at."""
    words = _words(column)
    if (words & _ENDS and words & _TIMES) or folded(column) in _WHOLE_ENDS:
        return "end"
    if words & _LEFT and (words & (_TIMES | _COUNTS) or words == {"remaining"}):
        return "left"
    if words & _PROGRESS and not words & _COUNTS:
        return "progress"
    if words & _COUNTS and not words & _NO_COUNTS:
        return "count"
    return "flag" if words & _BAD else None


@lru_cache(maxsize=1024)
def _asked(
    columns: tuple[str, ...], step: str | None, endings: bool, beside_state: bool
) -> list[tuple[str, bool, bool]]:
    """Columns that are looked at, whether all cells of each are kept, and whether it answers how a run ended."""
    asked = []
    for column in columns:
        of_data = _of_data(column) or _of_setting(column) or folded(column) in _WEIGHTS
        asks = _kind(column) is not None if not beside_state else bool(_words(column) & _SURELY_BAD)
        whole = of_data or (endings and (asks or _plans(column, step)))
        if whole or endings:
            asked.append((column, whole, last_part(column) in ENDINGS))
    return asked


@lru_cache(maxsize=4096)
def _of_data(column: str) -> bool:
    return folded(column) in _DATA or bool(_words(column) & _HELD_OUT and _words(column) & _OF_TEXT)


@lru_cache(maxsize=4096)
def _of_setting(column: str) -> bool:
    return re.sub(r"^(?:params?|config|hparams)_", "", last_part(column)) in _SETTINGS


def kept(columns: Mapping[str, Any], cells: Any, read: Mapping[str, str], names: Names) -> dict[str, str]:
    """The cells of a row that may matter, by columns that are not read.

    Args:
        columns: key of each in the cells.
        cells: of the row.
        read: columns that are read, by their meaning.
        names: as the user gave them.
    """
    made, beside_state = {}, "state" in read
    for column, whole, answers in _asked(tuple(columns), read.get("step"), names.asks_endings, beside_state):
        cell = cells[columns[column]]
        text = "" if cell is None else str(cell)
        in_words = isinstance(cell, str | bool) and not _NUMERIC.fullmatch(text)
        answered = answers and may_tell_a_bad_end(str(ending(column, text)))
        if whole or answered or (in_words and _may_matter(text, beside_state)):
            made[column] = text
    return made


@lru_cache(maxsize=4096)
def _may_matter(text: str, beside_state: bool) -> bool:
    word = text.strip().casefold()
    of_runs = word in _YES or word in _NO or word in SUMMARIES or _PART.fullmatch(word) or may_tell_a_bad_end(text)
    return bool(_SET_ASIDE.search(text) or (of_runs and not beside_state))


def _plans(column: str, step: str | None) -> bool:
    """True if a column may hold how far runs were to go, in what their steps count."""
    words = _words(column)
    alike = (_OF_EPOCHS, _OF_STEPS)
    return step is not None and bool(words & _PLANNED) and any(words & of and _words(step) & of for of in alike)


def doubts(rows: Sequence[RunRow], names: Names) -> list[Sentence]:
    """Warnings of what the columns say that are not read.

    Args:
        rows: of all runs; of a run with several, the last one is looked at.
        names: as the user gave them.
    """
    if not any(row.unread for row in rows):
        return []
    last: dict[_Run, RunRow] = {}
    for place, row in enumerate(rows):
        variant, seed = str(row.variant), place if row.seed is None else row.seed
        if row.seed is None and names.run is not None and (parts := names.matched(variant)) is not None:
            variant, seed = parts.get("variant", variant), parts.get("seed", place)
        last[variant, str(seed)] = row
    columns = dict.fromkeys(column for row in rows for column in row.unread)
    doubtful: dict[str, dict[str, list[str]]] = {
        "endings_unread": {},
        "plan_unread": {},
        "counts_unread": {},
        "settings_unread": {},
        "summaries_unread": {},
    }
    data: list[str] = []
    for column in columns:
        if _of_data(column) or folded(column) in _WEIGHTS:
            of = dict.fromkeys(text for row in rows if not is_missing(text := row.unread.get(column, "")))
            named_so = all(f"{column}=" in str(row.variant) for row in rows)
            if len(of) > 1 and not named_so and (_of_data(column) or {*map(str.casefold, of)} <= _OF_WEIGHTS):
                data += [*of][:_SHOWN]
            continue
        cells = {run: row.unread.get(column, "") for run, row in last.items()}
        if _of_setting(column):
            doubtful["settings_unread"][column] = _differing(cells)
            continue
        bad_ends = [word for row in rows if (word := row.unread.get(column)) and _tells(column, word)]
        # What is the same for all is a setting.
        if bad_ends and (len(set(bad_ends)) > 1 or len(bad_ends) < len(rows)):
            doubtful["endings_unread"][column] = bad_ends
        elif named := _by_kind(column, cells):
            doubtful["endings_unread"][column] = named
        elif short := _before_plan(column, last):
            doubtful["plan_unread"][column] = short
        elif _kind(column) == "count" and names.step != "":
            doubtful["counts_unread"][column] = _unequal(cells, last)
        doubtful["summaries_unread"][column] = _within(cells, lambda text: text.strip().casefold() in SUMMARIES)
    named_by = [(name, [(column, texts) for column, texts in of.items() if texts]) for name, of in doubtful.items()]
    warnings = [say(name, columns=listed("semicolon", map(_shown, of[:_SHOWN]))) for name, of in named_by if of]
    return warnings + ([say("data_differ", data=listed("comma", data[:_SHOWN]))] if data else [])


def _shown(of: tuple[str, Sequence[str]]) -> Sentence:
    column, texts = of
    words = [text if len(text) <= 60 else f"{text[:60]}…" for text in list(dict.fromkeys(texts))[:_SHOWN]]
    return say("ending_unread_of", column=repr(column), words=listed("comma", map(repr, words)))


def _tells(column: str, text: str) -> bool:
    """True for a word for a bad end, and for `620/1000` of steps."""
    word = ending(column, text)
    part = _PART.fullmatch(text.strip())
    in_words = isinstance(word, str) and not _PATH.fullmatch(word) and may_tell_a_bad_end(word)
    return in_words or (part is not None and int(part[1]) < int(part[2]) and _kind(column) in ("count", "progress"))


def _by_kind(column: str, cells: Mapping[_Run, str]) -> list[str]:
    """Cells of runs against which the name of their column speaks, or words that set some runs of a variant aside."""
    kind, texts = _kind(column), [*cells.values()]
    if kind == "end":
        empty = [
            text
            for text in texts
            if is_missing(text) or text.strip().casefold() in ("nat", "nan", "<na>", "0", "unknown")
        ]
        return empty if len(empty) < len(texts) else []
    numbers = {text: _as_number(text) for text in texts}
    known = [value for value in numbers.values() if value is not None]
    if kind == "progress" and len(known) == len(numbers):
        return [text for text in texts if (numbers[text] or 0.0) < max(known)]
    if kind == "left":
        more = [text for text in texts if numbers[text]]
        return more if len(more) < len(texts) else []
    if aside := _within(cells, lambda text: bool(_SET_ASIDE.search(text))):
        return aside
    asked = _words(column) & _BAD
    whole = {text for text, value in numbers.items() if asked and value is not None and value % 1 == 0}
    yes = {text for text in texts if text.strip().casefold() in _YES or (text in whole and numbers[text])}
    no = {text for text in texts if text.strip().casefold() in _NO or is_missing(text)} | (whole - yes)
    if not yes or len(yes | no) < len(set(texts)) or "best" in _words(column):
        return []
    if asked & _SURELY_BAD and no:
        return [text for text in texts if text in yes]
    return _within(cells, yes.__contains__)


def _before_plan(column: str, last: Mapping[_Run, RunRow]) -> list[str]:
    """The steps made of those planned, where they are fewer and no state says whether they ended."""
    short = []
    for row in last.values():
        step, planned = _as_number(str(row.step)), _as_number(row.unread.get(column, ""))
        # Steps may be counted from 0, and the last ones not logged.
        if (
            _plans(column, row.step_column)
            and row.state is None
            and step is not None
            and planned
            and step + 1 < 0.95 * planned
        ):
            short.append(f"{step:.10g} / {planned:.10g}")
    return short


def _within(cells: Mapping[_Run, str], is_one: Callable[[str], bool]) -> list[str]:
    """Cells of one kind, where only some runs of a variant have one."""
    by_variant: dict[str, list[str]] = {}
    for (variant, _), text in cells.items():
        by_variant.setdefault(variant, []).append(text)
    set_apart: list[str] = []
    for texts in by_variant.values():
        ones = [text for text in texts if is_one(text)]
        if 0 < len(ones) < len(texts):
            set_apart += filter(None, texts)
    return set_apart


def _differing(cells: Mapping[_Run, str]) -> list[str]:
    """Cells of the variants whose runs do not all have the same."""
    by_variant: dict[str, dict[object, str]] = {}
    for (variant, _), text in cells.items():
        value = _as_number(text)
        by_variant.setdefault(variant, {})[text if value is None else value] = text
    return [text for of in by_variant.values() if len(of) > 1 for text in of.values()]


def _unequal(cells: Mapping[_Run, str], last: Mapping[_Run, RunRow]) -> list[str]:
    """Counts that differ by more than a hundredth between runs of one variant that end at one step that is read."""
    by_variant: dict[tuple[str, str], dict[str, float]] = {}
    for (variant, seed), text in cells.items():
        value = _as_number(text)
        if value is None:
            return _differing(cells) if _COUNTED.fullmatch(text) else []
        by_variant.setdefault((variant, str(last[variant, seed].step)), {})[text] = value
    return [text for of in by_variant.values() if max(of.values()) > 1.01 * min(of.values()) for text in of]


def _as_number(text: str) -> float | None:
    try:
        return number(text.strip().rstrip("%").strip().replace(",", "."), Notation("."))
    except NotANumber:
        return None
