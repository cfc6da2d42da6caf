"""Example inputs for a Transformers model, derived from its class and configuration.

Token ids, images, log-mel features, spectrograms and raw audio are derived; for an encoder-decoder also the decoder's ids, for
a model of text and images both. Floating-point inputs have the type of the model's weights. Other inputs are given with
`--inputs`.
"""

import inspect
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from addnorm.errors import InputError
from addnorm.outside.targets.input_spec import float_types

_BATCH, _SEQ, _FRAMES = 4, 12, 12

Made = tuple[Tensor, str]
"""An input with a description."""


def example_inputs(model: nn.Module) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Derive keyword inputs, with a sentence about each, from a fixed seed.

    Raises:
        InputError: the class has another main input, or raises an exception for the derived inputs.
    """
    config: Any = model.config
    main = str(getattr(model, "main_input_name", ""))
    if main not in _MAKERS:
        raise InputError(
            f"inputs of {type(model).__name__} cannot be derived: expected one of {', '.join(sorted(_MAKERS))}, got {main!r}. "
            "Describe them with --inputs spec.json."
        )
    accepted = inspect.signature(model.forward).parameters
    made = {main: _MAKERS[main](config)}
    if getattr(config, "is_encoder_decoder", False) and "decoder_input_ids" in accepted:
        made["decoder_input_ids"] = _ids(config)
    if hasattr(config, "vision_config") and hasattr(config, "text_config"):
        made |= {name: _MAKERS[name](config) for name in ("input_ids", "pixel_values") if name in accepted}
    given = _accepted(model, {name: tensor for name, (tensor, _) in made.items()}, list(accepted))
    notes = (f"inputs: {name} is {description}{_type(given[name])}" for name, (_, description) in made.items())
    return given, tuple(notes)


def _type(tensor: Tensor) -> str:
    """The type of an input in words, unless it is the common one."""
    usual = not tensor.is_floating_point() or tensor.dtype == torch.float32
    return "" if usual else f", in {str(tensor.dtype).removeprefix('torch.')}"


def _accepted(model: nn.Module, inputs: dict[str, Tensor], names: list[str]) -> dict[str, Tensor]:
    """The inputs in the first type of the model's weights with which it runs: a model in half precision may keep some modules
    in float32.

    Raises:
        InputError: there is none; the message quotes the model's error with the type of its first weight.
    """
    errors: list[Exception] = []
    for dtype in float_types(model):
        given = {name: each.to(dtype) if each.is_floating_point() else each for name, each in inputs.items()}
        try:
            with torch.no_grad(), torch.random.fork_rng(devices=[]):
                model(**given)
        except Exception as error:  # noqa: BLE001 - a class may refuse inputs with any exception
            errors.append(error)
        else:
            return given
    message = (str(errors[0]).strip().splitlines() or [""])[0]
    raise InputError(
        f"inputs of {type(model).__name__} were derived as {', '.join(inputs)}, which raised {type(errors[0]).__name__}: "
        f"{message.rstrip('.')}. Describe all inputs with --inputs spec.json; the class accepts {', '.join(names)}."
    ) from errors[0]


def _draw() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def _ids(config: Any) -> Made:
    text = config.get_text_config()
    vocab, longest = int(text.vocab_size), getattr(text, "max_position_embeddings", None)
    special = {getattr(config, f"{name}_token_id", None) for name in ("pad", "bos", "eos", "sep", "cls", "mask")}
    # Padding and other special ids switch masks on, which would hide positions from the audit.
    ordinary = [token for token in range(vocab) if token not in _flat(special)]
    seq = (
        _SEQ if longest is None else min(_SEQ, max(2, int(longest) - 2))
    )  # some position tables begin at an offset of two
    chosen = torch.randint(0, len(ordinary), (_BATCH, seq), generator=_draw())
    return torch.tensor(ordinary)[chosen], f"{_BATCH} x {seq} random tokens, none special, none masked"


def _flat(values: Iterable[Any]) -> set[int]:
    flat: set[int] = set()
    for value in values:
        flat |= set(value) if isinstance(value, list | tuple) else set() if value is None else {int(value)}
    return flat


def _pixels(config: Any) -> Made:
    vision = getattr(config, "vision_config", config)
    size, channels = getattr(vision, "image_size", None), int(getattr(vision, "num_channels", 3))
    if size is None:
        raise InputError(
            "inputs cannot be derived: expected image_size in the configuration, got none. Describe them with --inputs "
            "spec.json."
        )
    height, width = size if isinstance(size, list | tuple) else (size, size)
    return torch.randn(
        _BATCH, channels, height, width, generator=_draw()
    ), f"{_BATCH} images of noise, {height} x {width}"


def _features(config: Any) -> Made:
    bins, frames = getattr(config, "num_mel_bins", None), getattr(config, "max_source_positions", None)
    if bins is None or frames is None:
        raise InputError(
            "inputs cannot be derived: expected num_mel_bins and max_source_positions in the configuration, got none. "
            "Describe them with --inputs spec.json."
        )
    return torch.randn(_BATCH, bins, 2 * frames, generator=_draw()), f"{_BATCH} x {bins} x {2 * frames} noise"


def _audio(config: Any) -> Made:
    bins, frames = getattr(config, "num_mel_bins", None), getattr(config, "max_length", None)
    if bins is not None and frames is not None and not hasattr(config, "conv_dim"):
        # A spectrogram that is cut into patches, as AST has it; convolutions (`conv_dim`) read samples.
        return torch.randn(
            _BATCH, frames, bins, generator=_draw()
        ), f"{_BATCH} spectrograms of noise, {frames} x {bins}"
    ratio = int(getattr(config, "inputs_to_logits_ratio", 320))
    return torch.randn(
        _BATCH, ratio * (_FRAMES + 1), generator=_draw()
    ), f"{_BATCH} x {ratio * (_FRAMES + 1)} samples of noise"


_MAKERS: dict[str, Callable[[Any], Made]] = {
    "input_ids": _ids,
    "pixel_values": _pixels,
    "input_features": _features,
    "input_values": _audio,
}
