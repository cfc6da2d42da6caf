"""Inputs described in JSON: what they become, and what is said of each mistake."""

import json
from pathlib import Path

import pytest
import torch

from addnorm.errors import InputError
from addnorm.outside.targets.input_spec import make_inputs, read_input_spec


def test_every_kind_of_entry():
    made = make_inputs(
        {
            "ids": {"shape": [2, 5], "dtype": "int64", "low": 3, "high": 7},
            "image": {"shape": [2000]},
            "share": {"shape": [500], "dtype": "float64", "low": 2, "high": 3},
            "mask": {"shape": [4], "dtype": "bool"},
            "lengths": {"values": [[5], [2]], "dtype": "int32"},
            "use_cache": False,
        }
    )
    assert isinstance(made, dict)
    assert made["ids"].shape == (2, 5)
    assert made["ids"].dtype == torch.int64
    assert set(made["ids"].flatten().tolist()) <= {3, 4, 5, 6}
    assert made["image"].dtype == torch.float32
    assert abs(float(made["image"].mean())) < 5 / 2000**0.5  # standard normal: five standard errors
    assert 2 <= float(made["share"].min()) <= float(made["share"].max()) < 3
    assert made["share"].dtype == torch.float64
    assert bool(made["mask"].all())
    assert torch.equal(made["lengths"], torch.tensor([[5], [2]], dtype=torch.int32))
    assert made["use_cache"] is False


def test_the_same_numbers_every_time():
    spec = {"a": {"shape": [3]}, "b": {"shape": [3]}}
    one, other = make_inputs(spec), make_inputs(spec)
    assert isinstance(one, dict)
    assert isinstance(other, dict)
    assert torch.equal(one["a"], other["a"])
    assert not torch.equal(one["a"], one["b"])


def test_names_that_are_numbers_are_places():
    made = make_inputs({"1": {"values": [1.0]}, "0": {"values": [0.0]}})
    assert isinstance(made, tuple)
    assert [float(tensor) for tensor in made] == [0.0, 1.0]


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"shap": [2]}, "$.x has no field 'shap'. Did you mean 'shape'?"),
        ({"dtype": "int64"}, "expected either 'shape' or 'values'"),
        ({"shape": [2], "values": [1, 2]}, "expected either 'shape' or 'values'"),
        ({"shape": [2], "dtype": "int46"}, "no dtype of input $.x 'int46'. Did you mean 'int64'?"),
        ({"shape": [2, 0]}, "$.x.shape: expected a list of positive whole numbers, got [2, 0]"),
        ({"shape": 2}, "$.x.shape: expected a list"),
        ({"shape": [2], "dtype": "int64"}, "expected 'high' above 'low'"),
        (
            {"shape": [2], "dtype": "int64", "low": 5, "high": 5},
            "for whole numbers in [low, high), got 5",
        ),
        ({"shape": [2], "low": 1}, "expected both 'low' and 'high' or neither"),
        ({"shape": [2], "low": "a", "high": 2}, '$.x.low: expected a number, got "a"'),
        ({"shape": [2], "dtype": "bool", "high": 2}, "true everywhere"),
        ({"values": [[1, 2], [3]]}, "nested lists of equal lengths"),
        ({"values": [1], "low": 0}, "expected no 'low' and 'high' beside 'values'"),
    ],
)
def test_a_mistake_is_named(entry, said):
    with pytest.raises(InputError) as error:
        make_inputs({"x": entry})
    assert said in str(error.value)


def test_places_leave_no_gap():
    with pytest.raises(InputError, match="expected positional names 0, 1"):
        make_inputs({"0": 1, "2": 1})
    with pytest.raises(InputError, match="expected positional names 0, 1"):
        make_inputs({"0": 1, "mask": 1})


def test_the_file_is_looked_into(tmp_path: Path):
    file = tmp_path / "spec.json"
    with pytest.raises(InputError, match="cannot be read"):
        read_input_spec(file)
    file.write_text("{", encoding="utf-8")
    with pytest.raises(InputError, match="expected JSON, got an error"):
        read_input_spec(file)
    for content in ([], {}, 3):
        file.write_text(json.dumps(content), encoding="utf-8")
        with pytest.raises(InputError, match="expected a JSON object"):
            read_input_spec(file)
    file.write_text('{"x": 1}', encoding="utf-8")
    assert read_input_spec(file) == {"x": 1}
