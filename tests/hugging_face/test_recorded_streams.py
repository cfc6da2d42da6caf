"""Identities, depth matrices and early exits of decoders that are not ours, from one recorded pass."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from shipped_models import CONFIGS, shipped, with_plain_experts
from torch import Tensor, nn

import addnorm
from addnorm.errors import InputError
from addnorm.insight.depth.recorded import recorded_reads
from addnorm.insight.probe import probe
from addnorm.outside.hugging_face.shipped.assembly import ShippedModel
from addnorm.outside.hugging_face.shipped.reading import TABLES
from addnorm.redundancy.execution.float64 import Float64Mode
from addnorm.study.foreign import logits_of
from addnorm.training.objective import Batch
from sampled import sampled

SIZES: dict[str, Any] = {
    "vocab_size": 50,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "head_dim": 8,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "rotary_dim": 4,
    "ffn_dim": 48,
    "word_embed_proj_dim": 32,
}
CLASSES = [
    *("LlamaForCausalLM", "GPT2LMHeadModel", "GPTNeoXForCausalLM", "Gemma2ForCausalLM", "Olmo2ForCausalLM"),
    *("BertForMaskedLM", "GPTJForCausalLM", "CohereForCausalLM", "PhiForCausalLM", "FalconForCausalLM"),
    *("MixtralForCausalLM", "OPTForCausalLM", "GraniteForCausalLM"),
]
SHIPPED = [
    "beam",
    "deepseek_v4",
    "doge",
    "zaya",
    "hy_v4",
    "qwen4_exp",
    "muse_spark",
    "glm5_next",
    "gemma4",
    "neomme",
    "embedding_gemma2",
]


def tokens(seq: int = 7) -> Tensor:
    return torch.randint(3, 50, (2, seq), generator=torch.Generator().manual_seed(0))


def model_of(name: str) -> Any:
    if name in SHIPPED:
        return shipped(name)
    cls: Any = getattr(transformers, name)
    known = {*cls.config_class().to_dict(), *cls.config_class.attribute_map}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = cls(cls.config_class(**{key: value for key, value in SIZES.items() if key in known})).eval()
    draws = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=draws) * 0.1)
    return model


@pytest.mark.parametrize("name", sampled(5, [*CLASSES, *SHIPPED]))
def test_contributions_add_up_to_every_read(name: str) -> None:
    reads = recorded_reads(model_of(name), tokens())
    for part, shift in zip(reads.parts, reads.shifts, strict=True):
        rest = part.read - part.contributions.sum(dim=0) - shift
        assert rest.abs().max() < 1e-9 * part.read.abs().max(), part.name
    assert reads.parts[-1].name == "close"
    sizes = reads.parts[-1].contributions.abs().amax(dim=(1, 2, 3))
    reached = dict(zip(reads.sources, sizes.tolist(), strict=True))
    assert [source for source, size in reached.items() if size < 1e-6] == []
    first = reads.parts[0].contributions.abs().amax(dim=(1, 2, 3))
    assert (first[2:] == 0).all()  # none comes from later


def test_embeddings_of_values_are_part_of_the_branch_that_attends_to_them() -> None:
    """In two layers of this class embeddings join the values, inside attention: no sum of the stream. Each source is compared
    with what a hook on the layer's own modules sees."""
    model = model_of("neomme").double()
    reads = recorded_reads(model, tokens())
    roles = ("attention", "feedforward")
    assert reads.sources == ("embedding", *(f"{layer}.{role}" for layer in range(4) for role in roles))
    written: dict[str, Tensor] = {}
    for number, layer in enumerate(model.model.layers):
        for role, module in zip(roles, (layer.self_attn, layer.mlp), strict=True):

            def keep(
                _: Any, __: Any, output: Any, key: str = f"{number}.{role}", times: float = layer.residual_multiplier
            ) -> None:
                written[key] = times * (output[0] if isinstance(output, tuple) else output)

            module.register_forward_hook(keep)
    with torch.no_grad(), Float64Mode():  # as the recorded pass: the class computes norms and angles in float32
        model(tokens())
    sources = dict(zip(reads.sources, reads.parts[-1].sources, strict=True))
    for name, expected in written.items():
        torch.testing.assert_close(sources[name], expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("cls", ["LlamaForCausalLM", "GPT2LMHeadModel", "BertForMaskedLM"])
def test_reads_are_those_of_our_model_of_the_same_numbers(cls: str, tmp_path: Path) -> None:
    theirs = model_of(cls)
    theirs.save_pretrained(tmp_path)
    ours = addnorm.load_hf(tmp_path).double()
    expected, got = addnorm.identities(ours, tokens()), addnorm.identities(theirs, tokens())
    assert [part.name for part in got] == [part.name for part in expected]
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one.read, other.read.double(), rtol=0, atol=1e-6)
        torch.testing.assert_close(one.of_source, other.of_source, rtol=0, atol=1e-6)
    one, other = addnorm.depth_matrix(theirs, tokens()), addnorm.depth_matrix(ours, tokens())
    assert one.sources == other.sources
    torch.testing.assert_close(one.weights, other.weights, rtol=0, atol=1e-6)
    torch.testing.assert_close(one.shares, other.shares, rtol=0, atol=1e-6)


class Halving(nn.Module):
    """A module of a user's own, whose stream is halved after every branch and passes a saturating function once."""

    def __init__(self, *, bends: bool = False) -> None:
        super().__init__()
        self.tokens, self.bends = nn.Embedding(50, 8), bends
        self.layers = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8)) for _ in range(3)
        )
        self.head = nn.Linear(8, 50)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids)
        for number, layer in enumerate(self.layers):
            x = (x + layer(x)) / 2
            if self.bends and number == 1:
                x = x.tanh()
        logits: Tensor = self.head(x)
        return logits


def test_a_module_of_a_user_has_the_weights_of_its_formula() -> None:
    matrix = addnorm.depth_matrix(Halving(), tokens())
    expected = torch.tensor([[1, 0, 0, 0], [0.5, 0.5, 0, 0], [0.25, 0.25, 0.5, 0], [0.125, 0.125, 0.25, 0.5]])
    torch.testing.assert_close(matrix.weights, expected.double(), rtol=0, atol=1e-12)


def test_where_a_stream_is_bent_what_comes_behind_is_a_source_with_a_name() -> None:
    reads = recorded_reads(Halving(bends=True), tokens())
    assert reads.sources == ("embedding", "0.feedforward", "2.stream", "2.feedforward")  # 1 is read bent alone
    for part, shift in zip(reads.parts, reads.shifts, strict=True):
        assert (part.read - part.contributions.sum(dim=0) - shift).abs().max() < 1e-12


def test_bad_input_is_refused_with_what_is_possible() -> None:
    with pytest.raises(InputError, match=r"nn\.ModuleList"):
        addnorm.identities(nn.Sequential(nn.Embedding(50, 8)), tokens())
    with pytest.raises(InputError, match="expected tokens"):
        addnorm.depth_matrix(Halving())
    with pytest.raises(InputError, match="expected 'residual'"):
        addnorm.depth_matrix(Halving(), tokens(), "scores")
    with pytest.raises(InputError, match="reads token ids"):
        addnorm.identities(Halving(), tokens() + 100)


@pytest.mark.parametrize("name", [name for name in CLASSES if name != "GPTJForCausalLM"])
def test_an_early_exit_is_the_model_with_the_layers_before_it(name: str) -> None:
    model = model_of(name).double()
    with_plain_experts(model)
    found = addnorm.early_exits(model, tokens(), tokens())
    layers = next(module for module in model.modules() if isinstance(module, nn.ModuleList))
    kept = list(layers)
    assert [each.layers for each in found] == [0, 1, 2]
    with torch.no_grad():
        whole = model(tokens()).logits.log_softmax(-1)
        for each in found:
            del layers[:]
            layers.extend(kept[: each.layers])
            if hasattr(model.config, "num_hidden_layers"):
                model.config.num_hidden_layers = each.layers
            made = model(tokens()).logits.log_softmax(-1)
            assert each.loss == pytest.approx(-made.gather(-1, tokens()[..., None]).mean().item(), abs=1e-12)
            assert each.divergence == pytest.approx((whole.exp() * (whole - made)).sum(-1).mean().item(), abs=1e-12)
            assert each.agreement == (made.argmax(-1) == whole.argmax(-1)).double().mean().item()
    assert found[-1].divergence == 0 < found[1].divergence
    assert found[-1].agreement == 1


@pytest.mark.parametrize("name", [name for name in CONFIGS if name not in ("inkling2", "embedding_gemma2")])
def test_early_exits_of_a_class_are_those_of_our_joint(name: str) -> None:
    """Several streams included: what their class closes is what the residual's view is."""
    theirs = shipped(name)
    ours = ShippedModel(TABLES[theirs.config.model_type], copy.deepcopy(theirs)).eval()
    one, other = (addnorm.early_exits(model, tokens(), tokens()) for model in (theirs, ours))
    assert len(other) == 5
    assert len(one) == (4 if name == "zaya" else 5)  # layers of Zaya return what routers pass on, too
    for got, expected in zip(one, other[-len(one) :], strict=True):
        assert got.layers == expected.layers
        assert got.loss == pytest.approx(expected.loss, abs=1e-4)
        assert got.divergence == pytest.approx(expected.divergence, abs=1e-4)
    assert min(each.divergence for each in one[:-1]) > 1e-3


@pytest.mark.parametrize("name", ["deepseek_v4", "gemma3n", "doge"])
def test_inspected_exits_are_the_early_exits(name: str) -> None:
    """The losses that `addnorm inspect` has of a checkpoint, several streams included."""
    model, ids = shipped(name), tokens()
    batch = Batch(inputs=ids[:, :-1], targets=ids[:, 1:], mask=None)
    found = probe(model, [batch], [batch], logits_of)
    expected = [each.loss for each in addnorm.early_exits(model, batch.inputs, batch.targets)]
    losses = [row["exit_loss"] for row in found["layers"]]
    assert losses == pytest.approx(expected[-len(losses) :], abs=1e-4)
    assert len(losses) == 4
    assert all(row["rms"] > 0 for row in found["layers"])


def test_early_exits_that_are_not_the_models_own_are_refused() -> None:
    # Its loop collects sums of blocks beside the layers.
    with pytest.raises(InputError, match="Inkling2ForCausalLM: expected logits that its last layer's output makes"):
        addnorm.early_exits(shipped("inkling2"), tokens())
    with pytest.raises(InputError, match="Halving: expected logits that its last layer's output makes"):
        addnorm.early_exits(Halving(), tokens())  # its layers are branches
    theirs = shipped("embedding_gemma2")
    for model in (theirs, ShippedModel(TABLES["embedding_gemma2"], copy.deepcopy(theirs))):
        with pytest.raises(InputError, match="expected logits"):
            addnorm.early_exits(model, tokens())
    with pytest.raises(InputError, match=r"targets: expected the shape of tokens, \[2, 7\], got \[2, 6\]"):
        addnorm.early_exits(Halving(), tokens(), tokens()[:, 1:])


class Encoder(nn.Module):
    """A module of a user's own, whose layers return the stream."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.head = nn.Embedding(50, 8), nn.Linear(8, 50)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True) for _ in range(3))

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids)
        for layer in self.layers:
            x = layer(x)
        logits: Tensor = self.head(x)
        return logits


def test_early_exits_of_a_module_of_a_user() -> None:
    model = Encoder()
    found = addnorm.early_exits(model, tokens())
    assert model.training  # left as it was
    model.eval()
    with torch.no_grad():
        whole, first = model(tokens()).log_softmax(-1), model.head(model.tokens(tokens())).log_softmax(-1)
    assert [each.loss for each in found] == [None] * 4
    assert found[0].divergence == pytest.approx((whole.exp() * (whole - first)).sum(-1).mean().item(), rel=1e-4)
    assert found[-1].divergence == pytest.approx(0, abs=1e-12)


class Block(nn.Module):
    """A layer whose feed-forward branch is a list itself."""

    def __init__(self) -> None:
        super().__init__()
        self.norms, self.fused, self.out = (
            nn.ModuleList([nn.LayerNorm(8), nn.LayerNorm(8)]),
            nn.Linear(8, 24),
            nn.Linear(8, 8),
        )
        self.feedforward = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.fused(self.norms[0](x)).chunk(3, -1)
        x = x + self.out(nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True))
        return x + self.feedforward(self.norms[1](x))


class Order(nn.Module):
    """A module of a user's own whose layers are called in an order of their own."""

    ORDERS: dict[str, tuple[int, list[int]]] = {
        "one by one": (3, [0, 1, 2]),
        "one thrice": (1, [0, 0, 0]),
        "twice through": (2, [0, 1, 0, 1]),
        "each twice": (2, [0, 0, 1, 1]),
        "there and back": (3, [0, 1, 2, 1, 0]),
        "from the last": (3, [2, 1, 0]),
    }

    def __init__(self, order: str, *, shared_list: bool = False, returns: str = "tensor") -> None:
        super().__init__()
        number, self.calls = self.ORDERS[order]
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.tokens, self.norm, self.head = nn.Embedding(50, 8), nn.LayerNorm(8), nn.Linear(8, 50)
            layers = [Block() for _ in range(number)]
        if shared_list:
            layers, self.calls = [layers[at] for at in self.calls], [*range(len(self.calls))]
        self.layers, self.returns = nn.ModuleList(layers), returns

    def exit(self, ids: Tensor, count: int) -> Tensor:
        x = self.tokens(ids)
        for at in self.calls[:count]:
            x = self.layers[at](x)
        return self.head(self.norm(x))

    def forward(self, ids: Tensor) -> Any:
        logits = self.exit(ids, len(self.calls))
        return {"logits": logits, "loss": None} if self.returns == "dict" else logits


@pytest.mark.parametrize("returns", ["tensor", "dict"])
@pytest.mark.parametrize("shared_list", [False, True])
@pytest.mark.parametrize("order", sampled(3, Order.ORDERS))
def test_layers_that_are_called_again_are_counted_again(order: str, shared_list: bool, returns: str) -> None:
    model = Order(order, shared_list=shared_list, returns=returns).double().eval()
    found = addnorm.early_exits(model, tokens(), tokens())
    with torch.no_grad():
        expected = [model.exit(tokens(), count).log_softmax(-1) for count in range(len(model.calls) + 1)]
    assert [each.layers for each in found] == [*range(len(expected))]
    assert [each.loss for each in found] == [
        pytest.approx(-made.gather(-1, tokens()[..., None]).mean().item(), abs=1e-12) for made in expected
    ]
    matrix = addnorm.depth_matrix(model, tokens())
    assert len(matrix.sources) == 1 + 2 * len(model.calls)
    assert torch.allclose(matrix.weights[-1], torch.ones(len(matrix.sources), dtype=torch.float64))
    assert torch.allclose(matrix.shares.sum(1), torch.ones(len(matrix.reads), dtype=torch.float64))


def test_shared_layers_of_a_class_are_layers() -> None:
    sizes = {"vocab_size": 50, "embedding_size": 8, "hidden_size": 8, "intermediate_size": 16, "num_attention_heads": 2}
    model = transformers.AlbertForMaskedLM(transformers.AlbertConfig(**sizes, num_hidden_layers=4)).eval()
    assert [each.layers for each in addnorm.early_exits(model, tokens())] == [0, 1, 2, 3, 4]
    assert len(addnorm.depth_matrix(model, tokens()).reads) == 9


class Unlisted(Encoder):
    """Layers as attributes; their branches are lists of matrices."""

    def __init__(self) -> None:
        super().__init__()
        del self.layers
        self.first, self.second = Block(), Block()

    def forward(self, ids: Tensor) -> Tensor:
        logits: Tensor = self.head(self.second(self.first(self.tokens(ids))))
        return logits


@pytest.mark.parametrize("of", [addnorm.depth_matrix, addnorm.identities, addnorm.early_exits])
def test_a_branch_that_is_a_list_is_no_list_of_layers(of: Any) -> None:
    with pytest.raises(InputError, match="Unlisted: expected a model with a list of layers"):
        of(Unlisted(), tokens())


def sequential(layers: int = 2) -> list[str]:
    return ["embedding", *(f"{layer}.{role}" for layer in range(layers) for role in ("attention", "feedforward"))]


ONE_SUM = ["embedding", "0.parallel", "1.parallel"]
NAMES = {
    **dict.fromkeys(CLASSES, sequential()),
    **dict.fromkeys(("GPTNeoXForCausalLM", "GPTJForCausalLM", "PhiForCausalLM", "FalconForCausalLM"), ONE_SUM),
    **dict.fromkeys(("beam", "deepseek_v4", "doge", "zaya", "hy_v4", "muse_spark", "neomme"), sequential(4)),
}


@pytest.mark.parametrize("name", sampled(2, NAMES))
def test_a_branch_has_the_name_of_what_it_computes(name: str) -> None:
    """Also where both branches of a layer read one stream, or several streams are mixed by a softmax."""
    assert recorded_reads(model_of(name), tokens()).sources == tuple(NAMES[name])


def test_parallel_branches_that_join_one_by_one_are_told_apart_by_their_values() -> None:
    model = model_of("CohereForCausalLM").double()
    written: dict[str, Tensor] = {}
    for number, layer in enumerate(model.model.layers):
        for role, module in (("attention", layer.self_attn), ("feedforward", layer.mlp)):
            module.register_forward_hook(
                lambda _, __, output, name=f"{number}.{role}": written.update(
                    {name: output[0] if isinstance(output, tuple) else output}
                )
            )
    with torch.no_grad(), Float64Mode():
        model(tokens())
    reads = recorded_reads(model, tokens())
    assert reads.sources == tuple(sequential())
    for name, source in zip(reads.sources[1:], reads.parts[-1].sources[1:], strict=True):
        torch.testing.assert_close(source, written[name], rtol=0, atol=1e-9)
    assert [part.name for part in addnorm.identities(model, tokens())] == ["0.attention", "1.attention", "close"]


class Dense(nn.Module):
    """A module of a user's own whose layers read a weighted sum of all branches, each of which joins again and again."""

    def __init__(self, *, feedforward_first: bool) -> None:
        super().__init__()
        self.tokens, self.head, self.first = nn.Embedding(50, 8), nn.Linear(8, 50), feedforward_first
        self.layers = nn.ModuleList(Block() for _ in range(2))

    def attend(self, layer: Any, x: Tensor) -> Tensor:
        query, key, value = layer.fused(layer.norms[0](x)).chunk(3, -1)
        return layer.out(nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True))

    def forward(self, ids: Tensor) -> Tensor:
        parts = [self.tokens(ids)]
        for layer in self.layers:
            layer.forward = lambda x, layer=layer: self.joined(layer, parts, x)
        x = parts[0]
        for layer in self.layers:
            x = layer(x)
        logits: Tensor = self.head(x)
        return logits

    def joined(self, layer: Any, parts: list[Tensor], x: Tensor) -> Tensor:
        branches = [self.attend, lambda layer, x: layer.feedforward(layer.norms[1](x))]
        for branch in reversed(branches) if self.first else branches:
            parts.append(branch(layer, x))
            x = parts[-1]
            for part in reversed(parts[:-1]):
                x = x + part
        return x


@pytest.mark.parametrize("feedforward_first", [False, True])
def test_a_branch_that_joins_again_lends_its_name_to_no_other(feedforward_first: bool) -> None:
    expected = sequential()
    if feedforward_first:
        expected = ["embedding", "0.feedforward", "0.attention", "1.feedforward", "1.attention"]
    assert recorded_reads(Dense(feedforward_first=feedforward_first), tokens()).sources == tuple(expected)
