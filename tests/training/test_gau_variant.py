"""A study may ask for gated attention units, and set what they have."""

import pytest

from addnorm import preset
from addnorm.block.gau import Gau
from addnorm.errors import InputError
from addnorm.model.spec import ModelSpec
from addnorm.study.decoding import decode
from addnorm.study.encoding import encode


def test_a_model_of_units_comes_back_from_plain_values() -> None:
    squared = {"kind": "gau", "normalisation": "squared_relu"}
    for spec in (
        preset("gau_alpha"),
        preset("gau_alpha", block=squared),
        preset("base"),
        preset("base", block="macaron"),
    ):
        plain = encode(spec)
        assert decode(ModelSpec, plain) == spec


def test_units_are_written_as_in_earlier_versions_so_that_identities_stay() -> None:
    plain = encode(preset("base"))
    assert (plain["gau"], "block" in plain) == (None, False)
    plain = encode(preset("gau_alpha"))
    assert (plain["gau"], "block" in plain) == ({"key_dim": 128, "normalisation": "softmax"}, False)
    plain = encode(preset("base", block="parallel"))
    assert (plain["gau"], plain["block"]) == (None, {"kind": "parallel", "norms": "two"})


def test_both_forms_are_read_but_not_at_once() -> None:
    for units in ({"gau": {"key_dim": 64}}, {"block": {"kind": "gau", "key_dim": 64}}):
        assert decode(ModelSpec, {"heads": 1, **units}).block == Gau(key_dim=64)
    with pytest.raises(InputError, match=r"\$: gau: expected it or block, got both"):
        decode(ModelSpec, {"heads": 1, "gau": {}, "block": "gau"})


def test_settings_of_units_are_read_by_name() -> None:
    read = decode(ModelSpec, {"heads": 1, "gau": {"normalisation": "squared_relu", "key_dim": 64}})
    assert read.block == Gau(normalisation="squared_relu", key_dim=64)


@pytest.mark.parametrize(
    ("gau", "message"),
    [
        ({"normalization": "softmax"}, r"\$\.block: Gau has no field 'normalization'.*'normalisation'"),
        (
            {"normalisation": "softmaxx"},
            r"\$\.block\.normalisation: expected one of 'softmax', 'softpick', 'squared_relu', got 'softmaxx'",
        ),
        ({"key_dim": 0}, r"\$\.block\.key_dim: expected a whole number of at least 1, got 0"),
        (True, r"\$\.block: expected a kind of block or a mapping with 'kind', got true"),
    ],
)
def test_what_they_do_not_have_is_named_with_its_path(gau: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        decode(ModelSpec, {"heads": 1, "gau": gau})
