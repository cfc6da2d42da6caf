"""A study may ask for gated attention units, and set what they have."""

import pytest

from addnorm import preset
from addnorm.errors import InputError
from addnorm.model.gau import Gau
from addnorm.model.spec import ModelSpec
from addnorm.study.decoding import decode
from addnorm.study.encoding import encode


def test_a_model_of_units_comes_back_from_plain_values() -> None:
    for spec in (preset("gau_alpha"), preset("gau_alpha", gau={"normalisation": "squared_relu"}), preset("base")):
        plain = encode(spec)
        assert decode(ModelSpec, plain) == spec
    assert encode(preset("base"))["gau"] is None


def test_settings_of_units_are_read_by_name() -> None:
    read = decode(ModelSpec, {"heads": 1, "gau": {"normalisation": "squared_relu", "key_dim": 64}})
    assert read.gau == Gau(normalisation="squared_relu", key_dim=64)


@pytest.mark.parametrize(
    ("gau", "message"),
    [
        ({"normalization": "softmax"}, r"\$\.gau: Gau has no field 'normalization'.*'normalisation'"),
        (
            {"normalisation": "softmaxx"},
            r"\$\.gau\.normalisation: expected one of 'softmax', 'squared_relu', got 'softmaxx'",
        ),
        ({"key_dim": 0}, r"gau\.key_dim must be at least 1, got 0"),
        (True, r"\$\.gau: expected a mapping with the fields of Gau, got true"),
    ],
)
def test_what_they_do_not_have_is_named_with_its_path(gau: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        decode(ModelSpec, {"heads": 1, "gau": gau})
