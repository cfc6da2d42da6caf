"""The table of claims: verdicts are computed, a second batch has seeds of its own, one batch is never called found again."""

import json
import runpy
import shutil
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

FOLDER = Path(__file__).parents[2] / "docs" / "studies"
PAIR = {"en": "a claim", "zh": "说法", "rank": "made-up fast base", "as_claimed": ["better"]}


@pytest.fixture
def claims(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """docs/studies/claims.py, imported by its folder."""
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.delitem(sys.modules, "claims", raising=False)
    import claims

    return claims


def write_batch(folder: Path, name: str, shift: float, seeds: range) -> None:
    """A file of runs in which `fast` is lower than `base` by `shift` nats, with noise far below it."""
    runs = [
        {
            "variant": variant,
            "seed": seed,
            "state": "finished",
            "loss": 2 + 0.01 * seed - shift * own + 0.001 * (seed % 3) * own,
        }
        for seed in seeds
        for variant, own in (("base", 0), ("fast", 1))
    ]
    runs = [{"run": f"{run['variant']}-s{run['seed']}", **run} for run in runs]
    content = {"study": "made-up", "steps": 1, "references": ["base"], "runs": runs}
    (folder / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")


@pytest.mark.parametrize(
    ("shifts", "expected"),
    [
        ([0.1], "one batch only; as claimed"),
        ([0.1, 0.1], "found again; as claimed"),
        ([-0.1, -0.1], "found again; against the claim"),
        ([0.1, -0.1], "not found again"),
        ([0.1, 0.0], "not found again"),
        ([0.001, 0.1], "not found again"),  # equivalent first
    ],
)
def test_what_two_batches_say_together(
    claims: ModuleType, shifts: list[float], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "DATA", tmp_path)
    for name, shift, seeds in zip(("made-up", "made-up-second"), shifts, (range(5), range(5, 10)), strict=False):
        write_batch(tmp_path, name, shift, seeds)
    assert claims._cells(PAIR, "made-up", claims.WORDS["en"])[-1] == expected


def test_an_undecided_first_batch_is_open_whatever_the_second_says(claims: ModuleType) -> None:
    batches = [{"verdict": "undecided"}, {"verdict": "better"}]
    assert claims.replicated(PAIR, batches, claims.WORDS["en"]) == "open"


def test_a_second_batch_on_seeds_that_were_seen_is_refused(
    claims: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "DATA", tmp_path)
    write_batch(tmp_path, "made-up", 0.1, range(5))
    write_batch(tmp_path, "made-up-second", 0.1, range(4, 9))
    with pytest.raises(SystemExit, match=r"made-up-second\.json: expected seeds that made-up\.json does not have"):
        claims.difference(PAIR, "-second")


def test_a_claim_that_was_left_open_is_found_again_by_two_further_batches(
    claims: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "DATA", tmp_path)
    later = {**PAIR, "rank": "made-up-second fast base", "second": "made-up-third"}
    write_batch(tmp_path, "made-up-second", 0.1, range(5, 10))
    assert claims._cells(later, "made-up", claims.WORDS["en"])[-1] == "one batch only; as claimed"
    write_batch(tmp_path, "made-up-third", 0.1, range(10, 15))
    assert claims._cells(later, "made-up", claims.WORDS["en"])[-1] == "found again; as claimed"
    write_batch(tmp_path, "made-up-third", 0.1, range(9, 14))
    with pytest.raises(
        SystemExit, match=r"made-up-third\.json: expected seeds that made-up-second\.json does not have"
    ):
        claims.difference(later, "-second")


def test_a_pair_that_the_data_do_not_compare_is_refused(
    claims: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "DATA", tmp_path)
    write_batch(tmp_path, "made-up", 0.1, range(5))
    with pytest.raises(SystemExit, match="does not compare slow with base"):
        claims.difference({**PAIR, "rank": "made-up slow base"}, "")


def test_every_claim_has_one_basis_and_both_languages() -> None:
    sources: list[dict[str, Any]] = yaml.safe_load((FOLDER / "claims.yaml").read_text(encoding="utf-8"))
    assert len(sources) == 5
    for claim in (claim for source in sources for claim in source["claims"]):
        assert claim["en"]
        assert claim["zh"]
        assert len({"rank", "lengths", "proof", "not_run"} & claim.keys()) == 1, claim["en"]
        assert set(claim.get("as_claimed", [])) <= {"better", "worse", "equivalent"}


def test_a_forged_verdict_is_noticed(tmp_path: Path) -> None:
    tables = runpy.run_path(str(FOLDER / "tables.py"))
    page = tmp_path / "README.md"
    shutil.copy(FOLDER / "README.md", page)
    text = page.read_text(encoding="utf-8")
    forged = text.replace("| not found again |", "| found again; as claimed |")
    assert forged != text
    assert tables["written"](forged) == text


def test_a_claim_that_nobody_ran_names_its_command_and_no_verdict(
    claims: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "DATA", tmp_path)
    claim = {**PAIR, "command": "made-up --profile fast"}
    row = claims._cells(claim, "made-up", claims.WORDS["en"])
    assert row == ["`addnorm run made-up --profile fast`", "not run", "–", "open"]
    write_batch(tmp_path, "made-up", 0.1, range(5))
    assert claims._cells(claim, "made-up", claims.WORDS["en"])[1].startswith("better")
    with pytest.raises(SystemExit, match=r"does not compare slow with base"):
        claims._cells({**claim, "rank": "made-up slow base"}, "made-up", claims.WORDS["en"])


def test_every_named_command_is_a_profile_that_compares_the_pair() -> None:
    from addnorm.study.loading import load_study

    rows = [row for part in yaml.safe_load((FOLDER / "claims.yaml").read_text("utf-8")) for row in part["claims"]]
    named = [row for row in rows if "command" in row]
    assert len(named) >= 8
    for row in named:
        study_name, option, profile, *_ = row["command"].split()
        study = load_study(study_name, profile=profile)
        _, variant, reference = row["rank"].split()
        assert option == "--profile", row["en"]
        assert variant in study.variants, row["en"]
        assert reference in study.references, row["en"]
