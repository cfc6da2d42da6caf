"""The stages of an audit and of its rewrites: each runs once, in order, and none calls an earlier one again."""

import pkgutil

import pytest
import toys
from toys import WIDTH, data, seeded

import addnorm

pytestmark = pytest.mark.compiled

STAGES = {
    "export": "graph.static_analysis.export",
    "propagation": "graph.static_analysis.propagate",
    "numerical method": "numeric.numerical_analysis.analyse",
    "verdict": "analysis.compare",
    "fold": "analysis.Folds.of",
    "finding": "analysis.finding",
    "plan": "rewriting.strip.plan_removals",
    "certificate": "rewriting.strip.certify",
    "recipe": "rewriting.transfer.recipe",
    "recipe's plan": "rewriting.recipe.plan_removals",
    "transfer's certificate": "rewriting.transfer._compared",
}


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The stages that ran, in order; those per parameter with the bias that is followed below."""
    recorded: list[str] = []

    def recording(stage: str, function: object) -> object:
        def record(*args: object, **kwargs: object) -> object:
            entry = args[1] if stage == "fold" else args[0]
            if stage not in ("verdict", "fold", "finding") or getattr(entry, "name", "") == "v.bias":
                recorded.append(stage)
            return function(*args, **kwargs)  # type: ignore[operator]

        return record

    for stage, path in STAGES.items():
        home, _, name = path.rpartition(".")
        owner = pkgutil.resolve_name(f"addnorm.redundancy.{home}")
        monkeypatch.setattr(owner, name, recording(stage, getattr(owner, name)))
    return recorded


def test_a_bias_visits_each_stage_of_the_audit_once(calls: list[str]) -> None:
    addnorm.audit(seeded(toys.Attention), data(2, 4, WIDTH))
    assert calls == ["export", "propagation", "numerical method", "verdict", "fold", "finding"]


def test_a_removal_starts_from_the_exported_graph(calls: list[str]) -> None:
    """The null space at the model's own weights takes one more pass through the same graph, and no other stage."""
    audit = addnorm.audit(seeded(toys.Attention), data(2, 4, WIDTH))
    calls.clear()
    audit.strip()
    assert calls == ["propagation", "plan", "certificate"]
    audit.canonicalize()
    assert calls.count("propagation") == 1


def test_a_transfer_plans_once(calls: list[str]) -> None:
    audit = addnorm.audit(seeded(toys.Attention), data(2, 4, WIDTH), methods="static")
    calls.clear()
    audit.transfer(seeded(toys.Attention), data(2, 4, WIDTH))
    assert calls == ["recipe", "recipe's plan", "transfer's certificate"]
