"""Every mechanism of the catalogue, and every preset: degrees of freedom derived by hand (notation: `derived`).

The base is a causal model with every bias on: d = 8, f = 12, L layers, key width e, vocabulary V = 13 > d, a head
with a bias, pre-norm layer norms, no position. n, m: the norms' own biases. Of d + d + 2e + d + d + f + d moves per
layer (n, q, k, v, o, m, 1, 2) go W_q n + db_q = 0 (d), W_o t + db_o = c ones (d - 1), W_1 m + db_1 = 0 (f), db_2 = c
ones (d - 1): 2d + 2e + 2 are left. The last norm and the head share W s + db = 0: d. So L (2d + 2e + 2) + d, and a new
sibling whose place in these tables is missing fails by name.

L = 2 where layers differ or one acts on another: scores, residuals, placements, no norm, presets. Else L = 1 (`ONE`)."""

from dataclasses import replace
from typing import Any

import pytest
from derived import D, Dofs, F, L, assert_derived, generic, tokens

from addnorm import ModelSpec, audit, preset
from addnorm.bias import Biases
from addnorm.block.gau import Gau
from addnorm.catalogue import ROOMS
from addnorm.model.architecture import Dropout
from addnorm.model.presets import PRESETS
from addnorm.model.shipped_presets import SHIPPED_PRESETS
from addnorm.testing.contract import shrunk
from sampled import sampled

pytestmark = pytest.mark.compiled

V = 13
ONE = 1
"""Number of layers where each is alone: positions, shapes of biases, norms, dropout."""


def make(**parts: Any) -> ModelSpec:
    """The base with some of its parts exchanged."""
    sizes: dict[str, Any] = {"vocab": V, "width": D, "depth": L, "heads": 2, "hidden": F, "kv_heads": 2}
    base: dict[str, Any] = {
        "norm": ROOMS["norm"].make("layer"),
        "placement": ROOMS["placement"].make("pre"),
        "position": ROOMS["position"].make("none"),
        "bias": Biases.all(True),
        "activation": "gelu",
    }
    return shrunk(ModelSpec(), **(sizes | base | parts))


def check(spec: ModelSpec, joint: int, rows: dict[str, Dofs], **options: Any) -> None:
    assert_derived(generic(spec.build()), tokens(V, seq=7), joint, rows, **options)


def rows_of(e: int = D, **changes: Dofs) -> dict[str, Dofs]:
    """The derivation for the base; a change replaces one parameter's row, by its short name."""
    rows = {
        "n": (D, 0, D),
        "q": (D, 0, D),
        "k": (e, e, e),
        "v": (e, 1 if e == D else 0, e),  # W_o^-1 ones has different parts for different heads
        "o": (D, 1, min(D, e + 1)),  # what the e directions of v make of it, and ones
        "m": (D, 0, D),
        "up": (F, 0, D),
        "down": (D, 1, 1),
        "last": (D, 0, D),
        "head": (V, 0, D),
    } | changes
    names = {
        "n": "layers.?.attention.input_norm.bias",
        "q": "layers.?.attention.body.qk_bias.q",
        "k": "layers.?.attention.body.qk_bias.k",
        "v": "layers.?.attention.body.value.bias",
        "o": "layers.?.attention.body.output.bias",
        "m": "layers.?.feedforward.input_norm.bias",
        "up": "layers.?.feedforward.body.up.bias",
        "down": "layers.?.feedforward.body.down.bias",
        "last": "final_norm.bias",
        "head": "head.bias",
    }
    return {names.get(name, name): row for name, row in rows.items()}


# --- positions: what they do to the key's bias ---

FREE_KEYS = {"none", "learned", "sinusoidal", "alibi", "kerple", "sandwich", "t5", "gau_additive"}
"""They act on the embeddings or on the scores: a shift of all keys alike is forgiven by the softmax."""
ROTATED = {"interleaved_rope", "rope", "xpos"}
"""They turn each key by its position, `interleaved_rope` in its first layer: a constant shift differs from key to key."""


KV_HEADS = {kind: 1 + number % 2 for group in (FREE_KEYS, ROTATED) for number, kind in enumerate(sorted(group))}
"""Key heads, for two query heads: the kinds of a group take turns, so that each group is met with one key head and with two."""


@pytest.mark.parametrize("kind", sampled(8, sorted(set(ROOMS["position"].kinds()) - {"relative_bank"})))
def test_position(kind: str) -> None:
    """Rotated keys need W_k n + db_k = 0: e conditions more, and k moves with n alone."""
    assert kind in KV_HEADS, f"derive what position '{kind}' does to the key's bias, and add it here"
    e = KV_HEADS[kind] * D // 2
    held = e if kind in ROTATED else 0
    rows = rows_of(e, k=(e, e - held, e))
    spec = make(depth=ONE, position=ROOMS["position"].make(kind), kv_heads=KV_HEADS[kind])
    check(spec, ONE * (2 * D + 2 * e + 2 - held) + D, rows)


def test_partial_rotation_frees_the_entries_that_are_not_rotated() -> None:
    """Half of each head's four entries is rotated: e/2 conditions."""
    held = D // 2
    position = ROOMS["position"].make("rope", fraction=0.5)
    check(make(depth=ONE, position=position), ONE * (4 * D + 2 - held) + D, rows_of(k=(D, D - held, D)))


# --- scores: the sum of several layers' scores forgives the same keys ---


@pytest.mark.parametrize("kind", sampled(12, ROOMS["scores"].kinds()))
def test_score_residual(kind: str) -> None:
    """A shift of layer i's keys adds s_i q_i . c to a whole row of every sum that layer i joins: the base's counts."""
    check(make(scores=ROOMS["scores"].make(kind)), L * (4 * D + 2) + D, rows_of())


def test_score_residual_with_rotary_position() -> None:
    """Each term rotates its own keys, so all of them are held."""
    spec = make(scores=ROOMS["scores"].make("sum"), position=ROOMS["position"].make("rope"))
    check(spec, L * (3 * D + 2) + D, rows_of(k=(D, 0, D)))


# --- bias: shapes of the q and k biases ---


@pytest.mark.parametrize(("kind", "size"), [("linear", D), ("head_shared", D // 2), ("scalar", 1)])
def test_bias_shape(kind: str, size: int) -> None:
    """W_q n + S db_q = 0 with S the spreading of `size` numbers to all heads: as many directions as numbers, since W_q
    is invertible. k: all its numbers. n moves with q alone."""
    joint = ONE * (size + size + D + 1 + D + 1) + D
    rows = rows_of(n=(D, 0, size), q=(size, 0, size), k=(size, size, size))
    check(make(depth=ONE, qk_bias=ROOMS["bias"].make(kind)), joint, rows)


@pytest.mark.parametrize(("kind", "size"), [("shared_vector", D // 2), ("shared_scalar", 1)])
def test_bias_that_q_and_k_share(kind: str, size: int) -> None:
    """As q it is held unless n takes over; as k it is forgiven: `size` directions, none alone."""
    rows = rows_of(n=(D, 0, size), **{"layers.?.attention.body.qk_bias.qk": (size, 0, size)})
    for name in ("q", "k"):
        del rows[f"layers.?.attention.body.qk_bias.{name}"]
    check(make(depth=ONE, qk_bias=ROOMS["bias"].make(kind)), ONE * (size + D + 1 + D + 1) + D, rows)


def test_every_bias_shape_is_derived() -> None:
    assert set(ROOMS["bias"].kinds()) == {"linear", "head_shared", "scalar", "shared_vector", "shared_scalar"}


# --- norms ---


def test_rms_norm_forgives_nothing() -> None:
    """No norm has a bias and every branch's shift must be 0: k d, v with o d; q, up, down, head held."""
    rows = rows_of(q=(D, 0, 0), v=(D, 0, D), o=(D, 0, D), up=(F, 0, 0), down=(D, 0, 0), head=(V, 0, 0))
    rows = {name: row for name, row in rows.items() if not name.endswith("norm.bias")}
    check(make(depth=ONE, norm=ROOMS["norm"].make("rms")), ONE * 2 * D, rows)


@pytest.mark.parametrize("training", sampled(2, [True, False]), ids=["batch-statistics", "running-statistics"])
def test_batch_norm_forgives_any_shift_of_the_stream(training: bool) -> None:
    """A batch norm acts on each entry alone. With running statistics it passes a shift on, scaled, and its own bias can
    take it back: of 6d + f + d moves (n, q, k, v, o, m, 1, 2) only W_q n' + db_q = 0 (d) and W_1 m' + db_1 = 0 (f) go:
    6d. With the batch's own statistics it subtracts the shift: then v, o and down are free alone, and the count is the
    same."""
    free = D if training else 0
    rows = rows_of(v=(D, free, D), o=(D, free, D), down=(D, free, D))
    check(make(depth=ONE, norm=ROOMS["norm"].make("batch")), ONE * 6 * D + D, rows, training=training)


def test_without_norms_nothing_hides_a_shift() -> None:
    """The stream's shift s must be taken back by every reader: of q, k, v, o, 1, 2 (5d + f) go W_q s + db_q = 0 (d) and
    W_1 s' + db_1 = 0 (f): 4d per layer; the head's bias takes back the last s. The first layer's q reads unmoved
    embeddings."""
    rows = rows_of(v=(D, 0, D), o=(D, 0, D), down=(D, 0, D))
    rows = {name: row for name, row in rows.items() if not name.endswith("norm.bias")}
    del rows["layers.?.attention.body.qk_bias.q"]
    rows |= {"layers.0.attention.body.qk_bias.q": (D, 0, 0), "layers.1.attention.body.qk_bias.q": (D, 0, D)}
    check(make(norm=ROOMS["norm"].make("none")), L * 4 * D, rows)


def test_every_norm_is_derived() -> None:
    assert set(ROOMS["norm"].kinds()) == {"layer", "rms", "batch", "none"} | NOT_DERIVED["norm"]


# --- placements ---


@pytest.mark.parametrize("embedding", [False, True], ids=["bare-embedding", "normed-embedding"])
def test_post_norm(embedding: bool) -> None:
    """A layer keeps 4d + 2 (derived in test_encoder_classes), the head's bias takes over the last norm's, and a norm on
    the embeddings adds d. Without it the first layer's q reads unmoved embeddings, and is held."""
    first = D if embedding else 0
    layer = "layers.?."
    rows = {
        "layers.0.attention.body.qk_bias.q": (D, 0, first),
        "layers.1.attention.body.qk_bias.q": (D, 0, D),
        f"{layer}attention.body.qk_bias.k": (D, D, D),
        f"{layer}attention.body.value.bias": (D, 1, D),
        f"{layer}attention.body.output.bias": (D, 1, D),
        f"{layer}attention.stream_norm.bias": (D, 0, D),
        f"{layer}feedforward.body.up.bias": (F, 0, D),
        f"{layer}feedforward.body.down.bias": (D, 1, D),
        f"{layer}feedforward.stream_norm.bias": (D, 0, D),
        "head.bias": (V, 0, D),
    }
    if embedding:
        rows["embedding_norm.bias"] = (D, 0, D)
    check(make(placement=ROOMS["placement"].make("post", embedding=embedding)), L * (4 * D + 2) + first, rows)


@pytest.mark.parametrize("kind", sampled(2, ["sandwich", "peri"]))
def test_sandwich_norm(kind: str) -> None:
    """Each branch ends in a norm that forgives c ones of what enters (o: d - 1 conditions, down: d - 1) and whose own
    bias the next norm forgives along ones: 2 more per layer than the base. Peri: also the norm on the embeddings along
    ones."""
    rows = rows_of() | {
        "layers.?.attention.output_norm.bias": (D, 1, 1),
        "layers.?.feedforward.output_norm.bias": (D, 1, 1),
    }
    if kind == "peri":
        rows["embedding_norm.bias"] = (D, 1, 1)
    joint = L * (4 * D + 4) + D + (1 if kind == "peri" else 0)
    check(make(placement=ROOMS["placement"].make(kind)), joint, rows)


def test_every_placement_is_derived() -> None:
    assert set(ROOMS["placement"].kinds()) == {"pre", "post", "sandwich", "peri", "none"} | NOT_DERIVED["placement"]


NOT_DERIVED = {
    "norm": {"clip", "derf", "dyt", "gated"},
    "position": {"relative_bank"},
    "values": {"depth_attention", "normed"},
    "placement": {"deepnorm", "hybrid", "keel", "mix", "normformer", "scaled", "sub_ln"},
    "attended": {"head_scale", "hybrid_gate"},
    "residual": {
        *("admin", "alternating", "attention", "cross", "dense", "dynamic_dense", "lambdas"),
        *("layer_scale", "low_rank", "schedule", "siamese", "streams"),
        *("block_attention", "hyper_connections", "initial_state", "kronecker_streams"),
        *("affine", "altup", "gated_streams", "none", "orthogonal_streams", "stream_weight"),
        *("variance_keeping", "wide"),
    },
}
"""Mechanisms whose counts nobody has derived by hand. Both methods must agree on them."""
IN_EVERY_SUITE = {"streams", "lambdas", "scaled", "dyt"}


@pytest.mark.parametrize(
    ("room", "kind"),
    [
        pytest.param(room, kind, marks=[] if kind in IN_EVERY_SUITE else [pytest.mark.soak])
        for room, kinds in NOT_DERIVED.items()
        for kind in sorted(kinds)
    ],
)
@pytest.mark.thorough
def test_what_nobody_derived_is_proved_only_where_the_numbers_agree(room: str, kind: str) -> None:
    model = generic(make(**{room: ROOMS[room].make(kind)}).build())
    model.residual.advance(10**6)  # at step 0 a schedule keeps every branch out
    result = audit(model, tokens(V, seq=7))
    assert result.strip()[1].passed
    assert result.disagreements == ()
    assert result.joint_null <= (result.numeric_joint_null or 0)
    assert result.joint_null > 0


# --- residuals ---

KEEP_THE_COUNTS = {"add", "depth_scaled", "scale", "rezero", "cumulative", "replay"}
"""They join a branch's output, or those of earlier layers, with numbers that do not depend on the data: c ones stays c ones."""


@pytest.mark.parametrize(
    "kind", sampled(6, sorted(set(ROOMS["residual"].kinds()) - {"gate"} - NOT_DERIVED["residual"]))
)
def test_residual(kind: str) -> None:
    assert kind in KEEP_THE_COUNTS, f"derive what residual '{kind}' does to a branch's shift, and add it here"
    check(make(residual=ROOMS["residual"].make(kind)), L * (4 * D + 2) + D, rows_of())


@pytest.mark.parametrize("settings", [{"weights": "softmax"}, {"weights": "softmax", "scope": "feedforward"}])
@pytest.mark.thorough
def test_replay_with_learned_weights(settings: dict[str, str]) -> None:
    check(make(residual=ROOMS["residual"].make("replay", **settings)), L * (4 * D + 2) + D, rows_of())


# --- values, sinks, what becomes of attended values, norms of queries and keys ---


@pytest.mark.parametrize("weights", ["learned", "shared"])
def test_first_values(weights: str) -> None:
    """λ1 t_l + λ2 t_1 is one shift for every position, and W_o takes it: the base's counts. Without values of its own, the
    second layer has no v."""
    rows = rows_of(v=(D, 0, D)) | {"layers.1.attention.body.value.bias": (D, 1, D)}
    rows["layers.0.attention.body.value.bias"] = rows.pop("layers.?.attention.body.value.bias")
    values = ROOMS["values"].make("first", weights=weights)
    lost = 0
    if weights == "shared":
        lost = D
        del rows["layers.1.attention.body.value.bias"]
    methods = "static" if weights == "shared" else "both"
    check(make(values=values), L * (4 * D + 2) + D - lost, rows, methods=methods)


def test_value_tables() -> None:
    """A summand from a table does not move, but the gate of each of two value heads reads n: G n = 0, two conditions."""
    rows = rows_of(n=(D, 0, D - 2), q=(D, 0, D - 2))
    check(make(depth=ONE, values=ROOMS["values"].make("table")), 5 * D + 2 - 2, rows, methods="static")


def test_every_value_residual_is_derived() -> None:
    assert set(ROOMS["values"].kinds()) == {"own", "first", "table"} | NOT_DERIVED["values"]


HELD_BY_A_SINK = {"k": (D, 0, D), "v": (D, 0, D), "o": (D, 1, 1)}


@pytest.mark.parametrize("kind", sorted(set(ROOMS["sink"].kinds()) - {"none"}))
def test_sink(kind: str) -> None:
    """The sink's score stays when all others shift, so W_k n + db_k = 0 (d); and a row adds up to less than one, to another
    number at each position, so W_v n + db_v = 0 (d) and o has c ones alone. A sink of the query's own reads n as well: its
    score is a number per head (2), W_s n = 0, which leaves n, and with it q, k and v, d - 2 moves."""
    methods = "both" if kind == "logit" else "static"
    rows, held = rows_of(**HELD_BY_A_SINK), 0
    if kind == "query":
        held = 2
        rows |= rows_of(o=(D, 1, 1), **dict.fromkeys(("n", "q", "k", "v"), (D, 0, D - held)))
    check(make(depth=ONE, sink=ROOMS["sink"].make(kind)), 3 * D + 2 - held, rows, methods=methods)


def test_column() -> None:
    """The second layer's rows see the first layer's keys and values, so that W_k n + db_k and W_v n + db_v are the same in both
    layers: 2d conditions more, and neither k nor v moves alone."""
    rows = rows_of(k=(D, 0, D), v=(D, 0, D))
    check(make(column=ROOMS["column"].make("earlier")), L * (4 * D + 2) + D - 2 * D, rows)


@pytest.mark.parametrize(("kind", "held"), [("exclusive", {"n": (D, 0, D), "q": (D, 0, D)}), ("gate", {})])
def test_attended(kind: str, held: dict[str, Dofs]) -> None:
    """Either multiplies a shift of the values by data, so W_v n + db_v = 0 (d). A gate also reads n: W_g n = 0 (d), which
    leaves n, and with it q and v, no move. Keys stay free."""
    rows = rows_of(v=(D, 0, D), o=(D, 1, 1), **held)
    if kind == "gate":
        rows |= rows_of(n=(D, 0, 0), q=(D, 0, 0), v=(D, 0, 0), o=(D, 1, 1))
    check(make(depth=ONE, attended=ROOMS["attended"].make(kind)), 4 * D + 2 - (D if kind == "gate" else 0), rows)


def test_every_room_inside_attention_is_derived() -> None:
    assert set(ROOMS["column"].kinds()) == {"none", "earlier"}
    assert set(ROOMS["attended"].kinds()) == {"plain", "exclusive", "gate"} | NOT_DERIVED["attended"]


def test_norm_of_queries_and_keys_holds_the_keys() -> None:
    """An RMS norm divides by the size of q_i + db_q and k_j + db_k: a shift of the keys is another at each position."""
    check(make(depth=ONE, qk_norm=ROOMS["norm"].make("rms")), 4 * D + 2, rows_of(k=(D, 0, D)))


# --- presets ---


def tiny(name: str, **changes: Any) -> ModelSpec:
    sizes = {"vocab": V, "width": D, "heads": 2, "hidden": F, "depth": L}
    return replace(shrunk(preset(name, **changes)), **sizes, kv_heads=None if preset(name).kv_heads is None else 1)


@pytest.mark.parametrize(
    ("name", "joint"),
    [
        ("gpt1", L * (4 * D + 2) - D),  # post-norm; the last norm shows in the logits, which have no bias
        ("gpt2", L * (4 * D + 2)),
        ("bert", L * (4 * D + 2) + D),  # a norm on the embeddings; the head's bias takes over the last norm's
        ("realformer", L * (4 * D + 2) + D),
    ],
)
@pytest.mark.thorough
def test_preset(name: str, joint: int) -> None:
    result = audit(generic(tiny(name).build()), tokens(V, seq=7))
    assert (result.joint_null, result.disagreements) == (joint, ())
    assert all(f.redundant_dof == f.size for f in result.findings if f.parameter.endswith("qk_bias.k"))


OTHERS = {
    "gpt1",
    "gpt2",
    "bert",
    "realformer",
    "gau_alpha",
    "gpt_oss",
    "gpt_neox",
    "gpt_j",
    "gemma2",
    "deepseek_mhc",
    "nanochat",
    *SHIPPED_PRESETS,
}


@pytest.mark.parametrize("name", sorted(set(PRESETS) - OTHERS))
@pytest.mark.thorough
def test_preset_of_the_llama_family(name: str) -> None:
    """As they are they have no bias to look at. With every bias on, rotary keys and RMS norms leave v with o: e per layer."""
    if name not in (
        "v4m4",
        "v4m6",
    ):  # their learned exponents are added to one another, so there is something to look at
        bare = audit(tiny(name).build(), tokens(V, seq=7))
        assert bare.size == 0
        assert any("no bias" in note for note in bare.notes), bare.notes
    spec = tiny(name, bias=True)
    # By proof alone: both methods are compared on those presets that differ in structure, in test_seeds.py.
    result = audit(generic(spec.build()), tokens(V, seq=7), track=r"(bias|qk_bias\.[qk])$", methods="static")
    e = D // 2 if spec.kv_heads else D
    assert result.joint_null == L * e
    verdicts = {f.parameter.rpartition(".body.")[2]: f.verdict for f in result.findings if ".body." in f.parameter}
    assert verdicts["value.bias"] == verdicts["output.bias"] == "foldable"
    assert {verdicts[name] for name in ("qk_bias.q", "qk_bias.k", "gate.bias", "up.bias", "down.bias")} == {"effective"}


def test_gpt_oss_forgives_nothing() -> None:
    """RMS norms forgive no shift of the stream, sinks none of keys or values: no bias of it is redundant."""
    result = audit(generic(tiny("gpt_oss").build()), tokens(V, seq=7), methods="static")
    assert result.joint_null == 0
    assert {finding.verdict for finding in result.findings} == {"effective"}


@pytest.mark.parametrize(
    ("position", "normalisation", "free"),
    [("rope", "softmax", 0), ("none", "softmax", 8), ("none", "squared_relu", 0)],
)
@pytest.mark.thorough
def test_gated_attention_units(position: str, normalisation: str, free: int) -> None:
    """SiLU stands between the projection's bias and everything, so v is no exception; the output goes to an RMS norm, which
    must not see it, and the gate makes what enters the output data. So only the key's own bias, which is added after SiLU,
    can be free: all 8 entries in each of a layer's two units, if a softmax reads the scores and nothing turns the keys.
    """
    spec = replace(
        shrunk(preset("gau_alpha", bias=True), vocab=V, width=D, depth=ONE, hidden=F),
        position=ROOMS["position"].make(position),
    )
    spec = replace(spec, block=Gau(normalisation=normalisation, key_dim=8))
    rows = {
        "layers.?.*.body.input.bias": (2 * F + 8, 0, 0),
        "layers.?.*.body.output.bias": (D, 0, 0),
        "layers.?.*.body.qk_bias.q": (8, 0, 0),
        "layers.?.*.body.qk_bias.k": (8, free, free),
        "head.bias": (V, 0, 0),
    }
    check(spec, 2 * ONE * free, rows)


# --- dropout ---


@pytest.mark.thorough
def test_dropout_keeps_the_key_free_and_stops_the_fold_of_v() -> None:
    """In training, dropped probabilities no longer sum to one, and a branch's output is dropped entry by entry: t = 0,
    db_o = 0, db_2 = 0. Left per layer: n with q and v, d; k, d; m with up, d."""
    spec = replace(make(depth=ONE), dropout=Dropout.all(0.1))
    rows = rows_of(v=(D, 0, D), o=(D, 0, 0), down=(D, 0, 0))
    check(spec, ONE * 3 * D + D, rows, training=True)
