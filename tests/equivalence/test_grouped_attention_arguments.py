"""Wrong arguments are refused, and the message names the argument, what came and what is expected."""

import inspect
from unittest import mock

import pytest
import torch
from grouped_attention_cases import IN_TORCH, Case

from addnorm.errors import InputError
from addnorm.kernels import grouped_attention

# The suite's own shape checker would answer first, in its own words; a user has no such checker.
attend = inspect.unwrap(grouped_attention.attend)


def half(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.half()


WRONG = {
    "term counts": (lambda a: {"keys": a["keys"][:2]}, "same number of terms, got 3 and 2"),
    "no terms": (lambda a: {"queries": []}, "queries must hold at least one term, got none"),
    "stacked without terms": (
        lambda a: {"queries": a["queries"][0]},
        r"stacked queries must have shape \[term, .*got \[2, 4, 7, 4\]",
    ),
    "three axes": (lambda a: {"keys": [k[0] for k in a["keys"]]}, r"keys\[0\] must have shape .*got \[2, 7, 4\]"),
    "empty axis": (lambda a: {"queries": [q[:, :, :0] for q in a["queries"]]}, r"without an empty axis, got \[2, 4, 0"),
    "terms of two shapes": (
        lambda a: {"queries": [a["queries"][0], a["queries"][1][:, :, 1:], a["queries"][2]]},
        r"queries\[0\] has \[2, 4, 7, 4\], queries\[1\] has \[2, 4, 6, 4\]",
    ),
    "head widths": (lambda a: {"keys": [k[..., :3] for k in a["keys"]]}, r"\[2, kv_heads, key, 4\] to match queries"),
    "value length": (
        lambda a: {"value": a["value"][:, :, 1:]},
        r"value must have .*\[2, 2, 7, value_dim\].*got \[2, 2, 6",
    ),
    "kv heads": (
        lambda a: {
            "keys": [k.repeat(1, 3, 1, 1)[:, :3] for k in a["keys"]],
            "value": a["value"].repeat(1, 3, 1, 1)[:, :3],
        },
        "kv_heads must divide heads; queries have 4 heads, keys and value 3",
    ),
    "mixed dtypes": (
        lambda a: {"value": half(a["value"])},
        r"one dtype and device; queries\[0\] is float64 .*value float16",
    ),
    "integers": (
        lambda a: {
            "queries": [q.int() for q in a["queries"]],
            "keys": [k.int() for k in a["keys"]],
            "value": a["value"].int(),
        },
        "value must be one of float64, float32, bfloat16, float16, got int32",
    ),
    "mixed devices": (
        lambda a: {"value": a["value"].to("meta")},
        "queries.0. is float64 on cpu, value float64 on meta",
    ),
    "too many queries": (
        lambda a: {
            "keys": [k[:, :, 1:] for k in a["keys"]],
            "value": a["value"][:, :, 1:],
            "bias": None,
            "padding": None,
        },
        "at most as many queries as keys.*got 7 queries and 6 keys.*causal=False",
    ),
    "too few weights": (lambda a: {"weights": [1.0]}, "weights must hold one number per term, 3, got 1"),
    "infinite weight": (lambda a: {"weights": [1.0, float("inf"), 1.0]}, "weights must be finite"),
    "weights shape": (
        lambda a: {"weights": torch.ones(3, 4)},
        r"\[term\] = \[3\] or \[heads, term\] = \[4, 3\], got \[3, 4\]",
    ),
    "weights dtype": (lambda a: {"weights": torch.ones(3).int()}, "weights must be one of float64.*got int32"),
    "bias shape": (lambda a: {"bias": torch.ones(1, 3, 7, 7)}, r"\[1 or 2, 1 or 4, 7, 7\], got \[1, 3, 7, 7\]"),
    "bias dtype": (lambda a: {"bias": torch.ones(1, 1, 7, 7) > 0}, "bias must be one of float64.*got bool"),
    "padding dtype": (
        lambda a: {"padding": torch.ones(2, 7)},
        r"padding must be bool, .*got float32.*padding\.bool\(\)",
    ),
    "padding shape": (
        lambda a: {"padding": torch.ones(7, 2) > 0},
        r"padding must have shape \[batch, key\] = \[2, 7\], got \[7, 2\]",
    ),
    "dropout": (lambda a: {"dropout": 1.0}, "at least 0 and below 1, got 1.0"),
    "seed": (lambda a: {"dropout": 0.5, "seed": torch.ones(2)}, r"int64 scalar tensor, got float32 of shape \[2\]"),
    "implementation": (
        lambda a: {"impl": "steaming"},
        "no attention implementation 'steaming'. Did you mean 'streaming'?",
    ),
    "sliding window": (lambda a: {"sliding_window": 0}, "at least 1 and only with causal=True; got 0 with causal=True"),
    "sliding window of all": (lambda a: {"sliding_window": 3, "causal": False}, "got 3 with causal=False"),
    "kernels in float64": (lambda a: {"impl": "triton"}, "takes float32, bfloat16 or float16, got float64"),
    "sdpa with dropout": (
        lambda a: {"impl": "sdpa", "dropout": 0.1},
        "impl='sdpa' takes dropout=0.0.*got dropout 0.1. Use impl='streaming' or impl='reference'",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments_are_named(name: str) -> None:
    arguments = Case().arguments()
    change, message = WRONG[name]
    with pytest.raises(InputError, match=message):
        attend(**(arguments | change(arguments)))


@pytest.mark.parametrize("impl", IN_TORCH)
def test_the_implementation_that_is_asked_for_runs(impl: str) -> None:
    spies = {name: mock.Mock(wraps=run) for name, run in grouped_attention.IMPLEMENTATIONS.items()}
    with mock.patch("addnorm.kernels.grouped_attention.api.IMPLEMENTATIONS", spies):
        attend(**Case().arguments(), impl=impl)
    assert [name for name, spy in spies.items() if spy.called] == [impl]
