"""Endings of runs: by the state that a tracker recorded. Where none is, last steps can show only that it has to be asked.

A run without a state that ends before others of its table may be at work still, or have crashed, or be short by design: a step
cannot tell. It does not count until a column of states, or `ended=all`, says so. Runs that all end at one step are taken to
have ended, since a table of final losses has no more to show.
"""

import math
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import fmean, median, pstdev, stdev

from addnorm.errors import InputError, did_you_mean
from addnorm.statistics.result import Result
from addnorm.statistics.run_tables.numerals import is_missing, words_of
from addnorm.words import Sentence, listed, say

_STATES = {
    "finished": "finished finish completed complete succeeded success successful done ok ended published 完成 已完成 成功",
    "running": "running pending queued scheduled starting started waiting active unfinished in_progress "
    "运行中 进行中 等待中",
    "failed": "failed failure fail crashed crash killed error errored aborted canceled cancelled preempted preempting "
    "interrupted stopped timeout timed_out oom out_of_memory dead pruned node_fail boot_fail deadline terminated "
    "失败 已失败 崩溃 中断 已中断 已取消 出错",
    "diverged": "diverged nan 发散",
}
STATE_OF = {word: state for state, words in _STATES.items() for word in words.split()}
"""The state of a run by the word for it in W&B, MLflow, Slurm and others, in small letters."""
_BAD = (
    "crash|fail|error|exception|traceback|kill|abort|preempt|cancel|interrupt|diverg|explod|timeout|timed[ _-]out|corrupt"
    "|out[ _-]of[ _-]memory|time[ _-]limit|wall[ _-]?time|no[ _]space[ _]left|evict|unfinished|incomplete|segmentation[ _]fault"
    "|abgebrochen|abbruch|fehl|abgest[uü]rz|absturz|gescheitert|[eé]chou|[eé]chec|erreur|interromp|planté|avorté|fallid|falló"
    "|falha|falhou|interrump|interrott|cancelad|annullat|mislukt|afgebroken|przerwan|błąd|niepowodz|hata|başarısız|iptal|misslyck"
    "|avbrut|ошибк|сбой|прерван|отмен|неудач|упал|не заверш|помилк"
)
_BAD_WORDS = "oom|nan|died|dead|hung|stuck|broken|sig(?:kill|term|segv|abrt|bus)|segfault"
_BAD_SIGNS = (
    "失败|崩溃|中断|出错|错误|异常|终止|取消|发散|超时|未完成|失敗|エラー|異常|発散|キャンセル|打ち切り|실패|오류|중단|취소|발산"
    "|überschreitung|فشل|❌|✗|✘|💥|🔴"
)
_ENDED_BADLY = re.compile(
    rf"(?<![^\W\d_])(?:(?:{_BAD})[^\W\d_]*|(?:{_BAD_WORDS})(?![^\W\d_]))|{_BAD_SIGNS}", re.IGNORECASE
)
"""A word for a bad end, in a cell of any column and in the languages of those who wrote to us."""
_PARTS = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
"""Between the words of `KeyboardInterrupt` and `OOMKilled`."""
SUMMARIES = words_of(
    "mean means average avg grand total median std stdev sd sem sum min max diff difference delta mittelwert mittel "
    "durchschnitt gesamtergebnis summe differenz moyenne promedio media média среднее итого 平均 均值 平均值 合计 总计 差值 "
    "标准差 합계 평균"
)
"""Words for what sums up runs, in small letters."""
NOT_ENDED = "Write nan for a run that diverged (inf in a data frame), and leave out one that has not ended."
_SHOWN = 6
"""Variants that a warning about unknown endings names."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run of a table."""

    where: str
    variant: str
    seed: int
    loss: float | None
    """None if the table has none."""
    written: object = None
    """The loss as the table writes it."""
    state: str | None = None
    """As the table writes it; None if it tells nothing."""
    step: float | None = None
    """Of the loss; None if the table tells nothing."""
    compute: float | None = None
    """Of the whole run, up to that step; None if the table tells nothing."""
    throughput: float | None = None


def state_of(word: object, column: str, where: str) -> str:
    """The state that a table's word stands for.

    Raises:
        InputError: a word that stands for none.
    """
    state = STATE_OF.get(_folded(word))
    if _folded(word) == "terminated":  # in the table above all the same, so that its column is known as one of states
        raise InputError(
            f"{where}: expected the state of a run in column {column!r}, got {word!r}, which Ray Tune writes of a trial that "
            "finished and others of a run that was killed. Write finished or failed, or give --columns state= to count all."
        )
    if state is None:
        got = "an empty cell" if is_missing(word) else repr(word)
        raise InputError(
            f"{where}: expected the state of a run in column {column!r}, such as finished, running or crashed, got {got}."
            f"{did_you_mean(word, STATE_OF)} If the column holds something else, give --columns state= to leave it out."
        )
    return state


def tells_states(words: Sequence[object]) -> bool:
    """True if at least one word stands for a state."""
    return any(_folded(word) in STATE_OF for word in words)


@lru_cache(maxsize=4096)
def may_tell_a_bad_end(text: str) -> bool:
    """True if a text holds a word for a run that ended badly; `NaN`, a missing number, does not count.

    Example:
        >>> [may_tell_a_bad_end(text) for text in ("node 7 died", "nan_loss", "NaN", "deadline in May", "failsafe")]
        [True, True, False, False, True]
    """
    match = _ENDED_BADLY.search(text) or _ENDED_BADLY.search(_PARTS.sub(" ", text))
    return match is not None and text.strip().casefold().lstrip("+-") != "nan"


def last_of(rows: Sequence[Run]) -> Run:
    """The row of a run's last loss, with the state that its last row tells."""
    if len(rows) == 1:
        return rows[0]
    if 0 < len(without := [run for run in rows if run.step is None]) < len(rows):
        run = without[0]
        raise InputError(
            f"{run.where}: expected the step of the row, as other rows of variant {run.variant!r} at seed {run.seed} have, got "
            "none. Write it, or remove the row."
        )
    at_step: dict[float | None, Run] = {}
    # Rows of one step hold other numbers in some loggers: Lightning's one for training, and one for validation.
    counted = [run for run in rows if run.step is None or run.loss is not None] or rows[-1:]
    for run in counted:
        first = at_step.setdefault(run.step, run)
        if first is not run or (run.step is None and len(counted) > 1):
            step = "" if run.step is None else f" at step {run.step:.10g}"
            advice = "last row of each run" if run.step is None else "row of the run that ended"
            raise InputError(
                f"{rows[1].where if run.step is None else run.where}: expected one run of variant {run.variant!r} at seed "
                f"{run.seed}{step}, got a second one after {first.where}. Keep the {advice}. If they differ in a setting, "
                "name its column too: variant=model+NAME."
            )
    _require_one_course(counted)
    ordered = sorted(rows, key=lambda run: run.step or 0.0)
    with_loss = [run for run in ordered if run.loss is not None]
    return replace((with_loss or ordered)[-1], state=ordered[-1].state)


def _require_one_course(rows: Sequence[Run]) -> None:
    """Refuse rows that go on to a last step, begin anew and end before it: another run, or the same one begun anew."""
    steps = [run.step or 0.0 for run in rows]
    falls = [place for place in range(1, len(steps)) if steps[place] < steps[place - 1]]
    if len(falls) != 1:
        return
    run, before = rows[falls[0]], rows[falls[0] - 1]
    # Two rows may be sorted the other way round; those of two files are not.
    parted = 2 <= falls[0] <= len(steps) - 2 or run.where.split(", ")[0] != before.where.split(", ")[0]
    if parted and steps[-1] < steps[falls[0] - 1]:
        raise InputError(
            f"{run.where}: expected one run of variant {run.variant!r} at seed {run.seed}, got a second one: step "
            f"{run.step or 0.0:.10g} behind step {steps[falls[0] - 1]:.10g}, and an end before it. Keep the rows of the "
            "run that ended."
        )


def results_of(
    runs: Sequence[Run], loss_column: str, state_column: str | None, *, all_ended: bool = False
) -> tuple[list[Result], list[Sentence]]:
    """The results of runs, and what a reader has to know about those that end before others.

    Args:
        runs: at their last steps.
        loss_column: name of the column, for messages.
        state_column: the same of the states; None if nobody named it.
        all_ended: whether the user says that runs without a state have ended.

    Raises:
        InputError: a word that is no state, or a finished run without a loss.
    """
    results: list[Result] = []
    sentences = [*_alike(dict.fromkeys(run.variant for run in runs)), *_summaries(runs)]
    if "loss" not in loss_column.casefold():
        sentences += _scales(runs)
    last: dict[str, float] = {}
    for run in runs:
        if run.step is not None:
            last[run.variant] = max(run.step, last.get(run.variant, run.step))
    longest = max(last.values(), default=0.0)
    early: dict[str, list[Run]] = {}
    unknown: dict[str, list[Run]] = {}
    for run in runs:
        state, reason = "finished", None
        step, own = run.step, last.get(run.variant, 0.0)
        if run.state is not None:
            state = state_of(run.state, state_column or "state", run.where)
            reason = None if state in ("finished", "running") else f"its state is {run.state!r}"
        elif not all_ended and step is not None and step < longest and _is_finite(run.loss):
            state, reason = "running", f"its last step is {step:.10g}, that of other runs {longest:.10g}"
            unknown.setdefault(run.variant, []).append(run)
        if state == "finished" and step is not None and step < own:
            early.setdefault(run.variant, []).append(run)
        results.append(_result(run, loss_column, state, reason))
    if unknown:
        sentences.append(_unknown(unknown, longest))
    for variant, behind in early.items():
        each = listed("comma", (say("at_step", seed=run.seed, step=run.step or 0.0) for run in behind))
        sentences.append(say("ends_early", variant=variant, runs=each, last=last[variant]))
    finished = {r.variant for r in results if r.state == "finished"}
    ends = {variant: step for variant, step in last.items() if variant in finished}
    if len(set(ends.values())) > 1:
        each = listed("comma", (say("ends_at", variant=name, step=step) for name, step in ends.items()))
        sentences.append(say("unequal_steps", variants=each))
    return results, sentences


def _unknown(unknown: Mapping[str, Sequence[Run]], longest: float) -> Sentence:
    """The question whether runs have ended."""
    shown = []
    for variant, runs in list(unknown.items())[:_SHOWN]:
        steps = sorted({run.step or 0.0 for run in runs})
        at = f"{steps[0]:.10g}" if len(steps) == 1 else f"{steps[0]:.10g}-{steps[-1]:.10g}"
        shown.append(say("unknown_of", variant=variant, count=len(runs), steps=at))
    if len(unknown) > _SHOWN:
        shown.append(say("unknown_more", count=len(unknown) - _SHOWN))
    return say("ending_unknown", runs=listed("comma", shown), last=longest)


def _alike(variants: Iterable[str]) -> list[Sentence]:
    """A warning of names that may be one variant in two spellings."""
    spelled: dict[str, list[str]] = {}
    for name in variants:
        spelled.setdefault(_spelling(name), []).append(name)
    doubtful = [listed("and", map(repr, names)) for names in spelled.values() if len(names) > 1]
    return [say("alike_names", names=listed("semicolon", doubtful[:_SHOWN]))] if doubtful else []


def _spelling(name: str) -> str:
    """The common form of the names of one variant: small letters, numbers in one notation, settings in one order."""
    plain = unicodedata.normalize("NFKC", name).casefold()
    parts = re.findall(r"[^\s,;{}'\"]+", re.sub(r"['\"]?\s*[:=]\s*['\"]?", "=", plain))
    if parts and all("=" in part.strip("=") for part in parts):
        settings = (part.split("=", 1) for part in parts)
        return " ".join(sorted(f"{key}={_same_number(value, value)}" for key, value in settings))
    return _same_number(plain, re.sub(r"[\s_.\-‐-―]+", " ", plain).strip())


def _same_number(text: str, otherwise: str) -> str:
    try:
        return repr(float(text))
    except ValueError:
        return otherwise


def _summaries(runs: Sequence[Run]) -> list[Sentence]:
    """A warning of variants that are named like a mean or another summary and hold that of the others, or no seed of theirs."""
    by_variant: dict[str, dict[int, Run]] = {}
    for run in runs:
        by_variant.setdefault(run.variant, {})[run.seed] = run
    summaries = []
    for name, own in by_variant.items():
        words = re.findall(r"[^\W\d_]+", name.casefold())
        if not words or not SUMMARIES.issuperset(words) or len(by_variant) < 3:
            continue
        others = [of for variant, of in by_variant.items() if variant != name]
        at_seeds = [(run, [of[seed].loss for of in others if seed in of]) for seed, run in own.items()]
        if all(
            len(own) == 1 if not beside else _summarizes(run, [x for x in beside if x is not None])
            for run, beside in at_seeds
        ):
            summaries.append(repr(name))
    return [say("summary_variants", variants=listed("comma", summaries))] if summaries else []


def _summarizes(run: Run, losses: Sequence[float]) -> bool:
    """True if a loss is the mean, sum, spread, an extreme or a difference of others, up to its last printed digit."""
    if run.loss is None or not losses or not all(map(math.isfinite, (run.loss, *losses))):
        return False
    digits = str(run.written).replace(",", ".").partition(".")[2]
    made = [fmean(losses), sum(losses), median(losses), pstdev(losses), min(losses), max(losses)]
    made += [stdev(losses), losses[0] - losses[-1], losses[-1] - losses[0]] if len(losses) > 1 else []
    return any(abs(each - run.loss) <= 10.0 ** -len(digits) for each in made)


def _scales(runs: Sequence[Run]) -> list[Sentence]:
    """A warning of variants whose numbers may be shares where those of others are percentages."""
    by_variant: dict[str, list[float]] = {}
    for run in runs:
        if run.loss is not None and math.isfinite(run.loss):
            by_variant.setdefault(run.variant, []).append(run.loss)
    shares = {name: fmean(of) for name, of in by_variant.items() if min(of) >= 0 and max(of) <= 1}
    percents = {name: fmean(of) for name, of in by_variant.items() if min(of) > 1 and max(of) <= 100}
    small = [
        name for name, share in shares.items() if any(50 * share < each < 200 * share for each in percents.values())
    ]
    if not small:
        return []
    return [say("scales_differ", small=listed("comma", small[:_SHOWN]), large=listed("comma", list(percents)[:_SHOWN]))]


def _is_finite(loss: float | None) -> bool:
    return loss is None or math.isfinite(loss)


def _result(run: Run, column: str, state: str, reason: str | None) -> Result:
    if state == "finished" and run.loss is None:
        raise InputError(f"{run.where}: expected a number in column {column!r}, got {run.written!r}. {NOT_ENDED}")
    if run.loss is not None and not math.isfinite(run.loss) and state in ("finished", "failed"):
        state, reason = "diverged", f"its loss is {run.loss}"
    return Result(
        variant=run.variant, seed=run.seed, loss=run.loss if state == "finished" else None, state=state, reason=reason
    )


def _folded(word: object) -> str:
    # Slurm writes who cancelled a job, and others a sign before the word.
    text = re.sub(r"^\W+|\W+$", "", re.sub(r" by \d+$", "", str(word).strip()))
    return text.casefold().replace(" ", "_").replace("-", "_")
