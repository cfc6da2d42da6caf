"""Parts of a class of Transformers for which a specification has no room, read from its configuration, modules and code."""

import functools
import importlib
import inspect
import linecache
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn

Found = tuple[str, nn.Module]
"""A module with its path."""
_ATTENDS = re.compile(r"attention_interface|scaled_dot_product|flash_attn|flex_attention|logsumexp")
_SOFTMAX = re.compile(r"softmax", re.IGNORECASE)
_PRODUCTS = re.compile(r"matmul|bmm|einsum| @ ")
_OTHER_INPUTS = re.compile(r"pixel|image|video|audio|input_features|input_values|speech|bbox|visual")
_FIELDS = {
    "is_encoder_decoder": "cross attention to an encoder",
    "hash": "hashing",
    "(kv|q)_lora_rank": "latent attention",
    "index_(n_)?heads": "an indexer of keys",
}
"""Words in names of fields of a configuration, and the parts that they set."""
_MATRICES = 7


def missing_parts(config: Mapping[str, Any]) -> list[str]:
    """Parts of the model of a config.json that a specification cannot have, each with the field, argument or module that shows
    it; empty if only a reader of the weights is missing.

    Raises:
        LookupError: Transformers is absent, does not know the class, or cannot build it with this configuration.
    """
    try:
        transformers = importlib.import_module("transformers")
        cls = getattr(transformers, config["architectures"][0])
        with torch.device("meta"):
            model = cls(transformers.CONFIG_MAPPING[config["model_type"]].from_dict(dict(config)))
    # Transformers may lack the class or a package that it needs, or refuse the configuration with any error.
    except Exception as error:
        raise LookupError(str(error)) from error
    lists = [(path, each) for path, each in model.named_modules() if isinstance(each, nn.ModuleList) and len(each)]
    # That of the layers holds the most parameters; lists inside layers may have more members.
    path, largest = max(lists, key=lambda one: sum(each.numel() for each in one[1].parameters()), default=("", ()))
    layers = [(f"{path}.{number}", layer) for number, layer in enumerate(largest)]
    attends = any(_attends(each) for _, each in lists)
    return list(_parts(model, layers, attends=attends)) or list(_further(layers))


def _parts(model: Any, layers: Sequence[Found], *, attends: bool) -> Iterator[str]:
    fields = [name for name, value in model.config.to_dict().items() if value]
    for name in [name for name in inspect.signature(model.forward).parameters if _OTHER_INPUTS.search(name)][:1]:
        yield f"inputs beside tokens ({name})"
    for word, part in _FIELDS.items():
        yield from (f"{part} ({name})" for name in [name for name in fields if re.search(word, name)][:1])
    inner = [(f"{path}.{name}", each) for path, layer in layers for name, each in layer.named_modules() if name]
    silent = [(path, layer) for path, layer in layers if not _attends(layer)]
    some = silent if len(silent) < len(layers) else []
    for part, modules in (
        # Matrices of several axes are also those of heads.
        ("experts", [one for one in inner if _side_by_side(one[1])] if re.search("expert|moe", str(fields)) else []),
        ("convolutions across tokens", [one for one in inner if _convolves(one[1])]),
        ("tables inside layers", [one for one in inner if isinstance(one[1], nn.Embedding)]),
        (f"{len(silent)} of {len(layers)} layers without attention", some),
        ("tokens mixed by something else than attention", [] if attends else silent),
    ):
        yield from (f"{part} ({path}: {type(module).__name__})" for path, module in modules[:1])


def _further(layers: Sequence[Found]) -> Iterator[str]:
    """Parts of a layer beyond usual attention and feed-forward branches, of a class without a greater difference."""
    shapes = {tuple(sorted((name, each.shape) for name, each in layer.named_parameters())) for _, layer in layers}
    if len(shapes) > 1:
        yield f"layers of several kinds ({layers[0][0]} and {len(shapes) - 1} others)"
    for path, layer in layers[:1]:
        inside = [
            (name, one)
            for name, one in layer.named_modules()
            if _code_attends(type(one).__module__, type(one).__name__)
        ]
        own = [f"{path}.{name}.{number}" for name, one in inside for number, _ in one.named_parameters(recurse=False)]
        yield from (f"numbers inside attention ({each})" for each in own[:1])
        if (matrices := sum(each.ndim == 2 for each in layer.parameters())) > _MATRICES:
            yield f"more matrices than attention and a gated feed-forward have ({matrices} in {path})"


def _side_by_side(module: nn.Module) -> bool:
    """True for matrices stacked in one parameter, or for several modules of one class with two matrices each."""
    if isinstance(module, nn.ModuleList | nn.ModuleDict):
        matrices = [sum(one.ndim == 2 for one in each.parameters()) for each in module.children()]
        return len({type(each) for each in module.children()}) == 1 < len(matrices) and min(matrices) > 1
    return not isinstance(module, nn.Conv1d) and any(each.ndim == 3 for each in module.parameters(recurse=False))


def _convolves(module: nn.Module) -> bool:
    return isinstance(module, nn.Conv1d | nn.Conv2d) and max(module.kernel_size) > 1


def _attends(module: nn.Module) -> bool:
    kinds = {type(each) for each in module.modules()}
    return any(_code_attends(kind.__module__, kind.__name__) for kind in kinds)


@functools.cache
def _code_attends(module: str, name: str) -> bool:
    """True if the code of a class attends: by a function for it, or by a softmax beside products."""
    # Cut out of the file: inspect.getsource of a class parses the whole file, once per class.
    file = "".join(linecache.getlines(getattr(sys.modules[module], "__file__", "")))
    code = re.search(rf"^class {name}\b.*?(?=^\S|\Z)", file, re.MULTILINE | re.DOTALL)
    text = code[0] if code else ""
    return bool(_ATTENDS.search(text) or (_SOFTMAX.search(text) and _PRODUCTS.search(text)))
