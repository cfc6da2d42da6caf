"""config.json of models that are none of the classes of Transformers: the classes of `addnorm.hf`, with the spec inside."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from addnorm.errors import InputError
from addnorm.model.spec import ModelSpec
from addnorm.study.decoding import decode
from addnorm.study.encoding import encode
from addnorm.training.run_spec import require_plugins

MODEL_TYPE = "addnorm"
ARCHITECTURES = {"causal": "AddnormForCausalLM", "masked": "AddnormForMaskedLM"}
"""Class by the objective of a spec."""
AUTO_CLASSES = {"causal": "AutoModelForCausalLM", "masked": "AutoModelForMaskedLM"}
PREFIX = "model."
"""Prefix of our parameters in a checkpoint."""
FORMAT = 1
"""Version of the layout."""
STUB = "modeling_addnorm.py"
STUB_TEXT = '''"""Classes of this model, from the installed package: pip install 'addnorm[hf]'."""

from addnorm.hf import AddnormConfig, AddnormForCausalLM, AddnormForMaskedLM  # noqa: F401
'''


def config_for(spec: ModelSpec, plugins: tuple[str, ...] = ()) -> dict[str, Any]:
    """Make the fields of config.json of a spec; those beside `spec` are what libraries look for."""
    objective = spec.objective
    return {
        "model_type": MODEL_TYPE,
        "architectures": [ARCHITECTURES[objective]],
        "auto_map": {
            "AutoConfig": f"{STUB.removesuffix('.py')}.AddnormConfig",
            AUTO_CLASSES[objective]: f"{STUB.removesuffix('.py')}.{ARCHITECTURES[objective]}",
        },
        "addnorm_format": FORMAT,
        "plugins": [Path(plugin).name for plugin in plugins],
        "spec": encode(spec),
        **sizes_of(spec),
    }


def sizes_of(spec: ModelSpec) -> dict[str, Any]:
    """The sizes under the names that Transformers and its users read."""
    return {
        "vocab_size": spec.vocab,
        "hidden_size": spec.width,
        "num_hidden_layers": spec.depth,
        "num_attention_heads": spec.heads,
        "num_key_value_heads": spec.shape.kv_heads,
        "intermediate_size": spec.hidden,
        "max_position_embeddings": spec.max_seq,
        "tie_word_embeddings": spec.tied,
    }


def spec_in(config: Mapping[str, Any], where: str, way: str) -> ModelSpec:
    """Read the spec of a config.json.

    Args:
        config: its content.
        where: the file, for messages.
        way: the way by which the user gives plugins.

    Raises:
        InputError: it has none, or one of a later version, a plugin is not loaded, or fields beside it contradict it.
    """
    if config.get("addnorm_format") != FORMAT:
        raise InputError(
            f"{where}: $.addnorm_format: expected {FORMAT}, got {config.get('addnorm_format')!r}. Export the run again with "
            "this version of addnorm."
        )
    require_plugins(config.get("plugins", ()), Path(where), way)
    spec = decode(ModelSpec, config.get("spec"), path=f"{where}: $.spec")
    sizes = sizes_of(spec)
    for name in ("num_attention_heads", "tie_word_embeddings"):  # the tensors show the others
        value = sizes[name]
        if config.get(name, value) != value:
            raise InputError(
                f"{where}: $.{name}: expected {value!r} as in $.spec, which makes the model, got {config[name]!r}. Change the "
                "spec, or export the run again."
            )
    return spec
