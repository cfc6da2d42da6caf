"""Named models with the joints of architectures in Transformers whose residual is unusual: all joints that this library has, at
the released sizes. `addnorm.load_hf` loads the classes themselves, with their own branches; docs/shipped-residuals.md has both.
"""

from collections.abc import Callable, Mapping
from typing import Any

from addnorm.catalogue import ROOMS
from addnorm.model.convolution import Convolution
from addnorm.model.spec import ModelSpec

_ROOM = {"attended": "attended", "norm": "norm", "qk_norm": "norm", "sink": "sink", "values": "values"}
_ROOM |= {"block": "block", "placement": "placement", "position": "position", "residual": "residual"}


def _made(about: str, sizes: Mapping[str, Any], **joints: Any) -> Callable[[], ModelSpec]:
    """A function that makes the spec, with `about` as its docstring."""

    def build() -> ModelSpec:
        made = {}
        for field, given in joints.items():
            if field in _ROOM:
                settings = {"kind": given} if isinstance(given, str) else dict(given)
                made[field] = ROOMS[_ROOM[field]].make(settings.pop("kind"), **settings)
            else:
                made[field] = given
        return ModelSpec(**sizes, **made)

    build.__doc__ = about
    return build


def _sizes(vocab: int, width: int, depth: int, heads: tuple[int, int], hidden: int, max_seq: int) -> dict[str, int]:
    names = ("vocab", "width", "depth", "heads", "kv_heads", "hidden", "max_seq")
    return dict(zip(names, (vocab, width, depth, *heads, hidden, max_seq), strict=True))


_RMS6, _RMS5 = {"kind": "rms", "eps": 1e-6}, {"kind": "rms", "eps": 1e-5}
_GEMMA: dict[str, Any] = {
    "placement": "sandwich",
    "norm": _RMS6,
    "qk_norm": _RMS6,
    "values": "normed",
    "position": {"kind": "rope", "theta": 1e6},
    "activation": "geglu_tanh",
    "embedding_factor": "root_width",
    "tied": True,
}
_DENSE = "Differs from the source: one feed-forward branch instead of experts"
_LATENT = f"{_DENSE}, plain attention instead of latent attention with an indexer"

SHIPPED_PRESETS: dict[str, Callable[[], ModelSpec]] = {
    "beam": _made(
        f"""Reflection AI, Beam: depth-scaled sum between sandwich norms, gated heads, a norm on queries and keys, windows of
        512 and rotary positions in five of six layers, capped logits. {_DENSE}, heads divide the width, no gate bias and
        no temperature.""",
        _sizes(151_936, 5120, 52, (40, 8), 20_480, 8192),
        residual="depth_scaled",
        placement="sandwich",
        norm=_RMS6,
        qk_norm=_RMS6,
        attended="gate",
        position={"kind": "interleaved_rope", "every": 6},
        windows=(512, 512, 512, 512, 512, None),
        logit_cap=30.0,
    ),
    "muse_spark": _made(
        f"""Meta, Muse Spark: variance-keeping gates between sandwich norms, windows of 2048 and rotary positions in three of
        four layers, a norm on queries and keys, capped logits. {_DENSE}, layers without positions are counted from the
        first, queries and logits have no factor, norms on outputs have gains, and embeddings have no norm.""",
        _sizes(202_048, 8192, 62, (128, 16), 16_384, 8192),
        residual="variance_keeping",
        placement="sandwich",
        norm=_RMS5,
        qk_norm=_RMS5,
        position={"kind": "interleaved_rope", "every": 4, "theta": 500_000.0},
        windows=(2048, 2048, 2048, None),
        logit_cap=20.0,
    ),
    "doge": _made(
        """Shi et al. 2024, Doge, arXiv:2412.11834, 320 M: a learned weight per entry of the stream, a norm on queries and
        keys. Differs from the source: no mask that depends on values.""",
        _sizes(32_768, 1024, 32, (8, 8), 2048, 2048),
        residual="stream_weight",
        norm=_RMS6,
        qk_norm=_RMS6,
    ),
    "zaya": _made(
        f"""Zyphra, ZAYA1 8B: affine residual, a norm on queries and keys. {_DENSE}, no convolutions, embeddings have no
        affine map, the stream has the type of the model.""",
        _sizes(262_272, 2048, 40, (8, 2), 2048, 8192),
        residual="affine",
        norm=_RMS5,
        qk_norm=_RMS5,
        tied=True,
    ),
    "axk2": _made(
        f"""AX-K2: gated norms of rank 16, gated heads. {_LATENT}, and all norms are gated, where layers without experts and
        the last norm are plain in the source.""",
        _sizes(163_840, 2048, 48, (32, 32), 5120, 8192),
        norm={"kind": "gated", "rank": 16, "eps": 1e-6},
        attended="gate",
    ),
    "qwen4_exp": _made(
        f"""Qwen team, Qwen4-Exp: four gated streams whose reads have the norm. {_DENSE}, softmax attention instead of gated
        delta networks and indexers, no tables of n-grams, and a norm before the head.""",
        _sizes(248_320, 2048, 40, (16, 2), 5632, 32_768),
        residual={"kind": "gated_streams", "streams": 4, "rank": 320},
        placement="none",
        norm=_RMS6,
        attended="gate",
    ),
    "hy_v4": _made(
        f"""Tencent, Hunyuan V4: four streams that do not mix, with floors and a learned close; a learned sink per head.
        {_LATENT}.""",
        _sizes(120_832, 2816, 34, (32, 32), 6912, 8192),
        residual={"kind": "hyper_connections", "mixing": "identity", "write_eps": 1e-6, "norm_eps": 1e-5},
        norm=_RMS5,
        sink="logit",
    ),
    "deepseek_v4": _made(
        f"""DeepSeek-AI, DeepSeek-V4: four streams with balanced mixing and a learned close, a learned sink per head.
        {_DENSE}, plain attention instead of compressed keys, windows in all layers.""",
        _sizes(129_280, 4096, 43, (64, 1), 12_288, 8192),
        residual="hyper_connections",
        norm=_RMS6,
        sink="logit",
        windows=(128,),
    ),
    "glm5_next": _made(
        f"""Z.ai, GLM-5 Next: four streams with balanced mixing, closed by their mean, no positions. {_LATENT}, and softmax
        attention instead of linear attention.""",
        _sizes(154_880, 4096, 45, (64, 64), 12_288, 8192),
        residual={"kind": "hyper_connections", "close": "mean", "norm_eps": 1e-5},
        norm=_RMS5,
        position="none",
    ),
    "inkling2": _made(
        f"""Thinking Machines, Inkling 2: block attention over normed sums of six layers, separate in every sixth; sinks by
        query, relative bank, clipped queries and keys, normed values, convolutions of four keys and values, gated heads,
        capped logits. {_DENSE}, no convolutions of outputs, none with weights by token, no clip of the bank, no
        temperature, embeddings have no norm.""",
        _sizes(201_024, 4608, 48, (48, 8), 13_824, 8192),
        residual={"kind": "block_attention", "separate": (False, False, False, False, False, True)},
        norm=_RMS6,
        qk_norm={"kind": "clip", "threshold": 22.627416997969522},
        values="normed",
        sink="query",
        attended="gate",
        convolution=Convolution(positions=4, of=("key", "value")),
        position={"kind": "relative_bank", "rank": 16, "extent": 1024},
        windows=(1024, 1024, 1024, 1024, 1024, None),
        logit_cap=30.0,
    ),
    "gemma3n": _made(
        """Google, Gemma 3n E4B: alternating updates of four streams with a low-rank path beside attention, sandwich norms, a
        norm on queries, keys and values, windows of 512 in four of five layers, capped logits. Differs from the source: all
        layers rotate with one base, no keys are shared between layers, no sparse feed-forward branches, no tables of tokens
        per layer.""",
        _sizes(262_400, 2048, 35, (8, 2), 16_384, 32_768),
        residual={"kind": "altup", "rank": 64},
        **_GEMMA,
        windows=(512, 512, 512, 512, None),
        logit_cap=30.0,
    ),
    "gemma4": _made(
        f"""Google, Gemma 4: a table of tokens in every layer, a factor of each layer's stream, sandwich norms, a norm on
        queries, keys and values, windows of 512 in five of six layers. {_DENSE}, a gate by sigmoid, no projection of the
        embeddings beside the tables, a factor per channel, heads divide the width, all layers rotate whole with one base.""",
        _sizes(262_144, 2304, 30, (8, 4), 9216, 32_768),
        residual="affine",
        block={"kind": "token_tables", "entries": 256},
        **_GEMMA,
        windows=(512, 512, 512, 512, 512, None),
    ),
    "embedding_gemma2": _made(
        """Google, EmbeddingGemma 2: Gemma 4's layers, which read tokens on both sides. Differs from the source: a gate by
        sigmoid, no projection of the embeddings beside the tables, which are factorised there, a factor per channel, heads
        of one size in all layers, all layers rotate with one base, no windows, no pooling.""",
        _sizes(262_144, 512, 24, (4, 2), 2048, 32_768),
        objective="masked",
        residual="affine",
        block={"kind": "token_tables", "entries": 512},
        **_GEMMA,
    ),
    "llama4": _made(
        f"""Meta, Llama 4: no positions in every fourth layer, windows of 8192 in the others, a norm on queries and keys.
        {_DENSE}, windows slide instead of standing in blocks, queries and keys are normed in all layers, before they are
        rotated and with gains, no temperature by position.""",
        _sizes(202_048, 5120, 48, (40, 8), 16_384, 32_768),
        norm=_RMS5,
        qk_norm=_RMS5,
        position={"kind": "interleaved_rope", "every": 4, "theta": 5e5},
        windows=(8192, 8192, 8192, None),
    ),
    "mistral_large4": _made(
        f"""Mistral AI, Mistral Large 4: no positions in every fourth layer, capped logits. {_LATENT}, and no long-context
        scaling of the rotation.""",
        _sizes(204_800, 6144, 72, (64, 64), 24_576, 32_768),
        norm=_RMS5,
        position={"kind": "interleaved_rope", "every": 4, "theta": 1e4},
        logit_cap=30.0,
    ),
    "neomme": _made(
        """H Company, NeoMME 260 M: attention reads a mixture of stream and embeddings, masked, exclusive heads, squared
        ReLU. Differs from the source: norms have gains, positions are plain rotary ones, no value embeddings, gates or
        factors of the embeddings.""",
        _sizes(131_072, 1024, 17, (16, 4), 3584, 16_384),
        objective="masked",
        residual={"kind": "initial_state", "alpha": 34**-0.5},
        norm=_RMS6,
        attended="exclusive",
        activation="squared_relu",
        tied=True,
    ),
    "smollm3": _made(
        """Hugging Face, SmolLM3 3B: Llama with no positions in every fourth layer. Differs from the source: nothing.""",
        _sizes(128_256, 2048, 36, (16, 4), 11_008, 32_768),
        norm=_RMS6,
        position={"kind": "interleaved_rope", "every": 4, "theta": 2e6},
        tied=True,
    ),
}
"""Presets by the `model_type` of their class."""
