"""Results of a study as tables: rows with the numbers of the files, as data frames, and as a notebook shows them."""

import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import addnorm
import made_files
import made_study
from addnorm.errors import InputError, UnknownName
from addnorm.notebook import METRICS, StudyRuns, Table
from addnorm.statistics import Ranking
from addnorm.store import Index


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> StudyRuns:
    return addnorm.open_runs(made_files.everything(tmp_path_factory.mktemp("notebook") / "study").path)


def test_runs_have_their_status(study: StudyRuns) -> None:
    assert list(study.table()) == study.status()["runs"]
    assert study.table().columns[:4] == ("run", "variant", "seed", "state")
    assert [run.name for run in study.runs()] == study.table().column("run")


def test_the_list_of_runs_is_a_data_frame_on_request(study: StudyRuns) -> None:
    pytest.importorskip("pandas")
    runs = study.runs()
    assert [run.path.name for run in runs] == study.table().column("run")
    frame = runs.to_pandas()
    assert frame["run"].tolist() == [run.name for run in runs]
    assert set(frame["state"]) == {"finished"}
    assert repr(runs).startswith("Table of 9 rows")
    assert runs._repr_html_().count("<tr>") == 1 + 9


def test_curves_are_those_of_the_events(study: StudyRuns) -> None:
    curves = study.curves(["eval.loss", "train.loss"])
    run = study.runs()[4]
    for metric in ("eval.loss", "train.loss"):
        points = [(row["step"], row["value"]) for row in curves if (row["run"], row["metric"]) == (run.name, metric)]
        assert points == Index(study.path).curve(run.name, metric)
        assert len(points) > 3
    assert {(row["variant"], row["seed"]) for row in curves if row["run"] == run.name} == {("v2m1", 1)}
    assert set(study.curves().column("metric")) < set(METRICS)


def test_layers_and_scalars_are_those_of_the_files(study: StudyRuns) -> None:
    layers = study.layers()
    assert {(row["variant"], row["seed"]) for row in layers} == {
        (run.spec["variant"], run.spec["seed"]) for run in study.runs() if (run.path / "insight.json").exists()
    }
    assert {row["step"] for row in layers} == {0, 40}
    scalars = study.scalars()
    assert set(scalars.column("variant")) == {"v4m5"}
    assert {(row["init"], row["final"]) for row in scalars} == {(1.0, 0.5)}
    assert sorted(set(scalars.column("seed"))) == [0, 1, 2]


@pytest.mark.parametrize("name", ["table", "curves", "layers", "scalars"])
def test_a_table_is_a_data_frame_on_request(study: StudyRuns, name: str) -> None:
    pandas = pytest.importorskip("pandas")
    table = getattr(study, name)()
    assert len(table) > 0
    assert all(tuple(row) == table.columns for row in table)
    frame = table.to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert frame.shape == (len(table), len(table.columns))
    assert frame.iloc[-1].to_dict().keys() == table[-1].keys()
    assert frame[table.columns[0]].tolist() == table.column(table.columns[0])


def test_nothing_measured_is_an_empty_table_that_names_the_command(tmp_path: Path) -> None:
    study = addnorm.open_runs(made_study.make(tmp_path / "study").path)
    assert study.layers() == study.scalars() == study.curves() == []
    assert "addnorm.inspect(" in repr(study.layers())
    assert study.layers().to_pandas().shape == (0, 6)
    assert "9 queued" in repr(study)


def test_without_pandas_the_message_names_the_extra(study: StudyRuns, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InputError, match=r"pip install 'addnorm\[notebook\]'"):
        study.table().to_pandas()
    assert len(study.table().column("loss")) == 9


def test_unknown_names_are_told(study: StudyRuns) -> None:
    with pytest.raises(UnknownName, match=r"Did you mean 'eval\.loss'"):
        study.curves(["eval.los"])
    with pytest.raises(UnknownName, match="Did you mean 'variant'"):
        study.table().column("varian")


def test_long_tables_are_shown_in_part() -> None:
    table = Table(({"step": step, "name": f"<b>{step}"} for step in range(1000)), columns=("step", "name"))
    text, html = repr(table), table._repr_html_()
    assert text.startswith("Table of 1000 rows × 2 columns")
    assert "<b>999" in text
    assert "<b>500" not in text
    assert "&lt;b&gt;999" in html
    assert "<b>" not in html
    assert html.count("<tr>") == 1 + 20 + 1
    assert pickle.loads(pickle.dumps(table)) == table
    assert pickle.loads(pickle.dumps(table)).columns == table.columns


def test_a_study_shows_what_it_is(study: StudyRuns) -> None:
    assert "Study 'made' in " in repr(study)
    assert "9 runs of 3 variants (9 finished)" in repr(study)
    html = study._repr_html_()
    assert html.count("<tr>") == 1 + 9
    assert ".rank()" in html


def test_a_ranking_shows_and_draws_itself(study: StudyRuns) -> None:
    ranking, plain = study.rank(), addnorm.rank(study.path)
    assert isinstance(ranking, Ranking)
    assert ranking.to_json() == plain.to_json()
    html = ranking._repr_html_()
    assert html.count("<tr>") == 1 + 3
    assert ranking["v2m1"].versus["base"].verdict in html
    assert "vs base" in str(ranking)
    assert repr(ranking).startswith("<Ranking of 3 variants against base by loss: ")
    assert max(map(len, (repr(ranking), repr(ranking["v2m1"]), repr(ranking["v2m1"].versus["base"])))) < 150
    assert [tick.get_text() for tick in ranking.plot().axes[0].get_yticklabels()] == [
        row.variant for row in ranking.variants
    ]
    assert study.rank(references=["v2m1"], margin=0.1).references == ("v2m1",)
    assert ranking.plot("zh").axes[0].get_xlabel() != ranking.plot().axes[0].get_xlabel()


def test_reading_imports_no_torch_and_no_pandas(study: StudyRuns) -> None:
    program = (
        f"import sys, addnorm; study = addnorm.open_runs({str(study.path)!r}); study._repr_html_(); study.curves(); "
        "study.layers(); study.scalars(); study.rank()._repr_html_(); assert not {'torch', 'pandas'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
