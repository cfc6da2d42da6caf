"""Study files: what they say, how profiles and settings change it, and how their mistakes are told."""

# ruff: noqa: E501 - tables of whole messages

from pathlib import Path
from typing import Any

import pytest

from addnorm import preset
from addnorm.bias import Biases
from addnorm.catalogue import ROOMS
from addnorm.data.corpora.stdlib import Stdlib
from addnorm.data.tokenizers.bpe import Bpe
from addnorm.errors import InputError
from addnorm.model.architecture import Dropout
from addnorm.model.spec import ModelSpec
from addnorm.optimization.optimizers.adamw import AdamW
from addnorm.optimization.optimizers.sgd import Sgd
from addnorm.residual.rezero import ReZero
from addnorm.residual.scale import Scale
from addnorm.scores.mean import Mean
from addnorm.study.definition import Study, Training
from addnorm.study.loading import load_study
from addnorm.supervision.prepared import fitted_study

FILE = """
name: mine
references: [base]
seeds: [3, 5]
margin: 1e-2
corpus: {kind: stdlib, max_bytes: 3000}
tokenizer: bytes
training: {steps: 7, optimizer: {kind: adamw, learning_rate: 3e-3}}
model: {preset: base, width: 64, heads: 4, dropout: 0.1}
variants:
  base:
  summed: {preset: v4m1, bias: {q: true}}
  zero: {residual: rezero, dropout: {branch: 0.2}}
  a.b: {residual: {kind: scale, alpha: 2}, heads: 2, kv_heads: 1}
profiles:
  small: {tokenizer: {kind: bpe, vocab: 300}, training: {steps: 3}, model: {depth: 2}, seeds: [1]}
  two: {variants: [zero, base]}
  more: {variants: {base: {width: 32}, new: {preset: v4m3}}}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(FILE, encoding="utf-8")
    return path


def written(folder: Path, text: str) -> Path:
    path = folder / "wrong.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def message(path: Path | str, **given: Any) -> str:
    with pytest.raises(InputError) as caught:
        load_study(path, **given)
    return str(caught.value)


def test_a_file_becomes_a_study(file: Path) -> None:
    shared: dict[str, Any] = {"width": 64, "heads": 4, "dropout": 0.1}
    assert load_study(file) == Study(
        name="mine",
        references=("base",),
        seeds=(3, 5),
        margin=0.01,
        corpus=Stdlib(max_bytes=3000),
        training=Training(steps=7, optimizer=AdamW(learning_rate=3e-3)),
        variants={
            "base": preset("base", **shared),
            "summed": preset("v4m1", **shared, bias=Biases(q=True)),
            "zero": preset(
                "base", **{**shared, "dropout": Dropout(attention=0.1, branch=0.2, embedding=0.1)}, residual="rezero"
            ),
            "a.b": preset("base", **{**shared, "heads": 2}, kv_heads=1, residual=Scale(alpha=2.0)),
        },
    )
    assert list(load_study(file).variants) == ["base", "summed", "zero", "a.b"]


def test_without_a_preset_a_variant_is_the_models_defaults(tmp_path: Path) -> None:
    path = written(tmp_path, "{name: s, variants: {plain: {}, deep: {depth: 3}}}")
    assert load_study(path).variants == {"plain": ModelSpec(), "deep": ModelSpec(depth=3)}


def test_a_profile_is_laid_over_the_file(file: Path) -> None:
    study = load_study(file, profile="small")
    assert study.tokenizer == Bpe(vocab=300)
    assert study.training == Training(steps=3, optimizer=AdamW(learning_rate=3e-3))
    assert study.seeds == (1,)
    assert {spec.depth for spec in study.variants.values()} == {2}
    assert {spec.width for spec in study.variants.values()} == {64}


def test_a_profile_may_name_the_variants_it_keeps(file: Path) -> None:
    assert list(load_study(file, profile="two").variants) == ["zero", "base"]


def test_a_profile_may_change_and_add_variants(file: Path) -> None:
    variants = load_study(file, profile="more").variants
    assert list(variants) == ["base", "summed", "zero", "a.b", "new"]
    assert variants["base"].width == 32
    assert variants["new"].scores == Mean()


def test_the_default_profile_is_taken_unless_another_is_named(file: Path) -> None:
    file.write_text(FILE + "default_profile: two\n", encoding="utf-8")
    assert list(load_study(file).variants) == ["zero", "base"]
    assert len(load_study(file, profile="small").variants) == 4


SETTINGS: list[tuple[list[str], Any]] = [
    (["training.steps=200"], lambda study: study.training.steps == 200),
    (["training.optimizer.learning_rate=1e-4"], lambda study: study.training.optimizer == AdamW(learning_rate=1e-4)),
    (["training.optimizer=sgd"], lambda study: study.training.optimizer == Sgd()),
    (["training.optimizer.kind=sgd"], lambda study: study.training.optimizer == Sgd()),
    (["training.clip=null"], lambda study: study.training.clip is None),
    (["seeds=[0, 1]"], lambda study: study.seeds == (0, 1)),
    (
        ["model.depth=2", "variants.base.depth=3"],
        lambda study: [m.depth for m in study.variants.values()] == [3, 2, 2, 2],
    ),
    (
        ["variants.zero.residual.alpha_init=0.1"],
        lambda study: study.variants["zero"].residual == ReZero(alpha_init=0.1),
    ),
    (["variants.a.b.residual.alpha=3"], lambda study: study.variants["a.b"].residual == Scale(alpha=3.0)),
    (["variants.a.b.residual=add"], lambda study: study.variants["a.b"].residual.kind == "add"),
    (
        ["variants.base.residual=scale", "variants.base.residual.alpha=3"],
        lambda s: s.variants["base"].residual == Scale(alpha=3.0),
    ),
    (
        ["model.dropout.branch=0.3"],
        lambda study: study.variants["base"].dropout == Dropout(attention=0.1, branch=0.3, embedding=0.1),
    ),
    (["variants=[base]"], lambda study: list(study.variants) == ["base"]),
    (["tokenizer={kind: bpe, vocab: 300}"], lambda study: study.tokenizer == Bpe(vocab=300)),
    (["about=a = b"], lambda study: study.about == "a = b"),
    (["training.steps=1", "training.steps=2"], lambda study: study.training.steps == 2),
]


@pytest.mark.parametrize(("settings", "holds"), SETTINGS, ids=[" ".join(given) for given, _ in SETTINGS])
def test_settings_come_last(file: Path, settings: list[str], holds: Any) -> None:
    assert not holds(load_study(file))
    assert holds(load_study(file, settings=settings))


def test_settings_come_after_the_profile(file: Path) -> None:
    assert load_study(file, profile="small", settings=["training.steps=9"]).training.steps == 9


WRONG_SETTINGS = [
    ("training.stepz=3", "{file}, --set training.stepz=3: $.training: Training has no field 'stepz', did you mean 'steps'? Known:"),
    ("trainin.steps=3", "{file}, --set trainin.steps=3: $: Study has no field 'trainin', did you mean 'training'? Known:"),
    ("training.steps=x", "{file}, --set training.steps=x: $.training.steps: expected a whole number, got 'x'."),
    ("variants.bas.width=3", "--set variants.bas.width=3: $.variants: no variant 'bas', did you mean 'base'? Known: base, summed, zero, a.b."),
    ("variants=[zero, bas]", "--set variants=[zero, bas]: $.variants: no variant 'bas', did you mean 'base'? Known:"),
    ("variants=[zero, zero]", "--set variants=[zero, zero]: $.variants: expected each variant once, got 'zero' twice. Keep one."),
    ("variants=[[zero]]", "--set variants=[[zero]]: $.variants: no variant a list of 1. Known:"),
    ("seeds.0=3", "--set seeds.0=3: $.seeds: expected a mapping, got a list of 2. Set it as a whole: --set seeds=…"),
    ("training.steps", "--set: expected NAME.NAME=VALUE, got 'training.steps'. For example: --set training.steps=200"),
    ("training..steps=3", "--set: expected NAME.NAME=VALUE, got 'training..steps=3'."),
    ("=3", "--set: expected NAME.NAME=VALUE, got '=3'."),
    ("seeds=[1", "--set seeds=[1, line 1, column 3: not valid YAML: expected ',' or ']', but got '<stream end>'."),
    ("profiles.small.seeds=[1]", "{file}, --set profiles.small.seeds=[1]: $: Study has no field 'profiles'. Known:"),
    ("references=[bse]", "{file}, --set references=[bse]: $.references: expected variants of the study, got 'bse'. Did you mean 'base'?"),
    ("variants.zero.residual.alpha_int=1", "{file}, --set variants.zero.residual.alpha_int=1: $.variants.zero.residual: ReZero has no field 'alpha_int', did you mean 'alpha_init'? Known: alpha_init."),
]  # fmt: skip


@pytest.mark.parametrize(("setting", "expected"), WRONG_SETTINGS, ids=[given for given, _ in WRONG_SETTINGS])
def test_wrong_settings_are_told(file: Path, setting: str, expected: str) -> None:
    assert message(file, settings=[setting]).startswith(expected.format(file=file))


WRONG_FILES = [
    ("", "{file}: $: expected a mapping, got null."),
    ("- a\n", "{file}: $: expected a mapping, got a list of 1."),
    ("hello\n", "{file}: $: expected a mapping, got 'hello'."),
    ("name: [a", "{file}, line 1, column 9: not valid YAML:"),
    ("name: s\n---\nname: t\n", "{file}, line 2, column 1: not valid YAML: but found another document. A file holds one study"),
    ("name: !!python/name:os.x s\n", "{file}, line 1, column 7: not valid YAML: could not determine a constructor for the tag"),
    ("name: s\nwhen: 2001-99-99\n", "{file}: not valid YAML: month must be in 1..12."),
    ("name: a\nvariants: {base: {}}\nname: b\n", "{file}: $: expected each name once, got 'name' in line 1 and in line 3. Keep one."),
    (
        "name: a\nvariants:\n  x: {width: 8}\n  y: {}\n  x: {}\n",
        "{file}: $.variants: expected each name once, got 'x' in line 3 and in line 5. Keep one.",
    ),
    ("name: a\nvariants: {b: {width: 8, width: 8}}\n", "{file}: $.variants.b: expected each name once, got 'width' in line 2 and in line 2."),
    ("seeds: [0, 010]\n", "{file}: $.seeds[1]: expected a number in decimal digits, got 010."),
    ("training: {steps: 1:30}\n", "{file}: $.training.steps: expected a number in decimal digits, got 1:30."),
    (
        "a: &a [x, x, x, x, x, x, x, x, x, x]\n"
        + "".join(f"{b}: &{b} [{', '.join([f'*{a}'] * 10)}]\n" for a, b in zip("abcdefg", "bcdefgh", strict=True)),
        "{file}: $.f[1][5][8][8][8][8]: expected at most 300000 values in a file, got more by aliases of aliases.",
    ),
    ("name: &x {a: *x}\n", "{file}: $.name.a: expected an alias of another value, got one of a value that contains it."),
    ("nam: s\n", "{file}: $: Study has no field 'nam', did you mean 'name'? Known: name, about, variants,"),
    ("name: s\n", "{file}: $.variants: expected a mapping from names to models, got null."),
    ("name: s\nvariants: [base]\n", "{file}: $.variants: expected a mapping from names to models, got a list of 1."),
    ("name: s\nvariants: {}\n", "{file}: $.variants: expected at least one variant, got none."),
    ("variants: {a: {}}\n", "{file}: $: Study needs the field 'name' (a text)."),
    ("name: s\nvariants: {on: {}}\n", "{file}: $.variants: expected names that are texts, got true. Put it in quotes."),
    ("name: s\nvariants: {a/b: {}}\n", "{file}: $.variants: expected a name of at most 100 letters, digits, '.', '_' and '-' that begins with a letter or a digit, got 'a/b'."),
    ("name: ..\nvariants: {a: {}}\n", "{file}: $.name: expected a name of at most 100 letters"),
    ("name: s\nvariants: {a: v2m1}\n", "{file}: $.variants.a: expected a mapping with the fields of a model, got 'v2m1'."),
    ("name: s\nvariants: {a: {preset: v2m33}}\n", "{file}: $.variants.a.preset: no preset 'v2m33', did you mean 'v2m3'? Known: gpt1,"),
    ("name: s\nmodel: {preset: 3}\nvariants: {a: {}}\n", "{file}: $.model.preset: no preset 3. Known: gpt1,"),
    ("name: s\nvariants: {a: {presett: base}}\n", "{file}: $.variants.a: ModelSpec has no field 'presett', did you mean 'preset'? Known: preset,"),
    ("name: s\nmodel: {widht: 3}\nvariants: {a: {}, b: {}}\n", "{file}: $.model: ModelSpec has no field 'widht', did you mean 'width'? Known: preset,"),
    ("name: s\nmodel: {width: x}\nvariants: {a: {}, b: {}}\n", "{file}: $.model.width: expected a whole number, got 'x'."),
    ("name: s\nvariants: {a: {heads: 7}}\n", "{file}: $.variants.a: heads must divide the width: width 512 / heads 7 leaves 1."),
    ("name: s\nseeds: [1, 1]\nvariants: {a: {}}\n", "{file}: $.seeds: expected at least one seed, distinct and in [0, 2**63), got [1, 1]."),
    ("name: s\nseeds: [-1]\nvariants: {a: {}}\n", "{file}: $.seeds: expected at least one seed"),
    ("name: s\nmargin: 0\nvariants: {a: {}}\n", "{file}: $.margin: expected a positive number of nats per token, got 0.0."),
    ("name: s\nreferences: [a, a]\nvariants: {a: {}}\n", "{file}: $.references: expected distinct variants, got ['a', 'a']."),
    ("name: s\nvariants: {a: {}}\nprofiles: [x]\n", "{file}: $.profiles: expected a mapping from names to profiles, got a list of 1."),
    ("name: s\nvariants: {a: {}}\nprofiles: {x: 3}\n", "{file}: $.profiles.x: expected a mapping, got 3."),
    ("name: s\nvariants: {a: {}}\nprofiles: {x: {seed: [1]}}\n", "{file}: $.profiles.x: Study has no field 'seed', did you mean 'seeds'? Known:"),
    ("name: s\nvariants: {a: {}}\ndefault_profile: quik\nprofiles: {quick: {}}\n", "{file}: $.default_profile: no profile 'quik', did you mean 'quick'? Known: quick."),
    ("name: s\nvariants: {a: {}}\ndefault_profile: [q]\nprofiles: {quick: {}}\n", "{file}: $.default_profile: no profile a list of 1. Known: quick."),
    ("name: s\nvariants: {a: {}}\nprofiles: {q: {variants: [b]}}\ndefault_profile: q\n", "{file}, profile q: $.variants: no variant 'b'. Known: a."),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), WRONG_FILES)
def test_wrong_files_are_told(tmp_path: Path, text: str, expected: str) -> None:
    file = written(tmp_path, text)
    refusal = message(file)
    assert refusal.startswith(expected.format(file=file))
    assert "\n" not in refusal


STUDY = """name: tiny
seeds: [0]
corpus: {kind: synthetic, num_documents: 20}
tokenizer: bytes
training: {steps: 2, batch: 2, seq: 16, eval_sequences: 4}
model: {preset: base, width: 16, depth: 2, heads: 2, kv_heads: 1, hidden: 16, max_seq: 16}
variants:
  base: {}
"""
CHANGES = [
    ("kind: synthetic", "kind: sinthetic", "{file}: $.corpus: no corpus 'sinthetic', did you mean 'synthetic'?"),
    ("steps: 2", "steps: 2.5", "{file}: $.training.steps: expected a whole number, got 2.5"),
    ("steps: 2", "steps: -1", "{file}: $.training.steps: expected a whole number of at least 0, got -1"),
    ("batch: 2", "batch: -2", "{file}: $.training.batch: expected a whole number of at least 1, got -2"),
    ("heads: 2, kv_heads: 1", "heads: 4, kv_heads: 3", "{file}: $.variants.base: kv_heads must divide heads: heads 4 / kv_heads 3"),
    ("seeds: [0]", "seeds: []", "{file}: $.seeds: expected at least one seed"),
    ("seeds: [0]", f"seeds: [{2**63}]", "{file}: $.seeds: expected at least one seed, distinct and in [0, 2**63)"),
    ("seeds: [0]", "seeds: 3", "{file}: $.seeds: expected a list, got 3. Write [3]."),
    ("seeds: [0]", "plugins: [nowhere.py]", "{file}: $.plugins: plugin {folder}/nowhere.py: no such file"),
    ("seeds: [0]", "plugins: [.]", "{file}: $.plugins: plugin {folder}: expected a file, got a folder."),
    ("base: {}", "base: {residual: {kind: streams, streams: 0}}", "{file}: $.variants.base.residual.streams: expected at least 1, got 0"),
    *(
        ("training: {", f"training: {{optimizer: {{kind: adamw, learning_rate: {rate}}}, ", "{file}: $.training.optimizer.learning_rate: expected a")
        for rate in ("0", "-0.1", ".nan", ".inf", "fast")
    ),
    # What only the data, the steps or a model that is built can say.
    ("width: 16", "width: 14", "study 'tiny': $.variants.base: rope rotates pairs: head width 7"),
    ("base: {}", "base: {residual: {kind: attention, block: 3}}", "study 'tiny': $.variants.base: attention.block: expected a divisor of the 4 branches, got 3"),
    ("base: {}", "base: {residual: {kind: schedule, steps: 2}}", "study 'tiny': $.variants.base: residual.steps: expected at most 1, so that 2 layers have joined within 2 training steps, got 2"),
    ("base: {}", "base: {residual: attention, placement: post}", "{file}: $.variants.base: placement: expected no norm in the socket 'stream' with residual 'attention', because every branch reads the whole history, so that there is no stream between branches"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "expected"), CHANGES, ids=[new for _, new, _ in CHANGES])
def test_a_wrong_study_is_told_by_its_field(tmp_path: Path, old: str, new: str, expected: str) -> None:
    assert STUDY.count(old) == 1
    file = written(tmp_path, STUDY.replace(old, new))
    with pytest.raises(InputError) as caught:
        fitted_study(load_study(file), 256)
    assert str(caught.value).startswith(expected.format(file=file, folder=tmp_path))


def test_mistakes_in_all_parts_are_told_together(tmp_path: Path) -> None:
    file = written(tmp_path, "nme: s\ntraining: {steps: x}\nvariants: {a: {residual: rezro}, b: {preset: c}}\n")
    assert message(file).startswith(f"{file}: $: Study has no field 'nme'")
    file = written(tmp_path, "name: s\ntraining: {steps: x}\nvariants: {a: {residual: rezro}, b: {width: y}}\n")
    assert message(file).splitlines() == [
        f"{file}: 3 problems.",
        "$.training.steps: expected a whole number, got 'x'.",
        "$.variants.a.residual: no residual 'rezro', did you mean 'rezero'? Known: "
        f"{', '.join(ROOMS['residual'].kinds())}.",
        "$.variants.b.width: expected a whole number, got 'y'.",
    ]


def test_unknown_profile_is_told(file: Path) -> None:
    assert message(file, profile="smal") == f"{file}: no profile 'smal', did you mean 'small'? Known: small, two, more."


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    told = message(tmp_path / "residual-score.yaml")
    assert "no such file" in told
    assert "Did you mean 'residual-scores'?" in told
    path = tmp_path / "latin.yaml"
    path.write_bytes("name: é".encode("latin-1"))
    assert message(path) == f"{path}: expected UTF-8, got byte 0xe9 at 6. Save it as UTF-8."
