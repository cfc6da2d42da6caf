"""What a GPU's branches of the code compute is what the CPU's compute: every kind, by carbon copies, without Triton."""

from dataclasses import replace

import pytest
import torch
from carbon import carbon
from trained import VOCAB, Kind, kinds

from addnorm.errors import InputError

# A kernel of Triton leaves zeros, so attention is computed by tiles of torch's operations. Interpreted, the kernels have tests
# of their own in tests/equivalence.
KINDS = [kind for kind in kinds() if not kind.name.startswith("optimizer")]


@pytest.mark.parametrize("kind", KINDS, ids=[kind.name for kind in KINDS])
def test_logits_and_gradients_are_the_cpus(kind: Kind) -> None:
    try:
        spec = replace(kind.model, attention="streaming")
        model = spec.build().double().eval()
    except (InputError, TypeError):
        spec = kind.model
        model = spec.build().double().eval()
    # In float64, where sums in another order differ by 1e-15 of their terms, and a wrong term by itself.
    tokens = torch.arange(16)[None].remainder(VOCAB - 1)[:, : spec.max_seq]
    expected = _outcome(model, tokens)
    with carbon() as copies:
        moved = model.to("cuda")
        found = _outcome(moved, tokens.to("cuda"))
    assert not copies.unknown
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.cpu(), other, rtol=1e-7, atol=1e-9)


def _outcome(model: torch.nn.Module, tokens: torch.Tensor) -> list[torch.Tensor]:
    logits = model(tokens)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    weights = torch.linspace(-1, 1, logits.numel(), device=logits.device).view_as(logits)
    gradients = torch.autograd.grad((logits * weights).sum(), parameters, allow_unused=True)
    return [logits.detach(), *(gradient for gradient in gradients if gradient is not None)]
