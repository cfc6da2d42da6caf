"""Models compile for a GPU to one graph, as training compiles them, forward and backward."""

import pytest
import torch

from addnorm.errors import InputError
from addnorm.model.presets import PRESETS, preset

SIZES = {"vocab": 64, "width": 64, "depth": 3, "heads": 2, "kv_heads": 2, "hidden": 64, "max_seq": 32}
COMPILED = ("base", "gpt2", "llama", "v2m1", "v4m1", "v4m5", "bert")


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_traced_as_one_graph_forward_and_backward(name: str) -> None:
    torch._dynamo.reset()
    try:
        model = preset(name, **SIZES).build().to("cuda")
    except InputError:  # a gated attention unit has one head
        model = preset(name, **SIZES | {"heads": 1, "kv_heads": 1}).build().to("cuda")
    tokens = torch.zeros(2, 32, dtype=torch.int64, device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        logits = torch.compile(model, fullgraph=True, backend="aot_eager")(tokens)
    logits.float().sum().backward()


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch itself, when its compiler is imported
@pytest.mark.parametrize("name", COMPILED)
def test_a_model_is_one_graph(name: str) -> None:
    assert name in PRESETS
    torch._dynamo.reset()
    model = preset(name, **SIZES).build().to("cuda")
    tokens = torch.zeros(2, 32, dtype=torch.int64, device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        logits = torch.compile(model, fullgraph=True)(tokens)
    logits.float().sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters() if parameter.requires_grad)
