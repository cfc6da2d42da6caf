"""Classes of Transformers in reduced size have the counts of the report, whose tables are those of its data file."""

import copy
import importlib.util
import json
from collections.abc import Collection
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from addnorm.redundancy.execution.generic_weights import generic
from addnorm.symmetry.bases.representative import canonicalised, equal_up_to, freedom_of, random_moves

pytest.importorskip("transformers")

FOLDER = Path(__file__).parents[2] / "docs" / "studies"
DATA: dict[str, dict[str, Any]] = json.loads((FOLDER / "data" / "symmetries.json").read_text(encoding="utf-8"))
QUICK = ("LlamaForCausalLM",)
THOROUGH = (
    *("LlamaForCausalLM, tied", "Qwen3ForCausalLM", "Gemma3ForCausalLM", "Olmo2ForCausalLM", "GPT2LMHeadModel"),
    *("CohereForCausalLM", "BertModel", "MixtralForCausalLM", "NanoChatForCausalLM", "FalconForCausalLM"),
    *("BloomForCausalLM", "ViTForImageClassification", "NemotronForCausalLM", "AlbertForMaskedLM", "Dinov2Model"),
    *("BambaForCausalLM", "ElectraForMaskedLM"),
)
"""Classes of each kind that do not take long. The others are the soak's."""
FEWEST = 20
USED_UP = (
    *("LlamaForCausalLM", "Qwen3MoeForCausalLM", "NanoChatForCausalLM", "LlamaForCausalLM, tied"),
    *("MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM", "GemmaForCausalLM", "Gemma2ForCausalLM"),
    *("Gemma3ForCausalLM", "OlmoForCausalLM", "Olmo2ForCausalLM", "Olmo3ForCausalLM", "Phi3ForCausalLM"),
    *("SmolLM3ForCausalLM", "GraniteForCausalLM", "HeliumForCausalLM", "Glm4ForCausalLM", "NemotronForCausalLM"),
    *("Starcoder2ForCausalLM", "GPT2LMHeadModel", "GPT2LMHeadModel, tied", "GPTNeoForCausalLM", "GPTNeoXForCausalLM"),
    *("GPTJForCausalLM", "PhiForCausalLM", "CohereForCausalLM", "FalconForCausalLM", "OPTForCausalLM"),
    *("RobertaForMaskedLM", "ModernBertForMaskedLM", "MixtralForCausalLM", "GptOssForCausalLM", "DogeForCausalLM"),
    *("ApertusForCausalLM", "ArceeForCausalLM", "SeedOssForCausalLM", "HunYuanDenseV1ForCausalLM"),
    *("Exaone4ForCausalLM", "Cohere2ForCausalLM", "OlmoeForCausalLM", "GraniteMoeForCausalLM"),
    *("BartForConditionalGeneration", "StableLmForCausalLM", "BloomForCausalLM", "T5ForConditionalGeneration"),
    *("DeepseekV3ForCausalLM", "Dinov2Model", "Lfm2ForCausalLM", "FalconH1ForCausalLM", "ViTForImageClassification"),
    *("BertModel", "BertForMaskedLM", "DistilBertForMaskedLM", "BambaForCausalLM"),
    *("MBartForConditionalGeneration", "M2M100ForConditionalGeneration", "UMT5ForConditionalGeneration"),
)
"""Classes of which the canonical form uses up every explained direction."""


def _report() -> ModuleType:
    spec = importlib.util.spec_from_file_location("symmetries_report", FOLDER / "symmetries.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


REPORT = _report()


def tier(name: str, thorough: Collection[str] = THOROUGH) -> Any:
    marks = () if name in QUICK else pytest.mark.thorough if name in thorough else pytest.mark.soak
    return pytest.param(name, id=name, marks=marks)


@pytest.mark.parametrize("name", [tier(name, THOROUGH[::3]) for name in DATA])  # some six seconds each
def test_counts_are_those_of_the_report(name: str) -> None:
    made = REPORT.measured(name)
    keys = ("parameters", "unread", "redundant", "explained", "families", "refuted")
    assert {key: made[key] for key in keys} == {key: DATA[name][key] for key in keys}


@pytest.mark.parametrize("name", [name if at < 3 else tier(name) for at, name in enumerate(USED_UP)])
def test_the_canonical_form_uses_up_all_that_is_explained(name: str) -> None:
    sizes = freedom_of(*REPORT.reduced(name)).sizes()
    # Rows of tables that the example does not read are counted here, and not by the report. What an eps breaks is no freedom.
    near = DATA[name]["families"].get("scale of the stream, up to eps", 0)
    assert sum(sizes.values()) >= DATA[name]["explained"] - near


@pytest.mark.parametrize("name", [tier(name) for name in DATA])
def test_moves_of_all_families_change_no_output_and_leave_the_form(name: str) -> None:
    """A rule that is wrong at any size, as one for heads that are multiplied in batches was (Bloom), fails here."""
    model, inputs = REPORT.reduced(name)
    model = generic(model.eval(), torch.float64)
    freedom = freedom_of(model, inputs)
    assert canonicalised(model, inputs, freedom=freedom).certificate.passed
    moved = random_moves(model, inputs, seed=3, freedom=freedom)
    assert moved.certificate.exact < 1e-12
    assert moved.certificate.integers_changed == 0
    found = equal_up_to(model, moved.model, inputs, freedom=freedom)
    assert found.as_stored > 0.1
    assert found.equal, found.apart


@pytest.mark.thorough  # seconds
def test_units_of_one_expert_have_an_order_of_their_own() -> None:
    model, inputs = REPORT.reduced("MixtralForCausalLM")
    model = generic(model.eval(), torch.float64)
    other = copy.deepcopy(model)
    order = torch.tensor([3, 0, 4, 1, 2])
    with torch.no_grad():
        experts = other.get_submodule("model.layers.1.mlp.experts")
        into, out = experts.get_parameter("gate_up_proj"), experts.get_parameter("down_proj")
        into[1] = into[1].view(2, 5, 8)[:, order].reshape(10, 8)
        out[1] = out[1][:, order]
    compared = equal_up_to(model, other, inputs)
    assert compared.equal, compared.apart
    assert compared.as_stored > 0.01
    with torch.no_grad():
        out[1] = out[1][:, order]
    assert equal_up_to(model, other, inputs).apart


def test_the_tables_are_those_of_the_data() -> None:
    """`python docs/studies/symmetries.py --page` writes them anew."""
    text = (FOLDER / "symmetries.md").read_text(encoding="utf-8")
    assert REPORT.page(text, DATA) == text
    changed = {**DATA, "BertModel": {**DATA["BertModel"], "redundant": 1}}
    assert REPORT.page(text, changed) != text


def test_the_abstract_has_the_counts_of_the_data() -> None:
    text = " ".join((FOLDER / "symmetries.md").read_text(encoding="utf-8").split())
    exact = sum(each["redundant"] == each["explained"] for each in DATA.values())
    assert f"In {exact} of {len(DATA)} classes the named families explain every one" in text
    assert f"{len(DATA)} 个类中有 {exact} 个，测得的方向全部归入有名字的家族" in text
    assert f"{len(DATA)} 个类（" in text
    assert f"{len(DATA)} 个类中 {exact} 个两数完全相等" in text


def test_most_classes_are_explained_to_the_last_direction() -> None:
    exact = [name for name, each in DATA.items() if each["redundant"] == each["explained"]]
    assert len(exact) >= FEWEST
    assert [name for name, each in DATA.items() if each["refuted"]] == []
    rests = {name: sum(rest["size"] for rest in each["rest"]) for name, each in DATA.items()}
    assert all(each["explained"] + rests[name] == each["redundant"] for name, each in DATA.items())
    # Of ZAYA's two shifts at each of 4 sites of width 8, one half takes over the other; so do two convolutions' 12 biases.
    assert DATA["ZayaForCausalLM"]["families"]["redundant bias"] == 4 * 8 + 2 * 12
    known = {"LlamaForCausalLM": 118, "GPT2LMHeadModel": 381, "BertModel": 333, "MixtralForCausalLM": 154}
    assert {name: DATA[name]["redundant"] for name in known} == known
