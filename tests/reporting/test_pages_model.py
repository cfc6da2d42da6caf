"""A model's page shows the formulas of what is built: each is compared with the model itself."""

import html
import json
import re
import subprocess
import sys
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from torch import nn

from addnorm.bias import Biases
from addnorm.block.gau import Gau
from addnorm.catalogue import MECHANISM_ROOMS, ROOMS
from addnorm.earlier_fields import as_now
from addnorm.insight.scalars.coefficients import formula
from addnorm.model.presets import PRESETS, preset
from addnorm.model.spec import ModelSpec
from addnorm.model.transformer import Transformer
from addnorm.reporting.sections.model import mechanisms
from addnorm.study.built_in import study_names, study_profiles
from addnorm.study.encoding import encode
from addnorm.study.loading import load_study
from addnorm.testing.contract import shrunk
from sampled import sampled

PRESETS_THEMSELVES = "presets"


@cache
def built_in() -> dict[str, dict[str, ModelSpec]]:
    """Every preset and every variant of the built-in studies, each model once, at toy size; by where it comes from."""
    found = {PRESETS_THEMSELVES: {name: build() for name, build in PRESETS.items()}}
    for study in study_names():
        found[study] = {
            f"{profile}-{name}": spec
            for profile in study_profiles(study)
            for name, spec in load_study(study, profile=profile).variants.items()
        }
    seen: set[str] = set()
    for specs in found.values():
        for name, spec in list(specs.items()):
            specs[name] = shrunk(spec)
            if repr(specs[name]) in seen:
                del specs[name]
            else:
                seen.add(repr(specs[name]))
    return found


SHARED = ("shared_scalar", "shared_vector")
QK = [
    (kind, q, k)
    for kind in ROOMS["bias"].kinds()
    for q in (False, True)
    for k in (False, True)
    if kind not in SHARED or q == k
]


def statements(spec: ModelSpec) -> dict[str, list[str]]:
    """The statements that the model's page shows, by room."""
    return {
        mechanism.room: [html.unescape(text) for text in re.findall(r'alttext="([^"]*)"', mechanism.formula)]
        for mechanism in mechanisms(encode(spec))
    }


def built(spec: ModelSpec) -> Transformer:
    with torch.device("meta"):
        return spec.build()


def check(spec: ModelSpec) -> None:
    """Compare what the page shows of biases and norms with the parameters of the model that is built."""
    model, shown = built(spec), statements(spec)
    vectors = [
        module.qk_bias.vectors() if module.qk_bias is not None else (None, None)
        for module in model.modules()
        if hasattr(module, "qk_bias")
    ]
    assert vectors
    for place, letter in enumerate("qk"):
        with_bias = {pair[place] is not None for pair in vectors}
        updates = [text for text in shown.get("bias", []) if re.match(rf"{letter}(_h)? <- {letter}(_h)? [+] ", text)]
        assert {bool(updates)} == with_bias, (letter, shown)
    assert ("bias" in shown) == any("qk_bias" in name for name, _ in model.named_parameters())
    all_shown = [text for texts in shown.values() for text in texts]
    assert not [text for text in all_shown if "W_q" in text or "W_k" in text]

    norms = {
        name: module
        for name, module in model.named_modules()
        if name.endswith("_norm") and (spec.norm.kind == "none" or not isinstance(module, nn.Identity))
    }
    has_norms = any(value is True for value in vars(spec.placement.sockets()).values())
    assert ("norm" in shown) == has_norms
    if spec.norm.kind != "none":
        assert ("norm" in shown) == bool(norms)
        shifts = {getattr(module, "bias", None) is not None for module in norms.values()}
        if "norm" in shown:
            assert {any("beta" in text for text in shown["norm"])} == shifts
        placed = " ".join(shown["placement"])
        assert ("x_0 <- N(x_0)" in placed) == ("embedding_norm" in norms)
        assert ("head(N(" in placed) == ("final_norm" in norms)
        assert bool(re.search(r"[fg]\(N1?\(x\)\)", placed)) == any(name.endswith("input_norm") for name in norms)
        assert ("N2(f(" in placed) == any(name.endswith("output_norm") for name in norms)
        assert ("x <- N(" in placed) == any(name.endswith("stream_norm") for name in norms)
    assert any("x + " in text for text in shown["placement"]) == (spec.residual.kind == "add")


@pytest.mark.parametrize("source", sampled(12, [PRESETS_THEMSELVES, *study_names()]))
def test_built_in_models_are_shown_as_they_are_built(source: str) -> None:
    for name, spec in built_in()[source].items():
        try:
            check(spec)
        except AssertionError as error:
            raise AssertionError(name) from error


@pytest.mark.parametrize("base", ["base", "gau_alpha"])
@pytest.mark.parametrize(("kind", "q", "k"), QK)
def test_a_query_or_key_bias_is_shown_where_it_is_built(base: str, kind: str, *, q: bool, k: bool) -> None:
    sizes = {"block": Gau(key_dim=8)} if base == "gau_alpha" else {}
    check(shrunk(preset(base, qk_bias=kind, bias={"q": q, "k": k}), **sizes))


@pytest.mark.parametrize("shift", [False, True])
@pytest.mark.parametrize("placement", ROOMS["placement"].kinds())
@pytest.mark.parametrize("norm", sampled(3, ROOMS["norm"].kinds()))
def test_norms_are_shown_where_and_as_they_are_built(norm: str, placement: str, *, shift: bool) -> None:
    built = {"kind": "mix", "share": 0.5} if placement == "mix" else placement  # both kinds of layers
    spec = shrunk(preset("base", norm=norm, placement=built, bias={"norm": shift}))
    check(spec)
    check(replace(spec, residual=ROOMS["residual"].make("rezero")))
    if placement == "post":
        check(replace(spec, placement=ROOMS["placement"].make("post", embedding=True)))


@pytest.mark.parametrize("room", ["residual", "scores", "values", "sink", "column", "attended", "position"])
def test_every_other_mechanism_keeps_a_formula_and_none_shows_a_condition(room: str) -> None:
    for kind in ROOMS[room].kinds():
        spec = shrunk(preset("base", **{room: kind}))
        shown = statements(spec)
        # A mechanism that a plan leaves out is the plain one of a room that later versions added.
        assert shown.get(room) or (room not in encode(spec) and getattr(spec, room) == getattr(preset("base"), room))
        for texts in shown.values():
            assert not [
                text for text in texts if re.search(r"\bif\b", text) or re.search(r"\b(None|True|False)\b", text)
            ]


@pytest.mark.parametrize(
    ("block", "lines"),
    [
        ({"kind": "parallel", "norms": "one"}, ["x <- x + a(x) + f(x)", "a(x) = attention(N(x))"]),
        ({"kind": "macaron", "before": 0.25}, ["x <- x + 0.25 * f1(x)", "x <- x + 0.5 * f2(x)"]),
        ({"kind": "gau", "key_dim": 64}, ["y = (U * A V) W_o", "A = softmax(scores)"]),
    ],
)
def test_blocks_are_shown_as_they_are_built(block: dict[str, object], lines: list[str]) -> None:
    shown = " ".join(statements(preset("base", block=block, heads=1, kv_heads=None))["block"])
    assert [line for line in lines if line not in shown] == []


def test_settings_stand_in_the_formulas() -> None:
    assert "alpha = 0.3" in statements(preset("base", residual={"kind": "scale", "alpha": 0.3}))["residual"]
    start = statements(preset("base", residual={"kind": "rezero", "alpha_init": 0.5}))["residual"]
    assert "alpha_l = 0.5 at initialisation" in start
    windowed = preset("base", scores={"kind": "mean", "window": 3})
    assert statements(windowed)["scores"] == ["s_{m,i} = 1/(min(m, 3) sqrt(d_k))", "i > m - 3"]
    assert formula(windowed).split("        ") == ["    s_{m,i} = 1/(min(m, 3) sqrt(d_k)),", "i > m - 3"]
    assert statements(preset("base", scores="mean"))["scores"] == ["s_{m,i} = 1/(m sqrt(d_k))"]
    power = statements(preset("base", position={"kind": "kerple", "kernel": "power"}))["position"]
    assert not [text for text in power if "log" in text]


def test_the_setting_in_a_formula_is_the_start_of_the_built_model() -> None:
    model = preset("base", residual={"kind": "rezero", "alpha_init": 0.5}).build_residual()
    assert {value for parameter in model.parameters() for value in parameter.tolist()} == {0.5}


def test_conditions_name_settings_that_models_have() -> None:
    for room in MECHANISM_ROOMS:
        for kind in ROOMS[room].kinds():
            text = ROOMS[room].doc(kind).formula
            one_head: dict[str, Any] = {"heads": 1, "kv_heads": None} if kind == "gau" else {}
            for path in re.findall(
                r"\b(?:residual|scores|values|sink|column|attended|norm|placement|block|position|bias)\.[a-z_]+", text
            ):
                built = preset("base", **({room: kind} if room != "bias" else {"qk_bias": kind}), **one_head)
                spec = as_now(ModelSpec, encode(built))
                owner, setting = path.split(".")
                assert setting in spec[owner], f"{room}/{kind}: {path}"
            for condition in re.findall(r"\s{2,}if (.+)", text):
                for part in condition.split(" and "):
                    assert re.fullmatch(r"(not )?[a-z_.]+|[a-z_.]+ is (not )?[a-z_]+", part), f"{room}/{kind}: {part}"


def test_a_condition_in_another_form_is_refused() -> None:
    doc = replace(ROOMS["norm"].doc("layer"), formula="    y = x        if bias.norm or not")
    with pytest.raises(
        ValueError, match=r"expected 'PATH', 'not PATH' or 'PATH is \[not\] VALUE', got 'bias\.norm or not'"
    ):
        doc.formula_in(encode(preset("base")))


def test_pages_need_no_torch_for_them() -> None:
    code = (
        "import json, sys; from addnorm.reporting.sections.model import mechanisms; "
        "mechanisms(json.loads(sys.stdin.read())); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], input=json.dumps(encode(preset("gpt2"))), text=True, check=True)


def test_biases_of_other_places_show_no_query_or_key_bias() -> None:
    spec = replace(shrunk(preset("gpt2")), bias=Biases.all(True, q=False, k=False))
    assert "bias" not in statements(spec)
