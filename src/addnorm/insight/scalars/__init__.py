"""Learned scalars of trained runs: the part of each move that the gradient made and the part that weight decay made.

scalar         one learned number with its verdict
directions     combinations of scalars on which the loss does not depend
coefficients   from a learned number to the coefficient that the model uses
explanation    the scalars of one run, as plain values
run_record     the explanation of a run, from its worker's record of every step
over_seeds     all runs of a variant: which scalars departed from what weight decay alone would have left
published      the explanation of end values that a document prints
explain        all runs of a study: `addnorm.explain`
"""
