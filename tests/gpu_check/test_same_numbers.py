"""What a GPU's branches of the code compute is what the CPU's compute: every kind, by carbon copies, without Triton."""

from dataclasses import replace

import pytest
import torch
from carbon import carbon
from trained import VOCAB, Kind, kinds

from addnorm import attend
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


def test_terms_weighed_together_are_those_weighed_one_by_one() -> None:
    generator = torch.Generator().manual_seed(0)

    def attended(device: str) -> list[torch.Tensor]:
        terms = [
            torch.randn(2, 4, 6, 8, generator=generator.manual_seed(term), dtype=torch.float64) for term in range(7)
        ]
        weights = torch.linspace(0.1, 0.4, 12, dtype=torch.float64).view(4, 3)
        given = [tensor.to(device).requires_grad_() for tensor in (*terms, weights)]
        out = attend(given[:3], given[3:6], given[6], given[7], impl="sdpa")
        # Contiguous while operations are repeated: a copy to the host gathers what is not by a kernel, which does nothing here.
        return [each.detach().contiguous() for each in (out, *torch.autograd.grad(out.square().sum(), given))]

    expected = attended("cpu")
    with carbon() as copies:
        computed = attended("cuda")
    assert not copies.unknown
    for one, other in zip(computed, expected, strict=True):
        torch.testing.assert_close(one.cpu(), other, rtol=1e-12, atol=1e-12)


def _outcome(model: torch.nn.Module, tokens: torch.Tensor) -> list[torch.Tensor]:
    logits = model(tokens)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    weights = torch.linspace(-1, 1, logits.numel(), device=logits.device).view_as(logits)
    gradients = torch.autograd.grad((logits * weights).sum(), parameters, allow_unused=True)
    return [logits.detach(), *(gradient for gradient in gradients if gradient is not None)]
