"""Layers and joints of a model, read from the record of one pass.

A layer is a member of a list of modules that are called one after the other, each with the output of the one before. Inside
it, the stream is followed from the layer's input to its output, through additions and through norms on it: a joint is an
addition of the stream and something else, the output of a branch.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from addnorm.anatomy.attention import RecordedAttention
from addnorm.anatomy.recording import Addition, ModuleCall, PassEvents, same
from addnorm.shape import Role


@dataclass(frozen=True, eq=False, kw_only=True)
class LayerJoint:
    """Place where a branch's output joins the stream."""

    role: Role
    """Kind of the branch; "parallel" for branches side by side."""
    before: Tensor
    update: Tensor
    """The branch's output, which joins."""
    written: Tensor
    reader: ModuleCall | None
    """The outermost call that reads the stream for this branch; None if there is none of its own."""
    writer: ModuleCall | None
    """The last call whose output is what joins; None if it is computed outside of modules."""
    attention: RecordedAttention | None


@dataclass(frozen=True, eq=False, kw_only=True)
class LayerRecord:
    """One layer of a recorded pass."""

    call: ModuleCall
    joints: tuple[LayerJoint, ...]
    complete: bool
    """True if the joints lead from the layer's input to its output."""
    attentions: tuple[RecordedAttention, ...]


def find_layers(events: PassEvents) -> tuple[LayerRecord, ...]:
    """Find the layers: a chain of at least two calls in one list of modules, or of one module's parts that have the same class
    (`block1`, `block2`, a ModuleDict), each with the output of the one before.

    Of several lists, such as a stem of projections before the layers, the one whose members attend, then the one in which
    outputs of branches join the stream, then one that keeps the width and repeats one class, then the longest. () if there is
    none.
    """
    by_list: dict[str, list[ModuleCall]] = defaultdict(list)
    for call in events.calls:
        parent, _, last = call.path.rpartition(".")
        if last.isdigit():
            by_list[parent].append(call)
        else:
            by_list[f"{parent} {type(call.module).__name__}"].append(call)
    chains = [chain for chain in map(_chain, by_list.values()) if len(chain) > 1]
    candidates = [tuple(_layer(events, call) for call in chain) for chain in chains]
    return max(candidates, key=_likeness, default=())


def _likeness(layers: Sequence[LayerRecord]) -> tuple[bool, bool, bool, int]:
    """Marks of a chain of calls that is the model's layers, in order of weight."""
    shapes = {
        tensor.shape for layer in layers for tensor in (layer.call.input, layer.call.output) if tensor is not None
    }
    # The parts of one layer may be a list too: it attends once, while of the layers most do.
    attending = sum(bool(layer.attentions) for layer in layers)
    joined = any(layer.joints for layer in layers)
    return attending > 1 or (attending > 0 and joined), joined, len(shapes) == 1, len(layers)


def _chain(calls: Sequence[ModuleCall]) -> list[ModuleCall]:
    """The longest run of calls on a stream [batch, seq, width], or on several with one axis more, where each reads the output
    of the one before."""
    best: list[ModuleCall] = []
    run: list[ModuleCall] = []
    for call in calls:
        # By identity, not memory: a list of parallel experts reads one input, and none reads the output of another.
        follows = run and any(tensor is run[-1].output for tensor in call.inputs)
        if call.input is None or call.input.dim() not in (3, 4) or not call.input.is_floating_point():
            run = []
        else:
            run = [*run, call] if follows else [call]
        best = max(best, run, key=len)
    return best


def _layer(events: PassEvents, layer: ModuleCall) -> LayerRecord:
    inside = [call for call in events.calls if layer.began < call.began and call.ended < layer.ended]
    additions = [addition for addition in events.additions if layer.began < addition.at < layer.ended]
    attentions = [attention for attention in events.attentions if layer.began < attention.at < layer.ended]
    assert layer.input is not None
    # The stream is followed by its memory, since classes reshape it. An addition in place leaves the old stream and the new one
    # in one memory: only the order of events tells which of them a call reads, so `time` moves on with every joint.
    stream: list[Tensor] = [layer.input]
    joints, time = list[LayerJoint](), layer.began
    for addition in additions:
        on_stream = _on_stream(addition, _normed(stream, inside))
        if on_stream is None:
            continue
        # Without a call since the last joint, what joins was computed of the same stream: x + attention + feed-forward.
        if joints and not any(time < call.began < addition.at for call in inside):
            joints.append(_joined_with(joints.pop(), addition, on_stream))
        else:
            joints.append(_joint(addition, on_stream, inside, additions, attentions, time))
        stream, time = [addition.out], addition.at
    end = layer.output
    complete = bool(joints) and end is not None and any(same(end, x) for x in _normed(stream, inside))
    return LayerRecord(call=layer, joints=tuple(joints), complete=complete, attentions=tuple(attentions))


def _normed(stream: Sequence[Tensor], calls: Sequence[ModuleCall]) -> list[Tensor]:
    """The stream, and what modules that read nothing else make of it, such as a norm on the stream."""
    made = [call.output for call in calls if call.output is not None and any(_reads(call, x) for x in stream)]
    return [*stream, *(tensor for tensor in made if tensor.numel() == stream[0].numel())]


def _reads(call: ModuleCall, x: Tensor) -> bool:
    return call.input is not None and same(call.input, x)


def _on_stream(addition: Addition, stream: Sequence[Tensor]) -> Tensor | None:
    return next((x for x in stream if same(addition.left, x) or same(addition.right, x)), None)


def _joined_with(joint: LayerJoint, addition: Addition, on_stream: Tensor) -> LayerJoint:
    """One joint of two branches side by side, whose outputs are added to the stream one after the other."""
    return LayerJoint(
        role="parallel" if joint.attention is not None else joint.role,
        before=joint.before,
        update=joint.update + addition.other(on_stream),
        written=addition.out,
        reader=joint.reader,
        writer=None,
        attention=joint.attention,
    )


def _joint(
    addition: Addition,
    on_stream: Tensor,
    calls: Sequence[ModuleCall],
    additions: Sequence[Addition],
    attentions: Sequence[RecordedAttention],
    since: int,
) -> LayerJoint:
    update = addition.other(on_stream)
    done = [call for call in calls if since < call.began and call.ended < addition.at]
    readers = [call for call in done if _reads(call, on_stream)]
    writers = [call for call in done if call.output is not None and same(call.output, update)]
    own = [attention for attention in attentions if since < attention.at < addition.at]
    # An update that is itself a sum, made outside of any call: attention and feed-forward added to each other before
    # they join.
    summed = [sum_ for sum_ in additions if since < sum_.at < addition.at and same(sum_.out, update)]
    side_by_side = any(not any(call.began < sum_.at < call.ended for call in done) for sum_ in summed)
    return LayerJoint(
        role="feedforward" if not own else "parallel" if side_by_side else "attention",
        before=on_stream if addition.before is None else addition.before,
        update=update,
        written=addition.out,
        reader=readers[0] if readers else None,
        writer=max(writers, key=lambda call: call.ended, default=None),
        attention=own[0] if own else None,
    )
