"""`explain` on fresh runs: the pattern of Kuang (2025) at small scale, predicted from the schedule."""

import json
from unittest.mock import patch

import numpy as np
import pytest

from addnorm.cli import main
from addnorm.insight.scalars.directions import redundant_directions
from addnorm.study.loading import load_study
from train_here import train_here

DECAYING = """
name: decaying
seeds: [0]
corpus: {kind: synthetic, task: induction}
tokenizer: bytes
training:
  steps: 80
  batch: 2
  seq: 16
  optimizer: {kind: adamw, learning_rate: 2e-2, weight_decay: 1.0, decay_on: everything}
  schedule: {kind: cosine, warmup: 0.05}
  log_every: 20
  eval_every: 80
  eval_sequences: 4
  checkpoint_every: 80
model: {preset: base, width: 16, depth: 3, heads: 2, kv_heads: 1, hidden: 16, max_seq: 16, init_std: 0.3}
variants:
  v4m4: {preset: v4m4}
  v4m6: {preset: v4m6}
  v2m3: {preset: v2m3}
"""


@pytest.fixture(autouse=True, scope="module")
def _one_gauge():
    """Gauges of real models are counted in test_gauges, for seconds each."""
    with patch("addnorm.insight.scalars.run_record.gauges", lambda spec, groups, in_turn: {min(groups): ("planted",)}):
        yield


@pytest.fixture(scope="module")
def decaying(tmp_path_factory):
    folder = tmp_path_factory.mktemp("decaying")
    (folder / "decaying.yaml").write_text(DECAYING, encoding="utf-8")
    study = load_study(folder / "decaying.yaml")
    train_here(study, folder / "runs")
    return folder / "runs", study


@pytest.fixture(scope="module")
def explained(decaying):
    from addnorm.insight.scalars.explain import explain

    found = explain(decaying[0])
    return {run["variant"]: run for run in found["runs"]}


def test_the_decay_factor_is_the_schedules(decaying, explained):
    training = decaying[1].training
    rates = training.optimizer.learning_rate * training.schedule.factors(training.steps)
    expected = float(np.prod(1 - rates * training.optimizer.weight_decay))
    assert 0.3 < expected < 0.6
    for found in explained.values():
        assert found["decay_factor"] == pytest.approx(expected, rel=1e-12)


def test_the_undriven_parameter_is_found_and_ends_at_the_factor(explained):
    assert explained["v4m4"]["undriven"] == ["scores.b[0]"]
    assert explained["v4m6"]["undriven"] == []
    (entry,) = (e for e in explained["v4m4"]["scalars"] if e["parameter"] == "scores.b" and e["index"] == [0])
    # float32 arithmetic: one rounding of 6e-8 per step.
    assert entry["final"] == pytest.approx(explained["v4m4"]["decay_factor"], rel=80 * 2**-24)
    assert entry["decay_share"] == pytest.approx(1.0, abs=1e-4)
    assert entry["verdict"] == "undriven"


def test_redundant_directions_are_found_from_the_gradients(explained):
    pairs = {
        "v4m4": [["scores.a[1]", "scores.b[1]"], ["scores.a[2]", "scores.b[2]"]],
        "v4m6": [
            [f"scores.log_a.{layer}[{index}]", f"scores.b.{layer}[{index}]"]
            for layer in range(3)
            for index in range(layer + 1)
        ],
    }
    for variant, expected in pairs.items():
        found = explained[variant]["directions"]
        assert sorted(direction["parameters"] for direction in found) == sorted(expected)
    # (ln a, b) enter through ln a + b ln d_k alone, d_k = 8: the direction is (ln d_k, -1) up to sign and size.
    for direction in explained["v4m6"]["directions"]:
        first, second = direction["coefficients"]
        assert first / second == pytest.approx(-np.log(8), rel=1e-5)
    # Power, layer m: a ln d_k + b ln m.
    for direction in explained["v4m4"]["directions"]:
        layer = int(direction["parameters"][0][-2])
        first, second = direction["coefficients"]
        assert first / second == pytest.approx(-np.log(layer + 1) / np.log(8), rel=1e-5)


def test_a_softmax_can_be_shifted(explained):
    """Of softmax weights only differences matter: one redundant direction per layer, all ones."""
    for direction in explained["v2m3"]["directions"]:
        assert np.allclose(direction["coefficients"], 1.0, rtol=1e-4)
    assert [len(direction["parameters"]) for direction in explained["v2m3"]["directions"]] == [2, 3]


def test_pairs_moved_in_lockstep_as_in_the_source(explained):
    """Adam gives both entries of a pair updates of one size, so their difference is what decay leaves of it."""
    for variant, count in (("v4m4", 2), ("v4m6", 6)):
        found = explained[variant]["lockstep"]
        assert len(found) == count
        for pair in found:
            assert pair["difference_init"] == pytest.approx(0.5)
            assert pair["difference_final"] == pytest.approx(0.5 * explained[variant]["decay_factor"], abs=0.01)


def test_verdicts_and_the_two_parts(explained):
    gauges = {variant: found["absorbed_by"] for variant, found in explained.items()}
    first = {"v4m4": "scores.a", "v4m6": "scores.b", "v2m3": "residual.mix"}
    assert gauges == {variant: {group: ["planted"]} for variant, group in first.items()}
    for found in explained.values():
        for entry in found["scalars"]:
            assert entry["verdict"] in ("learned", "decayed", "undriven", "redundant direction")
            assert entry["decay_share"] is None or 0 <= entry["decay_share"] <= 1


def test_the_command_on_a_study_a_run_and_a_wrong_folder(decaying, capsys, tmp_path):
    folder = decaying[0]
    assert main(["explain", str(folder), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found["runs"][0]) >= {"run", "decay_factor", "scalars", "lockstep", "undriven"}
    keys = {"parameter", "layer", "index", "effective", "init", "final", "decay_only", "decay_share", "snr", "verdict"}
    assert set(found["runs"][0]["scalars"][0]) == keys
    one = next(path for path in folder.iterdir() if path.name.startswith("v4m4"))
    assert main(["explain", str(one)]) == 0
    assert "Undriven (no gradient at all): scores.b[0]." in capsys.readouterr().out
    assert main(["explain", str(one), "--tables"]) == 0
    assert "Layer 2 (vector length: 1)" in capsys.readouterr().out
    assert main(["explain", str(one), "--norms", "--json"]) == 0
    assert any("norm" in e["parameter"] for e in json.loads(capsys.readouterr().out)["runs"][0]["scalars"])
    assert main(["explain", str(tmp_path)]) == 2
    assert "expected the folder of a study or of a run" in capsys.readouterr().err


@pytest.fixture(scope="module")
def several_seeds(tmp_path_factory):
    """Softmax weights without and pairs with weight decay, four seeds each."""
    folder = tmp_path_factory.mktemp("seeds")
    text = DECAYING.replace("seeds: [0]", "seeds: [0, 1, 2, 3]").replace("  v4m4: {preset: v4m4}\n", "")
    (folder / "seeds.yaml").write_text(text, encoding="utf-8")
    train_here(load_study(folder / "seeds.yaml"), folder / "runs")
    return folder / "runs"


@pytest.mark.thorough  # trains eight runs
def test_the_command_counts_over_seeds_and_keeps_the_entries_back(several_seeds, capsys):
    assert main(["explain", str(several_seeds), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    families = {(row["variant"], row["parameter"]): row for row in found["families"]}
    softmax = families["v2m3", "residual.mix"]
    assert (softmax["numbers"], softmax["directions"], softmax["seeds"]) == (5, 2, 4)
    pair = families["v4m6", "scores.log_a"]
    assert (pair["numbers"], pair["directions"], pair["shared_directions"]) == (6, 0, 6)
    assert pair["shared_with"] == ["scores.b"]
    assert main(["explain", str(several_seeds)]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "Redundant directions, left out of these counts: 2, so 3 are free;" in printed
    assert "Redundant directions with scores.b: 6, also left out." in printed
    assert "residual.mix.0[0]" not in printed
    assert "5 numbers. Different over 4 seeds from what weight decay alone would have left: " in printed
    assert main(["explain", str(several_seeds), "--entries"]) == 0
    entries = capsys.readouterr().out
    assert all(row["entry"] in entries for row in found["spread"])
    assert max(map(len, entries.splitlines())) <= 100


@pytest.mark.thorough  # trains the same eight runs
def test_no_number_is_called_learned_that_changes_sides_between_seeds(several_seeds):
    from addnorm.insight.scalars.explain import explain

    found = explain(several_seeds)
    runs = [run for run in found["runs"] if run["variant"] == "v2m3"]
    departed = {(row["variant"], row["parameter"]): row["departed"] for row in found["families"]}
    for row in found["spread"]:
        assert row["verdict"] in ("learned", "decayed", "undriven", "open")
    for (variant, parameter), count in departed.items():
        own = [row["verdict"] for row in found["spread"] if (row["variant"], row["parameter"]) == (variant, parameter)]
        assert sum(verdict in ("learned", "decayed") for verdict in own) <= count
    sides = {
        scalar: {np.sign(run["scalars"][scalar]["final"] - run["scalars"][scalar]["decay_only"]) for run in runs}
        for scalar in range(len(runs[0]["scalars"]))
    }
    assert any(len(each) > 1 for each in sides.values()), "some number lies on either side in different seeds"


def test_too_few_steps_are_said():
    assert redundant_directions(np.eye(4), 7, range(4)) is None
    assert redundant_directions(np.eye(4), 8, range(4)) == ()


def test_a_planted_null_direction_is_found_whatever_the_scales():
    rng = np.random.default_rng(0)
    gradients = rng.normal(size=(50, 5)) * np.array([1.0, 1e-3, 10.0, 1.0, 1.0])
    gradients[:, 4] = 0.01 * gradients[:, 1]  # entry 4's gradient is a multiple of entry 1's
    factor = np.linalg.qr(gradients, mode="r")
    (direction,) = redundant_directions(factor, 50, range(5))
    assert direction.members == (1, 4)
    assert direction.coefficients[0] / direction.coefficients[1] == pytest.approx(-0.01)
    noisy = gradients + 1e-4 * rng.normal(size=gradients.shape) * np.abs(gradients).max(axis=0)
    assert redundant_directions(np.linalg.qr(noisy, mode="r"), 50, range(5)) == ()
