"""Both methods together: they agree where the algebra is known; if one is made to claim something false, the verdict is
`undecided`, and if it is made to claim too little, `unproved`."""

import json
from dataclasses import replace

import pytest
import torch
import toys
from toys import WIDTH, data, seeded

import addnorm
from addnorm.redundancy import Audit
from addnorm.redundancy.algebra.linear_map import identity
from addnorm.redundancy.graph import static_analysis as static
from addnorm.redundancy.graph.null_space import NullSpace
from addnorm.redundancy.graph.static_analysis import StaticAnalysis

pytestmark = pytest.mark.compiled


def verdicts(audit: Audit) -> dict[str, str]:
    return {each.parameter: each.verdict for each in audit.findings}


def claiming(monkeypatch: pytest.MonkeyPatch, free: dict[str, int]) -> None:
    """Make the static method claim exactly these parameters as redundant, each with a free vector of its own."""
    honest = static.analyse

    def claimed(*args: object, **options: object) -> StaticAnalysis:
        analysis = honest(*args, **options)
        tracked = analysis.space.tracked
        return replace(
            analysis,
            space=NullSpace(tracked, {name: {block: identity(tracked[name].size)} for name, block in free.items()}),
        )

    monkeypatch.setattr(static, "analyse", claimed)


def test_an_audit_is_one_line_until_it_is_printed() -> None:
    audit = addnorm.audit(seeded(toys.Attention), data(2, 4, WIDTH))
    assert repr(audit).startswith("<Audit of Attention: ")
    assert len(repr(audit)) < 200
    assert str(audit).count("\n") == len(audit.findings)
    assert "k.bias: redundant." in str(audit)


@pytest.mark.parametrize("limit", [1024, 3])
def test_the_methods_agree_on_attention(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    monkeypatch.setattr("addnorm.redundancy.analysis.COUNTED_WITH_PROOF", limit)
    audit = addnorm.audit(seeded(toys.Attention), data(2, 4, WIDTH))
    assert audit.agreed
    assert audit.methods == "both"
    assert verdicts(audit) == {
        "q.bias": "effective",
        "k.bias": "redundant",
        "v.bias": "foldable",
        "o.bias": "foldable",
    }
    assert audit.joint_null == 2 * WIDTH
    assert audit.numeric_joint_null == (2 * WIDTH if limit > 3 else None)
    blocked = audit.finding("q.bias").blocked_by
    assert any("attention" in each.op for each in blocked)
    assert {each.where.partition(":")[0] for each in blocked} == {toys.__file__}
    assert all(each.where.split(":")[-1].isdigit() for each in blocked)


def test_the_joint_redundancy_of_post_norm_is_removed_together() -> None:
    model, x = seeded(toys.PostNorm), data(2, 4, WIDTH)
    audit = addnorm.audit(model, x)
    assert audit.agreed
    assert audit.joint_null == 4 * WIDTH + 2
    stripped, certificate = audit.strip()
    assert {"attention.k.bias", "attention.v.bias", "attention.o.bias", "down.bias"} == set(certificate.removed)
    assert certificate.passed
    assert addnorm.equivalent(model, stripped, x)


@pytest.mark.parametrize("limit", [1024, 3])
def test_a_claim_refuted_by_a_move_is_undecided(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    monkeypatch.setattr("addnorm.redundancy.analysis.COUNTED_WITH_PROOF", limit)
    claiming(monkeypatch, {"k.bias": 0, "q.bias": 1})
    audit = addnorm.audit(seeded(toys.Attention), data(2, 4, WIDTH))
    finding = audit.finding("q.bias")
    assert finding.verdict == "undecided"
    assert finding.redundant_dof == 0
    assert "moving along them changes the output by" in finding.reason
    assert audit.finding("k.bias").verdict == "redundant"
    assert not audit.agreed
    assert any(each.startswith("q.bias: ") for each in audit.disagreements)


@pytest.mark.parametrize("limit", [1024, 3])
def test_a_claim_that_misses_something_is_unproved(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    monkeypatch.setattr("addnorm.redundancy.analysis.COUNTED_WITH_PROOF", limit)
    claiming(monkeypatch, {})
    audit = addnorm.audit(seeded(toys.Attention), data(2, 4, WIDTH))
    finding = audit.finding("k.bias")
    assert finding.verdict == "unproved"
    assert finding.redundant_dof == 0
    assert audit.agreed
    if limit > 3:
        assert finding.numeric_redundant_dof == WIDTH
        assert audit.finding("v.bias").verdict == "unproved"


def test_undecided_parameters_are_not_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    claiming(monkeypatch, {"k.bias": 0, "q.bias": 1})
    _, certificate = addnorm.audit(seeded(toys.Attention), data(2, 4, WIDTH)).strip()
    assert certificate.removed == ("k.bias",)
    assert certificate.passed


def test_a_model_that_does_not_export_gets_the_numerical_verdict_and_a_note() -> None:
    audit = addnorm.audit(seeded(toys.Branching), data(2, 4, WIDTH))
    assert audit.methods == "numeric"
    assert "does not export, so only the numerical method ran" in audit.notes[0]
    assert audit.finding("attention.k.bias").verdict == "redundant"
    _, certificate = audit.strip()
    assert certificate.removed == ("attention.k.bias", "attention.v.bias")
    assert certificate.passed


def test_the_static_method_alone() -> None:
    audit = addnorm.audit(seeded(toys.Attention), data(2, 4, WIDTH), methods="static")
    assert audit.methods == "static"
    assert audit.numeric_joint_null is None
    assert verdicts(audit)["k.bias"] == "redundant"
    assert audit.strip()[1].removed == ("k.bias", "v.bias")


def test_the_json_has_the_documented_keys_and_is_json() -> None:
    report = json.loads(json.dumps(addnorm.audit(seeded(toys.Attention), data(2, 4, WIDTH)).to_json()))
    assert {"model", "joint_null", "size", "assumptions", "findings", "certificate"} <= report.keys()
    documented = {
        "parameter",
        "verdict",
        "size",
        "redundant_dof",
        "absorbable_dof",
        "directions",
        "fold_into",
        "blocked_by",
    }
    assert all(documented <= finding.keys() for finding in report["findings"])
    assert report["model"] == "Attention"
    assert report["findings"][1]["directions"] == {"kind": "coordinates", "coordinates": list(range(WIDTH))}
    assert report["versions"]["torch"] == torch.__version__
    assert report["seconds"].keys() == {"static", "numeric", "total"}


@pytest.mark.parametrize("placement", ["gpt2", "bert", "llama"])
def test_our_own_presets_have_no_disagreement(placement: str) -> None:
    spec = addnorm.preset(placement, vocab=11, width=16, depth=1, heads=2, kv_heads=2, hidden=16, max_seq=16, bias=True)
    audit = addnorm.audit(spec.build(seed=0), toys.tokens(2, 5, vocab=11))
    assert audit.agreed
    keys = [each for each in audit.findings if each.parameter.endswith((".k.bias", "k_bias", "key.bias"))]
    assert audit.joint_null > 0
    rotary = placement == "llama"
    assert all((each.verdict == "redundant") != rotary for each in keys)
