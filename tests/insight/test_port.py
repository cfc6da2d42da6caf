"""`addnorm.equal_to`: implementations of one architecture are equal, and every planted error of a port names its site."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn
from torch.nn import functional as F

import addnorm
from addnorm.errors import InputError
from addnorm.insight.port import PortComparison

SIZES: dict[str, Any] = {
    "vocab_size": 50,
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "max_position_embeddings": 64,
    "attention_bias": True,
}


def tokens(batch: int = 2, seq: int = 9) -> Tensor:
    return torch.randint(3, 50, (batch, seq), generator=torch.Generator().manual_seed(0))


def original(cls: str = "LlamaForCausalLM", **changes: Any) -> Any:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        family = getattr(transformers, cls)
        known = family.config_class().to_dict()
        fields = {name: value for name, value in (SIZES | changes).items() if name in known or name in changes}
        return family(family.config_class(**fields)).eval()


class Norm(nn.Module):
    def __init__(self, eps: float = 1e-6) -> None:
        super().__init__()
        self.gain, self.eps = nn.Parameter(torch.ones(32)), eps

    def forward(self, x: Tensor) -> Tensor:
        return self.gain * x * (x.square().mean(-1, keepdim=True) + self.eps).rsqrt()


class Attention(nn.Module):
    """Causal attention with rotary positions, written once more by hand; queries, keys and values in one matrix."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self.fault = fault
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32, bias=fault != "bias forgotten")

    def turned(self, x: Tensor) -> Tensor:
        angle = torch.arange(x.shape[2])[:, None] * 10000.0 ** -(torch.arange(0, 8, 2, dtype=torch.float64) / 8)
        one, two = x[..., :4], x[..., 4:]
        if self.fault == "rotary halves swapped":
            one, two = x[..., ::2], x[..., 1::2]
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        return torch.cat([one * cos - two * sin, two * cos + one * sin], dim=-1)

    def forward(self, x: Tensor) -> Tensor:
        batch, seq, _ = x.shape
        q, k, v = self.qkv(x).view(batch, seq, 3, 4, 8).permute(2, 0, 3, 1, 4)
        scores = self.turned(q) @ self.turned(k).mT / (1 if self.fault == "scale missing" else math.sqrt(8))
        seen = torch.ones(seq, seq, dtype=torch.bool).tril()
        weights = scores.masked_fill(~seen, -torch.inf).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).reshape(batch, seq, 32))


class Gated(nn.Module):
    def __init__(self, fault: str) -> None:
        super().__init__()
        self.fault = fault
        self.gate, self.up, self.down = (nn.Linear(32, 32, bias=False) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        gate = F.linear(x, self.gate.weight.T) if self.fault == "gate transposed" else self.gate(x)
        return self.down(F.silu(gate) * self.up(x))


class Layer(nn.Module):
    def __init__(self, fault: str) -> None:
        super().__init__()
        self.fault = fault
        self.one, self.two = Norm(), Norm(1e-5 if fault == "another epsilon" else 1e-6)
        self.attention, self.mlp = Attention(fault), Gated(fault)

    def forward(self, x: Tensor) -> Tensor:
        behind = self.fault == "norm behind"
        x = self.one(x + self.attention(x)) if behind else x + self.attention(self.one(x))
        if self.fault == "residual once too often":
            x = x + self.mlp(self.two(x)) + x
        elif self.fault == "gradient stopped":
            x = x + self.mlp(self.two(x).detach())
        else:
            x = x + self.mlp(self.two(x))
        return x


class Port(nn.Module):
    """A port by hand, with one fault in its second layer."""

    def __init__(self, fault: str = "") -> None:
        super().__init__()
        self.tokens = nn.Embedding(50, 32)
        self.blocks = nn.ModuleList(Layer(fault if number == 1 else "") for number in range(3))
        self.final, self.head = Norm(), nn.Linear(32, 50, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids)
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(self.final(x))
        return logits


@torch.no_grad()
def ported(fault: str = "") -> Any:
    """The port with the numbers of the original, loaded as its author would."""
    given: dict[str, Tensor] = original().state_dict()
    port: Any = Port(fault)
    port.tokens.weight.copy_(given["model.embed_tokens.weight"])
    port.head.weight.copy_(given["lm_head.weight"])
    for number, block in enumerate(port.blocks):
        own = f"model.layers.{number}."
        parts = [given[f"{own}self_attn.{name}_proj.weight"] for name in "qkv"]
        block.attention.qkv.weight.copy_(torch.cat(parts))
        block.attention.qkv.bias.zero_()
        block.attention.out.weight.copy_(given[f"{own}self_attn.o_proj.weight"])
        if block.attention.out.bias is not None:
            block.attention.out.bias.zero_()
        for name in ("gate", "up", "down"):
            getattr(block.mlp, name).weight.copy_(given[f"{own}mlp.{name}_proj.weight"])
    return port


def test_a_port_that_fuses_three_matrices_is_equal() -> None:
    result = addnorm.equal_to(original(), ported(), tokens())
    assert len(repr(result)) < 200
    assert str(result) == result.text
    assert result, result.text
    assert not result.only_ours
    assert not result.only_theirs
    assert set(result.differences) == {"logits", "gradients"}
    assert max(result.differences.values()) < 1e-6
    assert "takes no cache" in result.skipped["cached decoding"]
    fused = {pair.ours for pair in result.pairs if pair.theirs == "blocks.0.attention.qkv.weight"}
    assert fused == {f"model.layers.0.self_attn.{name}_proj.weight" for name in "qkv"}
    assert result.to_json()["equal"]
    assert result.text.startswith("The two models are equal.")


PLACES = {
    "residual once too often": ("stream after feedforward", "model.layers.1", "blocks.1"),
    "norm behind": ("input", "model.layers.1.input_layernorm", "blocks.1.one"),
    "scale missing": ("attention weights", "model.layers.1.self_attn", "blocks.1.attention"),
    "rotary halves swapped": ("attention weights", "model.layers.1.self_attn", "blocks.1.attention"),
    "gate transposed": ("input", "model.layers.1.mlp.down_proj", "blocks.1.mlp.down"),
    "bias forgotten": ("output", "model.layers.1.self_attn.o_proj", "blocks.1.attention.out"),
    "another epsilon": ("output", "model.layers.1.post_attention_layernorm", "blocks.1.two"),
}


@pytest.mark.parametrize("fault", PLACES)
def test_an_error_of_a_port_names_its_site(fault: str) -> None:
    result = addnorm.equal_to(original(), ported(fault), tokens())
    found = result.first_difference
    assert not result.equal
    assert found is not None
    assert (found.what, found.ours, found.theirs) == PLACES[fault], result.text
    assert found.size > 1e-7
    assert found.text in result.text


def test_a_hint_says_what_is_known_of_the_cause() -> None:
    def hint(fault: str) -> str:
        found = addnorm.equal_to(original(), ported(fault), tokens()).first_difference
        assert found is not None
        return found.hint

    assert "scores are 2.82843 times" in hint("scale missing")
    assert "called after model.layers.0 in the first model, blocks.1.attention in the second" in hint("norm behind")
    assert "one vector at all positions" in hint("bias forgotten")
    assert hint("residual once too often") == "the second model adds the stream before it 2 times"


def test_a_gradient_that_stops_is_found_though_logits_agree() -> None:
    found = addnorm.equal_to(original(), ported("gradient stopped"), tokens()).first_difference
    assert found is not None
    assert (found.check, found.what) == ("gradients", "gradient")


def test_models_with_their_own_random_numbers_are_compared_with_those_of_the_first() -> None:
    torch.manual_seed(3)
    fresh = original()
    for parameter in fresh.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.1)
    result = addnorm.equal_to(original(), fresh, tokens())
    assert result, result.text
    assert result.copied


@pytest.mark.parametrize("cls", ["GPT2LMHeadModel", "LlamaForCausalLM", "GPTNeoXForCausalLM", "Qwen2ForCausalLM"])
def test_our_models_are_equal_to_the_classes_that_they_are_loaded_from(cls: str, tmp_path: Any) -> None:
    names = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64} if cls == "GPT2LMHeadModel" else {}
    theirs = original(cls, **names, bos_token_id=1, eos_token_id=2, pad_token_id=0)
    theirs.save_pretrained(tmp_path)
    result = addnorm.equal_to(addnorm.load_hf(tmp_path), theirs, tokens())
    assert result, result.text
    assert set(result.differences) == {"logits", "gradients", "cached decoding", "left padding"}


def test_a_number_that_was_loaded_wrongly_is_named() -> None:
    port = ported()
    with torch.no_grad():
        port.blocks[2].mlp.up.weight[5, 7] += 0.01
    result = addnorm.equal_to(original(), port, tokens())
    assert result.first_difference is not None
    assert result.first_difference.theirs == "blocks.2.mlp.up"
    assert (
        result.unequal == ("model.layers.2.mlp.up_proj.weight = blocks.2.mlp.up.weight (by order)",) or result.only_ours
    )


class Cached(nn.Module):
    """The original with a fault in one of its modes."""

    def __init__(self, change: Callable[[dict[str, Any]], None]) -> None:
        super().__init__()
        self.inner, self.change = original(), change

    def forward(
        self, ids: Tensor, attention_mask: Any = None, past_key_values: Any = None, use_cache: bool = False
    ) -> Any:
        given = {"attention_mask": attention_mask, "past_key_values": past_key_values, "use_cache": use_cache}
        self.change(given)
        return self.inner(ids, **given)


def forgets_positions(given: dict[str, Any]) -> None:
    if given["past_key_values"] is not None:
        given["position_ids"] = torch.zeros(2, 1, dtype=torch.int64)


def forgets_padding(given: dict[str, Any]) -> None:
    given["attention_mask"] = None


@pytest.mark.parametrize(
    ("change", "check", "what", "path"),
    [
        # The rotary position acts inside attention; its weights for one query at a time are no square.
        (forgets_positions, "cached decoding", "input", ".o_proj"),
        (forgets_padding, "left padding", "attention weights", ""),
    ],
)
def test_a_fault_of_one_mode_is_found_in_that_mode(
    change: Callable[..., None], check: str, what: str, path: str
) -> None:
    result = addnorm.equal_to(original(), Cached(change), tokens())
    found = result.first_difference
    assert found is not None
    assert (found.check, found.what) == (check, what)
    assert found.theirs == f"inner.model.layers.0.self_attn{path}"
    if check == "cached decoding":
        assert "the second model differs from its own full pass" in found.hint


def refused(model: nn.Module, other: nn.Module, inputs: Any = None, **options: Any) -> str:
    with pytest.raises(InputError) as caught:
        addnorm.equal_to(model, other, tokens() if inputs is None else inputs, **options)
    return str(caught.value)


def test_bad_input_is_refused_with_what_is_possible() -> None:
    wide = original(hidden_size=64)
    assert "same widths, heads and layers" in refused(original(), wide)
    assert "Did you mean" in refused(original(), ported(), mapping={"model.norm.weigth": "final.gain"})
    assert "of one shape" in refused(original(), ported(), mapping={"model.norm.weight": "head.weight"})
    assert "cannot read the inputs" in refused(original(), ported(), torch.randn(2, 3))


def test_a_head_that_is_tied_in_one_model_alone_is_equal() -> None:
    tied = original(tie_word_embeddings=True)
    untied = original()
    untied.load_state_dict({**tied.state_dict(), "lm_head.weight": tied.model.embed_tokens.weight.detach().clone()})
    for one, other in ((tied, untied), (untied, tied)):
        result = addnorm.equal_to(one, other, tokens())
        assert result, result.text


def test_a_given_mapping_is_kept() -> None:
    result: PortComparison = addnorm.equal_to(
        original(), ported(), tokens(), mapping={"model.layers.0.input_layernorm.weight": "blocks.0.two.gain"}
    )
    assert not result  # a wrong one shows
    assert any(pair.how == "given" for pair in result.pairs)


class Hidden(nn.Module):
    """Causal attention whose mask no file holds, in one of several forms."""

    FORMS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
        "products, as in GPT-1": lambda scores, seen: scores * seen - 1e4 * (1 - seen),
        "the largest number": lambda scores, seen: scores + (1 - seen) * torch.finfo(torch.float32).min,
        "exponents": lambda scores, seen: scores + 1e6 * (seen - 1),
        "logarithm": lambda scores, seen: scores + seen.log(),
        "distances": lambda scores, seen: scores - 1e5 * (1 - seen) - seen.cumsum(-1).flip(-1),
    }

    def __init__(self, form: str, eps: float = 1e-5) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.embedding, self.qkv, self.head = nn.Embedding(50, 16), nn.Linear(16, 48), nn.Linear(16, 50)
        self.norm, self.form = nn.LayerNorm(16, eps=eps), form
        self.register_buffer("seen", torch.ones(9, 9).tril(), persistent=False)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids)
        query, key, value = self.qkv(x).chunk(3, -1)
        return self.head(self.norm(x + self.FORMS[self.form](query @ key.mT, self.seen).softmax(-1) @ value))


@pytest.mark.parametrize("form", Hidden.FORMS)
def test_the_ones_of_a_mask_excuse_no_difference(form: str) -> None:
    assert addnorm.equal_to(Hidden(form), Hidden(form), tokens())
    other = addnorm.equal_to(Hidden(form), Hidden(form, eps=3e-5), tokens())
    assert other.first_difference is not None
    assert (other.first_difference.what, other.first_difference.theirs) == ("output", "norm")
