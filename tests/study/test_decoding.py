"""The codec says what is wrong, where, and what was perhaps meant; what it writes, it reads back."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from addnorm.bias import Biases
from addnorm.catalogue import ROOMS
from addnorm.data.corpora import CorpusSpec
from addnorm.errors import InputError
from addnorm.fields import JsonFields
from addnorm.model.architecture import Dropout
from addnorm.model.presets import PRESETS
from addnorm.model.spec import ModelSpec
from addnorm.norm import NormSpec
from addnorm.norm.layer import Layer
from addnorm.optimization.optimizers.adamw import AdamW
from addnorm.residual import ResidualSpec
from addnorm.residual.rezero import ReZero
from addnorm.residual.scale import Scale
from addnorm.study.decoding import decode
from addnorm.study.definition import Study, Training
from addnorm.study.encoding import canonical, digest, encode

NORMS = ", ".join(ROOMS["norm"].kinds())


@dataclass(frozen=True, kw_only=True)
class Pair:
    left: int
    right: str | None = None


@dataclass(frozen=True, kw_only=True)
class Everything:
    """One field of every kind that a spec may have."""

    number: float = 0.5
    count: int = 1
    either: float | int = 1
    limit: float | None = None
    choice: Literal["near", "far"] = "near"
    on: bool = False
    text: str = ""
    span: tuple[float, float] = (0.0, 1.0)
    counts: tuple[int, ...] = ()
    pair: Pair = field(default_factory=lambda: Pair(left=1))
    maybe: Pair | None = None
    named: Mapping[str, Pair] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Picky:
    rate: float = 1.0

    def __post_init__(self) -> None:
        if self.rate > 1:
            raise InputError(f"$.rate: at most 1, got {self.rate}.")
        _ = 1 / self.rate


@dataclass(frozen=True, kw_only=True)
class Odd:
    when: complex = 0j


WRONG: list[tuple[Any, Any, str]] = [
    # unknown and missing names
    (
        Study,
        {"name": "s", "variants": {"rezero": {"residual": {"kind": "rezero", "alpha_int": 0.1}}}},
        "$.variants.rezero.residual: ReZero has no field 'alpha_int', did you mean 'alpha_init'? Known: alpha_init.",
    ),
    (ResidualSpec, {"kind": "add", "x": 1}, "$: Add has no field 'x'. Known: none."),
    (
        ResidualSpec,
        "rezro",
        f"$: no residual 'rezro', did you mean 'rezero'? Known: {', '.join(ROOMS['residual'].kinds())}.",
    ),
    (NormSpec, {"kind": 3}, f"$: no norm 3. Known: {NORMS}."),
    (
        NormSpec,
        {"eps": 1e-3},
        f"$: expected a kind of norm or a mapping with 'kind', got a mapping (eps). Known: {NORMS}.",
    ),
    (
        NormSpec,
        None,
        f"$: expected a kind of norm or a mapping with 'kind', got null. Known: {NORMS}.",
    ),
    (ReZero, {"kind": "scale"}, "$.kind: expected 'rezero', got 'scale'."),
    (Pair, {}, "$: Pair needs the field 'left' (a whole number)."),
    (CorpusSpec, "text", "$: Text needs the field 'path' (a text)."),
    (Pair, {"left": 1, True: 2}, "$: expected names that are texts, got true. Put it in quotes."),
    (Everything, {"named": {3: {"left": 1}}}, "$.named: expected names that are texts, got 3. Put it in quotes."),
    # types, taken exactly
    (Everything, {"number": "0.5"}, "$.number: expected a finite number, got '0.5'. Write 0.5 without quotes."),
    (Everything, {"number": True}, "$.number: expected a finite number, got true."),
    (Everything, {"number": None}, "$.number: expected a finite number, got null."),
    (Everything, {"number": float("inf")}, "$.number: expected a finite number, got inf."),
    (Everything, {"number": "1e999"}, "$.number: expected a finite number, got '1e999'."),
    (Everything, {"count": 3.0}, "$.count: expected a whole number, got 3.0. Write 3."),
    (Everything, {"count": 3.5}, "$.count: expected a whole number, got 3.5."),
    (Everything, {"count": True}, "$.count: expected a whole number, got true."),
    (Everything, {"count": "1e3"}, "$.count: expected a whole number, got '1e3'. Write 1000."),
    (Everything, {"on": "yes"}, "$.on: expected true or false, got 'yes'."),
    (Everything, {"on": 1}, "$.on: expected true or false, got 1."),
    (Everything, {"text": 3}, "$.text: expected a text, got 3. Put it in quotes."),
    (Everything, {"text": ["a"]}, "$.text: expected a text, got a list of 1."),
    (Everything, {"limit": "x"}, "$.limit: expected a finite number or null, got 'x'."),
    (Everything, {"either": "x"}, "$.either: expected a finite number or a whole number, got 'x'."),
    (Everything, {"choice": "fr"}, "$.choice: expected one of 'near', 'far', got 'fr'. Did you mean 'far'?"),
    (Everything, {"choice": 1}, "$.choice: expected one of 'near', 'far', got 1."),
    (Everything, {"counts": 3}, "$.counts: expected a list, got 3. Write [3]."),
    (Everything, {"counts": [1, "x"]}, "$.counts[1]: expected a whole number, got 'x'."),
    (Everything, {"span": [1]}, "$.span: expected a list of 2, got a list of 1."),
    (Everything, {"pair": 3}, "$.pair: expected a mapping with the fields of Pair, got 3."),
    (Everything, {"maybe": {"lef": 1}}, "$.maybe: Pair has no field 'lef', did you mean 'left'? Known: left, right."),
    (Everything, {"named": [1]}, "$.named: expected a mapping, got a list of 1."),
    (Everything, {"named": {"a": {"left": "x"}}}, "$.named.a.left: expected a whole number, got 'x'."),
    (
        ModelSpec,
        {"dropout": "lots"},
        "$.dropout: expected a finite number or a mapping with the fields of Dropout, got 'lots'.",
    ),
    (ModelSpec, {"bias": 1}, "$.bias: expected true or false or a mapping with the fields of Biases, got 1."),
    (
        ModelSpec,
        {"activation": "swiglo"},
        "$.activation: expected one of 'geglu_tanh', 'gelu', 'gelu_tanh', 'relu', 'squared_relu', 'swiglu', "
        "got 'swiglo'. Did you mean 'swiglu'?",
    ),
    (
        Odd,
        {"when": 1},
        "$.when: expected an annotation with numbers, texts, tuples or dataclasses, got a complex.",
    ),
    # invariants
    (Picky, {"rate": 2}, "$.rate: at most 1, got 2.0."),
    (Picky, {"rate": 0}, "$: ZeroDivisionError: float division by zero"),
    (ModelSpec, {"dropout": {"branch": 1.5}}, "$.dropout: dropout.branch must lie in [0, 1), got 1.5."),
    (ModelSpec, {"dropout": 1.5}, "$.dropout: dropout.attention must lie in [0, 1), got 1.5."),
    (Training, {"steps": -1}, "$.steps: expected a whole number of at least 0, got -1."),
]


@pytest.mark.parametrize(("cls", "value", "message"), WRONG, ids=[message[:60] for _, _, message in WRONG])
def test_wrong_input_is_named_with_its_place(cls: type, value: object, message: str) -> None:
    with pytest.raises(InputError) as caught:
        decode(cls, value)
    assert str(caught.value).splitlines()[0] == message


def test_several_mistakes_are_told_together() -> None:
    wrong = {"nmber": 1, "count": "x", "pair": {"left": None}, "named": {"a": {}}}
    with pytest.raises(InputError) as caught:
        decode(Everything, wrong, path="$.deep")
    known = "number, count, either, limit, choice, on, text, span, counts, pair, maybe, named"
    assert str(caught.value).splitlines() == [
        f"$.deep: Everything has no field 'nmber', did you mean 'number'? Known: {known}.",
        "$.deep.count: expected a whole number, got 'x'.",
        "$.deep.pair.left: expected a whole number, got null.",
        "$.deep.named.a: Pair needs the field 'left' (a whole number).",
    ]


def test_at_most_ten_mistakes_are_told() -> None:
    with pytest.raises(InputError) as caught:
        decode(Everything, {"counts": ["x"] * 13})
    lines = str(caught.value).splitlines()
    assert lines[9] == "$.counts[9]: expected a whole number, got 'x'."
    assert lines[10:] == ["… and 3 more."]


def test_long_values_are_cut() -> None:
    with pytest.raises(InputError, match=r"got 'x{79}…\.$"):
        decode(Everything, {"count": "x" * 5000})


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"number": 3}, Everything(number=3.0)),
        ({"number": "3e-4"}, Everything(number=3e-4)),  # YAML 1.1 reads a number only with a dot in it
        ({"number": "-1E5"}, Everything(number=-1e5)),
        ({"either": 2}, Everything(either=2)),
        ({"either": 2.0}, Everything(either=2.0)),
        ({"limit": None}, Everything(limit=None)),
        ({"limit": 1}, Everything(limit=1.0)),
        ({"span": [1, 2]}, Everything(span=(1.0, 2.0))),
        ({"counts": []}, Everything()),
        ({"maybe": {"left": 2, "right": "x"}}, Everything(maybe=Pair(left=2, right="x"))),
        ({"named": {"a": {"left": 2}}}, Everything(named={"a": Pair(left=2)})),
    ],
)
def test_what_fits_is_read(value: object, expected: Everything) -> None:
    made = decode(Everything, value)
    assert made == expected
    assert [type(getattr(made, name)) for name in ("number", "either")] == [
        type(getattr(expected, name)) for name in ("number", "either")
    ]
    assert decode(Everything, encode(made)) == made


def test_a_sibling_is_a_kind_or_a_mapping_with_one() -> None:
    assert decode(ResidualSpec, "rezero") == ReZero()
    assert decode(ResidualSpec, {"kind": "scale", "alpha": 1}) == Scale(alpha=1.0)
    assert decode(ReZero, {"alpha_init": 0.5}) == ReZero(alpha_init=0.5)


def test_short_forms() -> None:
    model = decode(ModelSpec, {"dropout": 0.1, "bias": True, "norm": "layer"})
    assert model == ModelSpec(dropout=Dropout.all(0.1), bias=Biases.all(True), norm=Layer())
    assert decode(ModelSpec, {"dropout": "1e-1"}).dropout == Dropout.all(0.1)


def test_every_field_is_written_and_kind_comes_first() -> None:
    assert list(encode(AdamW()).items()) == [
        ("kind", "adamw"),
        ("learning_rate", 3e-4),
        ("weight_decay", 0.1),
        ("decay_on", "matrices"),
        ("betas", [0.9, 0.999]),
        ("eps", 1e-8),
    ]
    assert encode(ModelSpec())["residual"] == {"kind": "add"}
    assert "kind" not in encode(ModelSpec())


@pytest.mark.parametrize("name", PRESETS)
def test_presets_survive_json(name: str) -> None:
    spec = PRESETS[name]()
    assert decode(ModelSpec, json.loads(json.dumps(encode(spec)))) == spec


def test_canonical_bytes_are_frozen() -> None:
    """Changing these loses every result that anyone has stored."""
    assert canonical(ReZero(alpha_init=0.1)) == b'{"alpha_init":0.1,"kind":"rezero"}'
    assert canonical(Everything(text="µ")) == (
        b'{"choice":"near","count":1,"counts":[],"either":1,"limit":null,"maybe":null,"named":{},"number":0.5,"on":false,'
        b'"pair":{"left":1,"right":null},"span":[0.0,1.0],"text":"\\u00b5"}'
    )
    assert digest(ReZero(alpha_init=0.1)) == "fdaae081a05838e873ca93e9a92e358d2132fc93e7a691e5971f769783287888"


def test_equal_numbers_are_written_alike() -> None:
    assert canonical(ReZero(alpha_init=-0.0)) == canonical(ReZero(alpha_init=0.0))
    assert canonical({"a": 1, "b": 2}) == canonical({"b": 2, "a": 1})
    assert canonical(Everything(either=1)) != canonical(Everything(either=1.5))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"a": (0.5, float("nan"))}, "$.a[1]: expected a finite number, got nan."),
        ({"a": 1j}, "$.a: expected a number, text, list, mapping or dataclass, got 1j of type complex."),
    ],
)
def test_what_cannot_be_written_is_refused(value: object, message: str) -> None:
    with pytest.raises(InputError) as caught:
        encode(value)
    assert str(caught.value) == message


def test_the_json_of_a_record_is_its_fields_in_their_order() -> None:
    @dataclass(frozen=True)
    class Own:
        def to_json(self) -> str:
            return "its own"

    @dataclass(frozen=True)
    class Record(JsonFields):
        second: tuple[Pair, ...]
        first: Mapping[str, tuple[int, ...]]
        own: Own

    content = Record((Pair(left=1),), {"a": (1, 2)}, Own()).to_json()
    assert list(content) == ["second", "first", "own"]
    assert content == {"second": [{"left": 1, "right": None}], "first": {"a": [1, 2]}, "own": "its own"}
