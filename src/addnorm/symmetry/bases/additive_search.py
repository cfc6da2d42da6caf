"""Constants, means and null forms of a graph that are free, by its operations alone: no weight is read."""

import math
from collections.abc import Collection, Iterator
from dataclasses import replace

import torch
from torch import Tensor, fx

from addnorm.redundancy.graph.export import Program
from addnorm.symmetry.actions.rules.shapes import REORDERING
from addnorm.symmetry.bases.absorption import Absorption, Stuck
from addnorm.symmetry.bases.additive import (
    Additive,
    FreeMean,
    MovableConstant,
    NormReader,
    NormResult,
    RawStream,
    UnbiasedReadout,
    UnseenPart,
    WiderMap,
)
from addnorm.symmetry.families import BIAS, EMBEDDING_POSITION, SHIFT, STREAM_MEAN, UNSEEN

_NORMS = ("layer_norm", "rms_norm")


def additive_freedom(program: Program, folded: Collection[str] = (), with_zeros: Collection[str] = ()) -> Additive:
    """Return the additive freedom of a graph, whose weights may be on the meta device.

    Args:
        program: the graph.
        folded: gains without a zero, which the matrices before them take over first.
        with_zeros: parameters with a zero, through which no constant can be given back.
    """
    return _Search(Absorption(program, folded, with_zeros)).made


class _Search:
    """The steps of a graph, in its order."""

    def __init__(self, graph: Absorption) -> None:
        self.graph = graph
        self.made = Additive(graph)
        self.normed: dict[fx.Node, NormResult] = {}
        self.wider: dict[fx.Node, WiderMap] = {}
        self.tables = {
            graph.parameters.get(graph.named[node]["weight"], "")
            for node in graph.nodes
            if graph.name(node) == "embedding"
        }
        self.kept: set[str] = set()
        """Shifts that are not zero afterwards."""
        self.balanced: set[fx.Node] = set()
        self._means()
        self.centred = {each.parameter for each in self.made.means}
        for node in graph.nodes:
            self._norm(node)
            readers = list(self._readers(node))
            self._widens(node, readers)
            for step in (*readers, *self._unseen(node), *self._constants(node)):
                self.made.steps.append(step)
            self._raw_stream(node)

    def _stays(self, family: str, *parameters: str) -> None:
        known = self.made.stays.setdefault(family, [])
        known += [each for each in parameters if each and each not in known]

    def _means(self) -> None:
        graph = self.graph
        writes: dict[str, list[tuple[int, bool]]] = {}
        for node in graph.nodes:
            linear = graph.linear(node)
            if linear is not None:
                free = graph.ignores_mean(node)
                writes.setdefault(graph.parameters[linear[1]], []).append((1 if linear[2] else 0, free))
                if linear[3] in graph.parameters and len(graph.shape(linear[3])) == 1:
                    writes.setdefault(graph.parameters[linear[3]], []).append((0, free))
            elif graph.name(node) == "embedding" and graph.named[node]["weight"] in graph.parameters:
                name = graph.parameters[graph.named[node]["weight"]]
                writes.setdefault(name, []).append((1, graph.ignores_mean(node)))
            elif graph.name(node) == "conv2d":
                channels, given = _channels_last(graph, node), graph.named[node]
                for each in (given["weight"], given.get("bias")):
                    if each in graph.parameters and channels is not None:
                        # The numbers of several groups are made of other channels each, and have no part in common.
                        free = graph.ignores_mean(channels) and (
                            each is not given["weight"] or given.get("groups", 1) == 1
                        )
                        writes.setdefault(graph.parameters[each], []).append((0, free))
            elif graph.name(node) == "layer_norm" and graph.named[node].get("bias") in graph.parameters:
                name = graph.parameters[graph.named[node]["bias"]]
                writes.setdefault(name, []).append((0, graph.ignores_mean(node)))
        for node, name in graph.parameters.items():
            if name not in writes and graph.ignores_mean(node):
                writes[name] = [(len(graph.shape(node)) - 1, True)] * graph.count[name]
        for name, uses in writes.items():
            if len(uses) == graph.count[name] and len(set(uses)) == 1 and uses[0][1]:
                self.made.means.append(FreeMean(name, uses[0][0]))

    def _raw_stream(self, node: fx.Node) -> None:
        """Add a stream that matrices read beside what removes its mean, written by parameters alone."""
        graph = self.graph
        readers, is_removed, along = [], False, [node]
        for at in along:
            if at in graph.observed:
                return
            for user in graph.users[at]:
                linear = graph.linear(user)
                if graph.removes_mean(user, at):
                    is_removed = True
                elif graph.keeps_last(user, at) and graph.name(user) != "cat":
                    along.append(user)
                elif linear is not None and linear[0] is at:
                    readers.append(user)
                else:
                    return
        writers = self._writers(node) if is_removed and readers else []
        names = [graph.parameters[linear[1]] for linear in map(graph.linear, readers) if linear is not None]
        if not writers:
            return
        sizes = {name: math.prod(graph.shape(each)) for each, name in graph.parameters.items()}
        size = graph.shape(node)[-1]
        is_spanned = sum(sizes[each.parameter] for each in writers) >= size * size
        if is_spanned and all(graph.count[name] == 1 for name in names):
            self.made.raw.append(RawStream(node, tuple(writers), tuple(readers)))
        else:
            self._stays(STREAM_MEAN.name, *(each.parameter for each in writers), *names)

    def _writers(self, node: fx.Node) -> list[FreeMean]:
        """The parameters that write a value, each read here alone; none if something else writes to it, too."""
        graph, given, name, linear = self.graph, self.graph.named[node], self.graph.name(node), self.graph.linear(node)
        table = graph.table(node)
        if table is not None:
            return [FreeMean(graph.parameters[table], len(graph.shape(table)) - 1)] if graph.parameter(table) else []
        if linear is not None:
            biases = [] if linear[3] is None else [graph.parameter(linear[3])]
            written = [(graph.parameter(linear[1]), int(linear[2])), *((each, 0) for each in biases)]
            return [FreeMean(*each) for each in written] if all(each for each, _ in written) else []
        if name == "embedding":
            return [FreeMean(graph.parameter(given["weight"]), 1)] if graph.parameter(given["weight"]) else []
        if name == "add" and "alpha" not in given:
            terms = [given["self"], given["other"]]
            terms = [
                each for each in terms if isinstance(each, fx.Node) and graph.shape(each)[-1:] == graph.shape(node)[-1:]
            ]
            written_by = [self._writers(each) for each in terms if graph.users[each] == [node]]
            return [each for part in written_by for each in part] if len(written_by) == 2 and all(written_by) else []
        before = node.all_input_nodes
        if (
            len(before) == 1
            and graph.users[before[0]] == [node]
            and name != "cat"
            and graph.keeps_last(node, before[0])
        ):
            return self._writers(before[0])
        return []

    def _norm(self, node: fx.Node) -> None:
        """Follow a norm's result to what reads it, through gains and shifts."""
        graph, given, name = self.graph, self.graph.named[node], self.graph.name(node)
        if name == "layer_norm" and len(given["normalized_shape"]) == 1:
            made = NormResult(node)
            for kind in ("weight", "bias"):
                if given.get(kind) is not None:
                    parameter, offset = graph.with_offset(given[kind])
                    if parameter not in graph.parameters or (offset and kind == "bias"):
                        return
                    made = _with(made, graph.parameters[parameter], offset if kind == "weight" else None)
            self.normed[node] = made
            return
        for data in node.all_input_nodes:
            held = self.normed.get(data)
            if held is None:
                continue
            if graph.keeps_last(node, data) and name != "cat":
                self.normed[node] = held
            gain = graph.is_gain(node, data)
            if gain is not None:
                self.normed[node] = _with(held, graph.parameters[gain], 0.0)
            shift = _other(given, data)
            if name == "add" and shift in graph.parameters and "alpha" not in given and len(graph.shape(shift)) == 1:
                self.normed[node] = _with(held, graph.parameters[shift], None)

    def _readers(self, node: fx.Node) -> Iterator[NormReader]:
        graph, linear = self.graph, self.graph.linear(node)
        if linear is None or linear[0] not in self.normed:
            return
        held, name = self.normed[linear[0]], graph.parameters[linear[1]]
        if node in self.balanced:
            # Keys of which positions rotate a part: what the queries see of the rest's constant is equal for all keys.
            parts = graph.parts(node)
            for part in parts if len(parts) > 1 else ():
                if self._passes(node, part):
                    yield NormReader(node, held, len(part), part)
                elif graph.passes_level(node, torch.zeros(graph.shape(node)[-1]).index_fill(0, part, 1.0)):
                    # One constant of values that a norm further on removes; which one, the weights decide.
                    self._stays(STREAM_MEAN.name, name)
            return
        if graph.count[name] > 1:
            # What is a table, too, writes along its part; layers that share a weight have a freedom that is not used.
            if name not in self.tables:
                self._stays(STREAM_MEAN.name, name)
            return
        size = graph.shape(node)[-1]
        if not graph.parameter(linear[3]) and any(each in self.kept for each in held.shifts):
            try:
                graph.restored(node, torch.ones(size, dtype=torch.float64), None)
            except Stuck:
                self._stays(STREAM_MEAN.name, name)
                return
        yield NormReader(node, held, size - (name in self.centred))

    def _widens(self, node: fx.Node, readers: Collection[NormReader]) -> None:
        """Follow a wider map's result to what reads it, if it is added to what a norm reads: what turns both is then orthogonal
        and keeps an orthogonal projection. Otherwise any change of basis may come between."""
        graph, linear = self.graph, self.graph.linear(node)
        if linear is None:
            return
        wide, narrow = graph.shape(node)[-1], graph.shape(linear[0])[-1]
        bias = linear[3]
        # A null form is taken from the map's columns, of which one less is then independent.
        dims = narrow - any(each.rows is None for each in readers)
        if dims >= wide or not (bias is None or (bias in graph.parameters and graph.shape(bias) == (wide,))):
            return
        results = self._along(node, ())
        sums = [
            each
            for at in results
            for user in graph.users[at]
            if graph.name(user) == "add"
            for each in self._along(user, ("add",))
        ]
        if any(graph.name(user) in _NORMS for each in sums for user in graph.users[each]):
            self.wider.update(dict.fromkeys(results, WiderMap(node, dims)))

    def _along(self, node: fx.Node, further: Collection[str]) -> list[fx.Node]:
        """A value under all shapes that keep its channels, and what some operations make of it."""
        graph, reached = self.graph, [node]
        for at in reached:
            for user in graph.users[at]:
                keeps = graph.keeps_last(user, at) and graph.name(user) != "cat"
                if user not in reached and (keeps or graph.name(user) in further):
                    reached.append(user)
        return reached

    def _unseen(self, node: fx.Node) -> Iterator[UnseenPart]:
        graph, linear = self.graph, self.graph.linear(node)
        read = None if linear is None else self.wider.get(linear[0])
        if linear is None or read is None:
            return
        name, rows = graph.parameters[linear[1]], graph.shape(node)[-1]
        if graph.count[name] > 1:
            self._stays(UNSEEN.name, name)
            return
        of_map = graph.linear(read.node)
        has_constant = of_map is not None and of_map[3] is not None
        takes = has_constant and bool(
            graph.parameter(linear[3]) or (linear[3] is None and self._passes(node, torch.arange(rows)))
        )
        size = graph.shape(linear[0])[-1] - read.dims - (has_constant and not takes)
        yield UnseenPart(node, read, (rows - (name in self.centred)) * size, takes)

    def _constants(self, node: fx.Node) -> Iterator[MovableConstant | UnbiasedReadout]:
        graph, given, name = self.graph, self.graph.named[node], self.graph.name(node)
        linear, held = graph.linear(node), self.normed.get(node)
        family, source, axis = BIAS.name, None, -1
        if linear is not None:
            source = linear[3]
        elif name == "layer_norm":
            family, source = SHIFT.name, given.get("bias")
        elif name == "embedding":
            family, source = EMBEDDING_POSITION.name, given["weight"]
        elif name == "conv2d":
            node, source = _channels_last(graph, node) or node, given.get("bias")
        elif name == "conv1d":
            source, axis = given.get("bias"), 1
        elif name == "expand":  # a class token
            source = given["self"]
        elif name == "add" and "alpha" not in given:
            terms = (graph.table(each) for each in (given["self"], given["other"]))
            source = next((each for each in terms if each is not None), None)
            if source is None or (held is not None and len(graph.shape(source)) != 1):
                return
            family = SHIFT.name if held is not None else family
        if not isinstance(source, fx.Node) or source not in graph.parameters or node in graph.observed:
            return
        parameter = graph.parameter(source)
        if not parameter:
            if held is not None:
                self.kept.add(graph.parameters[source])
            if self._passes(node, torch.arange(graph.shape(node)[axis]), axis) and family != EMBEDDING_POSITION.name:
                self._stays(family, graph.parameters[source])
            return
        size = graph.shape(node)[axis]
        if graph.shape(source)[-1] != size:
            return
        whole = torch.arange(size)
        is_centred = axis == -1 and graph.ignores_mean(node)
        if self._passes(node, whole, axis):
            yield MovableConstant(node, parameter, family, whole, size - is_centred, axis)
            return
        if held is not None:
            self.kept.add(parameter)
            readout = self._readout(node, held, parameter)
            if readout is not None:
                self.balanced.update(readout.unbiased)
                yield readout
                return
        if family == EMBEDDING_POSITION.name:
            return
        parts = graph.parts(node) if axis == -1 else []
        for part in parts if len(parts) > 1 else ():
            if self._passes(node, part):
                yield MovableConstant(node, parameter, family, part, len(part))

    def _passes(self, node: fx.Node, index: Tensor, axis: int = -1) -> bool:
        lost = torch.zeros(self.graph.shape(node)[axis], dtype=torch.float64)
        lost[index] = torch.randn(len(index), generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        try:
            self.graph.restored(node, lost, None, axis)
        except Stuck:
            return False
        return True

    def _readout(self, node: fx.Node, held: NormResult, shift: str) -> UnbiasedReadout | None:
        graph = self.graph
        left, readers = [node], []
        while left:
            at = left.pop()
            if at in graph.observed:
                return None
            for user in graph.users[at]:
                linear = graph.linear(user)
                if graph.keeps_last(user, at) and graph.name(user) != "cat":
                    left.append(user)
                elif linear is not None and linear[0] is at:
                    readers.append((user, linear))
                else:
                    return None
        restored = {
            user
            for user, linear in readers
            if graph.parameter(linear[3])
            or (linear[3] is None and self._passes(user, torch.arange(graph.shape(user)[-1])))
        }
        unbiased = [(user, linear) for user, linear in readers if user not in restored]
        for _, linear in unbiased:
            name = graph.parameters[linear[1]]
            if linear[3] is not None or graph.count[name] > 1:
                return None
            if name in self.centred:
                self._stays(SHIFT.name, shift)
                return None
        return (
            UnbiasedReadout(node, held, shift, tuple(user for user, _ in unbiased), tuple(restored))
            if unbiased
            else None
        )


def _channels_last(graph: Absorption, node: fx.Node) -> fx.Node | None:
    """The value in which the channels of a convolution over an image are the last axis."""
    shape = graph.shape(node)
    ids = torch.arange(shape[1]).reshape(-1, *[1] * (len(shape) - 2)).expand(shape)
    while graph.name(node) == "conv2d" or not bool((ids == torch.arange(ids.shape[-1])).all()):
        if node in graph.observed or len(graph.users[node]) != 1:
            return None
        (user,) = graph.users[node]
        if graph.name(user) not in REORDERING - {"cat"} or len(user.all_input_nodes) != 1:
            return None
        ids, node = graph.reordered(user, {node: ids}), user
    return node


def _with(held: NormResult, name: str, offset: float | None) -> NormResult:
    """A norm's result behind one more gain, or behind a shift, which has no offset."""
    if offset is not None:
        return replace(held, gains=(*held.gains, (name, offset)))
    return replace(held, shifts=(*held.shifts, name), gains_before=(*held.gains_before, len(held.gains)))


def _other(given: dict[str, object], data: fx.Node) -> fx.Node | None:
    for name in ("self", "other"):
        each = given.get(name)
        if isinstance(each, fx.Node) and each is not data:
            return each
    return None
