"""Which learned numbers can matter: the counts of the hand derivation, and where they are shown."""

import importlib.util
import json
import shutil
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import nn

import addnorm
from addnorm.cli import main
from addnorm.cli._plan_tables import learned_numbers as table
from addnorm.cli.inspect import ablation_table
from addnorm.insight.identifiable import counts_by_variant, gauges, groups_of, identifiable, reduced
from addnorm.store import StudyFolder
from addnorm.symmetry.counting import learned_numbers
from addnorm.training.run_spec import run_spec
from sampled import sampled

SIZES = {"vocab": 11, "width": 8, "depth": 2, "heads": 2, "kv_heads": 1, "hidden": 5, "max_seq": 16}


@pytest.mark.parametrize(
    ("socket", "kind", "numbers", "matter", "unread"),
    [
        ("residual", "rezero", 4, 0, 0),
        ("residual", "gate", 36, 36, 0),
        pytest.param("residual", "layer_scale", 32, 0, 0, marks=pytest.mark.thorough),
        pytest.param("residual", "lambdas", 4, 2, 0, marks=pytest.mark.thorough),
        pytest.param("residual", "dense", 5, 5, 0, marks=pytest.mark.thorough),
        pytest.param("residual", "dynamic_dense", 172, 172, 0, marks=pytest.mark.thorough),
        pytest.param("scores", "power", 4, 1, 1, marks=pytest.mark.thorough),
        pytest.param("scores", "weighted", 3, 1, 0, marks=pytest.mark.thorough),
        pytest.param("sink", "logit", 4, 4, 0, marks=pytest.mark.thorough),
    ],
)
def test_counts_of_the_hand_derivation(socket: str, kind: str, numbers: int, matter: int, unread: int) -> None:
    count = identifiable(addnorm.preset("llama", **SIZES, **{socket: kind}))[socket]
    assert (count.numbers, count.matter, count.unread) == (numbers, matter, unread)
    assert count.gauge == numbers - matter - unread


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("variant", "numbers", "matter"), [("v2m3", 35, 28), ("v4m4", 16, 7), ("v4m5", 36, 28), ("v4m6", 72, 28)]
)
def test_scalars_of_kuang_2025(variant: str, numbers: int, matter: int) -> None:
    """Of a weight per pair of layers, each layer's own is absorbed by its queries: 36 - 8. The exponents b add nothing."""
    count = addnorm.load_study("residual-scores", profile="paper").variants[variant]
    (made,) = identifiable(count).values()
    assert (made.numbers, made.matter) == (numbers, matter)


def test_a_reduced_model_keeps_depth_and_mechanisms() -> None:
    spec = addnorm.preset("llama", vocab=500, width=64, depth=7, heads=8, hidden=100, max_seq=64, residual="rezero")
    small = reduced(spec)
    assert (small.depth, small.residual.kind, small.width) == (7, "rezero", 4)


def test_an_unclear_rank_is_said() -> None:
    network = nn.Sequential(*[nn.Linear(2, 2, bias=False) for _ in range(2)])
    inputs = torch.randn(20, 2)
    assert learned_numbers(network, inputs, {"first": ["0.weight"]})["first"].matter == 0
    with pytest.raises(addnorm.errors.UnknownName, match=r"no parameter '2\.weight'"):
        learned_numbers(network, inputs, {"first": ["2.weight"]})


def test_list_shows_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "residual"]) == 0
    printed = capsys.readouterr().out
    assert "Learned numbers in two layers of width 8: 4. Can matter: 0." in printed
    assert main(["list", "residual", "--json"]) == 0
    entries = {each["kind"]: each for each in json.loads(capsys.readouterr().out)["residual"]}
    assert entries["gate"]["learned"] == {"numbers": 36, "unread": 0, "matter": 36}
    assert "learned" not in entries["add"]


def test_all_commands_show_one_count(finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`list` shows the reduced model of the table; plan, explain and --ablate that of the study's own depth."""
    finished = Path(shutil.copytree(finished, tmp_path / "runs"))
    runs = {run_spec(run).variant: run_spec(run) for run in StudyFolder(finished).runs()}
    assert main(["explain", str(finished), "--numbers", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)["learned"]
    assert shown == counts_by_variant({name: spec.model for name, spec in runs.items()})
    assert shown
    for name, rooms in shown.items():
        counts = identifiable(runs[name].model)
        assert {room: each["matter"] for room, each in rooms.items()} == {
            room: each.matter for room, each in counts.items()
        }
    assert main(["explain", str(finished), "--numbers"]) == 0
    assert " ".join(table(shown).split()) in " ".join(capsys.readouterr().out.split())
    spec = addnorm.preset("llama", **SIZES, residual="gate")
    assert counts_by_variant({"a": spec, "theirs": object()}) == {
        "a": {"residual": {"numbers": 36, "unread": 0, "matter": 36}}
    }


@pytest.mark.parametrize(
    ("socket", "kind"),
    sampled(4, [("residual", "rezero"), ("residual", "gate"), ("scores", "weighted"), ("sink", "logit")]),
)
def test_list_plan_explain_and_ablation_say_the_same_integers(
    socket: str, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """`list` reads its table; plan and explain count the model, and an ablation warns where nothing of the numbers matters."""
    assert main(["list", socket, "--json"]) == 0
    listed = next(each for each in json.loads(capsys.readouterr().out)[socket] if each["kind"] == kind)["learned"]
    spec = addnorm.preset("llama", **SIZES, **{socket: kind})
    assert counts_by_variant({"a": spec}) == {"a": {socket: listed}}
    names = groups_of(spec.build(seed=0), (socket,))[socket]
    assert bool(gauges(spec, {"all": names})) == (listed["numbers"] > listed["unread"] and not listed["matter"])


def test_plan_says_which_are_a_gauge() -> None:
    counts = {"v4m5": {"scores": {"numbers": 36, "unread": 0, "matter": 28}}, "wide": {"reason": "too large"}}
    assert table(counts) == (
        "Learned numbers of joints, counted in models of small width: v4m5's 36 of scores: 28 identifiable, 8 a gauge; "
        "wide: not counted, too large."
    )
    assert table({}) == ""


def test_an_ablated_gauge_is_warned_of() -> None:
    row = {"group": "residual.alpha", "set_to": "start", "entries": 4, "loss": 2.0, "change": 0.5, "gauge": True}
    over = [
        {
            "variant": "a",
            "group": "residual.alpha",
            "set_to": "start",
            "mean": 0.5,
            "low": None,
            "high": None,
            "seeds": 1,
        }
    ]
    measured = {"runs": [{"variant": "a", "groups": [row]}], "over_seeds": over, "skipped": {}}
    assert "A gauge: residual.alpha." in ablation_table(measured, 100)
    measured["runs"][0]["groups"] = [{**row, "gauge": False}]
    assert "A gauge" not in ablation_table(measured, 100)


DOCS = Path(__file__).parents[2] / "docs"


def _script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("learned_numbers_page", DOCS / "learned_numbers.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_table_has_every_joint_and_is_that_of_the_data() -> None:
    script = _script()
    data = json.loads(script.DATA.read_text(encoding="utf-8"))
    assert script.PAGE.read_text(encoding="utf-8") == script.page(data)
    joints = [
        f"{room}.{kind}" for room, kind in script.rows() if room in ("residual", "scores", "values", "sink", "column")
    ]
    assert [name for name in joints if name not in data] == []
    for name, row in data.items():
        if "reason" not in row:
            assert row["explained"] + sum(each["size"] for each in row["rest"]) == row["redundant"], name
    assert data["scores.weighted"]["matter"] == 1
    assert data["residual.rezero"]["matter"] == 0


@pytest.mark.thorough  # seconds
def test_a_row_is_what_is_counted() -> None:
    script = _script()
    data = json.loads(script.DATA.read_text(encoding="utf-8"))
    assert script.row("residual", "rezero") == data["residual.rezero"]


def _rows() -> list[str]:
    return [name for name, row in json.loads(_script().DATA.read_text(encoding="utf-8")).items() if "reason" not in row]


@pytest.mark.soak
@pytest.mark.parametrize("name", _rows())
def test_both_methods_agree_on_every_mechanism(name: str) -> None:
    """Measured as the table says, explained at least as far, and no more refuted claims."""
    script = _script()
    known, made = json.loads(script.DATA.read_text(encoding="utf-8"))[name], script.row(*name.split("."))
    assert {key: made[key] for key in ("numbers", "matter", "redundant")} == {
        key: known[key] for key in ("numbers", "matter", "redundant")
    }
    assert made["explained"] >= known["explained"]
    # Attention with additive positions has claims whose finite move fails; they are not counted.
    assert made["refuted"] <= known["refuted"]
    assert made["explained"] + sum(each["size"] for each in made["rest"]) == made["redundant"]
