"""Symmetries of a model: the directions of all its parameters that change no output, counted and named.

    found = addnorm.symmetries(model, inputs)
    print(found.parameters, found.redundant, found.families, found.unexplained)

    analysis, result, subject   the public function, its result, and what the result keeps
    moves                       finite moves along a direction, and the check that no output changes
    structure                   the structural method at one point; `families`, one file each, name its directions
    actions                     linear actions on the values of the exported graph, and their equations
    numeric                     the Jacobian's null space

`derivation.md` has the mathematics. Depends on the export and the execution of `redundancy`.
"""

from addnorm.symmetry.analysis import symmetries
from addnorm.symmetry.result import Family, Member, Near, Symmetries, Unexplained

__all__ = ["Family", "Member", "Near", "Symmetries", "Unexplained", "symmetries"]
