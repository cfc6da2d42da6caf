"""A trained checkpoint that a wheel ships: audited, stripped, loaded by Transformers, compared on reactions.

The wheel `rxnfp` contains small BERT models of chemical reactions (Schwaller et al. 2021, doi:10.1038/s42256-020-00284-w).
Its own code, whose dependencies are old, is not imported: only its files are read.

    pip install --no-deps rxnfp
"""

import importlib.util
import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from addnorm.cli import main

pytestmark = [pytest.mark.thorough, pytest.mark.compiled]

REACTIONS = (
    "Nc1cccc2cnccc12.O=C(O)c1cc([N+](=O)[O-])c(Sc2c(Cl)cncc2Cl)s1>>O=C(Nc1cccc2cnccc12)c1cc([N+](=O)[O-])c(Sc2c(Cl)cncc2Cl)s1",
    "CCO.CC(=O)O>>CC(=O)OCC",
    "Brc1ccccc1.OB(O)c1ccccc1>>c1ccc(-c2ccccc2)cc1",
    "CC(=O)Cl.Nc1ccccc1>>CC(=O)Nc1ccccc1",
)
"""An amide coupling, an esterification, a Suzuki coupling, an acylation, as SMILES."""
TOKEN = re.compile(r"\[[^\]]+]|Br|Cl|>>|%[0-9]{2}|.")
FACTOR = 4
"""Two models that round independently differ by up to the sum of their errors, and the largest of a few hundred errors varies
by a factor of about two."""


def shipped() -> Path:
    """The folder of the pretrained model; the test is skipped where the wheel is not installed."""
    pytest.importorskip("transformers")
    spec = importlib.util.find_spec("rxnfp")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("rxnfp is not installed (pip install --no-deps rxnfp)")
    return Path(spec.submodule_search_locations[0]) / "models" / "transformers" / "bert_pretrained"


def tokens(vocab: Path) -> dict[str, torch.Tensor]:
    """The reactions as one padded batch, every seventh token masked."""
    known = {token: number for number, token in enumerate(vocab.read_text(encoding="utf-8").splitlines())}
    rows = [[known["[CLS]"], *(known[each] for each in TOKEN.findall(text)), known["[SEP]"]] for text in REACTIONS]
    for row in rows:
        row[4::7] = [known["[MASK]"]] * len(row[4::7])
    longest = max(map(len, rows))
    ids = torch.tensor([row + [known["[PAD]"]] * (longest - len(row)) for row in rows])
    seen = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
    return {"input_ids": ids, "attention_mask": seen}


@torch.no_grad()
def logits(model: Any, given: dict[str, torch.Tensor], dtype: torch.dtype) -> torch.Tensor:
    """The logits at all positions that are no padding, in float64."""
    return model.to(dtype)(**given).logits[given["attention_mask"].bool()].double()


def change(after: torch.Tensor, before: torch.Tensor) -> float:
    """Largest difference relative to the root mean square."""
    return float((after - before).abs().max() / before.square().mean().sqrt())


def test_a_trained_checkpoint_is_audited_stripped_and_loaded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from transformers import BertForMaskedLM

    before, after = tmp_path / "before", tmp_path / "after"
    shutil.copytree(shipped(), before)
    content = json.loads((before / "config.json").read_text(encoding="utf-8"))
    (before / "config.json").write_text(
        json.dumps(content | {"model_type": "bert", "architectures": ["BertForMaskedLM"]})
    )

    assert main(["audit", str(before), "--strip", str(after), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out.partition("{")[2].join(["{", ""]))
    layers, width = content["num_hidden_layers"], content["hidden_size"]
    # A layer's 4 width + 2, and two norms: the transform takes the last one's, the vocabulary's bias the transform's.
    assert printed["joint_null"] == layers * (4 * width + 2) + 2 * width
    keys = [each for each in printed["findings"] if each["parameter"].endswith("key.bias")]
    assert {each["verdict"] for each in keys} == {"redundant"}
    assert max(each["norm"] for each in keys) > 0  # trained, so they have walked
    assert printed["certificate"]["passed"]

    given = tokens(before / "vocab.txt")
    one, other = (BertForMaskedLM.from_pretrained(folder).eval() for folder in (before, after))
    gone = removed(other, one)
    assert any(name.endswith("key.bias") for name in gone)
    assert (after / "vocab.txt").is_file()
    lower = logits(one, given, torch.float32)
    exact = logits(one, given, torch.float64)
    bound = FACTOR * change(lower, exact)
    assert change(logits(other, given, torch.float64), exact) <= bound
    assert torch.equal(logits(other, given, torch.float64).argmax(-1), exact.argmax(-1))
    # The bound is no formality: without the query biases, which matter, it is exceeded by far.
    for name, parameter in one.named_parameters():
        if name.endswith("query.bias"):
            parameter.data.zero_()
    assert change(logits(one, given, torch.float64), exact) > 100 * bound


def removed(stripped: Any, original: Any) -> Sequence[str]:
    """Parameters that are zero in one model and not in the other."""
    known = dict(original.named_parameters())
    return [name for name, value in stripped.named_parameters() if not value.any() and known[name].any()]
