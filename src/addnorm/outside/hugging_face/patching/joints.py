"""Joints of a decoder where a patch can sit: one attention and one feed-forward branch per layer, on a plain stream."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from addnorm.anatomy.recording import PassEvents, record, same
from addnorm.anatomy.structure import LayerJoint, LayerRecord, find_layers
from addnorm.errors import InputError
from addnorm.shape import Place
from addnorm.study.foreign import logits_of

_SEQ = 6
_ADVICE = "A patch takes decoders such as Llama, Qwen2, Mistral, GPT-2 and GPT-NeoX with sequential branches."


@dataclass(frozen=True, kw_only=True)
class BranchModules:
    """One branch: the module that reads the stream, and the module whose output joins it."""

    place: Place
    reader: nn.Module
    writer: nn.Module


@dataclass(frozen=True, kw_only=True)
class Decoder:
    """The parts of a model on which a patch acts."""

    layers: tuple[nn.Module, ...]
    sites: tuple[BranchModules, ...]
    norms: tuple[str, ...]
    """Paths of the modules that read the stream: of every branch, and the one after the last layer if there is one."""
    width: int

    @property
    def places(self) -> tuple[Place, ...]:
        """Every site, in order of depth."""
        return tuple(site.place for site in self.sites)


def some_tokens(model: nn.Module) -> Tensor:
    """Random ids [2, 6] for a model, in the range of its embedding.

    Raises:
        InputError: the model has no embedding.
    """
    embedding = next((module for module in model.modules() if isinstance(module, nn.Embedding)), None)
    if embedding is None:
        raise InputError(
            f"model: expected one that embeds tokens, got {type(model).__name__} without a torch.nn.Embedding."
        )
    random = torch.Generator().manual_seed(0)
    return torch.randint(embedding.num_embeddings, (2, _SEQ), generator=random).to(embedding.weight.device)


def find_layers_of(model: nn.Module) -> tuple[PassEvents, tuple[LayerRecord, ...]]:
    """Record one pass in training mode, in which dropout is seen, and find the layers.

    Raises:
        InputError: there are no layers one after the other, or some share modules.
    """
    training = model.training
    try:
        model.train()
        tokens = some_tokens(model)
        with torch.no_grad(), torch.random.fork_rng(devices=[tokens.device] if tokens.is_cuda else []):
            events, _ = record(model, lambda: logits_of(model, tokens))
    finally:
        model.train(training)
    layers = find_layers(events)
    if not layers or len({layer.call.module for layer in layers}) < len(layers):
        got = "layers that are one module" if layers else "none"
        raise InputError(
            f"model: expected a list of layers that are called one after the other, got {got} in {type(model).__name__}. "
            f"{_ADVICE}"
        )
    return events, layers


def find_decoder(events: PassEvents, layers: Sequence[LayerRecord]) -> Decoder:
    """Find where the branches of all layers read the stream and write to it.

    Raises:
        InputError: a layer is joined otherwise.
    """
    sites = [site for number, layer in enumerate(layers) for site in _sites(number, layer)]
    end = layers[-1].call
    after = [call for call in events.calls if call.began > end.ended and call.input is not None]
    final = [
        call for call in after if end.output is not None and call.input is not None and same(call.input, end.output)
    ]
    readers = [joint.reader for layer in layers for joint in layer.joints]
    return Decoder(
        layers=tuple(layer.call.module for layer in layers),
        sites=tuple(sites),
        norms=tuple(call.path for call in (*readers, *final[:1]) if call is not None),
        width=layers[0].joints[0].before.shape[-1],
    )


def _sites(number: int, layer: LayerRecord) -> list[BranchModules]:
    path = layer.call.path
    roles = [joint.role for joint in layer.joints]
    if "parallel" in roles or any(joint.reader is None for joint in layer.joints):
        raise InputError(f"{path}: expected branches one after the other, got branches side by side. {_ADVICE}")
    if not layer.complete or roles != ["attention", "feedforward"]:
        raise InputError(
            f"{path}: expected an attention and a feed-forward branch that are added to the stream, got "
            f"{' and '.join(roles) or 'none'}{'' if layer.complete else ', and something else'}. {_ADVICE}"
        )
    ends = [layer.call.input, *(joint.written for joint in layer.joints)]
    befores = [*(joint.before for joint in layer.joints), layer.call.output]
    if not all(
        end is not None and before is not None and same(end, before) for end, before in zip(ends, befores, strict=True)
    ):
        raise InputError(f"{path}: expected norms at the branches' inputs or outputs, got one on the stream. {_ADVICE}")
    return [_site(2 * number + index, number, joint, path) for index, joint in enumerate(layer.joints)]


def _site(index: int, layer: int, joint: LayerJoint, path: str) -> BranchModules:
    reader, writer = joint.reader, joint.writer
    if reader is None or writer is None:
        raise InputError(
            f"{path}: expected a module whose output is added to the stream, got an {joint.role} output that is computed "
            f"outside of modules, such as a scaled one, or dropout as a function. {_ADVICE}"
        )
    role = "attention" if joint.role == "attention" else "feedforward"
    return BranchModules(place=Place(index, layer, role), reader=reader.module, writer=writer.module)  # type: ignore[arg-type]
