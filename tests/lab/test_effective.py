"""What a worker writes down of its scalars' layers and coefficients is what `explain` finds from the model itself."""

import json

from safetensors import safe_open

from addnorm.insight.coefficients import coefficients
from addnorm.lab.codec import decode
from addnorm.lab.study import RunSpec
from addnorm.store import Study


def test_it_is_what_explain_finds(finished):
    run = next(run for run in Study(finished).runs() if run.spec["variant"] == "v4m5")
    with safe_open(run.path / "scalars.safetensors", framework="np") as file:
        names = json.loads(file.metadata()["names"])
        told = json.loads(file.metadata()["effective"])
        values = file.get_tensor("value")
    expected = coefficients(decode(RunSpec, run.spec["spec"]).model, names, values)
    scores = [place for place, name in enumerate(names) if name.startswith("scores.")]
    assert len(scores) == 3
    for place in scores:
        assert told[place][0] == expected[place][0]
        # The worker's parameters are float32, and so is the exponential that it takes of them.
        assert abs(told[place][1] - expected[place][1]) <= 4 * 2**-24 * abs(expected[place][1])
