"""A model's specification: an architecture that can be built."""

from dataclasses import dataclass

from addnorm.model.architecture import Architecture
from addnorm.model.initialisation import initialise
from addnorm.model.transformer import Transformer


@dataclass(frozen=True, kw_only=True)
class ModelSpec(Architecture):
    """A causal or masked language model; every field has a default.

    Raises:
        InputError: a value of the wrong type, an unknown choice, sizes that do not fit together.

    Example:
        >>> from addnorm import ModelSpec
        >>> model = ModelSpec(vocab=256, width=64, depth=4, heads=4, hidden=128, max_seq=64).build(seed=0)
        >>> sum(parameter.numel() for parameter in model.parameters())
        197184
    """

    def build(self, seed: int = 0) -> Transformer:
        """The model, on the default device and in the default dtype.

        Args:
            seed: every parameter is filled from the seed and its own name, so models that differ in a mechanism start equal
                in all parameters that they share.

        Raises:
            InputError: a mechanism does not fit these sizes.
        """
        model = Transformer(self)
        initialise(model, seed)
        return model
