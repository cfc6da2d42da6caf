"""The live page of a table of runs that other code writes."""

import os
import re
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from starlette.testclient import TestClient

from addnorm.cli import main
from addnorm.errors import InputError
from addnorm.reporting.changes import changed_sections
from addnorm.reporting.reader import TableReader, reader_of
from addnorm.reporting.reading.run_table import TableChoices
from addnorm.reporting.render import Pages
from addnorm.reporting.sections import pages, pages_of
from addnorm.reporting.view import View
from addnorm.web.app import application
from addnorm.web.live import Live
from addnorm.web.serve import page

LEVELS = {"base": (2.50, 2.53, 2.52, 2.49), "deep": (2.40, 2.44, 2.42, 2.39), "wide": (2.501, 2.529, 2.523, 2.488)}


def written(path: Path, seeds: int = 3, header: str = "variant,seed,loss", factor: float = 1.0) -> Path:
    rows = [f"{name},{seed},{factor * of[seed]:.4f}" for name, of in LEVELS.items() for seed in range(seeds)]
    path.write_text("\n".join((header, *rows)) + "\n", encoding="utf-8")
    return path


def rewritten(path: Path, text: str) -> None:
    """The file with another content, and a time of its own: file systems have ticks."""
    before = path.stat().st_mtime_ns
    path.write_text(text, encoding="utf-8")
    os.utime(path, ns=(before + 10**9, before + 10**9))


def client(path: Path, **choices: object) -> TestClient:
    live = Live(TableReader(path, TableChoices(**choices)))  # type: ignore[arg-type]
    return TestClient(application(path, live=live, notes="never"), base_url="http://127.0.0.1:8321")


def words(html: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", html))


def test_it_begins_with_the_answer_and_has_ladder_verdicts_and_numbers(tmp_path: Path) -> None:
    visitor = client(written(tmp_path / "results.csv"))
    overview, ranking = visitor.get("/"), visitor.get("/ranking")
    assert overview.status_code == ranking.status_code == 200
    text = words(overview.text)
    assert text.index("deep is better than base by 0.097 nats per token") < text.index("Tier ladder")
    assert "results.csv" in text
    assert "Differences of loss to each reference over shared seeds" in words(ranking.text)
    assert "2.4400" in ranking.text
    for gone in ("/scalars", "/cost", "/record", "/lengths"):
        assert visitor.get(gone).status_code == 404


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("name", [name for name in pages("table") if name not in ("model",)])
def test_every_page_is_there_in_both_languages(tmp_path: Path, name: str, language: str) -> None:
    visitor = client(written(tmp_path / "results.csv"), posterior=True)
    answer = visitor.get("/" if name == "overview" else f"/{name}", params={"lang": language})
    assert answer.status_code == 200
    assert visitor.get("/model", params={"variant": "deep", "lang": language}).status_code == 200


def test_no_page_speaks_of_nats_where_the_column_is_in_another_unit(tmp_path: Path) -> None:
    path = written(tmp_path / "speed.csv", header="variant,seed,accuracy", factor=20)
    visitor = client(path, columns={"loss": "accuracy"}, direction="higher", unit="%", margin=0.2)
    for address in ("/", "/ranking", "/curves", "/model?variant=deep"):
        for language in ("en", "zh"):
            html = visitor.get(address, params={"lang": language, "variant": "deep"}).text
            assert re.search(r"\bnats?\b", words(html.partition("<main")[2].partition("</main>")[0])) is None, address
    ranking = words(visitor.get("/ranking").text)
    assert "Differences of accuracy to each reference over shared seeds, in %; positive is better" in ranking
    assert "lower on" not in ranking
    assert "worse −1.933 [" in ranking, "in the unit of the column, not in thousandths"
    assert "Differences within ±0.2 (shaded)" in ranking
    assert "higher on 0 of 3 seeds" in ranking


def test_groups_of_runs_without_shared_seeds_have_no_columns_of_seeds(tmp_path: Path) -> None:
    rows = [f"{name},{value}" for name, of in LEVELS.items() for value in of]
    (tmp_path / "runs.csv").write_text("\n".join(("variant,loss", *rows)), encoding="utf-8")
    text = words(client(tmp_path / "runs.csv", columns={"seed": ""}).get("/ranking").text)
    assert "The models share no seeds" in text
    assert "over shared seeds" not in text
    assert "Runs, in their order" in text


def test_a_growing_file_is_read_when_it_rests(tmp_path: Path) -> None:
    path = written(tmp_path / "results.csv")
    reader = TableReader(path)
    before = reader.look()
    assert reader.look() is before
    rewritten(path, path.read_text(encoding="utf-8") + "deep,3,2.39\nbase,3,2.49\nwide,3,2.48\n")
    assert reader.look() is before, "it may be in the middle of a line"
    now = reader.look()
    assert len(now.runs) == 12
    assert "everything" in changed_sections(before, now)


def test_a_file_that_never_rests_is_read_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "results.csv")
    reader = TableReader(path)
    before = reader.look()
    monkeypatch.setattr("addnorm.reporting.reading.run_table._LONGEST_WAIT_S", 0.0)
    rewritten(path, path.read_text(encoding="utf-8") + "deep,3,2.39\n")
    assert reader.look() is not before


def test_a_fault_is_told_with_its_line_and_the_last_good_state_stays(tmp_path: Path) -> None:
    path = written(tmp_path / "results.csv")
    good = path.read_text(encoding="utf-8")
    reader = TableReader(path)
    before = reader.look()
    rewritten(path, good + "deep,3,soon\n")
    reader.look()
    wrong = reader.look()
    assert wrong.fault is not None
    assert "line 11: expected a number in column 'loss', got 'soon'" in wrong.fault
    assert wrong.ranking is before.ranking
    assert changed_sections(before, wrong) == {"fault"}
    view = View(page="overview", link=lambda page, **query: page)
    shown = words(Pages().page(wrong, view, asset=str, in_language=str, events="", number=0))
    assert "line 11" in shown
    assert "deep is better than base" in shown
    assert "第 11 行" in words(
        str(Pages().section("fault", wrong, View(page="ranking", language="zh", link=view.link)))
    )
    rewritten(path, good + "deep,3,2.39\n")
    os.utime(path, ns=(path.stat().st_mtime_ns + 10**9,) * 2)
    reader.look()
    assert reader.look().fault is None


def test_a_table_that_cannot_be_read_at_first_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "results.csv"
    path.write_text("variant,seed,loss\nbase,0,soon\n", encoding="utf-8")
    assert main(["watch", str(path)]) == 2
    assert "line 2: expected a number" in capsys.readouterr().err


def test_one_seed_is_shown_without_a_verdict(tmp_path: Path) -> None:
    text = words(client(written(tmp_path / "results.csv", seeds=1)).get("/").text)
    assert "better than" not in text
    assert "No verdict" in text


def test_curves_are_those_of_the_steps(tmp_path: Path) -> None:
    rows = [
        f"{name},{seed},{step},{of[seed] + 1 / (1 + step):.4f}"
        for name, of in LEVELS.items()
        for seed in range(3)
        for step in (0, 50, 100)
    ]
    (tmp_path / "curves.csv").write_text("\n".join(("variant,seed,step,loss", *rows)), encoding="utf-8")
    visitor = client(tmp_path / "curves.csv")
    content = visitor.get("/curves.json", params={"mode": "seeds", "variant": "deep"}).json()
    first = content["series"][0]
    assert (first["label"], first["steps"], first["values"][0]) == ("deep · 0", [0, 50, 100], 3.4)
    assert visitor.get("/curves.csv").text.count("\n") == 1 + 3 * 3
    assert "Loss in nats per token over step" in words(visitor.get("/curves").text)
    assert visitor.get("/curves.svg").headers["content-type"] == "image/svg+xml"


def test_a_page_without_curves_says_why(tmp_path: Path) -> None:
    text = words(client(written(tmp_path / "results.csv")).get("/curves").text)
    assert "expected the step of the row, got none" in text


def test_several_metrics_are_shown_with_their_part(tmp_path: Path) -> None:
    rows = [f"{name},{seed},{of[seed]},{100 - 20 * of[seed]:.3f}" for name, of in LEVELS.items() for seed in range(4)]
    (tmp_path / "both.csv").write_text("\n".join(("variant,seed,loss,acc", *rows)), encoding="utf-8")
    apart = client(tmp_path / "both.csv", metric=("loss", "acc,direction=higher,unit=%,margin=0.1"))
    text = words(apart.get("/ranking").text)
    assert "decides" in text
    assert "beside it, with an error rate of its own" in text
    together = client(tmp_path / "both.csv", metric=("loss", "acc,direction=higher,unit=%,margin=0.1"), together=True)
    assert "one error rate for all metrics" in words(together.get("/ranking").text)


def test_a_folder_of_studies_stays_one_and_choices_need_a_table(tmp_path: Path, capsys) -> None:
    import made_study

    made_study.make(tmp_path / "runs" / "study")
    ready = page(tmp_path / "runs", port=0)
    ready.listening.close()
    assert not isinstance(ready.live, Live)
    with pytest.raises(InputError, match="expected a table of runs where metric is given"):
        reader_of(tmp_path / "runs" / "study", TableChoices(metric=("loss",)))
    assert main(["watch", str(tmp_path / "runs"), "--unit", "%"]) == 2
    assert "expected a table of runs where unit is given" in capsys.readouterr().err


def test_nothing_is_written_beside_the_table(tmp_path: Path, served: Callable[[Path], str]) -> None:
    path = written(tmp_path / "results.csv")
    ready = page(path, port=0, table=TableChoices())
    from addnorm.web.serve import serving

    with serving(ready):
        assert httpx.get(ready.url, timeout=30).status_code == 200
        assert httpx.post(f"{ready.url}notes", timeout=30).status_code in (404, 405)
    assert [each.name for each in tmp_path.iterdir()] == ["results.csv"]


def test_pages_of_a_table_are_few(tmp_path: Path) -> None:
    snapshot = TableReader(written(tmp_path / "results.csv")).look()
    assert set(pages_of(snapshot)) == {"overview", "ranking", "curves", "model"}
