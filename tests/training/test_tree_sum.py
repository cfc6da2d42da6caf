"""Sums over shards: the order is that of a balanced tree, whoever computes which block."""

import pytest
import torch
from torch import Tensor

from addnorm.training.tree_sum import ShardTerms, TreeSum


def tree(terms: list[Tensor]) -> Tensor:
    """The definition, without a stack."""
    if len(terms) == 1:
        return terms[0].clone()
    half = len(terms) // 2
    return tree(terms[:half]) + tree(terms[half:])


def summed(terms: list[ShardTerms]) -> ShardTerms:
    total = TreeSum()
    for term in terms:
        total.add([None if tensor is None else tensor.clone() for tensor in term])
    return total.total()


@pytest.mark.parametrize("count", [1, 2, 8, 16])
def test_the_order_is_the_trees(count: int) -> None:
    torch.manual_seed(0)
    terms = [torch.randn(1000) * 10.0 ** torch.randint(-4, 4, (1000,)) for _ in range(count)]
    (total,) = summed([[term] for term in terms])
    assert torch.equal(total, tree(terms))
    # These numbers can tell orders apart.
    in_line = sum(terms[1:], terms[0].clone())
    assert torch.equal(total, in_line) == (count <= 2)


def test_blocks_that_are_summed_apart_join_to_the_same_tree() -> None:
    torch.manual_seed(1)
    terms = [torch.randn(1000) for _ in range(8)]
    (whole,) = summed([[term] for term in terms])
    for ranks in (2, 4):
        size = 8 // ranks
        blocks = [summed([[term] for term in terms[rank * size : (rank + 1) * size]]) for rank in range(ranks)]
        (joined,) = summed(blocks)
        assert torch.equal(joined, whole)


def test_a_gradient_that_some_shards_lack_is_the_sum_of_the_others() -> None:
    one, two = torch.ones(2), torch.full((2,), 2.0)
    first, second, third = summed([[one, None, None], [None, None, two]])
    assert torch.equal(first, one)
    assert second is None
    assert torch.equal(third, two)
