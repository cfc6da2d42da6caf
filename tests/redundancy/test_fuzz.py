"""Random networks of many kinds of block, moved along the null space that the audit claims: nothing may change.

Ten networks share one graph and one export.
"""

import json
import random
import runpy
from functools import partial
from pathlib import Path

import pytest
import torch
from block_kinds import KINDS, TOKENS, WIDTH
from cancelling_kinds import CANCELLING
from grammar_truth import compared
from null_checks import ROUNDING, Case, audited, change
from torch import nn

from addnorm.redundancy.execution.generic_weights import generic
from addnorm.redundancy.execution.observation import Observe
from addnorm.redundancy.graph import rule
from addnorm.redundancy.graph.rules import rules
from addnorm.redundancy.graph.value import Output
from sampled import sampled

pytestmark = pytest.mark.compiled


def soaked(seed: int) -> object:
    return pytest.param(seed, marks=pytest.mark.soak)


DRAWN, NETWORKS = (0, 5, 9, 173, 174), 10
"""Seeds of the graphs of each session: few that draw every kind of block, both modes and both outputs. `make soak` draws
`SOAKED` graphs."""
SOAKED = 200
ALL = KINDS | CANCELLING


class Network(nn.Module):
    """One or two random blocks, some with a residual, some between norms."""

    def __init__(self, draw: random.Random) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([ALL[draw.choice(list(ALL))]() for _ in range(draw.choice((1, 2)))])
        self.residual = [draw.random() < 0.6 for _ in self.blocks]
        self.placement = draw.choice(("none", "none", "pre", "post"))
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH) for _ in self.blocks])
        self.head = nn.Linear(WIDTH, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block, norm, residual in zip(self.blocks, self.norms, self.residual, strict=True):
            y = block(norm(x) if self.placement == "pre" else x)
            x = x + y if residual else y
            x = norm(x) if self.placement == "post" else x
        return self.head(x)


class Side(nn.Module):
    """Networks on the same input, their outputs side by side."""

    def __init__(self, draw: random.Random, count: int) -> None:
        super().__init__()
        self.networks = nn.ModuleList([Network(draw) for _ in range(count)])

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        return [network(x) for network in self.networks]


def networks_of(seed: int, count: int = NETWORKS) -> Side:
    torch.manual_seed(seed)
    return Side(random.Random(seed), count)


def training(seed: int) -> bool:
    return seed % 3 == 0


def observed(seed: int) -> Observe:
    return random.Random(-seed - 1).choice(("logits", "softmax"))


def networks(seed: int, count: int = NETWORKS, track: str = "bias+tables") -> Case:
    model = networks_of(seed, count)
    return audited(model, torch.randn(3, TOKENS, WIDTH), observe=observed(seed), training=training(seed), track=track)


def test_every_kind_is_drawn() -> None:
    drawn = {type(block) for seed in DRAWN for network in networks_of(seed).networks for block in network.blocks}
    assert drawn >= {type(build()) for build in ALL.values()}
    assert len({training(seed) for seed in DRAWN}) == len({observed(seed) for seed in DRAWN}) == 2


@pytest.mark.parametrize("seed", sampled(3, DRAWN))
def test_nothing_changes_along_the_null_space(seed: int) -> None:
    unchanged(networks(seed))


@pytest.mark.soak
@pytest.mark.parametrize("seed", [seed for seed in range(SOAKED) if seed not in DRAWN])
def test_nothing_changes_along_the_null_space_of_many(seed: int) -> None:
    unchanged(networks(seed))


GRAMMAR, GRAMMAR_SOAKED = 6, 2000
"""Modules drawn from the grammar, in each session and by `make soak`. benchmarks/audit_fuzz.py draws more."""


@pytest.mark.parametrize("seed", [*range(GRAMMAR), *(soaked(each) for each in range(GRAMMAR, GRAMMAR_SOAKED))])
def test_no_drawn_module_has_more_freedom_in_the_proof_than_in_its_jacobian(seed: int) -> None:
    assert not compared(seed).false


def test_the_fuzzer_goes_on_behind_its_ledger(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "ledger.jsonl"
    script = str(Path(__file__).parents[2] / "benchmarks" / "audit_fuzz.py")
    fuzzer = runpy.run_path(script)["main"]
    fuzzer.__globals__["PER_LINE"] = 2
    fuzzer.__globals__["sources"] = lambda: ("grammar", "method")
    fuzzer.__globals__["compare_range"] = partial(_without_a_model, fuzzer.__globals__["Range"])
    for modules in (3, 5):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("sys.argv", ["audit_fuzz", "--ledger", str(path), "--modules", str(modules), "--first", "40"])
            assert fuzzer() == (1 if modules == 5 else 0)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(each["first"], each["end"]) for each in lines] == [(40, 42), (42, 44), (44, 46)]
    printed = capsys.readouterr().out
    assert "6 modules compared (numbers 40 to 45): 1 false proofs; all freedom proved in 5 (83.3%)" in printed
    changed = {**lines[0], "method": "another"}
    path.write_text("\n".join(json.dumps(each) for each in (changed, *lines[1:])) + "\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["audit_fuzz", "--ledger", str(path), "--modules", "4"])
        fuzzer()
    printed = capsys.readouterr().out
    assert "With other sources of the grammar or of the static method: 2 modules compared (numbers 40 to 41)" in printed
    assert "4 modules compared (numbers 42 to 45)" in printed


def _without_a_model(make: type, first: int, count: int, _: float) -> object:
    """A line of the ledger without its computation: module 45 has a false proof."""
    false = [45] if first <= 45 < first + count else []
    return make(
        grammar="grammar", method="method", first=first, end=first + count, false=false, equal=count - len(false)
    )


def unchanged(case: Case) -> None:
    assert case.analysis.space.dim >= NETWORKS  # at the very least each network has something before its head or in it
    assert change(case, case.analysis.space, generic(case.model)) <= ROUNDING


def _unmoved(call: rule.OpCall, *_: object, **__: object) -> list[Output]:
    """A rule that is wrong for nearly every operation: no output shifts, whatever the inputs do."""
    return call.all_unmoved()


SMALL = [(1, 4), (2, 4), (3, 4), (4, 4)]
"""Seeds and numbers of networks in which wrong rules are looked for, until one shows."""


@pytest.mark.parametrize("op", sampled(2, ["tanh", "softmax", "layer_norm", "gelu", "linear", "add"]))
def test_a_wrong_rule_is_caught(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(rules(), op, _unmoved)
    cases = (networks(seed, count) for seed, count in SMALL)
    assert any(change(case, case.analysis.space, generic(case.model)) > 1e3 * ROUNDING for case in cases)
