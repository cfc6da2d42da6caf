"""What commands measured later, on the page and in the report: lengths and the four terms of scores."""

import html
import json
import re
import shutil
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import made_files
import made_study
from addnorm.cli import main
from addnorm.reporting.figures import all_figures, write_figures
from addnorm.reporting.reader import Reader
from addnorm.reporting.reading import inspections
from addnorm.reporting.reading.study_files import content_of
from addnorm.reporting.render import Pages, shows_results
from addnorm.reporting.report import write_report
from addnorm.reporting.sections.insight import InsightSection
from addnorm.reporting.sections.lengths.evaluation import lengths
from addnorm.reporting.sections.scalars.verdicts import explained
from addnorm.reporting.sections.terms import terms
from addnorm.reporting.snapshot import Snapshot
from addnorm.reporting.view import View
from addnorm.store import StudyFolder, write_json
from addnorm.words import phrases, say

ON_DEMAND = {figure.name for figure in all_figures() if figure.is_on_demand}


@pytest.fixture
def study(tmp_path: Path) -> Path:
    folder = made_study.finished(tmp_path / "runs")
    (folder.path / "extrapolation.json").write_text(json.dumps(made_files.evaluation()))
    (folder.runs()[0].path / "terms.json").write_text(json.dumps(made_files.four_terms()))
    return tmp_path / "runs"


def shown(folder: Path, name: str, language: str, variant: str | None = None) -> str:
    page = "model" if variant else "lengths"
    view = View(page=page, language=language, link=lambda page, **query: f"#{page}", variant=variant)
    return str(Pages().section(name, Reader(folder).look(), view))


def test_lengths_show_means_intervals_and_verdicts(study: Path) -> None:
    text = shown(study, "lengths", "zh")
    assert "2.5000" in text
    assert "± 0.2500" in text
    assert "+250.0" in text
    assert "更好" in text
    assert "32 个 token：暂定：还有 2 次运行未结束" in text
    assert "&lt;b&gt; +yarn" in text
    assert "<b>" not in text
    assert shows_results("lengths", Reader(study).look())


def test_the_panel_puts_means_where_they_belong(study: Path) -> None:
    found = lengths(Reader(study).look())
    assert found is not None
    loss = found.panels[0]
    (_, _, base), (_, _, other) = loss.lines
    assert base[0].y == other[0].y > other[1].y > base[1].y
    assert other[1].y == pytest.approx((base[0].y + base[1].y) / 2)
    assert base[0].high < base[0].y < base[0].low


def test_terms_average_heads(study: Path) -> None:
    found = terms(Reader(study).look(), "base")
    assert found is not None
    assert [layer.layer for layer in found.layers] == [0, 1]
    assert found.layers[0].swings == (1.0,) * 4
    assert found.layers[0].query == pytest.approx(0.6)
    assert found.layers[0].trained == 50.0
    text = shown(study, "terms", "en", "base")
    assert "Measured for base0-s0 on 3 texts of 9 tokens" in text
    assert "--terms" in shown(study, "terms", "en", "v4m5")


@pytest.mark.parametrize(
    ("q", "k", "expected"),
    [
        (True, True, ("qᵀRk", "aᵀRk", "qᵀRb", "aᵀRb")),
        (True, False, ("qᵀRk", "aᵀRk")),
        (False, True, ("qᵀRk", "qᵀRb")),
        (False, False, ("qᵀRk",)),
    ],
)
def test_terms_with_a_bias_are_shown_where_the_model_has_it(
    study: Path, expected: tuple[str, ...], *, q: bool, k: bool
) -> None:
    path = Reader(study).study.runs()[0].path / "terms.json"
    path.write_text(json.dumps({**made_files.four_terms(), "q_bias": q, "k_bias": k}))
    found = terms(Reader(study).look(), "base")
    assert found is not None
    assert found.names == expected
    assert (
        {len(layer.swings) for layer in found.layers} == {len(layer.lines) for layer in found.layers} == {len(expected)}
    )
    for language in ("en", "zh"):
        text = shown(study, "terms", language, "base")
        assert {name for name in ("qᵀRk", "aᵀRk", "qᵀRb", "aᵀRb") if name in text} == set(expected)
        assert " + ".join(expected) in text


@pytest.mark.usefixtures("blank_pictures")
@pytest.mark.parametrize("content", ["[]", "{", "{}", '{"lengths": [16], "rows": 3}', '{"rows": [], "lengths": []}'])
def test_a_file_that_is_not_understood_is_as_if_it_were_not_there(study: Path, content: str) -> None:
    (study / "extrapolation.json").write_text(content)
    (Reader(study).study.runs()[0].path / "terms.json").write_text(content)
    assert "addnorm extrapolate" in shown(study, "lengths", "en")
    assert "--terms" in shown(study, "terms", "en", "base")
    assert not shows_results("lengths", Reader(study).look())
    drawn = write_figures(Reader(study).look(), study / "report", "en")
    assert not ON_DEMAND & {drawing.figure.name for drawing in drawn}


def test_a_link_that_leads_out_is_not_followed(study: Path, tmp_path: Path) -> None:
    (study / "extrapolation.json").rename(tmp_path / "elsewhere.json")
    (study / "extrapolation.json").symlink_to(tmp_path / "elsewhere.json")
    assert lengths(Reader(study).look()) is None


@pytest.mark.usefixtures("blank_pictures")
def test_the_report_holds_them_only_where_they_were_measured(study: Path) -> None:
    written = write_report(Reader(study).look(), study / "report" / "r.html", "en")
    names = {path.name for path in written.files}
    assert {
        "extrapolation.svg",
        "extrapolation.csv",
        "extrapolation.tex",
        "score_terms.svg",
        "score_terms.csv",
    } <= names
    assert len((study / "report" / "score_terms.csv").read_text().splitlines()) == 1 + 2 * 2 * 5 * 2
    text = written.html.read_text()
    assert re.findall(r'id="(\w+)-terms-title"', text) == ["m0"]
    assert 'id="lengths-title"' in text
    (study / "extrapolation.json").unlink()
    (Reader(study).study.runs()[0].path / "terms.json").unlink()
    bare = write_report(Reader(study).look(), study / "bare" / "r.html", "en")
    assert not {path.stem for path in bare.files} & ON_DEMAND
    assert not set(bare.left_out) & ON_DEMAND
    assert "-title" in bare.html.read_text()
    assert 'id="lengths-title"' not in bare.html.read_text()
    assert '-terms-title"' not in bare.html.read_text()


def test_the_audit_of_every_model_stands_with_the_costs(study: Path) -> None:
    assert "addnorm audit" in shown(study, "cost", "en")
    content = made_files.audit()
    (study / "audit.json").write_text(json.dumps(content))
    text = shown(study, "cost", "zh")
    assert "冗余偏置" in text
    assert '<td class="number">190</td><td class="number">37</td>' in text
    assert "layers.{0-3}.attention.body.qk_bias.k" in text
    assert "torch.export 无法导出该模型：&lt;b&gt;no" in text
    assert "addnorm audit" not in text.replace("addnorm audit 的静态方法", "")
    del content["variants"]["v4m5"]["note"]  # as versions before sentences had codes kept it
    (study / "audit.json").write_text(json.dumps(content))
    assert '<span lang="en">torch.export cannot follow this model: &lt;b&gt;no</span>' in shown(study, "cost", "zh")
    (study / "audit.json").write_text(json.dumps({**content, "plan_hash": "another"}))
    assert f"addnorm audit {study}" in shown(study, "cost", "en")


def test_verdicts_on_scalars_are_counted_over_seeds(study: Path) -> None:
    assert explained(Reader(study).look()) is None
    content = made_files.verdicts("decayed", "learned", "decayed")
    (study / "explain.json").write_text(json.dumps(content))
    found = explained(Reader(study).look())
    assert found is not None
    assert found.of("v4m5", "scores.log_a.1[0, 2]") == (("decayed", 2), ("learned", 1))
    assert found.of("v4m5", "scores.log_a.1[0, 3]") == found.of("base", "scores.log_a.1[0, 2]") == ()
    (study / "explain.json").write_text(json.dumps(made_files.verdicts("decayed") | {"runs": [{"variant": "v4m5"}]}))
    assert explained(Reader(study).look()) is None


def test_what_explain_keeps_is_what_the_page_shows(finished: Path, tmp_path: Path) -> None:
    """Written by the command itself, of runs that were trained."""
    out = tmp_path / "runs"
    shutil.copytree(finished, out)
    before = shown(out, "scalars", "en", "v4m5")
    assert f"Verdicts and redundant directions: <code>addnorm explain {out}" in before
    assert main(["explain", str(out)]) == 0
    after = shown(out, "scalars", "en", "v4m5")
    assert '<th scope="col">Verdict</th>' in after
    said = re.findall(r"<td>((?:learned|decayed|open over seeds|undriven|redundant direction)\b.*?)</td>", after)
    families = after.count('<th scope="col">Verdict</th>')
    assert len(said) == after.count('<tr><th scope="row">') >= families
    assert "Computed at <time" in after


def test_verdicts_stand_in_the_chart_by_icon_and_beside_it_by_word(tmp_path: Path) -> None:
    folder = made_files.everything(tmp_path / "runs").path
    text = shown(folder, "scalars", "zh", "v4m5")
    chart = text.partition('role="img"')[2].partition("<details")[0]
    assert chart.count('class="icon told-decayed"') == 1, "the one number that has verdicts; most seeds say so"
    assert "<title>只是衰减</title>" in chart
    words = text.partition('<p class="told">')[2].partition("</p>")[0]
    assert re.sub(r"<[^>]+>", "", words).split() == ["只是衰减", "1"]
    assert "只是衰减 ×2、学到的" in text
    (folder / "explain.json").unlink()
    assert "told" not in shown(folder, "scalars", "zh", "v4m5")


def test_a_models_page_says_what_was_not_found_in_it(study: Path) -> None:
    run = Reader(study).look().runs[0]
    missing = say("no_attention", layers="0, 1")
    content = made_files.flow(StudyFolder(study).runs()[0])
    write_json(study / run.run / "insight.json", content | {"missing": [missing], "missing_notes": [missing.note]})
    text = shown(study, "insight", "zh", run.variant)
    assert phrases("zh").note(missing.note) in text
    write_json(study / run.run / "insight.json", content | {"missing": [missing]})
    assert str(missing) in html.unescape(shown(study, "insight", "zh", run.variant)), (
        "of an earlier version, in English"
    )


def test_the_pages_of_all_models_read_each_measured_run_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each page asked for the reasons of all models, and so read the measures of every run."""
    folder = made_study.finished(tmp_path / "study")
    flow = {"layers": [{"layer": 0}], "loss": 2.0}
    for run in folder.runs():
        content = {"format": 5, "variant": run.spec["variant"], "seed": run.spec["seed"], "weights": {"step": 1}}
        write_json(run.path / "insight.json", {**content, "start": flow, "end": flow, "run": run.name})
    read: Counter[str] = Counter()

    def counted(snapshot: Snapshot, name: str) -> Mapping[str, Any]:
        read[name] += name.endswith("insight.json")
        return content_of(snapshot, name)

    monkeypatch.setattr(inspections, "content_of", counted)
    snapshot = Reader(folder.path).look()
    for variant in snapshot.variants:
        view = View(page="model", language="en", link=lambda page, **query: f"#{page}", variant=variant)
        assert InsightSection().values(snapshot, view)["reason"] is None
    assert sorted(+read) == sorted(f"{run.name}/insight.json" for run in folder.runs())
    assert max(read.values()) == 1
