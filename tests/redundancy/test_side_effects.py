"""An audit changes neither the model nor the process, another audit in another thread, or the name `addnorm.audit`."""

import subprocess
import sys
import threading
from pathlib import Path

import torch
import toys
from toys import WIDTH, data, seeded

import addnorm
from addnorm.redundancy import Audit

SOURCE = Path(__file__).parents[2] / "src"


def test_the_model_is_not_modified() -> None:
    model = seeded(toys.Convolved).train()
    model.head.eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    modes = [module.training for module in model.modules()]
    image = data(3, 2, 4, 4)
    given = image.clone()
    for training in (False, True):
        audit = addnorm.audit(model, image, methods="numeric", training=training)
        audit.strip()
        audit.canonicalize()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert [module.training for module in model.modules()] == modes
    assert all(parameter.grad is None and parameter.requires_grad for parameter in model.parameters())
    assert not any(module._forward_pre_hooks or module._forward_hooks for module in model.modules())
    assert torch.equal(image, given)


def test_the_process_is_as_before() -> None:
    torch.manual_seed(5)
    random = torch.get_rng_state()
    model = seeded(toys.Attention)
    with torch.no_grad():
        addnorm.audit(model, data(2, 4, WIDTH), methods="numeric", training=True).strip()
        assert not torch.is_grad_enabled()
    assert torch.is_grad_enabled()
    assert torch.get_default_dtype() == torch.float32
    assert torch.equal(torch.get_rng_state(), random)


def results(audit: Audit) -> list[tuple[object, ...]]:
    return [(each.verdict, each.redundant_dof, each.absorbable_dof, each.reason) for each in audit.findings]


def test_inference_mode_and_autocast_around_it_change_nothing() -> None:
    model, x = seeded(toys.Attention), data(2, 4, WIDTH)
    expected = results(addnorm.audit(model, x, methods="numeric"))
    with torch.autocast("cpu", torch.bfloat16):
        assert results(addnorm.audit(model, x, methods="numeric")) == expected
    with torch.inference_mode():
        assert results(addnorm.audit(model, x, methods="numeric")) == expected


def test_frozen_models_are_audited_like_others() -> None:
    model = seeded(toys.Attention).requires_grad_(False)
    audit = addnorm.audit(model, data(2, 4, WIDTH), methods="numeric")
    assert audit.finding("k.bias").verdict == "redundant"
    assert not any(parameter.requires_grad for parameter in model.parameters())


def test_two_audits_at_once_give_the_results_of_each_alone() -> None:
    pairs = [(seeded(toys.Attention), data(2, 4, WIDTH)), (seeded(toys.Convolved), data(3, 2, 4, 4))]
    alone = [addnorm.audit(model, x, methods="numeric", training=True) for model, x in pairs]
    audits: dict[int, Audit] = {}

    def work(place: int) -> None:
        model, x = pairs[place % 2]
        audits[place] = addnorm.audit(model, x, methods="numeric", training=True)

    threads = [threading.Thread(target=work, args=(place,)) for place in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [results(audits[place]) for place in range(4)] == 2 * [results(each) for each in alone]


ORDERS = [
    "import addnorm",
    "import addnorm; addnorm.audit",
    "import addnorm.redundancy.graph.static_analysis, addnorm",
    "from addnorm.redundancy import Audit",
    "from addnorm import audit",
    "import addnorm.redundancy.analysis as a",
]
CHECK = """
import inspect, sys
for first in {orders}:
    for name in [name for name in sys.modules if name.partition(".")[0] == "addnorm"]:
        del sys.modules[name]
    exec(first, {{}})
    import addnorm
    from addnorm import audit
    assert audit is addnorm.audit is addnorm.redundancy.audit is addnorm.redundancy.analysis.audit, first
    assert inspect.isfunction(audit) and list(inspect.signature(audit).parameters)[:2] == ["model", "inputs"], first
print("checked", len({orders}))
"""


def test_audit_is_the_function_in_every_import_order() -> None:
    command = [sys.executable, "-c", CHECK.format(orders=ORDERS)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env={"PYTHONPATH": str(SOURCE)})
    assert done.stdout == f"checked {len(ORDERS)}\n"
