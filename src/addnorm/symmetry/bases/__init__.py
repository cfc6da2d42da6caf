"""Changes of basis at any size: which of a graph's channels may be mixed, scaled or rotated, and which axes of weights follow.

The linear actions of `actions` are matrices of unknowns, which a model of more than a few thousand numbers does not allow. Here
every channel of an activation has a number, every operation says which channels it treats alike, and the group of each set
of channels follows: all invertible matrices, complex numbers, scales or rotations. No weight is read, so that a model on the
meta device is enough for the counts.

    channels      channels, and what operations require of them
    solution      the cells that result, on each of which one group acts
    states        states of tensors on the way
    simplified    a graph whose norms and products have one form; `parts`: parameters that are read in parts
    graph         what its operations are to constants and means
    propagation   the requirements of every operation
    change        elements of the groups, applied to weights
    absorption    what restores the outputs if a value loses a constant
    additive      constants, means and null forms: their representative; `additive_search` finds them
    canonical     the balanced representative
    quantising    the representative that low-bit weights lose least from
    certificate   comparison of a model before and after
"""
