"""The numerical method alone: counts derived by hand, and models in which gradients are misleading."""

import pytest
import torch
import toys
from torch import Tensor, nn
from toys import WIDTH, data, seeded, tokens

import addnorm
from addnorm.redundancy import Audit
from addnorm.redundancy.execution.copies import copy_of
from addnorm.redundancy.execution.float64 import Float64Mode, PerturbedWideningMode
from addnorm.redundancy.execution.inputs import bind
from addnorm.redundancy.execution.perturbation import STEP
from addnorm.redundancy.execution.tracked_parameters import track_parameters
from addnorm.redundancy.graph.null_space import NullSpace
from addnorm.redundancy.numeric.null_space_estimate import NEGLIGIBLE
from addnorm.redundancy.numeric.probe import Probe
from addnorm.redundancy.rewriting.output_difference import largest_difference


def counts(audit: Audit) -> dict[str, tuple[int, int]]:
    """Redundant and absorbable directions per parameter."""
    return {each.parameter: (each.redundant_dof, each.absorbable_dof) for each in audit.findings}


def numeric(model: nn.Module, inputs: object, **options: object) -> Audit:
    return addnorm.audit(model, inputs, methods="numeric", **options)


def test_softmax_attention_cancels_its_key_bias_and_preserves_its_value_bias() -> None:
    audit = numeric(seeded(toys.Attention), data(2, 4, WIDTH))
    assert counts(audit) == {
        "q.bias": (0, 0),
        "k.bias": (WIDTH, WIDTH),
        "v.bias": (0, WIDTH),
        "o.bias": (0, WIDTH),
    }
    assert audit.joint_null == 2 * WIDTH
    assert [each.verdict for each in audit.findings] == ["effective", "redundant", "foldable", "foldable"]
    assert audit.finding("v.bias").fold_into[0].formula == "o.bias += o.weight @ v.bias"


def test_a_bias_before_a_kernel_folds_by_the_sum_over_its_positions() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv1d(3, 4, 1), nn.Conv1d(4, 5, 3)).eval()
    (fold,) = addnorm.audit(model, torch.randn(2, 3, 7), methods="static").finding("0.bias").fold_into
    assert (fold.formula, fold.solved) == ("1.bias += 1.weight @ 0.bias", False)


def test_layer_norm_cancels_the_mean() -> None:
    audit = numeric(seeded(lambda: nn.Sequential(nn.Linear(3, 5), nn.LayerNorm(5))), data(4, 3))
    assert counts(audit) == {"0.bias": (1, 1), "1.bias": (0, 0)}
    assert audit.findings[0].directions.kind == "all-ones"
    assert audit.findings[0].verdict == "partly redundant"


def test_batch_norm_cancels_a_bias_with_batch_statistics_and_absorbs_it_otherwise() -> None:
    model = seeded(toys.Convolved)
    image = data(3, 2, 4, 4)
    assert counts(numeric(model, image, training=True))["conv.bias"] == (4, 4)
    evaluated = counts(numeric(model, image))
    # Zero padding is added after the bias of the layer before it and before this one, so the shift is the same everywhere.
    assert evaluated["conv.bias"] == (0, 4)
    assert evaluated["norm.bias"] == (0, 4)


def test_post_norm_joint_redundancy_has_the_dimension_that_follows_from_the_algebra() -> None:
    audit = numeric(seeded(toys.PostNorm), data(2, 4, WIDTH))
    of = counts(audit)
    # v shifts pass into o; o and the first shift act together on what the second norm reads, where the mean is free, too.
    # So the free vectors are: k, v, the first shift, the second shift, and one mean before each of the two later norms.
    assert audit.joint_null == 4 * WIDTH + 2
    assert of["attention.k.bias"] == (WIDTH, WIDTH)
    assert of["attention.v.bias"] == (1, WIDTH)
    assert of["attention.o.bias"] == (1, WIDTH)
    assert of["down.bias"] == (1, WIDTH)
    assert of["third.bias"] == (0, 0)


def test_keys_in_a_plane_cancel_query_shifts_along_its_normal() -> None:
    """One head as wide as the stream: the norm takes one direction from the keys, and queries may move along what it leaves."""
    audit = numeric(seeded(toys.PostNorm, 1), data(2, 4, WIDTH))
    assert counts(audit)["attention.q.bias"] == (1, WIDTH)
    assert audit.joint_null == 4 * WIDTH + 3


def test_the_loss_and_the_softmax_cancel_a_shift_of_all_classes() -> None:
    class Loss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(3, 5)

        def forward(self, x: Tensor, labels: Tensor) -> Tensor:
            return nn.functional.cross_entropy(self.head(x), labels)

    head = seeded(nn.Linear, 3, 5)
    assert counts(numeric(head, data(4, 3))) == {"bias": (0, 0)}
    assert counts(numeric(head, data(4, 3), observe="softmax")) == {"bias": (1, 1)}
    assert counts(numeric(seeded(Loss), (data(4, 3), torch.tensor([4, 1, 0, 2])), observe="loss")) == {
        "head.bias": (1, 1)
    }


def test_a_padding_row_matters_although_its_gradient_is_zero() -> None:
    audit = numeric(seeded(toys.Padded), tokens(2, 8), track="bias+tables")
    assert counts(audit)["table.weight"] == (0, 0)


def test_a_bias_that_only_chooses_experts_matters_although_it_has_no_gradient() -> None:
    audit = numeric(seeded(toys.Routed), data(2, 8, WIDTH), track="correction")
    assert audit.finding("correction").redundant_dof == 0


def test_units_inactive_at_these_weights_are_not_dead() -> None:
    audit = numeric(seeded(toys.Dead), data(2, 8, WIDTH))
    assert audit.finding("up.bias").verdict == "effective"


def test_a_single_token_does_not_make_the_query_bias_look_redundant() -> None:
    audit = numeric(seeded(toys.Attention), data(1, 1, WIDTH))
    assert counts(audit)["q.bias"] == (0, 0)
    assert audit.assumptions[-1] == "inputs have lengths 1, 2, 6"


def test_a_branch_initialised_to_zero_is_tested_with_generic_weights() -> None:
    with torch.random.fork_rng([]):
        model = toys.ZeroStart()
    audit = numeric(model, data(2, 4, WIDTH))
    assert {each.verdict for each in audit.findings if each.parameter in ("up.bias", "side.bias")} == {"effective"}


def test_pure_noise_is_null_beside_a_block_of_large_gradients() -> None:
    model = seeded(toys.Attention)
    with torch.no_grad():
        model.o.weight.mul_(1e6)
        model.v.weight.mul_(1e3)
    assert counts(numeric(model, data(2, 4, WIDTH)))["k.bias"] == (WIDTH, WIDTH)


@pytest.mark.parametrize(("base", "verdict", "negligible"), [(100.0, "effective", 0), (1e20, "effective", 2)])
def test_slow_rotary_pairs_are_negligible_with_their_effect(base: float, verdict: str, negligible: int) -> None:
    audit = numeric(seeded(toys.Rotary, base), data(2, 4, 4)).finding("k.bias")
    assert (audit.verdict, audit.negligible_dof, audit.redundant_dof) == (verdict, negligible, 0)
    if negligible:
        assert audit.effect is not None
        assert 0 < audit.effect < NEGLIGIBLE


def test_casts_to_float32_inside_a_model_do_not_limit_the_precision() -> None:
    model = seeded(toys.Casting).double()
    moved = seeded(toys.Casting).double()
    with torch.no_grad():
        moved.k.bias.add_(1.0)
    x = data(2, 4, WIDTH).double()
    with torch.no_grad():
        blurred = largest_difference([moved(x)], [model(x)])
        with Float64Mode():
            sharp = largest_difference([moved(x)], [model(x)])
    assert blurred > 1e-9
    assert sharp < 1e-13
    assert counts(numeric(seeded(toys.Casting), data(2, 4, WIDTH)))["k.bias"] == (WIDTH, WIDTH)


def test_grouped_products_run_in_float64() -> None:
    rows, matrices, ends = data(5, 3), data(2, 3, 4), torch.tensor([2, 5], dtype=torch.int32)
    with Float64Mode():
        audit = torch.nn.functional.grouped_mm(rows.double(), matrices.double(), offs=ends)
    expected = torch.cat([rows[:2] @ matrices[0], rows[2:] @ matrices[1]])
    torch.testing.assert_close(audit.float(), expected)


def test_dropout_in_training_keeps_the_key_bias_redundant_and_the_value_bias_not_foldable() -> None:
    class Dropping(toys.Attention):
        def forward(self, x: Tensor) -> Tensor:
            weights = torch.softmax(self.q(x) @ self.k(x).transpose(1, 2), dim=-1)
            return self.o(nn.functional.dropout(weights, 0.5, self.training) @ self.v(x))

    audit = counts(numeric(seeded(Dropping), data(2, 5, WIDTH), training=True))
    assert audit["k.bias"] == (WIDTH, WIDTH)
    assert audit["v.bias"] == (0, 0)


def test_with_too_many_scalars_only_parameters_without_effect_are_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("addnorm.redundancy.analysis.COUNTED_ALONE", 3)
    audit = numeric(seeded(toys.Attention), data(2, 4, WIDTH))
    assert audit.finding("k.bias").verdict == "redundant"
    assert audit.finding("q.bias").verdict == "undecided"
    assert "only up to 3 scalars" in audit.notes[0]


def test_all_rows_are_read_although_six_random_inputs_leave_some_out() -> None:
    """Two tokens per call and forty rows: in any order, six calls leave rows out."""

    class Looking(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.head = nn.Embedding(40, 3), nn.Linear(3, 5)

        def forward(self, ids: Tensor) -> Tensor:
            return torch.tanh(self.head(self.table(ids)))

    audit = numeric(seeded(Looking), tokens(1, 2), track="bias+tables")
    # All rows together move against the head's bias; no row moves alone, and no row is left unread.
    assert counts(audit) == {"table.weight": (0, 3), "head.bias": (0, 3)}
    assert audit.finding("table.weight").verdict == "foldable"
    assert audit.joint_null == 3


def test_rows_that_no_input_reads_are_undecided() -> None:
    class Positions(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.head = nn.Embedding(9, 2), nn.Linear(2, 3)

        def forward(self, x: Tensor) -> Tensor:
            if x.shape[1] != 4:
                raise ValueError("made for four positions")
            return torch.tanh(self.head(x + self.table(torch.arange(4))))

    audit = numeric(seeded(Positions), data(2, 4, 2), track="bias+tables")
    table = audit.finding("table.weight")
    assert table.verdict == "undecided"
    assert table.redundant_dof == 0
    assert table.reason == "none of the inputs tried reads 10 of its 18 numbers."


class Mixture(nn.Module):
    """The best of three experts; a handicap decides whether the third can be."""

    def __init__(self, handicap: float) -> None:
        super().__init__()
        self.router, self.shifts = nn.Linear(WIDTH, 3, bias=False), nn.Parameter(torch.zeros(3, 2))
        self.experts = nn.ModuleList(nn.Linear(WIDTH, 2) for _ in range(3))
        self.register_buffer("handicap", torch.tensor([0.0, 0.0, handicap]))

    def forward(self, x: Tensor) -> Tensor:
        best = (self.router(x) + self.handicap).argmax(-1)
        out = x.new_zeros(*x.shape[:2], 2)
        for number, expert in enumerate(self.experts):
            rows = best == number
            if bool(rows.any()):
                out[rows] = torch.tanh(expert(x[rows]) + self.shifts[number])
        return out


def test_experts_that_no_input_selects_are_undecided() -> None:
    shifts = numeric(seeded(Mixture, -1e9), data(2, 8, WIDTH), track="shifts").finding("shifts")
    assert (shifts.verdict, shifts.redundant_dof, shifts.absorbable_dof) == ("undecided", 0, 0)
    assert shifts.reason == "none of the inputs tried reads 2 of its 6 numbers."
    shifts = numeric(seeded(Mixture, 0.0), data(1, 2, WIDTH), track="shifts").finding("shifts")
    assert shifts.verdict == "effective"


def test_experts_that_the_given_inputs_never_reach_are_named() -> None:
    audit = numeric(seeded(Mixture, -1e9), data(2, 8, WIDTH), track="experts.*bias")
    assert [each.parameter for each in audit.findings] == ["experts.0.bias", "experts.1.bias"]
    assert "no given input reaches experts.2.bias, so nothing is concluded about it" in audit.notes


def test_with_many_scalars_an_unselected_expert_is_not_called_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    class Idle(toys.Attention):
        """One row of two is ever read."""

        def __init__(self) -> None:
            super().__init__()
            self.rows = nn.Parameter(torch.zeros(2, WIDTH))

        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) * self.rows[(x[:, :, 0] > 1e9).long()].exp()

    monkeypatch.setattr("addnorm.redundancy.analysis.COUNTED_ALONE", 3)
    audit = numeric(seeded(Idle), data(2, 4, WIDTH), track="rows|k.bias")
    assert {each.parameter: each.verdict for each in audit.findings} == {"k.bias": "redundant", "rows": "undecided"}


class Counted(nn.Module):
    """Counts its calls; if `counts` is not zero, in a buffer, which the next call reads."""

    def __init__(self, counts: float) -> None:
        super().__init__()
        self.calls, self.counts, self.map = 0, counts, nn.Linear(WIDTH, 3)
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        out = torch.tanh(self.map(x)) + self.count
        if self.counts:
            self.count.add_(self.counts)
        return out


@pytest.mark.parametrize(("counts", "calls"), [(0.0, 3), (1.0, 6)])
def test_an_unmoved_output_is_computed_once_for_each_point_and_input(counts: float, calls: int) -> None:
    model, inputs = seeded(Counted, counts), bind(data(2, WIDTH).double())
    copied = copy_of(model, torch.float64)
    probe = Probe(copied, track_parameters(model, data(2, WIDTH)), "logits")
    outputs = [probe.unmoved(inputs, point).floats for point in (0, 0, 1, 1)]
    other = probe.unmoved(bind(data(2, WIDTH, seed=1).double()), 1).floats
    # What a call leaves in the buffer is read by the next, whose output then counts, too.
    assert copied.calls == calls
    assert float(copied.count) == 0
    for again in (outputs[0], outputs[2]):
        assert torch.equal(again[6:], again[:6] + counts if counts else again[6:])
    assert len(outputs[0]) == (12 if counts else 6)
    assert outputs[0] is outputs[1]
    assert outputs[2] is outputs[3]
    assert not torch.equal(outputs[1], outputs[2])
    assert not torch.equal(outputs[3], other)


class KeysAlone(nn.Module):
    """Attention whose only bias is that of the keys, which softmax cancels; `leak` lets some of it through."""

    def __init__(self, leak: float) -> None:
        super().__init__()
        self.q, self.k, self.leak = nn.Linear(6, 6, bias=False), nn.Linear(6, 6), leak

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        keys = self.k(x)
        return (self.q(x) @ keys.mT).softmax(-1) + self.leak * keys.mean()


@pytest.mark.parametrize(
    ("leak", "verdict", "redundant"), [(0.0, "redundant", 6), (1e-9, "undecided", 0), (1e-3, "partly redundant", 5)]
)
def test_where_all_gradients_are_rounding_nothing_is_effective(leak: float, verdict: str, redundant: int) -> None:
    """With one bias and no other gradient next to it, rounding was measured by rounding and called an effect."""
    torch.manual_seed(0)
    audit = addnorm.audit(KeysAlone(leak), (torch.randn(2, 5, 6),), methods="numeric").findings[0]
    assert (audit.parameter, audit.verdict, audit.redundant_dof) == ("k.bias", verdict, redundant)


@pytest.mark.parametrize(("unseen", "gradients"), [(False, [1]), (True, [1, 8, 8])])
def test_one_gradient_is_computed_where_it_decides_all(
    unseen: bool, gradients: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside a static method that proves all freedom one gradient shows that the rest matters. Without the proof of the
    key's bias more are computed, which show no effect either."""
    asked: list[int] = []
    rows = Probe.rows
    monkeypatch.setattr("addnorm.redundancy.analysis.COUNTED_WITH_PROOF", 0)
    monkeypatch.setattr(Probe, "rows", lambda self, *given, **at: asked.append(given[2]) or rows(self, *given, **at))
    if unseen:
        monkeypatch.setattr(NullSpace, "redundant", lambda self, name: torch.zeros(0, self.tracked[name].size).double())
    audit = addnorm.audit(seeded(toys.Attention), data(2, 4, WIDTH))
    assert asked == gradients
    assert audit.finding("k.bias").verdict == ("unproved" if unseen else "redundant")
    assert audit.finding("q.bias").verdict == "effective"


def test_weights_that_are_widened_are_perturbed_by_one_step_up_or_down() -> None:
    weight = nn.Parameter(torch.randn(40, 30, generator=torch.Generator().manual_seed(0)).bfloat16())
    with PerturbedWideningMode(0), torch.no_grad():
        moved = nn.functional.linear(torch.eye(30), weight).T
    assert set((moved / weight.double()).flatten().tolist()) == {1 - STEP, 1 + STEP}
    single = nn.Parameter(weight.detach().double())
    with PerturbedWideningMode(0), torch.no_grad():
        nn.functional.linear(torch.eye(30), single)
    assert torch.equal(single, weight.double())
