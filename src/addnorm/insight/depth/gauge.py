"""Weights of a depth matrix after every free factor has been taken out.

The matrices of a branch can take over a factor of what it writes, so that every column of a depth matrix may be divided by a
number; those around a read can take over a factor of the row, except where the softmax of the scores sees its size. What such
factors can make 1 says nothing. They are chosen so that, where possible, every read has its newest source with weight 1, then
the last read has every source with weight 1; weights that are left are ratios that no choice can change.
"""

import torch
from jaxtyping import Float64
from torch import Tensor

SMALLEST = 1e-12
"""Share of the largest weight of a row below which a weight counts as zero."""
Edge = tuple[int, int]


def free_of_gauge(
    weights: Float64[Tensor, "read source position"], *, rows_scale: bool = True
) -> Float64[Tensor, "read source"]:
    """Divide rows and columns by the factors that the matrices around can take over.

    Norms of the stream have a factor of their own at every position, so this is done by position; medians are returned.

    Args:
        weights: of a depth matrix at several positions; zero where a read does not have a source.
        rows_scale: False if the size of a whole row matters.
    """
    sizes = weights.abs().mean(dim=-1)
    is_edge = sizes > SMALLEST * sizes.amax(dim=1, keepdim=True)
    rows, columns = _factors(weights, _tree(is_edge, rows_scale=rows_scale), rows_scale=rows_scale)
    ratios = weights / rows[:, None] / columns
    return torch.where(is_edge, ratios.median(dim=-1).values, torch.zeros_like(sizes))


def _tree(is_edge: Tensor, *, rows_scale: bool) -> list[Edge]:
    """The weights that become 1: as many as there are factors to choose, so that no ratio of weights is fixed by them."""
    reads, sources = is_edge.shape
    # Kruskal's algorithm on the graph with a node per row and column and an edge per weight. Its factors make the
    # weights of a spanning tree 1, and no more: around a cycle, products and quotients of weights stay what they are
    # whatever the factors, and they are what the other weights then show. Rows that keep their size are one node from
    # the beginning.
    group = [*(range(reads) if rows_scale else [0] * reads), *range(reads, reads + sources)]
    edges = [(read, source) for read, source in is_edge.nonzero().tolist()]
    # The order of the edges decides which weights become 1, not how many: each read's newest source (the last edge of
    # its row), then the last read's sources.
    newest = dict(edges)
    edges.sort(key=lambda edge: (newest[edge[0]] != edge[1], edge[0] != reads - 1))
    tree = []
    for read, source in edges:
        one, other = group[read], group[reads + source]
        if one != other:
            group = [one if each == other else each for each in group]
            tree.append((read, source))
    return tree


def _factors(weights: Tensor, tree: list[Edge], *, rows_scale: bool) -> tuple[Tensor, Tensor]:
    """Factors of rows and columns whose products are the weights of the tree."""
    reads, sources, positions = weights.shape
    rows, columns = weights.new_ones(reads, positions), weights.new_ones(sources, positions)
    known_rows: set[int] = set() if rows_scale else set(range(reads))
    known_columns: set[int] = set()
    left = list(tree)
    while left:
        ready = [edge for edge in left if edge[0] in known_rows or edge[1] in known_columns]
        if not ready:  # another component: its first row keeps its size
            known_rows.add(left[0][0])
            continue
        for read, source in ready:
            if read in known_rows:
                columns[source] = weights[read, source] / rows[read]
            else:
                rows[read] = weights[read, source] / columns[source]
            known_rows.add(read)
            known_columns.add(source)
        left = [edge for edge in left if edge not in ready]
    return rows, columns
