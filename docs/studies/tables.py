"""The tables of the studies' reports: kept as small JSON files, written into the reports between their markers.

    python docs/studies/tables.py collect DIR NAME [LABEL]    a study's finished runs to data/NAME.json, beside those there
    python docs/studies/tables.py collect DIR NAME@METRIC     another number of their last evaluation in place of the loss
    python docs/studies/tables.py collect DIR@second NAME     the second batch of seeds of a study with `--until confirmed`,
                                                              which `collect DIR` leaves out
    python docs/studies/tables.py lengths DIR NAME            what `addnorm extrapolate DIR` left there to data/NAME.json
    python docs/studies/tables.py tuning DIR NAME             what tuning found in DIR to data/NAME.json
    python docs/studies/tables.py write [REPORT …]            every marked block of the reports anew; of all if none is named

A block is a comment that says what stands in it, the table, and `<!-- end -->`:

    <!-- rank NAME -->                 what `addnorm rank docs/studies/data/NAME.json` prints
    <!-- sweep NAME NAME … -->         rankings side by side, one column each, headed by their labels
    <!-- tuning NAME -->               what `addnorm rank` prints of the tuning
    <!-- lengths NAME -->              what `addnorm extrapolate DIR` prints, from its --json in data/NAME.json
    <!-- verdicts NAME -->             of that the losses against the references alone
    <!-- trend NAME NAME … -->         what `addnorm trend` prints of data/NAME.json, one per size
    <!-- pairs NAME+NAME A:B … -->     variants A, each beside a reference B of its own, of one or more files of one study:
                                       parameters, losses and verdict
    <!-- batches NAME NAME … A:B … --> variants A, each beside a reference B, on every batch of seeds and on all of them. A name
                                       of tuning data is followed by the value of a rate, `NAME@0.024`, or by `@chosen`
    <!-- across NAME VARIANT NAME VARIANT --> the same for two variants of two files, over the seeds that both have
    <!-- signs NAME NAME … -->         share of pairs of variants whose difference keeps its sign from a size to a later one
    <!-- worth NAME NAME … -->         what every variant is worth in compute, from data of several sizes, as
                                       `addnorm rank DIR --size DIR --as speedup` prints it
    <!-- predicted NAME NAME … LARGEST --> the last one's losses and differences as `addnorm trend NAME … --predict LARGEST`
                                       predicts them from the others' data, and the score
    <!-- solved LOSS NAME … -->       runs of two variants below a loss, and Fisher's exact test of their shares
    <!-- cost NAME -->                 parameters and training FLOPs of every variant beside its loss
    <!-- learned NAME VARIANT WHAT --> coefficients WHAT of a variant, means over its seeds: a row per layer that reads, a
                                       column per layer that is read
    <!-- table NAME -->                rows of a script, as it printed them
    <!-- claims LANGUAGE [REPORT] -->  the claims of claims.yaml with what their data say, in `en` or `zh`; see claims.py
    <!-- counts LANGUAGE -->           how many of these claims were found again
    <!-- answer REPORT -->             the sentences of answers.yaml with the numbers of their data, in both languages
"""

import json
import re
import sys
from collections import defaultdict
from itertools import combinations
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from safetensors import safe_open
from scipy.stats import fisher_exact, ttest_1samp

from addnorm.cli._rank.prediction import text as prediction_text
from addnorm.reporting.drawing.image import saved
from addnorm.reporting.formats.trend_table import text as trend_text
from addnorm.reporting.questions.speedup import answer as written_answer
from addnorm.reporting.sections.lengths.table import text as lengths
from addnorm.reporting.sections.ranking import text
from addnorm.reporting.sections.tuning import text as tuning_text
from addnorm.statistics import compare_pairs, ranking_of_published, read_published
from addnorm.statistics.effects.prediction import LadderSize, predict, scored
from addnorm.store import StudyFolder
from addnorm.store.questions.speedup import speedup
from addnorm.store.rank import rank
from addnorm.store.results import results
from addnorm.store.study import COSTS
from addnorm.store.trend import trend
from addnorm.words import phrases

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))  # the test imports this file by its path
from claims import answer, counts, share  # noqa: E402
from claims import table as claims_table  # noqa: E402

DATA = HERE / "data"
BLOCK = re.compile(
    r"<!-- (rank|sweep|trend|pairs|batches|across|signs|worth|predicted|solved|tuning|lengths|verdicts|cost|learned|table"
    r"|claims|counts|answer) ([^>]*?) -->\n"
    r".*?<!-- end -->",
    flags=re.S,
)
SIGNS = {"better": "better", "worse": "worse", "equivalent": "equal", "undecided": "?", "failed": "failed", None: "-"}


def collect(folder: Path, to: Path, label: str = "", metric: str = "loss", batch: str = "") -> None:
    """Write a study's ended runs in the form that `addnorm rank FILE.json` reads: of its second batch of seeds if `batch` is
    "second", else of all others.

    A long study is trained in slices, perhaps each in a folder of its own (`--set seeds=[3]`): runs that the file has
    already stay, and those of the folder join or replace them. A run is known by its name, with its hash of what it is. A
    variant that is tuned has one choice, so that all of its earlier runs go.

    Raises:
        SystemExit: the file has runs of another study or text.
    """
    study = StudyFolder(folder)
    second = study.plan.get("replicate", [])
    ended = [
        result
        for result in results(study, metric)
        if result.state in ("finished", "failed") and (result.seed in second) == (batch == "second")
    ]
    runs = [
        {
            "run": result.run,
            "variant": result.variant,
            "seed": result.seed,
            "state": result.state,
            "loss": result.loss,
            "accuracy_percent": None if result.accuracy is None else 100 * result.accuracy,
            "content_hash": result.content_hash,
            "corpus_hash": result.corpus_hash,
            "reason": result.reason,
            # To a tenth of what a loss is printed to, so that a file stays small.
            **({"part_losses": [round(loss, 5) for loss in result.part_losses]} if result.part_losses else {}),
            **({"part_tokens": list(result.part_tokens)} if result.part_tokens else {}),
        }
        for result in ended
    ]
    content = {
        "study": study.plan["study"],
        "label": label,
        "plan_hash": study.plan["plan_hash"],
        "steps": study.runs()[0].spec["spec"]["training"]["steps"],
        "references": study.plan["references"],
    }
    costs = counted(study)
    coefficients = {result.run: rows for result in ended if (rows := learned(folder / result.run))}
    if to.exists():
        before = json.loads(to.read_text(encoding="utf-8"))
        corpora = {run["corpus_hash"] for run in [*before["runs"], *runs]} - {None}
        if before["study"] != content["study"] or len(corpora) > 1:
            raise SystemExit(f"{to}: expected runs of {content['study']!r} on one text, got others. Name another file.")
        runs = joined(before["runs"], runs, tuned=bool(study.tuning_runs()))
        names = {run["run"] for run in runs}
        coefficients = {
            run: rows for run, rows in (before.get("coefficients", {}) | coefficients).items() if run in names
        }
        # A slice of some variants names references of its own; the study's are those that came first.
        content |= {"label": label or before["label"], "references": before["references"]}
        costs = before.get("costs", {}) | costs
    if costs:
        content["costs"] = costs
    runs.sort(key=lambda run: run["seed"])
    lines = ",\n  ".join(json.dumps(run) for run in runs)
    head = json.dumps(content, indent=1).removesuffix("\n}")
    if coefficients:
        rows = ",\n  ".join(f"{json.dumps(run)}: {json.dumps(found)}" for run, found in sorted(coefficients.items()))
        head += f',\n "coefficients": {{\n  {rows}\n }}'
    to.write_text(f'{head},\n "runs": [\n  {lines}\n ]\n}}\n', encoding="utf-8")


def joined(before: list[dict[str, Any]], runs: list[dict[str, Any]], *, tuned: bool) -> list[dict[str, Any]]:
    """The runs of a slice and those of the file that it does not replace: by name, or of a tuned study by variant.

    Names hold a hash of what a run is. Its weights differ in the last digits between kinds of CPU.
    """
    by = "variant" if tuned else "run"
    known = {run[by] for run in runs}
    return [*runs, *(run for run in before if run[by] not in known)]


def counted(study: StudyFolder) -> dict[str, dict[str, float]]:
    """Parameters, training tokens and FLOPs of a run of every variant, as `addnorm plan` counts them."""
    path = study.path / COSTS
    if not path.exists():
        return {}
    costs = json.loads(path.read_text(encoding="utf-8"))["variants"]
    found = {}
    for run in study.runs():
        variant, training = run.spec["variant"], run.spec["spec"]["training"]
        tokens = training["steps"] * training["batch"] * training["seq"]
        found[variant] = {
            "parameters": costs[variant]["parameters"],
            "tokens": tokens,
            "flops": costs[variant]["flops_per_token"] * tokens,
        }
    return found


def learned(run: Path) -> list[list[Any]]:
    """The run's effective coefficients at its end: name, layer, value."""
    path = run / "scalars.safetensors"
    if not path.exists():
        return []
    with safe_open(path, "np") as file:
        metadata = file.metadata()
    pairs = zip(json.loads(metadata["names"]), json.loads(metadata["effective"]), strict=True)
    return [[name, layer, round(value, 5)] for name, (layer, value) in pairs if value is not None]


def collect_lengths(folder: Path, to: Path) -> None:
    """Write what `addnorm extrapolate` found, a line per variant and length; its rankings, which repeat it, are left out."""
    found = json.loads((folder / "extrapolation.json").read_text(encoding="utf-8"))
    rows = ",\n  ".join(json.dumps(row) for row in found.pop("rows"))
    found.pop("rankings")
    head = json.dumps(found, indent=1).removesuffix("\n}")
    to.write_text(f'{head},\n "rows": [\n  {rows}\n ]\n}}\n', encoding="utf-8")


def collect_tuning(folder: Path, to: Path) -> None:
    """Write what tuning found, a line per variant; variants that the file has already stay, or are replaced."""
    tuning = rank(folder).to_json()["tuning"]
    variants = {variant["variant"]: variant for variant in tuning.pop("variants")}
    if to.exists():
        before = json.loads(to.read_text(encoding="utf-8"))
        if before["seeds"] != tuning["seeds"]:
            raise SystemExit(
                f"{to}: expected tuning on the seeds {before['seeds']}, got {tuning['seeds']}. Name another file."
            )
        variants = {variant["variant"]: variant for variant in before["variants"]} | variants
        tuning["noise_sd"] = None  # each folder has one of its own
    lines = ",\n  ".join(json.dumps(variant) for variant in variants.values())
    head = json.dumps(tuning, indent=1).removesuffix("\n}")
    to.write_text(f'{head},\n "variants": [\n  {lines}\n ]\n}}\n', encoding="utf-8")


def write_table(name: str, columns: list[str], rows: list[list[str]]) -> None:
    """Write the rows of a script to data/NAME.json, for the block `table NAME`."""
    lines = ",\n  ".join(json.dumps(row) for row in rows)
    text = f'{{\n "columns": {json.dumps(columns)},\n "rows": [\n  {lines}\n ]\n}}\n'
    (DATA / f"{name}.json").write_text(text, encoding="utf-8")


def save_figure(figure: Any, name: str) -> None:
    """Write a figure to images/NAME.svg; the same figure gives the same bytes."""
    (HERE / "images" / f"{name}.svg").write_bytes(saved(figure, "svg"))


def stored(name: str) -> dict[str, Any]:
    """The content of data/NAME.json."""
    return dict(json.loads((DATA / f"{name}.json").read_text(encoding="utf-8")))


def written(report: str) -> str:
    """The report with every block as its data have it."""
    return BLOCK.sub(lambda found: f"<!-- {found[1]} {found[2]} -->\n{block(found[1], found[2])}<!-- end -->", report)


def block(kind: str, names: str) -> str:
    if kind == "rank":
        return f"```text\n{text(ranking_of_published(DATA / f'{names}.json').to_json())}\n```\n"
    if kind == "sweep":
        return sweep(names.split())
    if kind in ("lengths", "verdicts"):
        parts = lengths(stored(names)).rstrip().split("\n\n")
        shown = [part for part in parts if kind == "lengths" or part.startswith("Loss against ")]
        return "```text\n" + "\n\n".join(shown) + "\n```\n"
    if kind == "trend":
        return f"```text\n{trend_text(trend([DATA / f'{name}.json' for name in names.split()]).to_json())}```\n"
    if kind == "tuning":
        return f"```text\n{tuning_text(stored(names))}```\n"
    if kind == "pairs":
        return pairs(*names.split())
    if kind == "batches":
        return batches(names.split())
    if kind == "across":
        return across(*names.split())
    if kind == "signs":
        return signs(names.split())
    if kind == "predicted":
        return predicted(names.split())
    if kind == "worth":
        return worth(names.split())
    if kind == "solved":
        return solved(*names.split())
    if kind == "cost":
        return cost(names)
    if kind == "learned":
        return coefficients(*names.split())
    if kind == "claims":
        return claims_table(*names.split())
    if kind == "counts":
        return counts(names)
    if kind == "answer":
        return answer(names)
    table = stored(names)
    return markdown([table["columns"], *table["rows"]])


def cost(name: str) -> str:
    """The variants in the order of their losses, with what a run of each costs beside one of the first reference."""
    data = stored(name)
    ranking = ranking_of_published(DATA / f"{name}.json").to_json()
    reference = ranking["references"][0]
    base = data["costs"][reference]
    rows = [
        ["variant", "parameters", "tokens", "FLOPs", f"FLOPs, {reference} = 1", f"loss, difference from {reference}"]
    ]
    for row in ranking["variants"]:
        own = data["costs"][row["variant"]]
        rows.append(
            [
                row["variant"],
                f"{own['parameters']:,}",
                f"{own['tokens']:,}",
                f"{own['flops']:.3g}",
                f"{own['flops'] / base['flops']:.2f}",
                cell(ranking, row["variant"], reference),
            ]
        )
    return markdown(rows)


def pairs(names: str, *chosen: str) -> str:
    """Each variant beside its own reference; differences in thousandths of a nat, whose intervals hold together."""
    files = names.split("+")
    costs = {variant: cost for name in files for variant, cost in stored(name)["costs"].items()}
    results = [result for name in files for result in read_published(DATA / f"{name}.json").results]
    wanted = [(variant, reference) for variant, _, reference in (pair.partition(":") for pair in chosen)]
    found = compare_pairs(results, wanted)
    rows = [["variant", "parameters", "its reference", "parameters", "difference and its interval", "lower on"]]
    for (variant, reference), comparison in found.items():
        difference: str = comparison.verdict or "no verdict"
        if comparison.difference is not None:
            difference += f" {1000 * comparison.difference:+.0f}"
        if comparison.interval is not None:
            difference += " [{:+.0f}, {:+.0f}]".format(*(1000 * end for end in comparison.interval))
        counts = [f"{costs[each]['parameters']:,}" for each in (variant, reference)]
        lower = f"{comparison.seeds_lower} of {len(comparison.by_seed)}"
        rows.append([variant, counts[0], reference, counts[1], difference, lower])
    return markdown(rows)


def losses(name: str) -> dict[str, dict[int, float]]:
    """Finite losses by variant and seed: of NAME.json, or of tuning data at one value of what was tuned (`NAME@VALUE`)."""
    file, _, value = name.partition("@")
    data = stored(file)
    found: dict[str, dict[int, float]] = defaultdict(dict)
    runs = data.get("runs")
    if runs is None:
        runs = [
            {"variant": row["variant"], **run}
            for row in data["variants"]
            for point in row["points"]
            if (point["point"] == row["chosen"] if value == "chosen" else float(value) in point["values"].values())
            for run in point["runs"]
        ]
    for run in runs:
        if run["loss"] is not None:
            found[run["variant"]][run["seed"]] = run["loss"]
    return found


def batches(words: list[str]) -> str:
    """Paired differences in thousandths of a nat on every batch of seeds: mean and, of all seeds, deviation and t test.

    The p value is that of one paired t test on its own: it describes, and belongs to no family.
    """
    names = [word for word in words if ":" not in word]
    labels = [_label(stored(name.partition("@")[0])) for name in names]
    rows = [["difference", *labels, "all seeds", "sd", "t test alone"]]
    by_name = [losses(name) for name in names]
    for variant, _, reference in (word.partition(":") for word in words if ":" in word):
        cells, every = [], []
        for batch in by_name:
            own, other = batch.get(variant, {}), batch.get(reference, {})
            differences = [1000 * (own[seed] - other[seed]) for seed in sorted(own.keys() & other.keys())]
            cells.append(_batch(differences))
            every += differences
        p = ttest_1samp(every, 0).pvalue if len(every) > 1 else float("nan")
        rows.append([f"{variant} - {reference}", *cells, _batch(every), f"{stdev(every):.0f}", f"p = {p:.2g}"])
    return markdown(rows)


def across(name: str, variant: str, other_name: str, other: str) -> str:
    """Paired difference of two variants of two files in thousandths of a nat, as one test by itself."""
    own, against = losses(name)[variant], losses(other_name)[other]
    differences = [1000 * (own[seed] - against[seed]) for seed in sorted(own.keys() & against.keys())]
    labels = [f"{label} ({_label(stored(file))})" for file, label in ((name, variant), (other_name, other))]
    p = ttest_1samp(differences, 0).pvalue
    rows = [["difference", "seeds of both", "sd", "t test alone"]]
    rows.append([" - ".join(labels), _batch(differences), f"{stdev(differences):.0f}", f"p = {p:.2g}"])
    return markdown(rows)


def _label(data: dict[str, Any]) -> str:
    if "runs" not in data:
        return "tuning seeds"
    seeds = [run["seed"] for run in data["runs"]]
    return data["label"] or f"seeds {min(seeds)} to {max(seeds)}"


def _batch(differences: list[float]) -> str:
    if not differences:
        return "not run"
    lower = sum(difference < 0 for difference in differences)
    return f"{mean(differences):+.0f}, lower on {lower} of {len(differences)}"


def signs(names: list[str]) -> str:
    """Pairs of variants that keep the sign of their difference between each two of the sizes, of all pairs; chance is half."""
    labels = [stored(name)["label"] for name in names]
    means = [{variant: mean(by_seed.values()) for variant, by_seed in losses(name).items()} for name in names]
    rows = [["from", "to", "pairs that keep their sign", "by chance"]]
    for first, second in combinations(range(len(names)), 2):
        every = list(combinations(sorted(means[first].keys() & means[second].keys()), 2))
        kept = sum((means[first][a] < means[first][b]) == (means[second][a] < means[second][b]) for a, b in every)
        rows.append([labels[first], labels[second], f"{kept} of {len(every)}", f"{len(every) / 2:g}"])
    return markdown(rows)


def worth(names: list[str]) -> str:
    """Compute multipliers over the sizes of several files."""
    of_sizes = [stored(name) for name in names]
    rows = [
        {"size": data["label"], "compute": data["costs"][run["variant"]]["flops"]}
        | {key: run[key] for key in ("variant", "seed", "loss")}
        for data in of_sizes
        for run in data["runs"]
    ]
    answered = speedup(rows, reference=of_sizes[0]["references"][0], unit="nats per token")
    return f"```text\n{written_answer(answered.to_json(), phrases('en')).text(100)}\n```\n"


def predicted(names: list[str]) -> str:
    """The prediction of the largest size from the data of the smaller ones, scored by its own."""
    sizes = [
        LadderSize(
            name=f"width {data['label']}",
            losses={(run["variant"], run["seed"]): run["loss"] for run in data["runs"]},
            compute={variant: cost["flops"] for variant, cost in data["costs"].items()},
        )
        for data in map(stored, names)
    ]
    *smaller, largest = sizes
    ranking = ranking_of_published(DATA / f"{names[-1]}.json")
    made = predict(
        smaller,
        largest,
        seeds=len({seed for _, seed in largest.losses}),
        references=ranking.references,
        margin=ranking.margin,
    )
    comparisons = {(row.variant, name): each for row in ranking.variants for name, each in row.versus.items()}
    return f"```text\n{prediction_text(scored(made, largest.losses, comparisons, smaller[-1]).to_json(), 100)}\n```\n"


def solved(threshold: str, *names: str) -> str:
    """Runs of two variants that end below a loss, batch by batch, with Fisher's exact test of their shares, two-sided."""
    lines: list[list[str]] = []
    for name in names:
        data = stored(name)
        (reference,) = data["references"]
        (other,) = {run["variant"] for run in data["runs"]} - {reference}
        lines = lines or [[f"loss below {threshold}", reference, other, "Fisher's exact test"]]
        below, runs = zip(*(share(name, variant, threshold) for variant in (reference, other)), strict=True)
        p = fisher_exact([below, [all_ - some for all_, some in zip(runs, below, strict=True)]]).pvalue
        shares = [f"{some} of {all_}" for some, all_ in zip(below, runs, strict=True)]
        lines.append([_label(data), *shares, f"p = {p:.2g}"])
    return markdown(lines)


def learned_means(data: dict[str, Any], variant: str, what: str) -> dict[tuple[int, int], tuple[float, float | None]]:
    """Mean and standard deviation over the seeds of WHAT.*[j] of each layer, or WHAT[*], one per layer, by layer and column."""
    found: dict[tuple[int, int], list[float]] = defaultdict(list)
    for run in (run["run"] for run in data["runs"] if run["variant"] == variant):
        for label, layer, value in data["coefficients"][run]:
            if match := re.fullmatch(rf"{re.escape(what)}(\.\d+)?\[(\d+)\]", label):
                found[layer, int(match[2]) if match[1] else 0].append(value)
    return {place: (mean(each), stdev(each) if len(each) > 1 else None) for place, each in found.items()}


def coefficients(name: str, variant: str, what: str) -> str:
    """Mean ± standard deviation over the seeds: a row per layer, a column per layer that is read."""
    found = learned_means(stored(name), variant, what)
    layers, columns = sorted({layer for layer, _ in found}), sorted({column for _, column in found})
    rows = [["layer", *(f"of {column}" for column in columns)] if len(columns) > 1 else ["layer", "weight"]]
    for layer in layers:
        rows.append([str(layer), *(_weight(found.get((layer, column))) for column in columns)])
    return markdown(rows)


def _weight(found: tuple[float, float | None] | None) -> str:
    if found is None:
        return ""
    middle, spread = found
    return f"{middle:.2f}" if spread is None else f"{middle:.2f} ± {spread:.2f}"


def sweep(names: list[str]) -> str:
    """Mean loss per variant and ranking; after it the difference from the first reference in thousandths, and its verdict."""
    rankings = [ranking_of_published(DATA / f"{name}.json").to_json() for name in names]
    labels = [stored(name)["label"] for name in names]
    reference = rankings[0]["references"][0]
    rows = {row["variant"]: row for ranking in rankings for row in ranking["variants"]}
    order = [reference, *(variant for variant in rows if variant != reference)]
    lines = [[f"loss, difference from {reference}", *labels]]
    for variant in order:
        lines.append([variant, *(cell(ranking, variant, reference) for ranking in rankings)])
    return markdown(lines)


def cell(ranking: dict[str, Any], variant: str, reference: str) -> str:
    found = next((row for row in ranking["variants"] if row["variant"] == variant), None)
    if found is None:
        return "not run"
    mean = "failed" if found["mean"] is None else f"{found['mean']:.3f}"
    against = found["versus"].get(reference)
    if against is None:
        return mean
    if against["difference"] is None:
        return f"{mean}, {SIGNS[against['verdict']]}"
    return f"{mean}, {1000 * against['difference']:+.0f} {SIGNS[against['verdict']]}"


def markdown(rows: list[list[str]]) -> str:
    first, *rest = rows
    lines = [first, ["---", *["---:"] * (len(first) - 1)], *rest]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def main(arguments: list[str]) -> int:
    match arguments:
        case ["collect", folder, name, *label]:
            (file, _, metric), (path, _, batch) = name.partition("@"), folder.partition("@")
            collect(Path(path), DATA / f"{file}.json", " ".join(label), metric or "loss", batch)
        case ["lengths", folder, name]:
            collect_lengths(Path(folder), DATA / f"{name}.json")
        case ["tuning", folder, name]:
            collect_tuning(Path(folder), DATA / f"{name}.json")
        case ["write", *names]:
            for path in [HERE / f"{name}.md" for name in names] or sorted(HERE.glob("*.md")):
                path.write_text(written(path.read_text(encoding="utf-8")), encoding="utf-8")
        case _:
            raise SystemExit(__doc__)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
