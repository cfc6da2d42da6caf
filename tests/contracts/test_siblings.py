"""Every sibling of every room keeps every law."""

import copy

import pytest
import torch
from siblings import mechanisms, name

from addnorm import ModelSpec
from addnorm.catalogue import ROOMS, Spec
from addnorm.errors import InputError
from addnorm.residual import ResidualSpec
from addnorm.testing.contract import check_mechanism, fields_are_documented, spec_round_trips, tiny
from addnorm.testing.laws import LAWS, rounding, some_tokens, subject

MECHANISMS = mechanisms()
every_mechanism = pytest.mark.parametrize(("room", "spec"), MECHANISMS, ids=[name(*m) for m in MECHANISMS])


# Between them these call every annotated function: whole passes and cached ones, padded and not, causal and masked models,
# every dtype. The other laws call the same ones again, at three times the cost where shapes are checked.
CHECKED = ("keeps_shape_and_dtype", "ignores_padding", "decodes_with_a_cache")


@every_mechanism
@pytest.mark.parametrize("law", [law if law in CHECKED else pytest.param(law, marks=pytest.mark.plain) for law in LAWS])
def test_keeps_the_laws_of_models(room: str, spec: Spec, law: str) -> None:
    LAWS[law](tiny(room, spec, depth=2))  # three layers: in `test_combinations`, with every sibling


@pytest.mark.plain  # as above
@every_mechanism
def test_masked_models_keep_the_laws_that_are_not_about_order(room: str, spec: Spec) -> None:
    model = tiny(room, spec, depth=2, objective="masked")
    for law in ("has_finite_gradients", "leaves_inputs_alone", "survives_its_state_dict"):
        LAWS[law](model)


@every_mechanism
def test_its_spec_is_plain_data_and_documented(room: str, spec: Spec) -> None:
    fields_are_documented(room, spec)
    spec_round_trips(room, spec)


@pytest.mark.plain  # the laws run with the shape checker above
def test_the_check_that_plugins_pass_accepts_it() -> None:
    # The laws themselves are tested above, one by one; here only that their composition lets a good sibling through.
    for room in ROOMS:
        first = next((spec for own, spec in MECHANISMS if own == room), None)
        if first is not None:
            check_mechanism(room, first)


@every_mechanism
def test_it_does_not_shift_the_start_of_others(room: str, spec: Spec) -> None:
    mine = tiny(room, spec).build(seed=5).state_dict()
    plain = tiny("residual", ModelSpec().residual).build(seed=5).state_dict()
    shared = [key for key, value in mine.items() if key in plain and plain[key].shape == value.shape]
    assert len(shared) >= 20
    for key in shared:
        assert torch.equal(mine[key], plain[key]), f"{key} starts elsewhere when the {room} is {spec.kind}"


@pytest.mark.parametrize("kind", ROOMS["residual"].kinds())
def test_its_neutral_setting_is_the_plain_residual(kind: str) -> None:
    cls: type[ResidualSpec] = ROOMS["residual"].spec_class(kind)
    neutral = cls.neutral()
    if neutral is None:
        pytest.skip(f"{kind} documents no neutral setting")
    plain = subject(tiny("residual", ModelSpec().residual))
    joined = tiny("residual", neutral).build().double().eval()
    joined.load_state_dict(plain.state_dict() | {k: v for k, v in joined.state_dict().items() if "residual." in k})
    tokens = some_tokens(plain.spec)
    with torch.no_grad():
        assert (joined(tokens) - plain(tokens)).abs().max() <= rounding(plain, tokens)


@every_mechanism
def test_a_wrong_value_in_any_field_is_rejected_by_name(room: str, spec: Spec) -> None:
    for field in spec.__dataclass_fields__:
        # Set behind the constructor's back: in this session jaxtyping stands before it and raises an error of its own.
        wrong = copy.copy(spec)
        object.__setattr__(wrong, field, [])
        with pytest.raises(InputError, match=rf"{spec.kind}\.{field}: expected .*, got \[\]\."):
            wrong.__post_init__()
    with pytest.raises(InputError, match=rf"{room} '{spec.kind}' has no field 'nonsense'"):
        ROOMS[room].make(spec.kind, nonsense=1)
