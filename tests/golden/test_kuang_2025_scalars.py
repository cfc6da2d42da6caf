"""What Kuang's (2025) printed scalars really show, found from nothing but them and its training set-up."""

import json

import pytest

from addnorm.cli import main
from addnorm.insight.scalars.explain import KUANG_2025, explain_kuang_2025

pytestmark = pytest.mark.plain  # printed numbers; the shapes of the same models are checked in tests/contracts


@pytest.fixture(scope="module")
def explained():
    found = explain_kuang_2025()
    return {run["variant"]: run for run in found["runs"]} | {"conclusions": found["conclusions"]}


def test_the_decay_factor_is_the_one_that_an_undriven_parameter_shows(explained):
    for variant in ("v4m4", "v4m5", "v4m6", "v4m7"):
        assert explained[variant]["decay_factor"] == pytest.approx(0.078046, abs=5e-7)
    printed = json.loads(KUANG_2025.read_text(encoding="utf-8"))["variants"]["v4m4"]["parameters"]["b"][0]
    assert printed == 0.078046


def test_one_parameter_is_undriven(explained):
    assert {variant: explained[variant]["undriven"] for variant in ("v4m4", "v4m5", "v4m6", "v4m7")} == {
        "v4m4": ["scores.b[0]"],
        "v4m5": [],
        "v4m6": [],
        "v4m7": [],
    }


def test_7_and_36_pairs_moved_in_lockstep(explained):
    assert [len(explained[variant]["lockstep"]) for variant in ("v4m4", "v4m5", "v4m6", "v4m7")] == [7, 0, 36, 0]
    assert [pair["parameters"] for pair in explained["v4m4"]["lockstep"]] == [
        [f"scores.a[{layer}]", f"scores.b[{layer}]"] for layer in range(1, 8)
    ]
    for variant in ("v4m4", "v4m6"):
        for pair in explained[variant]["lockstep"]:
            assert pair["difference_init"] == pytest.approx(0.5)
            assert pair["difference_decay_only"] == pytest.approx(0.0390, abs=5e-5)
            assert pair["difference_final"] == pytest.approx(0.0390, abs=1.5e-4)


def test_which_printed_conclusions_do_not_follow(explained):
    assert {claim["id"]: claim["follows"] for claim in explained["conclusions"]} == {
        "v4m4-dk-matters-less": False,
        "v4m7-below-start": False,
        "v4m6-small-exponent": False,
        "v4m5-grows-with-layer": True,
    }


def test_effective_coefficients_are_those_of_the_printed_formulas(explained):
    # v4m4, layer 7: 1 / (64^0.393176 * 8^0.432214);  v4m5, layer 1: 1 / (0.6737704 * 8);  v4m7, layer 0: 1 / 0.8651804
    by_name = {
        variant: {(e["parameter"], tuple(e["index"])): e["effective"] for e in explained[variant]["scalars"]}
        for variant in ("v4m4", "v4m5", "v4m6", "v4m7")
    }
    assert by_name["v4m4"]["scores.a", (7,)] == pytest.approx(1 / (64**0.393176 * 8**0.432214))
    assert by_name["v4m5"]["scores.log_a.1", (0,)] == pytest.approx(1 / (0.6737704 * 8))
    assert by_name["v4m6"]["scores.log_a.2", (1,)] == pytest.approx(1 / (1.234046 * 64**0.24926989))
    assert by_name["v4m7"]["scores.log_a.0", (0,)] == pytest.approx(1 / 0.8651804)


def test_the_appendix_comes_out_as_it_was_printed(capsys):
    assert main(["explain", "kuang-2025", "--tables"]) == 0
    out = capsys.readouterr().out
    # Kuang (2025), v4m5, layer 3: mean 1.103168, std 0.429878, min 0.500667, max 1.698866.
    assert "Layer 3 (vector length: 4): [1.698866, 1.209758, 1.003381, 0.500667]" in out
    assert "mean 1.103168  std 0.429878  min 0.500667  max 1.698866" in out
    # v4m6, layer 7: b mean 0.425618, std 0.100873;  v4m7, layer 6: min 2.044385, max 5.614102.
    assert "mean 0.425618  std 0.100873" in out
    assert "min 2.044385  max 5.614102" in out


def test_another_value_for_the_undriven_parameter_would_not_pass_for_one(monkeypatch):
    content = json.loads(KUANG_2025.read_text(encoding="utf-8"))
    content["variants"]["v4m4"]["parameters"]["b"][0] += 1e-4
    content["variants"]["v4m6"]["parameters"]["b"][3][1] += 0.01
    monkeypatch.setattr("addnorm.insight.scalars.explain.read_published_scalars", lambda path: content)
    changed = {run["variant"]: run for run in explain_kuang_2025()["runs"]}
    assert changed["v4m4"]["undriven"] == []
    assert len(changed["v4m6"]["lockstep"]) == 35
