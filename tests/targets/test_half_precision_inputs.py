"""Derived inputs have the type of the model's weights."""

import copy
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

from addnorm.cli import main
from addnorm.outside.targets.example_inputs import example_inputs
from addnorm.outside.targets.input_spec import make_inputs

transformers = pytest.importorskip("transformers")


def convnext() -> nn.Module:
    config = transformers.ConvNextConfig(depths=[1] * 4, hidden_sizes=[4] * 4, num_labels=3, image_size=32)
    return transformers.ConvNextForImageClassification(config).eval()


def whisper() -> nn.Module:
    config = transformers.WhisperConfig(
        **dict.fromkeys(("encoder_layers", "decoder_layers"), 1),
        **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 2),
        **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), 8),
        vocab_size=20,
        d_model=8,
        num_mel_bins=4,
        max_source_positions=8,
        max_target_positions=16,
        pad_token_id=0,
        decoder_start_token_id=1,
    )
    return transformers.WhisperForConditionalGeneration(config).eval()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("build", [convnext, whisper])
def test_images_and_features_have_the_weights_type(build: object, dtype: torch.dtype) -> None:
    inputs, notes = example_inputs(build().to(dtype))
    main_input = next(iter(inputs.values()))
    assert main_input.dtype == dtype
    assert notes[0].endswith(f", in {str(dtype).removeprefix('torch.')}")
    assert all(not each.is_floating_point() or each.dtype == dtype for each in inputs.values())


class Mixed(nn.Module):
    """A model in half precision whose first weight stays in float32."""

    main_input_name = "pixel_values"

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.patch = nn.Parameter(torch.ones(3, dtype=torch.float32)), nn.Conv2d(3, 4, 4).bfloat16()
        self.config = SimpleNamespace(image_size=8, num_channels=3)

    def forward(self, pixel_values: Tensor) -> Tensor:
        return self.patch(pixel_values).float() * self.scale.sum()


def test_a_model_of_several_types_gets_the_one_that_it_takes() -> None:
    assert example_inputs(Mixed())[0]["pixel_values"].dtype == torch.bfloat16


def test_described_inputs_follow_the_weights_unless_they_have_a_type() -> None:
    model = nn.Linear(3, 2).half()
    spec = {"x": {"shape": [2, 3]}, "y": {"shape": [2], "dtype": "float32"}, "z": {"values": [1.5]}}
    made = make_inputs(spec, model)
    assert [each.dtype for each in made.values()] == [torch.float16, torch.float32, torch.float16]
    assert make_inputs(spec)["x"].dtype == torch.float32


@pytest.mark.thorough
def test_a_half_precision_image_model_is_audited_stripped_and_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        model = convnext().bfloat16()
    other = copy.deepcopy(model)
    with torch.no_grad():
        other.classifier.weight[0, 0] += 0.5
    model.save_pretrained("a")
    other.save_pretrained("b")
    assert main(["audit", "a", "--strip", "s", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["certificate"]["passed"]
    assert main(["audit", "--diff", "a", "s"]) == 0
    assert main(["audit", "--diff", "a", "b"]) == 1
    assert "classifier.weight is 0.5 apart" in capsys.readouterr().out
