"""Pages of a study with many models: rows, search, groups."""

import re

import pytest

import made_study
from whole_page import assert_whole


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """Sixteen variants, a grid of two settings; the last has failed."""
    grid = {f"residual={r},width={w}": (r, w) for r in ("add", "rezero", "dense", "scale") for w in range(32, 36)}
    models = {name: {**made_study.model_spec(residual), "width": width} for name, (residual, width) in grid.items()}
    study = made_study.make(
        tmp_path_factory.mktemp("many") / "study",
        models=models,
        seeds=(0,),
        steps=10,
        references=("residual=add,width=32",),
    )
    *finished, failed = study.runs()
    for run in finished:
        made_study.finish(run)
    made_study.fail(failed)
    return study.path


def test_many_models_are_rows_that_can_be_searched_sorted_and_grouped(many, client):
    asked = client(many)

    def rows(address):
        return re.findall(r'data-live="card-(\d+)"', asked.get(address).text)

    assert len(rows("/")) == 16
    assert rows("/?query=REZERO+width%3D33") == ["5"]
    assert rows("/?sort=study") == [str(place) for place in range(16)]
    grouped = asked.get("/?group=model.residual.kind&query=width%3D32").text
    assert sorted(re.findall(r"rowgroup\">model.residual.kind <strong>(\w+)", grouped)) == [
        "add",
        "dense",
        "rezero",
        "scale",
    ]
    assert (
        "residual=dense,width=35"
        not in asked.get("/?group=state&query=finished+width%3D32").text.partition('<table class="models">')[2]
    )
    assert_whole(grouped)


def test_the_ranking_of_many_models_is_grouped_by_verdict(many, client):
    text = client(many).get("/ranking?lang=en").text
    table = text.partition('<table class="verdicts">')[2].partition("</table>")[0]
    assert re.findall(r'rowgroup"><span class="verdict verdict-(\w+)"', table) == ["reference", "none", "failed"]
    assert_whole(text)


@pytest.mark.parametrize("page", ["/", "/ranking"])
def test_models_are_hidden_without_a_script(many, client, page):
    """What the form sends leads to an address that holds the hidden models."""
    asked, pattern = client(many), r'name="pick" value="(\d+)"'
    everything = set(map(int, re.findall(pattern, asked.get(page).text)))
    assert everything == set(range(16))
    hide = asked.get(f"{page}?query=&group=&pick=3&pick=4&pick=9&act=hide&hide=0")
    assert (hide.status_code, hide.headers["location"]) == (303, f"{page}?hide=0.3-4.9")
    shown = asked.get(hide.headers["location"]).text
    assert set(map(int, re.findall(pattern, shown))) == everything - {0, 3, 4, 9}
    assert "Show the 4 hidden" in shown
    assert 'name="hide" value="0.3-4.9"' in shown, "a further choice adds to it"
    only = asked.get(f"{page}?pick=3&pick=9&act=only&hide=0").headers["location"]
    assert set(map(int, re.findall(pattern, asked.get(only).text))) == {3, 9}
    assert asked.get(f"{page}?act=hide").headers["location"] == page, "nothing was chosen"
    for odd in ("x", "-", "5-", "9-1", "1-99999999999999999999", "0-99999"):
        assert asked.get(f"{page}?hide={odd}").status_code == 200
    assert_whole(shown)
