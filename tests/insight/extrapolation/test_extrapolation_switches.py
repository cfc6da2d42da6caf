"""Switches in whole models: identity at the train length, nothing left behind, what each applies to."""

import math
from inspect import isfunction

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import addnorm
from addnorm.catalogue import ROOMS
from addnorm.errors import InputError
from addnorm.insight.extrapolation.switches import Reach, name_of, parse_switches, require_all, switched
from addnorm.insight.extrapolation.switches.local_window import LocalWindow, NearestKeys
from addnorm.insight.positioned import Wrapped, with_position
from addnorm.position import Position

KINDS = ROOMS["switch"].kinds()
TURNING = ("ntk", "position_interpolation", "yarn")
SIZES = {"vocab": 19, "width": 16, "depth": 2, "heads": 2, "kv_heads": 1, "hidden": 16, "max_seq": 64, "init_std": 0.3}


def model(**changes):
    return addnorm.preset("base", **(SIZES | changes)).build(3).eval()


def tokens(length: int) -> torch.Tensor:
    return torch.randint(19, (2, length), generator=torch.Generator().manual_seed(0))


def reach(length: int, *, causal: bool = True) -> Reach:
    return Reach(trained=16, length=length, causal=causal)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("objective", ["causal", "masked"])
def test_logits_at_the_train_length_stay_the_same(kind: str, objective: str) -> None:
    built = model(objective=objective)
    view = switched(built, parse_switches(kind)[0], reach(16, causal=objective == "causal"))
    plain, changed = built(tokens(16)), view(tokens(16))
    assert torch.equal(changed, plain)


@pytest.mark.parametrize("kind", KINDS)
def test_logits_beyond_it_change_and_the_model_does_not(kind: str) -> None:
    built = model()
    before = {name: value.clone() for name, value in built.state_dict().items()}
    position, plain = built.position, built(tokens(64))
    view = switched(built, parse_switches(kind)[0], reach(64))
    changed = view(tokens(64))
    assert not torch.allclose(changed, plain, atol=1e-3)
    assert built.position is position
    assert torch.equal(built(tokens(64)), plain)
    assert all(torch.equal(value, before[name]) for name, value in built.state_dict().items())
    assert {id(p) for p in view.parameters()} == {id(p) for p in built.parameters()}


def test_a_local_window_reads_nothing_older_layer_by_layer() -> None:
    """Two layers with a window of 16 see 31 positions: what is older changes nothing."""
    built = model(position="none")
    view = switched(built, parse_switches("local_window")[0], reach(64))
    read = tokens(64)
    other = read.clone()
    other[:, :33] = (other[:, :33] + 1) % 19
    assert torch.equal(view(read)[:, -1], view(other)[:, -1])
    other[:, 33] = (other[:, 33] + 1) % 19
    assert not torch.equal(view(read)[:, -1], view(other)[:, -1])


def test_a_local_window_joins_other_biases() -> None:
    for position in ROOMS["position"].kinds():
        built = model(position=position)
        together = switched(built, parse_switches("log_n+local_window")[0], reach(64))(tokens(64))
        turned = switched(built, parse_switches("local_window+log_n")[0], reach(64))(tokens(64))
        assert torch.equal(together, turned), "the order in which switches are named decides nothing"
        # A window as wide as the text hides nothing, whatever joins the scores beside it.
        wide = switched(built, (LocalWindow(window=64),), reach(64))
        assert torch.equal(wide(tokens(64)), built(tokens(64)))


WINDOWS = [(None,), (5,), (24,), (40, None), (None, 24, 40)]


@pytest.mark.parametrize("local", [None, 3, 24])
@pytest.mark.parametrize(("objective", "windows"), [("masked", (None,)), *(("causal", windows) for windows in WINDOWS)])
def test_log_n_counts_the_positions_that_a_window_leaves(
    objective: str, windows: tuple[int | None, ...], local: int | None
) -> None:
    """Every key of every row, from the formula: at length 64, trained at 16."""
    built, causal = (
        model(objective=objective, windows=windows, depth=3, position="none").double(),
        objective == "causal",
    )
    switches = (*parse_switches("log_n")[0], *(() if local is None else (LocalWindow(window=local),)))
    position = switched(built, switches, reach(64, causal=causal)).position
    row = torch.arange(64)
    distance = row[:, None] - row
    queries, keys = torch.ones(1, 2, 64, 8).double(), torch.ones(1, 1, 64, 8).double()
    for start, stop in ((0, 64), (40, 64)) if causal else ((0, 64),):
        prepared = position.prepare(start, stop - start, queries)
        for layer in range(3):
            seen = distance >= 0 if causal else distance.abs() < 64
            for window in (windows[layer % len(windows)], local):
                seen = seen if window is None else seen & (distance.abs() < window)
            expected = (seen.sum(1).double().log() / math.log(16)).clamp(min=1)[start:stop, None]
            got, same = position.rotate_layer(layer, queries[:, :, start:stop], keys[:, :, start:stop], prepared)
            torch.testing.assert_close(got, expected.expand_as(got), rtol=1e-14, atol=0)
            assert torch.equal(same, keys[:, :, start:stop])


def test_log_n_is_refused_where_sums_of_scores_have_several_windows() -> None:
    switch = parse_switches("log_n")[0]
    for windows in ((5,), (None,)):
        require_all(switch, model(scores="sum", windows=windows).spec)
    with pytest.raises(InputError, match=r"switch 'log_n': expected one window for all layers.*got \[5, None\]"):
        require_all(switch, model(scores="sum", windows=(5, None)).spec)


@pytest.mark.parametrize("scores", ["own", "sum", "power"])  # one term; a running sum; sums with weights of their own
@pytest.mark.parametrize("position", ["rope", "alibi", "gau_additive"])
@pytest.mark.parametrize("attention", ["auto", "streaming", "reference"])
def test_a_window_is_the_mask_of_it(scores: str, position: str, attention: str) -> None:
    built = model(scores=scores, position=position, attention=attention).double()
    view = switched(built, parse_switches("local_window")[0], reach(64))
    masked = with_position(built, NearestKeys(built.position, 16))
    read = tokens(64)
    found, expected = view(read), masked(read)
    assert (built(read) - expected).abs().max() > 1e-3, "the mask hides something"
    # Logits of order one from sums of at most 64 + 64 products in float64, twice.
    torch.testing.assert_close(found, expected, rtol=0, atol=2**-52 * 128 * 16)


@pytest.mark.parametrize("scores", ["own", "sum", "power"])
@pytest.mark.parametrize("position", ["rope", "alibi"])
def test_a_window_holds_while_decoding(scores: str, position: str) -> None:
    built = model(scores=scores, position=position).double()
    view, read = switched(built, parse_switches("local_window")[0], reach(48)), tokens(48)
    cache = view.new_cache()
    parts = [view(read[:, at : at + 6], cache=cache) for at in range(0, 48, 6)]
    torch.testing.assert_close(torch.cat(parts, 1), view(read), rtol=0, atol=2**-52 * 128 * 16)


def test_a_window_skips_the_keys_outside_it() -> None:
    """Eight times the text costs eight times the operations, not sixty-four."""
    built, costs = model(max_seq=4096).to("meta"), {}
    for length in (512, 4096):
        view = switched(built, parse_switches("local_window")[0], reach(length))
        with FlopCounterMode(display=False) as counter:
            view(tokens(length).to("meta"))
        costs[length] = counter.get_total_flops()
    assert costs[4096] < 8.5 * costs[512]


def test_a_wrapped_position_hands_on_everything() -> None:
    """A new method of `Position` must not be lost on the way through a switch."""
    public = {name for name, value in vars(Position).items() if isfunction(value) and not name.startswith("_")}
    assert public <= set(vars(Wrapped))


@pytest.mark.parametrize("kind", TURNING)
@pytest.mark.parametrize("position", sorted(set(ROOMS["position"].kinds()) - {"rope"}))
def test_a_switch_of_the_rotation_needs_one(kind: str, position: str) -> None:
    built = model(position=position)
    with pytest.raises(InputError, match=f"switch '{kind}' .* expected position 'rope', got '{position}'"):
        switched(built, parse_switches(kind)[0], reach(64))


@pytest.mark.parametrize("position", ROOMS["position"].kinds())
def test_the_others_apply_to_every_position(position: str) -> None:
    for kind in set(KINDS) - set(TURNING):
        require_all(parse_switches(kind)[0], addnorm.preset("base", position=position))


@pytest.mark.parametrize("kind", ["log_n", "local_window", "yarn"])
def test_a_reason_that_is_the_softmax_needs_one(kind: str) -> None:
    unit = SIZES | {"heads": 1, "kv_heads": None}
    spec = addnorm.preset("base", **unit, gau={"key_dim": 8, "normalisation": "squared_relu"})
    with pytest.raises(
        InputError, match=f"switch '{kind}': expected attention that is normalised by a softmax, got 'squared_relu'"
    ):
        require_all(parse_switches(kind)[0], spec)
    built = addnorm.preset("base", **unit, gau={"key_dim": 8}).build(3).eval()
    plain = built(tokens(64))
    assert not torch.allclose(switched(built, parse_switches(kind)[0], reach(64))(tokens(64)), plain, atol=1e-4)


def test_ntk_needs_two_pairs() -> None:
    spec = addnorm.preset("base", **(SIZES | {"heads": 8, "width": 16}))
    with pytest.raises(InputError, match="at least two rotated pairs"):
        require_all(parse_switches("ntk")[0], spec)


def test_names() -> None:
    found = parse_switches("log_n, yarn+local_window")
    assert [name_of(combination) for combination in ((), *found)] == ["none", "log_n", "yarn+local_window"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("yarm", "no switch 'yarm'. Did you mean 'yarn'?"),
        ("yarn+ntk", "yarn and ntk both change the rotation"),
        ("yarn,yarn", "expected every switch once"),
        ("log_n+yarn,yarn+log_n", "expected every switch once"),
        ("log_n+log_n", "expected every switch once"),
        ("", "no switch ''"),
    ],
)
def test_bad_names(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said.replace("?", r"\?").replace("+", r"\+")):
        parse_switches(text)
