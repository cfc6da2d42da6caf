"""Initial values: every parameter is filled from the seed and its own name, whatever other parameters there are."""

import hashlib

import torch
from torch import nn


def initialise(model: nn.Module, seed: int) -> None:
    """Fill every random parameter from hash(seed, its full name).

    A module with a method `initialise(name, generator)` is called once for each parameter of its own.
    """
    # From the seed and the parameter's own name, not from one generator that runs through the model. Variants of a
    # study then start with the same numbers wherever they have the same parameters, which is what makes runs of one
    # seed comparable, and a new mechanism shifts the start of none of the others.
    done: set[int] = set()  # a tied parameter is filled once, under its first name
    with torch.no_grad():
        for path, module in model.named_modules():
            for name, parameter in module.named_parameters(recurse=False):
                if hasattr(module, "initialise") and not parameter.is_meta and id(parameter) not in done:
                    module.initialise(name, generator_for(seed, f"{path}.{name}", parameter.device))
                done.add(id(parameter))


def generator_for(seed: int, name: str, device: torch.device | str = "cpu") -> torch.Generator:
    """Make a generator that depends on the seed and the name alone."""
    # Not hash(), which Python salts anew in every process.
    digest = hashlib.blake2b(f"{seed}:{name}".encode(), digest_size=8).digest()
    return torch.Generator(device).manual_seed(int.from_bytes(digest, "little") >> 1)
