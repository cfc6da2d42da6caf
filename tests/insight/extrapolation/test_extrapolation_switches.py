"""Switches in whole models: identity at the train length, nothing left behind, what each applies to."""

from inspect import isfunction

import pytest
import torch

import addnorm
from addnorm.catalogue import ROOMS
from addnorm.errors import InputError
from addnorm.insight.extrapolation.switches import Reach, name_of, parse_switches, require_all, switched
from addnorm.insight.extrapolation.switches._wrapped import Wrapped
from addnorm.insight.extrapolation.switches.local_window import LocalWindow
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


def test_a_wrapped_position_hands_on_everything() -> None:
    """A new method of `Position` must not be lost on the way through a switch."""
    public = {name for name, value in vars(Position).items() if isfunction(value) and not name.startswith("_")}
    assert public <= set(vars(Wrapped))


@pytest.mark.parametrize("kind", TURNING)
@pytest.mark.parametrize("position", sorted(set(ROOMS["position"].kinds()) - {"rope"}))
def test_a_switch_of_the_rotation_needs_one(kind: str, position: str) -> None:
    built = model(position=position)
    with pytest.raises(InputError, match=f"switch '{kind}' .* applies to position 'rope', this model has '{position}'"):
        switched(built, parse_switches(kind)[0], reach(64))


@pytest.mark.parametrize("position", ROOMS["position"].kinds())
def test_the_others_apply_to_every_position(position: str) -> None:
    for kind in set(KINDS) - set(TURNING):
        require_all(parse_switches(kind)[0], addnorm.preset("base", position=position))


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
        ("yarn+ntk", "yarn and ntk change the same thing"),
        ("yarn,yarn", "named once"),
        ("log_n+log_n", "named once"),
        ("", "no switch ''"),
    ],
)
def test_bad_names(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said.replace("?", r"\?").replace("+", r"\+")):
        parse_switches(text)
