"""The table of claims, and the answers that the reports begin with.

The table says what the sources claim, what decides it, and whether a second batch of seeds finds it again.

No verdict is written by hand. claims.yaml names a difference; its verdict is the one that `addnorm rank` (or `extrapolate`)
gives of data/NAME.json, and the second batch is data/NAME-second.json, seeds that the first batch did not have. A verdict
of one batch is never called found again, and an undecided one never anything but open.

answers.yaml has the two or three sentences that a report begins with. A verdict in them is written `{better DATA VARIANT
REFERENCE}`, or `{better DATA VARIANT REFERENCE LENGTH}`: it is shown as the difference with its interval, and refused if the
data have another verdict. `{once better DATA VARIANT REFERENCE}` adds that there is one batch, and is refused if there are two.
`{solved DATA VARIANT LOSS}` is how many of its runs ended below a loss, in words.
"""

import json
import re
import textwrap
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

from addnorm.statistics import ranking_of_published

HERE = Path(__file__).parent
DATA = HERE / "data"
WORDS = {
    "en": {
        "head": ["claim", "decided by", "first batch", "second batch", "replicated?"],
        "better": "better", "worse": "worse", "equivalent": "equivalent", "undecided": "undecided", "failed": "failed",
        "None": "no verdict", "seeds": "{} seeds", "tokens": "{} tokens",
        "open": "open", "one batch": "one batch only", "again": "found again", "not again": "not found again",
        "claimed": "as claimed", "against": "against the claim", "neutral": "the source names no sign",
        "proof holds": "proved", "proof refuted": "refuted", "not run": "not run",
        "answer": "**Answer.** ", "counts": "Of {} claims {}.", "count": "{number} {status}", "join": "; ", "comma": ", ",
        "nats": "{} nats", "once": " (one batch)", "share": "{below} of {runs}",
    },
    "zh": {
        "head": ["说法", "依据", "第一批种子", "第二批种子", "是否再次得到"],
        "better": "更好", "worse": "更差", "equivalent": "等效", "undecided": "未决", "failed": "失败",
        "None": "无判定", "seeds": "{} 个种子", "tokens": "{} 个 token",
        "open": "未决", "one batch": "只有一批", "again": "再次得到", "not again": "未再得到",
        "claimed": "与说法一致", "against": "与说法相反", "neutral": "来源未言正负",
        "proof holds": "已证明", "proof refuted": "已否定", "not run": "未做",
        "answer": "**答案。** ", "counts": "共 {} 项说法：{}。", "count": "{status} {number} 项", "join": "；", "comma": "，",
        "nats": "{} nat", "once": "（只有一批）", "share": "{runs} 次中 {below} 次",
    },
}  # fmt: skip


def table(language: str, only: str | None = None) -> str:
    """All claims as Markdown, one table for each source; or those of one report, in one table.

    Args:
        language: `en` or `zh`.
        only: name of a report.

    Raises:
        SystemExit: a claim names data, a variant or a file that does not exist, or no claim is of that report.
    """
    words = WORDS[language]
    head = [words["head"], ["---"] * 5]
    if only is not None:
        rows = [
            [f"{source}: {claim[language]}", *_cells(claim, report, words)]
            for source, report, claim in _claims()
            if report == only
        ]
        if not rows:
            raise SystemExit(f"claims.yaml: expected a claim of the report {only!r}, got none")
        return _markdown([*head, *rows])
    parts: dict[str, list[list[str]]] = {}
    for source, report, claim in _claims():
        parts.setdefault(source, head.copy()).append([claim[language], *_cells(claim, report, words)])
    return "\n".join(f"### {source}\n\n{_markdown(rows)}" for source, rows in parts.items())


def counts(language: str) -> str:
    """How many claims were found again, and how many were not, as a sentence: the last column of the table, counted."""
    words = WORDS[language]
    found = Counter(_cells(claim, report, words)[-1] for _, report, claim in _claims())
    order = ("again", "one batch", "not again", "open", "proof holds", "proof refuted")
    ordered = sorted(found, key=lambda status: [status.startswith(str(words[name])) for name in order].index(True))
    shown = [
        words["count"].format(number=found[status], status=status.replace("; ", words["comma"])) for status in ordered
    ]
    text = words["counts"].format(found.total(), words["join"].join(shown))
    return (textwrap.fill(text, 100) if language == "en" else text) + "\n"


def answer(report: str) -> str:
    """The sentences that a report begins with, in English and then in Chinese, with the numbers of the data.

    Raises:
        SystemExit: a sentence states a verdict that the data do not have, or names data or a pair that do not exist.
    """
    paragraphs = []
    for language, words in WORDS.items():
        text = yaml.safe_load((HERE / "answers.yaml").read_text(encoding="utf-8"))[report][language].strip()
        filled = words["answer"] + re.sub(
            r"\{(once )?(\w+) ([^{}]+)\}", lambda found, words=words: _size(*found.groups(), words), text
        )
        paragraphs.append(textwrap.fill(filled, 100, break_on_hyphens=False) if language == "en" else filled)
    return "\n\n".join(paragraphs) + "\n"


def share(name: str, variant: str, threshold: str) -> tuple[int, int]:
    """How many runs of a variant ended below a loss, and of how many."""
    runs = json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))["runs"]
    ends = [run["loss"] for run in runs if run["variant"] == variant and run["loss"] is not None]
    return sum(loss < float(threshold) for loss in ends), len(ends)


def _size(once: str | None, verdict: str, pair: str, words: dict[str, Any]) -> str:
    """Difference and interval in nats, `0.056 nats [0.023, 0.089]`: without a sign where the verdict names it."""
    if verdict == "solved":
        below, runs = share(*pair.split())
        return str(words["share"].format(below=below, runs=runs))
    claim = {"lengths" if len(pair.split()) == 4 else "rank": pair}
    found = difference(claim, "")
    if found is None or found["verdict"] != verdict:
        raise SystemExit(f"answers.yaml: {pair}: expected the verdict {found and found['verdict']}, got {verdict}")
    if once and difference(claim, "-second") is not None:
        raise SystemExit(f"answers.yaml: {pair}: there is a second batch. Leave `once` out, and say what it found.")
    numbers = [found["difference"], *found["interval"]]
    digits = max(3, 4 * (verdict == "equivalent"))
    if verdict in ("better", "worse"):
        middle, *ends = (f"{abs(number):.{digits}f}" for number in numbers)
        low, high = sorted(ends)
    else:
        middle, low, high = (f"{number:+.{digits}f}".replace("-", "−") for number in numbers)
    return f"{words['nats'].format(middle)} [{low}, {high}]{words['once'] if once else ''}"


def _claims() -> list[tuple[str, str, dict[str, Any]]]:
    """Every claim with its source and its report."""
    sources = yaml.safe_load((HERE / "claims.yaml").read_text(encoding="utf-8"))
    return [
        (source["source"], claim.get("report", source["report"]), claim)
        for source in sources
        for claim in source["claims"]
    ]


def _markdown(rows: list[list[str]]) -> str:
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _cells(claim: dict[str, Any], report: str, words: dict[str, Any]) -> list[str]:
    if claim.get("not_run") or ("command" in claim and not (DATA / f"{claim['rank'].split()[0]}.json").exists()):
        command = f"`addnorm run {claim['command']}`" if "command" in claim else "–"
        return [command, words["not run"], "–", words["open"]]
    if "proof" in claim:
        path = HERE.parents[1] / claim["proof"]
        if not path.exists():
            raise SystemExit(f"claims.yaml: expected an existing file, got {claim['proof']}")
        shown = words["proof holds" if claim["holds"] else "proof refuted"]
        return [f"[`{path.name}`](../../{claim['proof']})", shown, "–", shown]
    batches = [found for name in ("", "-second") if (found := difference(claim, name)) is not None]
    evidence = f"[{report}]({report}.md): {_evidence(claim, words)}"
    shown = [_verdict(batch, words) for batch in batches]
    return [evidence, shown[0], shown[1] if len(shown) > 1 else "–", replicated(claim, batches, words)]


def difference(claim: dict[str, Any], batch: str) -> dict[str, Any] | None:
    """The comparison that decides a claim on a batch of seeds: verdict, difference, interval; None where there is no batch.

    Args:
        claim: of claims.yaml, with `rank` or `lengths`.
        batch: "" for the first, "-second" for the second.

    Raises:
        SystemExit: the first batch, or the pair in it, does not exist; or the batches share a seed.
    """
    name, variant, reference, *length = (claim.get("rank") or claim["lengths"]).split()
    path = DATA / f"{claim.get('second', name + batch) if batch else name}.json"
    if not path.exists() and batch:
        return None
    if "rank" in claim:
        ranking = ranking_of_published(path).to_json()
        found = {row["variant"]: row for row in ranking["variants"]}
        comparison = found[variant]["versus"].get(reference) if variant in found else None
        seeds = _seeds(path)
        if batch and seeds & _seeds(DATA / f"{name}.json"):
            raise SystemExit(f"{path}: expected seeds that {name}.json does not have, got {sorted(seeds)}")
        number = found[variant]["seeds"] if variant in found else 0
    else:
        rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
        row = next((r for r in rows if r["label"] == variant and r["length"] == int(length[0])), None)
        comparison = None if row is None else row["versus"].get(reference)
        number = 0 if row is None else row["seeds"]
    if comparison is None:
        if batch:
            return None
        raise SystemExit(f"claims.yaml: {path.name} does not compare {variant} with {reference}")
    return {**comparison, "seeds": number}


def _seeds(path: Path) -> set[int]:
    return {run["seed"] for run in json.loads(path.read_text(encoding="utf-8"))["runs"]}


def _evidence(claim: dict[str, Any], words: dict[str, Any]) -> str:
    _, variant, reference, *length = (claim.get("rank") or claim["lengths"]).split()
    return f"{variant} − {reference}" + (f", {words['tokens'].format(length[0])}" if length else "")


def _verdict(comparison: dict[str, Any], words: dict[str, Any]) -> str:
    text = str(words[str(comparison["verdict"])])
    if comparison["difference"] is not None and comparison["interval"] is not None:
        low, high = (1000 * end for end in comparison["interval"])
        text += f" {1000 * comparison['difference']:+.1f} [{low:+.1f}, {high:+.1f}]"
    return f"{text}, {words['seeds'].format(comparison['seeds'])}"


def replicated(claim: dict[str, Any], batches: list[dict[str, Any]], words: dict[str, Any]) -> str:
    """What the batches say together: open, one batch only, found again or not; and whether that is what the source claims."""
    verdicts = [batch["verdict"] for batch in batches]
    if verdicts[0] in (None, "undecided"):
        return str(words["open"])
    if len(verdicts) == 1:
        status = words["one batch"]
    else:
        if verdicts[1] != verdicts[0]:
            return str(words["not again"])
        status = words["again"]
    if "as_claimed" not in claim:
        sign = words["neutral"]
    else:
        sign = words["claimed" if verdicts[0] in claim["as_claimed"] else "against"]
    return f"{status}; {sign}"
