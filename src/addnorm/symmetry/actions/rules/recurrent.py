"""Recurrent layers and cells of torch, one operation each: what they make of their input before the first gate.

    lstm, rnn   gates = W x + b + U h + c
    gru         the same for two gates of three; the third, tanh(W x + b + r (U h + c)), has b alone

The gates do not move, and h is made of them, so that U stays as it is: W follows the basis of x, and b and c trade with each
other and with a shift of x.
"""

import torch

from addnorm.symmetry.actions.call import Call, Operand, rule
from addnorm.symmetry.actions.rules.linear import mapped, weight_ids
from addnorm.symmetry.actions.rules.sums import combined
from addnorm.symmetry.actions.system import NoRule
from addnorm.symmetry.actions.values import Fixed, State, Value


@rule("lstm", "gru", "rnn_tanh", "rnn_relu")
def layers(call: Call) -> State:
    """Layers over a sequence, in both directions if asked for; all but the first read what does not move.

    Raises:
        NoRule: the layers are projected, or drop out.
    """
    given, has_biases = call.named, bool(call.named.get("has_biases"))
    held = given.get("params")
    per_cell = 4 if has_biases else 2
    directions = 2 if given.get("bidirectional") else 1
    if not isinstance(held, list | tuple) or len(held) != per_cell * directions * int(given["num_layers"]):
        raise NoRule
    if given.get("train") and given.get("dropout"):
        raise NoRule
    for at in range(0, len(held), per_cell):
        is_first = at < per_cell * directions
        _gates(call, call.operand("input") if is_first else None, *held[at : at + per_cell])
    return _still(call)


@rule("lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell")
def cell(call: Call) -> State:
    """One step."""
    names = ("w_ih", "w_hh", "b_ih", "b_hh")
    _gates(call, call.operand("input"), *(each for each in map(call.optional, names) if each is not None))
    return _still(call)


def _gates(call: Call, data: Operand | None, weight: Operand, recurrent: Operand, *biases: Operand) -> None:
    """Require that the gates stay; `data` is None where they read what stays, too."""
    system, total = call.system, None
    if biases:
        own, other = biases
        size = len(own.number)
        together = 2 * (size // 3) if call.name.startswith("gru") else size
        system.equations.vanish(weight_ids(other)[together:])
        # b + c where the gates read their sum, and b alone behind.
        total = combined(system, own, other, (torch.arange(size) < together).double())
    if data is not None and isinstance(data.state, Value):
        system.stop(mapped(system, data, weight, total))
    else:
        for each in (weight, total):
            if each is not None:
                system.equations.vanish(weight_ids(each))
    system.equations.vanish(weight_ids(recurrent))


def _still(call: Call) -> State:
    """The results, none of which moves; nor does a state that the layers begin with."""
    begins = call.named.get("hx")
    for each in begins if isinstance(begins, list | tuple) else [begins]:
        if isinstance(each, Operand) and isinstance(each.state, Value):
            call.system.stop(each.state)
        elif isinstance(each, Operand):
            call.system.equations.vanish(weight_ids(each))
    results = call.result if isinstance(call.result, tuple) else (call.result,)
    made = tuple(Fixed(constant=False) for _ in results)
    return made if isinstance(call.result, tuple) else made[0]
