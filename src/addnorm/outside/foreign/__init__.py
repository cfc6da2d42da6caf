"""Room of the models that others wrote, as variants of a study: a trained checkpoint, a function. One file each."""

from addnorm.study.foreign import ForeignModel, ForeignSpec

__all__ = ["ForeignModel", "ForeignSpec"]
