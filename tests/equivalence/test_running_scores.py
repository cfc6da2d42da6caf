"""A running sum of scores is the same model as the sums that hold no matrix."""

import pytest
import torch
from comparing import assert_same_function, make, tiny

from addnorm.catalogue import ROOMS
from addnorm.errors import InputError
from addnorm.kernels.grouped_attention import RunningSum
from addnorm.model.forward_context import RUNNING_SUM_LENGTH
from addnorm.testing.laws import some_tokens, subject

SHARED = ["sum", "mean", "root_mean", "power"]


def sides(**changes):
    carried = subject(tiny(attention="carry", **changes))
    streamed = subject(tiny(attention="streaming", **changes))
    streamed.load_state_dict(carried.state_dict())
    return carried, streamed


@pytest.mark.parametrize("scores", SHARED)
@pytest.mark.parametrize("position", ["none", "rope", "alibi", "t5"])
def test_carried_and_streamed_scores_agree(scores: str, position: str) -> None:
    carried, streamed = sides(scores=make("scores", scores), position=make("position", position))
    assert_same_function(carried, streamed, streamed)


@pytest.mark.parametrize("changes", [{"objective": "masked"}, {"depth": 1}, {"kv_heads": 1}], ids=str)
def test_they_agree_for_other_models(changes: dict[str, object]) -> None:
    carried, streamed = sides(scores=make("scores", "sum"), **changes)
    assert_same_function(carried, streamed, streamed)


def test_the_same_draws_drop_the_same_probabilities() -> None:
    carried, streamed = (model.train() for model in sides(scores=make("scores", "sum")))
    outputs = []
    for model in (carried, streamed):
        object.__setattr__(model.spec.dropout, "attention", 0.5)
        torch.manual_seed(7)
        outputs.append(model(some_tokens(model.spec)))
    with torch.no_grad():
        undropped = carried.eval()(some_tokens(carried.spec))
    torch.testing.assert_close(outputs[0], outputs[1], rtol=0, atol=1e-10)
    assert (outputs[0] - undropped).abs().max() > 1e-3


def test_kinds_of_one_weight_say_so() -> None:
    shape = tiny().shape
    kinds = [k for k in ROOMS["scores"].kinds() if make("scores", k).build(shape).shared_weight(0) is not None]
    assert sorted(kinds) == sorted(SHARED)


def test_auto_carries_short_sequences_only(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []
    original, longest = RunningSum.scores, RUNNING_SUM_LENGTH
    monkeypatch.setattr(RunningSum, "scores", lambda self, *a: taken.append(1) or original(self, *a))
    for length, kind, expected in ((longest, "sum", True), (longest + 1, "sum", False), (8, "own", False)):
        spec = tiny(scores=make("scores", kind), position=make("position", "none"), max_seq=longest + 1)
        taken.clear()
        spec.build()(torch.zeros(1, length, dtype=torch.int64))
        assert bool(taken) == expected


@pytest.mark.parametrize("scores", ["own", "weighted", "free", "accumulated_projections"])
def test_carry_is_refused_where_no_sum_serves_all_layers(scores: str) -> None:
    with pytest.raises(InputError, match="attention: carry keeps one running sum of scores, and scores"):
        tiny(scores=make("scores", scores), attention="carry").build()


def test_carry_takes_no_padding() -> None:
    model = tiny(scores=make("scores", "sum"), attention="carry").build()
    tokens = torch.zeros(1, 4, dtype=torch.int64)
    with pytest.raises(InputError, match="attention: carry takes no padding"):
        model(tokens, padding=torch.ones(1, 4, dtype=torch.bool))
