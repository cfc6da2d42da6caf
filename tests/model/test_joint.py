"""A joint in models that nobody here wrote: those of docs/guide/own-module.md, from the page itself."""

import copy
import pickle
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import addnorm
from addnorm.catalogue import ROOMS
from addnorm.errors import InputError, UnknownName
from addnorm.roles import roles

pytestmark = pytest.mark.plain  # models of others

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "own-module.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
MODELS = ("GPT", "Chat")
TOKENS = torch.randint(64, (3, 17), generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def page() -> dict[str, Any]:
    """The classes that the page defines."""
    names: dict[str, Any] = {}
    for block in BLOCKS:
        if "class " in block or "import addnorm\n" in block:
            exec(block, names)
    return names


def plain(page: dict[str, Any], model: Any, tokens: Tensor) -> Tensor:
    """What the unchanged code of nanoGPT or nanochat computes with the same parameters."""
    if hasattr(model, "wpe"):
        x = model.wte(tokens) + model.wpe.weight[: tokens.shape[1]]
        for block in model.h:
            x = x + block.attn(block.ln_1(x))
            x = x + block.mlp(block.ln_2(x))
        return model.lm_head(model.ln_f(x))
    norm = page["norm"]
    angle = torch.outer(torch.arange(tokens.shape[1]), 10000.0 ** -(torch.arange(model.pairs) / model.pairs))
    cos_sin = angle.cos().to(model.wte.weight), angle.sin().to(model.wte.weight)
    x = norm(model.wte(tokens))
    for block in model.h:
        x = x + block.attn(norm(x), cos_sin)
        x = x + block.mlp(norm(x))
    return model.lm_head(norm(x))


def test_at_most_ten_lines_of_each_model_change() -> None:
    counts = [block.count("# joint") for block in BLOCKS if "class " in block]
    assert len(counts) == 3
    assert all(0 < count <= 10 for count in counts)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("residual", ["add", "affine", "stream_weight", "streams", "wide", "lambdas"])
def test_a_model_equals_the_unchanged_one_where_it_must(page: dict[str, Any], name: str, residual: str) -> None:
    model = page[name](residual).double()
    got, expected = model(TOKENS), plain(page, model, TOKENS)
    if residual == "add":
        assert torch.equal(got, expected)
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("residual", ["streams", "gated_streams", "attention", "variance_keeping"])
def test_a_model_trains(page: dict[str, Any], name: str, residual: str) -> None:
    model = page[name](residual)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(8):
        loss = F.cross_entropy(model(TOKENS[:, :-1]).flatten(0, 1), TOKENS[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] - 0.3
    assert all(parameter.grad is not None for parameter in model.parameters())


class Speech(nn.Module):
    """A decoder of the kind that reads speech: every block attends to its text, then to an encoder's output, in half precision
    or not, with norms in float32 and a cache of keys that is not used here."""

    def __init__(self, residual: str | None, width: int = 32, depth: int = 2, **fields: Any) -> None:
        super().__init__()
        self.embed, self.norm = nn.Embedding(64, width), nn.LayerNorm(width)
        self.blocks = nn.ModuleList(
            nn.ModuleDict(
                {
                    "attn": nn.MultiheadAttention(width, 4, batch_first=True),
                    "cross": nn.MultiheadAttention(width, 4, batch_first=True),
                    "mlp": nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)),
                    "norms": nn.ModuleList(nn.LayerNorm(width) for _ in range(3)),
                }
            )
            for _ in range(depth)
        )
        branches = ("attention", "attention", "feedforward")
        self.joint = residual and addnorm.joint(residual, width=width, depth=depth, branches=branches, **fields)

    def forward(self, tokens: Tensor, speech: Tensor) -> Tensor:
        x, seq = self.embed(tokens), tokens.shape[1]
        mask = torch.full((seq, seq), float("-inf"), dtype=x.dtype).triu(1)
        state = x if self.joint is None else self.joint.open(x)
        for block in self.blocks:
            one, two, three = block["norms"]

            def attend(h: Tensor, block: Any = block, norm: Any = one) -> Tensor:
                return block["attn"](norm(h), norm(h), norm(h), attn_mask=mask, need_weights=False)[0]

            def cross(h: Tensor, block: Any = block, norm: Any = two) -> Tensor:
                return block["cross"](norm(h), speech, speech, need_weights=False)[0]

            def mlp(h: Tensor, block: Any = block, norm: Any = three) -> Tensor:
                return block["mlp"](norm(h))

            for branch in (attend, cross, mlp):
                state = state + branch(state) if self.joint is None else self.joint.run(state, branch)
        x = state if self.joint is None else self.joint.close(state)
        return self.norm(x) @ self.embed.weight.T


def test_a_decoder_that_attends_twice_has_three_branches_a_layer() -> None:
    speech = torch.randn(3, 11, 32, generator=torch.Generator().manual_seed(0)).double()
    torch.manual_seed(0)
    unchanged = Speech(None).double()
    for residual in ("add", "streams", "affine"):
        model = Speech(residual).double()
        model.load_state_dict(unchanged.state_dict(), strict=False)
        torch.testing.assert_close(model(TOKENS, speech), unchanged(TOKENS, speech), rtol=0, atol=1e-12)
    model = Speech("gated_streams").double()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(5):
        loss = F.cross_entropy(model(TOKENS[:, :-1], speech).flatten(0, 1), TOKENS[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


def any_positions(kind: str, **settings: Any) -> Any:
    """A joint of two layers with random numbers, and a branch for it."""
    joint = addnorm.joint(kind, width=16, depth=2, separate_reads=True, **settings).double()
    for parameter in joint.parameters():
        nn.init.normal_(parameter, std=0.3, generator=torch.Generator().manual_seed(1))
    return joint, lambda h: torch.tanh(h if isinstance(h, Tensor) else h[0] + 2 * h[1] - h[2])


SETTINGS: list[tuple[str, dict[str, Any]]] = [
    *((kind, {}) for kind in ROOMS["residual"].kinds() if kind != "replay"),  # runs layers again
    *(("cumulative", {"weights": weights}) for weights in ("softmax", "mean")),
]


# In each type by the form that is taken for it: widths of a fast one are summed otherwise than those of a plain one.
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("kind", "settings"), SETTINGS)
def test_a_stream_may_have_any_positions(kind: str, settings: dict[str, Any], dtype: torch.dtype) -> None:
    """Packed tokens, images and one position give what the same vectors give as a sequence."""
    try:
        joint, branch = any_positions(kind, **settings)
    except InputError as error:
        pytest.skip(str(error))
    joint.to(dtype)
    x = torch.randn(1, 12, 16, generator=torch.Generator().manual_seed(0)).to(dtype)
    made = []
    for shape in ((1, 12, 16), (12, 16), (1, 3, 4, 16), (16,)):
        state = joint.open(x.view(shape) if len(shape) > 1 else x[0, 7])
        for _ in range(4):
            state = joint.run(state, branch)
        made.append(joint.close(state).detach())
        assert made[-1].shape == shape
        expected = made[0] if len(shape) > 1 else made[0][0, 7]
        # Sums over at most five sources of four branches, in another order at most, and their sigmoids.
        bound = 64 * torch.finfo(dtype).eps * float(made[0].abs().max())
        torch.testing.assert_close(made[-1].view(expected.shape), expected, rtol=0, atol=bound)


def test_scores_and_values_of_earlier_layers_are_sums(page: dict[str, Any]) -> None:
    (block,) = (block for block in BLOCKS if "def attend_with_earlier" in block)
    names = {"torch": torch, "addnorm": addnorm}
    exec(block, names)
    q, k, v = torch.randn(3, 2, 1, 2, 5, 4, generator=torch.Generator().manual_seed(0)).double()
    before: Any = ([], [], [])
    for layer in range(2):
        got, before = names["attend_with_earlier"](q[layer], k[layer], v[layer], before)
    scores = sum(q[layer] @ k[layer].mT for layer in range(2)) / 2
    scores = scores.masked_fill(torch.ones(5, 5, dtype=torch.bool).triu(1), float("-inf"))
    torch.testing.assert_close(got, scores.softmax(-1) @ (v[0] + v[1]) / 2, rtol=0, atol=1e-14)


def random_layers(page: dict[str, Any], *, norm_first: bool) -> nn.ModuleList:
    torch.manual_seed(0)
    make = page["EncoderLayer"]
    return nn.ModuleList(
        make(32, 4, 64, dropout=0.0, batch_first=True, norm_first=norm_first) for _ in range(2)
    ).double()


@pytest.mark.parametrize("norm_first", [True, False])
def test_torchs_encoder_layer_equals_itself(page: dict[str, Any], norm_first: bool) -> None:
    layers, x = random_layers(page, norm_first=norm_first), torch.randn(2, 9, 32).double()
    add = addnorm.joint("add", width=32, depth=2)
    expected, state = x, add.open(x)
    for layer in layers:
        expected = nn.TransformerEncoderLayer.forward(layer, expected)
        state = layer(state, add)
    torch.testing.assert_close(add.close(state), expected, rtol=0, atol=1e-12)


def test_a_norm_on_several_streams_is_refused_with_the_reason(page: dict[str, Any]) -> None:
    layers, streams = random_layers(page, norm_first=False), addnorm.joint("streams", width=32, depth=2).double()
    with pytest.raises(
        InputError, match="no norm on the stream with this residual, because there is more than one stream"
    ):
        layers[0](streams.open(torch.randn(2, 9, 32).double()), streams)


def test_roles_decide_the_decay_of_foreign_parameters(page: dict[str, Any]) -> None:
    from addnorm.optimization.optimizers import parameter_groups

    model = page["GPT"]("affine")
    groups = parameter_groups(model, weight_decay=0.1, decay_on="matrices")
    decaying = {id(p) for group in groups if group["weight_decay"] for p in group["params"]}
    names = {name for name, parameter in model.named_parameters() if id(parameter) in decaying}
    assert {"h.0.attn.c_attn.weight", "h.1.mlp.c_fc.weight", "wte.weight"} <= names
    assert not {name for name in names if "joint" in name or "ln_" in name or name.endswith("bias")}
    assert roles(model)["joint.residual.stream_shift"] == "bias"


@pytest.mark.parametrize("kind", ROOMS["residual"].kinds())
def test_every_residual_is_a_joint_or_refused_with_a_way_out(kind: str) -> None:
    if kind == "replay":
        with pytest.raises(InputError, match=r"which runs earlier layers again. Use it in a model of addnorm.preset"):
            addnorm.joint(kind, width=16, depth=2)
        return
    if ROOMS["residual"].make(kind).separate_reads:
        with pytest.raises(InputError, match=r"Pass reads='one', or separate_reads=True"):
            addnorm.joint(kind, width=16, depth=2)
    made = addnorm.joint(kind, width=16, depth=2, separate_reads=True).double()
    made.advance(10**6)
    x = torch.randn(2, 5, 16, dtype=torch.float64, requires_grad=True)
    state = made.open(x)
    for _ in range(4):
        state = made.run(state, lambda h: torch.tanh(h.query + h.key - h.value if isinstance(h, tuple) else h))
    made.close(state).square().sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()
    assert all(parameter.grad is not None for parameter in made.parameters())


def test_a_joint_starts_as_the_residual_of_a_model() -> None:
    settings = {"kind": "streams", "streams": 3, "mixing": "sinkhorn"}
    model = addnorm.preset(
        "llama", vocab=11, width=16, depth=2, heads=2, hidden=24, max_seq=8, residual=settings
    ).build(seed=7)
    alone = addnorm.joint(settings, width=16, depth=2, seed=7)
    theirs = model.residual.state_dict()
    assert alone.residual.state_dict().keys() == theirs.keys()
    assert all(torch.equal(value, theirs[name]) for name, value in alone.residual.state_dict().items())


@pytest.mark.parametrize("kind", [kind for kind in ROOMS["residual"].kinds() if kind != "replay"])
def test_a_joint_made_without_memory_starts_as_any_other(kind: str) -> None:
    """As in nanochat and torchtitan: the model is made on the meta device, and its memory holds anything until it is filled."""
    expected = addnorm.joint(kind, width=16, depth=2, seed=3, separate_reads=True)
    with torch.device("meta"):
        made = addnorm.joint(kind, width=16, depth=2, seed=3, separate_reads=True)
    values = [*expected.named_parameters(), *expected.named_buffers()]
    if values:
        with pytest.raises(InputError, match=r"Call model.to_empty\(device=...\) first"):
            made.reset_parameters()
    made.to_empty(device="cpu")
    with torch.no_grad():
        for tensor in [*made.parameters(), *made.buffers()]:
            tensor.fill_(-7)
    made.reset_parameters()
    reset = dict([*made.named_parameters(), *made.named_buffers()])
    assert reset.keys() == dict(values).keys()
    assert all(torch.equal(reset[name], value) for name, value in values)


@pytest.mark.thorough  # imports anew, in a process of its own
def test_equal_steps_are_made_on_the_meta_device_after_a_load_by_transformers() -> None:
    """Its loader replaces torch.linspace, and torch keeps the replacement where it has not met the device before."""
    code = """
        import torch, addnorm
        from transformers.initialization import meta_device_safe_creation_ops
        with meta_device_safe_creation_ops(), torch.device("meta"):
            torch.zeros(1)
        with torch.device("meta"):
            assert torch.linspace(0, 1, 2).device.type == "cpu", "the replacement is not kept, so that this shows nothing"
            for kind in ("lambdas", "wide"):
                assert all(each.is_meta for each in addnorm.joint(kind, width=8, depth=2).parameters()), kind
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)


def test_a_copied_joint_is_reset_alone() -> None:
    made = addnorm.joint("lambdas", width=16, depth=2)
    other = pickle.loads(pickle.dumps(copy.deepcopy(made)))
    with torch.no_grad():
        other.residual.stream.fill_(3.0)
        made.residual.stream.fill_(5.0)
    other.reset_parameters()
    assert torch.equal(other.residual.stream, addnorm.joint("lambdas", width=16, depth=2).residual.stream)
    assert made.residual.stream.unique().tolist() == [5.0]


def test_a_state_crosses_activation_checkpointing(page: dict[str, Any]) -> None:
    model = page["GPT"]("streams").double()
    expected = torch.autograd.grad(model(TOKENS).square().sum(), model.wte.weight)[0]
    state = model.joint.open(model.wte(TOKENS) + model.wpe.weight[: TOKENS.shape[1]])
    for block in model.h:
        state = checkpoint(block, state, model.joint, use_reentrant=False)
    logits = model.lm_head(model.ln_f(model.joint.close(state)))
    torch.testing.assert_close(
        torch.autograd.grad(logits.square().sum(), model.wte.weight)[0], expected, rtol=1e-12, atol=1e-12
    )


def test_wrong_uses_are_named() -> None:
    add, x = addnorm.joint("add", width=16, depth=1), torch.zeros(1, 5, 16)
    h, state = add.read(add.open(x))
    with pytest.raises(InputError, match="expected a write of branch 0, which has read, got another read"):
        add.read(state)
    with pytest.raises(InputError, match="expected a read before the write of branch 0"):
        add.write(add.open(x), h)
    with pytest.raises(InputError, match="expected 2 written branches before the close, got 0"):
        add.close(add.open(x))
    state = add.run(add.run(add.open(x), torch.tanh), torch.tanh)
    with pytest.raises(InputError, match=r"expected 2 reads, .* got one more"):
        add.read(state)
    with pytest.raises(InputError, match=r"expected a stream of width 16, .* got 8"):
        add.open(torch.zeros(1, 5, 8))
    with pytest.raises(UnknownName, match=r"no residual 'stream'. Did you mean 'streams'"):
        addnorm.joint("stream", width=16, depth=1)
    for kind, room in {
        "relative_bank": "position",
        "token_tables": "block",
        "gated": "norm",
        "scores": "scores",
    }.items():
        with pytest.raises(InputError, match=rf"got '{kind}' of room '{room}', which works inside a branch"):
            addnorm.joint(kind, width=8, depth=2)
    with pytest.raises(UnknownName, match="no branch of a joint 'mlp'"):
        addnorm.joint("add", width=16, depth=1, branches=("mlp",))
    with pytest.raises(InputError, match=r"residual 'streams' has no field 'stream'.* Known: streams, mixing"):
        addnorm.joint("streams", width=16, depth=1, stream=3)
    with pytest.raises(InputError, match="expected as residual a kind"):
        addnorm.joint(3, width=16, depth=1)
    with pytest.raises(InputError, match="width: expected a whole number"):
        addnorm.joint("add", width=0, depth=1)
    with pytest.raises(InputError, match=r"a sequence such as \('attention',\), got the text 'attention'"):
        addnorm.joint("add", width=16, depth=1, branches="attention")


def test_attention_of_one_term_has_the_usual_defaults() -> None:
    q, k, v = (torch.randn(2, 3, 5, 8, generator=torch.Generator().manual_seed(seed)) for seed in range(3))
    expected = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    torch.testing.assert_close(addnorm.attend(q, k, v), expected)
    torch.testing.assert_close(addnorm.attend(q, k, v, causal=False), F.scaled_dot_product_attention(q, k, v))
    with pytest.raises(InputError, match="weights: expected one number per term, 2, got none"):
        addnorm.attend([q, q], [k, k], v)
