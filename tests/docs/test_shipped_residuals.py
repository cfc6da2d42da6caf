"""docs/shipped-residuals.md is current, and its classes are those of the installed Transformers."""

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType

import pytest
import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from addnorm.outside.hugging_face.shipped.reading import TABLES

DOCS = Path(__file__).parents[2] / "docs"
MODELS = Path(transformers.__file__).parent / "models"
_SIGNS = (
    r"\bhyper_connection|\b(attn|ffn)_hc\b|HyperConnection|HyperHead",
    r"BlockAttentionResidual|depth_scaled_residual_add|[Rr]esidual_?[Gg]ate\b|[Rr]esidualScaling|ResidualGate",
    r"\binput_residual\b|initial_hidden_states|\baltup\b|GatedRMSNorm\(config\)",
    r"per_layer_input_gate",
)
"""Words in a model's code by which its residual is not a sum of the stream and a branch."""


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("shipped_residuals", DOCS / "shipped_residuals.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _counts() -> dict[str, str]:
    """The counts that stand on the page; each takes half a minute to make."""
    text = (DOCS / "shipped-residuals.md").read_text(encoding="utf-8")
    return dict(re.findall(r"\n### \w+ `(\w+)`\n.*?- learned numbers: ([^\n]*)", text, re.DOTALL))


def _lacking(script: ModuleType) -> str:
    """The list of missing parts on the page, which takes a minute to make."""
    return (DOCS / "shipped-residuals.md").read_text(encoding="utf-8").partition(script.LACKING)[2]


def test_the_page_is_current(script: ModuleType) -> None:
    written = (DOCS / "shipped-residuals.md").read_text(encoding="utf-8")
    assert script.page(_counts(), _lacking(script)) == written, "python docs/shipped_residuals.py"


def test_a_stored_count_is_that_of_the_table(script: ModuleType) -> None:
    row = json.loads(script.DATA.read_text(encoding="utf-8"))["residual.hyper_connections"]
    assert _counts()["hyper_connections"].startswith(f"{row['matter']} of {row['numbers']} can matter")
    assert script.count("hyper_connections") == _counts()["hyper_connections"]


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["affine", "initial_state", "stream_weight"])
def test_counts_are_current(kind: str, script: ModuleType) -> None:
    assert script.count(kind) == _counts()[kind]


@pytest.mark.parametrize("kind", ["mamba", "mixtral", "t5", "youtu", "lfm3", "yoso", "longformer", "mistral"])
def test_a_class_is_listed_under_the_parts_that_it_has(kind: str, script: ModuleType) -> None:
    entries = [" ".join(entry.split()) for entry in _lacking(script).split("\n- ")]
    listed = {entry.removeprefix("- ").partition(" (")[0] for entry in entries if f"`{kind}`" in entry}
    assert listed == set(script.parts(script.language_models()[kind]))


@pytest.mark.thorough
def test_the_list_of_missing_parts_is_a_walk_of_the_installed_transformers(script: ModuleType) -> None:
    assert "\n".join(script.missing()) + "\n" == _lacking(script)
    loaded = {table.architecture for table in TABLES.values()} | {f"{kind}" for kind in script.CLASSES.kinds()}
    others = [kind for kind, name in script.language_models().items() if not loaded & {kind, name}]
    assert [kind for kind in others if f"`{kind}`" not in _lacking(script)] == []


def test_every_class_is_in_the_installed_transformers() -> None:
    for kind, table in TABLES.items():
        cls = getattr(transformers, table.architecture)
        assert kind == cls.config_class.model_type


def test_every_unusual_residual_of_the_installed_transformers_is_on_the_page() -> None:
    """A new class whose code has the words of an unusual residual is to be loaded, or named with what is missing."""
    known = {kind.removesuffix("_text") for kind in TABLES}
    unusual = {
        file.parent.name
        for file in MODELS.glob("*/modeling_*.py")
        if any(re.search(sign, file.read_text(encoding="utf-8")) for sign in _SIGNS)
    }
    assert {"beam", "zaya", "inkling2", "deepseek_v4"} <= unusual
    assert unusual - known == set()
    assert {name for name in known if name not in CONFIG_MAPPING and f"{name}_text" not in CONFIG_MAPPING} == set()
