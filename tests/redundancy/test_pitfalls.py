"""Models that have misled a redundancy analysis."""

import copy
import threading

import pytest
import torch
import torch.nn.functional as F
import toys
from block_kinds import KINDS, TOKENS, WIDTH, Eager, Fused, LayerScale, Rotary, merge, rotate, split
from null_checks import audited, counted, hold
from torch import nn

import addnorm
from addnorm.redundancy.execution.tracked_parameters import track_parameters
from addnorm.redundancy.graph.static_analysis import NotExported, analyse

pytestmark = pytest.mark.compiled

X = (3, TOKENS, WIDTH)


def redundant(case, name: str) -> int:
    return len(case.analysis.space.redundant(name))


def test_names_prove_nothing() -> None:
    class Misnamed(Eager):
        """The mask is a parameter called `bias`, the k bias a parameter called `mask`."""

        def __init__(self) -> None:
            super().__init__()
            self.k = nn.Linear(WIDTH, WIDTH, bias=False)
            self.bias = nn.Parameter(torch.tril(torch.ones(TOKENS, TOKENS)), requires_grad=False)
            self.mask = nn.Parameter(torch.zeros(1, 1, WIDTH))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            k = self.k(x) + self.mask
            scores = self.scores(split(self.q(x)), split(k)).masked_fill(self.bias == 0, float("-inf"))
            return self.o(merge(self.weights(scores) @ split(self.v(x))))

    case = audited(Misnamed(), torch.randn(X))
    assert "bias" not in case.tracked.by_name
    assert redundant(case, "mask") == WIDTH


def test_one_token_proves_nothing() -> None:
    case = audited(Eager(), torch.randn(3, 1, WIDTH))
    assert redundant(case, "k.bias") == redundant(case, "q.bias") == 0
    assert redundant(audited(Rotary(), torch.randn(3, 1, WIDTH)), "k.bias") == 0


def test_a_dead_relu_proves_nothing() -> None:
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH, bias=False))
    with torch.no_grad():
        model[0].bias.fill_(-100.0)
    case = audited(model, torch.randn(X))
    assert case.analysis.space.dim == case.analysis.own_null_space().dim == 0


def test_zero_weights_prove_nothing_but_can_be_used() -> None:
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH, bias=False))
    nn.init.zeros_(model[1].weight)
    case = audited(model, torch.randn(X))
    assert case.analysis.space.dim == 0
    assert case.analysis.own_null_space().dim == WIDTH
    tiny = audited(nn.Sequential(LayerScale(), nn.Tanh()), torch.randn(X))
    assert tiny.analysis.space.dim == tiny.analysis.own_null_space().dim == 0


@pytest.mark.parametrize("base", [1e4, 1e8, 1e12])
def test_slow_rotary_pairs_are_effective(base: float) -> None:
    """The slowest pair rotates by 1e-12 per token: below measurement, but not zero."""

    class Slow(Rotary):
        def mixed(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            return Eager.mixed(self, rotate(q, 4, base**2), rotate(k, 4, base**2), v)

    case = audited(Slow(), torch.randn(X))
    assert redundant(case, "k.bias") == 0


def test_a_fully_masked_row_makes_the_v_bias_effective() -> None:
    class Empty(Fused):
        def mixed(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            seen = torch.ones(TOKENS, TOKENS, dtype=torch.bool)
            seen[0] = False
            return F.scaled_dot_product_attention(q, k, v, attn_mask=seen)

    case = audited(Empty(), torch.randn(X))
    assert case.analysis.space.absorbable("v.bias") == 0
    assert redundant(case, "k.bias") == WIDTH
    hold(case)


def test_a_mask_that_is_data_is_an_assumption() -> None:
    class Given(Fused):
        def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            q, k, v = split(self.q(x)), split(self.k(x)), split(self.v(x))
            return self.o(merge(F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None])))

    case = audited(Given(), (torch.randn(X), torch.ones(3, TOKENS, dtype=torch.bool)))
    assert case.analysis.space.absorbable("v.bias") == WIDTH
    assert any("at least one key" in sentence for sentence in case.analysis.assumptions)


@pytest.mark.parametrize(("training", "values"), [(False, 6), (True, 0)])
def test_dropout_on_weights_keeps_k_redundant_and_breaks_the_v_fold(training: bool, values: int) -> None:
    class Dropped(Eager):
        def weights(self, scores: torch.Tensor) -> torch.Tensor:
            return F.dropout(torch.softmax(scores, dim=-1), 0.3, self.training)

    for model in (Dropped(), nn.MultiheadAttention(WIDTH, 2, dropout=0.3, batch_first=True)):
        x = torch.randn(X)
        case = audited(model, (x,) if isinstance(model, Dropped) else (x, x, x), training=training)
        joint = case.analysis.space
        if isinstance(model, Dropped):
            assert redundant(case, "k.bias") == 6
            assert joint.absorbable("v.bias") == values
        else:
            assert joint.dim == 6 + values


@pytest.mark.parametrize(("training", "bias"), [(False, 0), (True, 6)])
def test_batch_norm_takes_a_bias_in_training_only(training: bool, bias: int) -> None:
    model = nn.Sequential(nn.Conv1d(TOKENS, 6, 3), nn.BatchNorm1d(6), nn.ReLU())
    case = audited(model, torch.randn(X), training=training)
    assert redundant(case, "0.bias") == bias
    assert case.analysis.space.absorbable("0.bias") == 6  # frozen: into the norm's own shift
    hold(case)
    assert any("running_mean" in sentence for sentence in case.analysis.assumptions) == training


def test_zero_keys_and_padding_rows() -> None:
    zero = nn.MultiheadAttention(WIDTH, 2, add_zero_attn=True, batch_first=True)
    x = torch.randn(X)
    assert redundant(audited(zero, (x, x, x)), "in_proj_bias") == 0

    class Padded(nn.Module):
        """The padding row has no gradient, but it is read."""

        def __init__(self) -> None:
            super().__init__()
            self.table, self.head = nn.Embedding(5, WIDTH, padding_idx=0), nn.Linear(WIDTH, 3)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return torch.tanh(self.head(self.table(tokens)))

    case = audited(Padded(), torch.tensor([[0, 1, 2, 3, 4, 0]]), track="bias+tables")
    assert case.analysis.space.absorbable("table.weight") == WIDTH  # one row for all, into the head's bias
    assert redundant(case, "table.weight") == WIDTH - 3
    hold(case)


def test_a_router_bias_that_only_selects_is_effective() -> None:
    class Top(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.router, self.experts = nn.Linear(WIDTH, 4), nn.Parameter(torch.randn(4, WIDTH))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.experts[self.router(x).argmax(dim=-1)] * x

    case = audited(Top(), torch.randn(X))
    assert redundant(case, "router.bias") == 1  # an equal push for all experts
    assert [blocker.op for blocker in case.analysis.blockers["router.bias"]] == ["argmax"]


def test_shared_parameters_are_one() -> None:
    class Shared(Eager):
        def __init__(self) -> None:
            super().__init__()
            self.q.bias = self.k.bias

    case = audited(Shared(), torch.randn(X))
    assert case.tracked["k.bias"] is case.tracked["q.bias"]
    assert case.tracked["q.bias"].aliases == ("q.bias", "k.bias")
    assert redundant(case, "k.bias") == 0
    hold(case)
    assert case.analysis.space.dim == counted(case)


def test_blockers_name_their_source_line() -> None:
    case = audited(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU()), torch.randn(X))
    (blocker,) = case.analysis.blockers["0.bias"]
    assert (blocker.op, blocker.module, blocker.rank, blocker.demand) == ("gelu", "1", WIDTH, "unchanged")


def test_nothing_global_changes() -> None:
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(TOKENS), nn.Dropout(0.5))
    model[0].weight.requires_grad_(False)
    before, state, mode = copy.deepcopy(model.state_dict()), torch.get_rng_state(), model.training
    for training in (False, True):
        audited(model, torch.randn(X, generator=torch.Generator().manual_seed(0)), training=training)
    assert torch.equal(state, torch.get_rng_state())
    assert model.training == mode
    assert torch.get_default_dtype() == torch.float32
    assert torch.is_grad_enabled()
    assert not model[0].weight.requires_grad
    assert all(torch.equal(before[name], now) for name, now in model.state_dict().items())


def test_two_audits_at_once() -> None:
    models, dims = [Eager(), Fused(), Rotary()], {}

    def work(at: int) -> None:
        dims[at] = audited(models[at], torch.randn(X)).analysis.space.dim

    threads = [threading.Thread(target=work, args=(at,)) for at in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # k and v each alone or into o; rotary leaves only v: eight inner dims into six outputs.
    assert dims == {0: 12, 1: 12, 2: 8}


def test_a_branch_on_data_is_not_exported() -> None:
    class Branch(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one = nn.Linear(WIDTH, WIDTH)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.one(x) if x.sum() > 0 else x

    model, x = Branch(), torch.ones(X)
    with pytest.raises(NotExported, match=r"torch\.export cannot follow this model"):
        analyse(model, x, tracked=track_parameters(model, x))


def test_rows_that_short_inputs_do_not_read_are_not_redundant() -> None:
    class Positions(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.sliced = nn.Embedding(8, WIDTH), nn.Parameter(torch.randn(1, 8, WIDTH))
            self.head = nn.Linear(WIDTH, WIDTH)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = x + self.table(torch.arange(x.shape[1])) + self.sliced[:, : x.shape[1]]
            return torch.tanh(self.head(x))

    case = audited(Positions(), torch.randn(X), track="bias+tables")
    assert redundant(case, "table.weight") == redundant(case, "sliced") == 0
    # One row against the other, for each of the four positions that are read, and all rows against the head.
    assert case.analysis.space.dim == 4 * WIDTH + WIDTH
    hold(case)


@pytest.mark.parametrize("methods", ["numeric", "both"])
def test_slowly_rotated_keys_are_negligible_as_a_whole(methods: str) -> None:
    """Both pairs rotate by about 1e-9 per token: far above float64's rounding, far below float32's."""
    model = toys.seeded(toys.Rotary, 10.0)
    model.turn.mul_(1e-9)
    audit = addnorm.audit(model, toys.data(2, 4, 4), methods=methods)
    key = audit.finding("k.bias")
    assert (key.verdict, key.redundant_dof, key.negligible_dof, audit.disagreements) == ("negligible", 0, 4, ())
    assert key.effect is not None
    assert 1e-12 < key.effect < torch.finfo(torch.float32).eps
    assert "below float32's 1.2e-07, at lengths 2, 4, 5, 9" in key.reason
    stripped, certificate = audit.strip()
    assert "k.bias" not in (*certificate.removed, *certificate.zeroed)
    assert stripped.k.bias is not None


@pytest.mark.parametrize("name", ["sink", "prefix"])
def test_sinks_and_learned_keys_make_the_key_bias_effective_for_both_methods(name: str) -> None:
    audit = addnorm.audit(KINDS[name](), torch.randn(X, generator=torch.Generator().manual_seed(0)))
    assert audit.disagreements == ()
    assert (audit.finding("k.bias").redundant_dof, audit.finding("v.bias").absorbable_dof) == (0, 0)
