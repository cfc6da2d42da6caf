"""Studies of several sizes made through the store, without training: predicted, scored, valued in compute, time and steps."""

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import addnorm
from addnorm.cli import main
from addnorm.errors import InputError
from addnorm.store import StudyFolder, write_json
from addnorm.store.study import COSTS

FACTORS = {"base": 1.0, "gains": 0.8, "same": 1.0}
BATCH, SEQ = 4, 32
AGAIN = range(20, 24)


def loss(variant: str, seed: int, flops: float, steps: int, factors: Mapping[str, float] = FACTORS) -> float:
    noise = 0.002 * np.random.default_rng([ord(variant[0]), seed, steps]).normal()
    later = 0.05 if seed in AGAIN else 0.0  # whoever mixes the batches finds another loss
    return float(1.5 + 9 * factors[variant] * flops**-0.2 + 0.01 * np.cos(seed) + noise + later)


def frozen(
    path: Path, steps: int, seeds: Collection[int] = range(4), *, corpus: str = "corpus", replicate: Sequence[str] = ()
) -> StudyFolder:
    """A study whose plan is frozen, of models that cost 100 FLOPs a token; those of `gains` cost 110.

    Args:
        path: to be made.
        steps: of every run.
        seeds: of the first batch.
        corpus: hash of the data.
        replicate: variants with runs on the seeds of a second batch.
    """
    training = {"batch": BATCH, "seq": SEQ, "eval_sequences": 8, "final_sequences": 64}
    runs = [
        {"run": f"{variant}-s{seed}", "variant": variant, "seed": seed, "steps": steps, "spec": {"training": training}}
        for seed, variants in [*((seed, FACTORS) for seed in seeds), *((seed, replicate) for seed in AGAIN)]
        for variant in variants
    ]
    fixed = {"study": "ladder", "references": ["base"], "margin": 0.01, "data_hash": corpus, "tokenizer_hash": "bytes"}
    if replicate:
        fixed["replicate"] = list(AGAIN)
    study = StudyFolder.create(path, {**fixed, "plan_hash": path.name, "seeds": list(seeds), "runs": runs})
    per_token = {name: {"parameters": 10, "flops_per_token": 110.0 if name == "gains" else 100.0} for name in FACTORS}
    write_json(path / COSTS, {"variants": per_token})
    return study


def train(
    study: StudyFolder,
    *,
    curve: bool = True,
    only: Collection[str] | None = None,
    factors: Mapping[str, float] = FACTORS,
    speed: float = 1.0,
) -> Path:
    """End the runs of a frozen study, `gains` at twice the speed of the others."""
    for run in (run for run in study.runs() if only is None or run.name in only):
        variant, seed, steps = (run.spec[name] for name in ("variant", "seed", "steps"))
        per_step = BATCH * SEQ * (110.0 if variant == "gains" else 100.0)
        with run.claim() as events:
            for step in (steps // 20, steps // 4, steps // 2, steps):
                at = loss(variant, seed, step * per_step, steps, factors)
                tokens = speed * (2000.0 if variant == "gains" else 1000.0)
                events.write("train", step=step, losses=[at], grad_norms=[1.0], first=step, tokens_per_s=tokens)
                last = step == steps
                text = {"sequences": 64} | ({"curve_loss": at + 0.5} if curve else {})
                extra: dict[str, Any] = {"text": text} if last else {}
                shown = at + (0.0 if last else 0.5)
                numbers = {"accuracy": 0.5 - at / 10, "perplexity": float(np.exp(at)), "exit_loss": at + 0.1 * seed}
                events.write("eval", step=step, loss=shown, final=last, **numbers, **extra)
            run.mark("finished", step=steps, content_hash=f"{study.path.name} {run.name}")
    return study.path


@pytest.fixture(scope="module")
def ladder(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("ladder")
    return [str(train(frozen(folder / f"w{steps}", steps))) for steps in (100, 400, 1600)]


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(list(arguments)) == 0
    return capsys.readouterr().out


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(list(arguments)) == 2
    err = capsys.readouterr().err
    assert len(err.splitlines()) == 1
    return err


def test_the_largest_is_predicted_frozen_and_scored(
    ladder: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = frozen(tmp_path / "w6400", 6400)
    asked = ["trend", *ladder, "--predict", str(study.path)]
    out = printed(capsys, *asked)
    assert "Frozen in" in out
    assert "observed" not in out
    first = json.loads(printed(capsys, *asked, "--json"))
    assert first["score"] is None
    kept = json.loads((study.path / "prediction.json").read_text(encoding="utf-8"))
    assert kept["prediction"] == first
    found = {each["variant"]: each for each in first["differences"]}
    assert (found["gains"]["verdict"], found["same"]["verdict"]) == ("better", "equivalent")
    train(study)
    scored = json.loads(printed(capsys, *asked, "--json"))
    assert scored["differences"][0]["interval"] == first["differences"][0]["interval"]
    score = scored["score"]
    assert (score["differences_held"], score["verdicts_right"], score["verdicts_predicted"]) == (2, 2, 2)
    assert score["error"] < score["naive_error"]
    assert score["losses_held"] == score["of_losses"] == 3
    assert "Held by their intervals: 3 of 3 losses, 2 of 2 differences." in printed(capsys, *asked)
    assert json.loads((study.path / "prediction.json").read_text(encoding="utf-8")) == kept
    assert (study.path / "looks.jsonl").exists()


def test_a_prediction_after_the_fact_and_changed_data_are_refused(
    ladder: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    known = train(frozen(tmp_path / "known", 6400))
    assert "a prediction after the fact" in refused(capsys, "trend", *ladder, "--predict", str(known))
    assert not (known / "prediction.json").exists()
    begun = frozen(tmp_path / "begun", 6400)
    with begun.runs()[0].claim() as events:
        events.write("start", step=0, resumed_from=0, replays=0)
    assert "1 that have: a prediction after the fact" in refused(capsys, "trend", *ladder, "--predict", str(begun.path))
    assert "at least two smaller sizes, got 1" in refused(capsys, "trend", ladder[0], "--predict", str(begun.path))

    study = frozen(tmp_path / "w6400", 6400)
    asked = ["trend", *ladder, "--predict", str(study.path)]
    printed(capsys, *asked)
    assert "got another one. Give the choices" in refused(capsys, *asked, "--margin", "0.5")
    assert "got others in" in refused(capsys, *asked[:-3], "--predict", str(study.path))
    path = study.path / "prediction.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    content["prediction"]["differences"][0]["value"] -= 0.001
    path.write_text(json.dumps(content), encoding="utf-8")
    assert "a file that was edited is no prediction" in refused(capsys, *asked)
    content["plan_hash"] = "another"
    path.write_text(json.dumps(content), encoding="utf-8")
    assert "expected the plan that it was made for" in refused(capsys, *asked)
    path.write_text("[]", encoding="utf-8")
    assert main(asked) != 0
    assert "prediction.json is damaged" in capsys.readouterr().err

    other = frozen(tmp_path / "other", 6400, corpus="another")
    assert "got another data_hash" in refused(capsys, "trend", *ladder, "--predict", str(other.path))
    assert "--csv: expected no such option with --predict" in refused(
        capsys, "trend", *ladder, "--predict", str(study.path), "--csv"
    )


def test_sizes_are_worth_compute_and_time(ladder: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """`gains` costs 1.1 times the FLOPs and has 0.8 of the loss above 1.5: 0.8^(-1/0.2) = 3.05 times the compute."""
    sizes = ["rank", ladder[0], "--size", ladder[1], "--size", ladder[2], "--json", "--as"]
    for question, worth in (("speedup", 0.8**-5), ("time", 0.8**-5 * 1.1 * 2)):
        found = json.loads(printed(capsys, *sizes, question))
        assert (found["of"], found["reference"]) == ("compute" if question == "speedup" else "time", "base")
        rows = {row["variant"]: row for row in found["variants"]}
        assert rows["gains"]["worth"] == pytest.approx(worth, rel=0.1)
        assert (rows["gains"]["verdict"], rows["same"]["verdict"]) == ("worth more", "undecided")
        assert rows["same"]["worth"] == pytest.approx(1, rel=0.1)
    assert "its time of training is worth" in printed(capsys, "rank", ladder[0], "--size", ladder[1], "--as", "time")
    assert "--size FOLDER" in refused(capsys, "rank", ladder[0], "--as", "speedup")


def test_steps_of_a_study_are_worth_compute_and_time(ladder: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(printed(capsys, "rank", ladder[2], "--as", "steps", "--json"))
    row = {each["variant"]: each for each in found["variants"]}["gains"]
    assert row["loss"] == pytest.approx(
        2.0 + 9 * (1600 * BATCH * SEQ * 100) ** -0.2, abs=0.01
    )  # on the curve's own text
    for cost, relative in (("compute", 1.1), ("time", 0.5)):
        assert row["costs"][cost]["relative"] == pytest.approx(relative)
        assert row["costs"][cost]["worth"] == pytest.approx(row["worth"] / relative)
        assert row["costs"][cost]["interval"] == pytest.approx([end / relative for end in row["interval"]])
    text = printed(capsys, "rank", ladder[2], "--as", "steps")
    assert "in compute ×" in " ".join(text.split())
    assert "time is that of this machine" in " ".join(text.split())


def test_the_report_shows_what_steps_are_worth(ladder: list[str], tmp_path: Path) -> None:
    worths = addnorm.speedup(ladder[2], of="steps", is_look=False)
    for language, title in (("en", "What it is worth"), ("zh", "相当于多少")):
        written = addnorm.report(ladder[2], out=tmp_path / language / "report.html", lang=language)
        html = written.html.read_text(encoding="utf-8")
        assert title in html
        for cost in ("compute", "time"):
            assert f"× {worths.worth_in('gains', cost)[0]:.3f}" in html  # type: ignore[index]
    one = frozen(tmp_path / "one", 3)  # a single evaluation, at most: no curve
    for run in one.runs():
        with run.claim() as events:
            events.write("eval", step=3, loss=2.0 + run.spec["seed"] / 9, accuracy=0.5, perplexity=7.4, final=True)
            run.mark("finished", step=3, content_hash=run.name)
    html = addnorm.report(one.path, out=tmp_path / "one" / "report.html").html.read_text(encoding="utf-8")
    assert "What it is worth" not in html


@pytest.fixture(scope="module")
def twice(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The ladder with a second batch of seeds of two variants."""
    folder = tmp_path_factory.mktemp("twice")
    return [str(train(frozen(folder / f"w{steps}", steps, replicate=("base", "gains")))) for steps in (100, 400, 1600)]


def asked_of(ladder: list[str], question: str) -> list[str]:
    first, *larger = ladder
    if question == "trend":
        return ["trend", *ladder, "--parameters", "1e5,2e5,4e5"]
    sizes = [part for path in larger for part in ("--size", path)] if question in ("speedup", "time") else []
    return ["rank", first, *sizes, *(["--rule", "modded-nanogpt"] if question == "rule" else ["--as", question])]


@pytest.mark.parametrize("question", ["trend", "speedup", "time", "steps", "rule"])
def test_a_second_batch_is_mixed_into_no_answer(
    ladder: list[str], twice: list[str], question: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A verdict of one batch does not change with the runs that test it again, which are of some variants alone."""
    once, again = (
        json.loads(printed(capsys, *asked_of(paths, question), "--json").replace(str(Path(paths[0]).parent), ""))
        for paths in (ladder, twice)
    )
    rows = again["variants"] if question in ("speedup", "time", "steps") else []
    tested = {row["variant"]: row.pop("again") for row in rows if "again" in row}
    assert again == once
    assert {name: each["found"] for name, each in tested.items()} == ({"gains": True} if rows else {})
    for each, row in ((tested[row["variant"]], row) for row in rows if row["variant"] in tested):
        assert each["worth"] == pytest.approx(row["worth"], rel=0.2)
        assert each["worth"] != row["worth"]


def test_what_the_second_batch_says_of_a_worth_is_in_words_and_on_the_page(
    twice: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = " ".join(printed(capsys, *asked_of(twice, "speedup")).split())
    assert "gains on a second batch of seeds, planned before the first was seen: × " in text
    assert "found again" in text
    html = addnorm.report(twice[2], out=tmp_path / "report.html").html.read_text(encoding="utf-8")
    worths = addnorm.speedup(twice[2], of="steps", is_look=False)
    assert worths.is_found_again("gains") is True
    assert worths.is_found_again("same") is None
    assert f"found again on the second batch of seeds: ×&nbsp;{worths.again['gains'].worth:.3f}" in html


def test_a_second_batch_that_says_otherwise_or_has_not_ended_is_told(tmp_path: Path) -> None:
    """At one size `gains` loses its lead on the seeds of the second batch; at the other its runs wait."""
    study = frozen(tmp_path / "lost", 400, replicate=("base", "gains"))
    names = [run.name for run in study.runs("second")]
    assert [name.partition("-s")[0] for name in names] == ["base", "gains"] * 4
    train(study, only=[run.name for run in study.runs("first")])
    worths = addnorm.speedup(study.path, of="steps", is_look=False)
    assert worths.verdict("gains") == "worth more"
    assert worths.again == {}
    train(study, only=names, factors={"base": 0.8, "gains": 1.0})
    worths = addnorm.speedup(study.path, of="steps", is_look=False)
    assert worths.verdict("gains") == "worth more"
    assert worths.is_found_again("gains") is False


def test_a_largest_size_with_a_second_batch_is_scored_on_the_first(
    ladder: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = frozen(tmp_path / "w6400", 6400, replicate=("base", "gains"))
    asked = ["trend", *ladder, "--predict", str(study.path), "--json"]
    expected = json.loads(printed(capsys, *asked))
    assert expected["seeds"] == 4
    train(study, only=[run.name for run in study.runs("first")])
    early = json.loads(printed(capsys, *asked))
    assert early["score"]["losses_held"] == 3
    train(study, only=[run.name for run in study.runs("second")])
    late = json.loads(printed(capsys, *asked))
    assert late == early


def test_a_last_evaluation_of_other_text_is_no_point_of_the_curve(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = train(frozen(tmp_path / "old", 400), curve=False)
    found = json.loads(printed(capsys, "rank", str(path), "--as", "steps", "--json"))
    assert max(found["variants"][0]["steps"], found["variants"][0]["reference_steps"]) == 200


def test_a_study_is_ranked_by_a_number_of_its_evaluations(
    ladder: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    found = json.loads(printed(capsys, "rank", ladder[2], "--metric", "exit_loss", "--metric", "loss", "--json"))
    assert (found["metric"], found["unit"], found["others"][0]["metric"]) == ("exit_loss", "nats per token", "loss")
    assert found["answer"][0].startswith("Asked: does exit_loss of")
    assert found["others"][0]["answer"][0].startswith("Asked: does the held-out loss of")
    plain = addnorm.rank(ladder[2])
    for row in found["variants"]:
        assert row["mean"] == pytest.approx(plain[row["variant"]].mean + 0.15, abs=1e-9)  # the mean of 0.1 × seed
    both = {row["variant"]: row for row in found["others"][0]["variants"]}
    assert both["gains"]["mean"] == pytest.approx(plain["gains"].mean)
    accurate = addnorm.rank(ladder[2], metric="accuracy,direction=higher,margin=0.001,unit=share")
    assert accurate["gains"].versus["base"].verdict == "better"
    assert "Known: loss, accuracy" in refused(capsys, "rank", ladder[2], "--metric", "exit_los")
    with pytest.raises(InputError, match="expected a loss, or a direction for another number"):
        addnorm.rank(ladder[2], metric="accuracy")
    assert "a direction or unit is given" in refused(capsys, "rank", ladder[2], "--direction", "higher")
