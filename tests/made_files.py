"""What commands leave in a study's folder, made by hand: an evaluation at lengths, score terms, flow, audits, verdicts."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

import made_study
from addnorm.store import RunFolder, StudyFolder, write_json
from addnorm.store.measured import write_measured
from addnorm.words import say

TERMS = ("qRk", "aRk", "qRb", "aRb", "sum")


def versus(loss: float, verdict: str | None) -> dict[str, Any]:
    """A comparison with the reference, whose loss is 2."""
    said = {"verdict": verdict, "difference": loss - 2.0, "interval": [loss - 2.1, loss - 1.9], "seeds_needed": None}
    return {} if verdict is None else {"base": said}


def row(label: str, length: int, loss: float, verdict: str | None) -> dict[str, Any]:
    """One line of an evaluation at one length; trained at 16."""
    return {
        "label": label,
        "variant": label.split(" ")[0],
        "switch": "none",
        "length": length,
        "multiple": length // 16,
        "seeds": 3,
        "loss": loss,
        "loss_interval": [loss - 0.25, loss + 0.25],
        "accuracy": 0.4,
        "accuracy_interval": None,
        "perplexity": 7.0,
        "buckets": [{"from": 0, "to": length, "loss": loss, "loss_interval": None}],
        "versus": versus(loss, verdict),
    }


def evaluation() -> dict[str, Any]:
    """What `addnorm extrapolate` keeps."""
    warning = say("at_length", length=32, said=say("provisional", runs=2))
    return {
        "lengths": [16, 32],
        "trained": 16,
        "scoring": "window",
        "ending": 8,
        "confidence": 0.95,
        "margin": 0.005,
        "references": ["base"],
        "lines": [{"label": name, "variant": "base", "switch": "none"} for name in ("base", "<b> +yarn")],
        "rows": [
            row("base", 16, 2.0, None),
            row("base", 32, 2.5, None),
            row("<b> +yarn", 16, 2.0, "undecided"),
            row("<b> +yarn", 32, 2.25, "better"),
        ],
        "warnings": [str(warning)],
        "notes": [warning.note],
    }


def four_terms() -> dict[str, Any]:
    """What `addnorm inspect RUN --terms` keeps: two layers of two heads, two distances."""

    def curve(level: float) -> dict[str, list[float]]:
        return {"mean": [level, level + 2], "low": [level - 1] * 2, "high": [level + 3] * 2}

    rows = [
        {
            "label": "base-s0",
            "trained": 4,
            "layer": layer,
            "head": head,
            "distances": [0.0, 8.0],
            "terms": {name: curve(float(head)) for name in TERMS},
            "isotropy": {"query": 0.1 + head, "key": 0.2, "chance": 0.05},
        }
        for layer in (0, 1)
        for head in (0, 1)
    ]
    return {"run": "base0-s0", "samples": 3, "length": 9, "rows": rows}


MEASURES = (
    "gradient", "rms", "share", "entropy", "entropy_share", "one_hot", "similarity", "mean_similarity", "own_share",
    "exit_loss", "cosine", "first_share", "query_direction", "key_direction", "update_rms",
)  # fmt: skip


def flow(run: RunFolder) -> dict[str, Any]:
    """What `addnorm inspect RUN` keeps, two layers deep."""
    layers = [{"layer": layer, **dict.fromkeys(MEASURES, 0.5 + layer)} for layer in (0, 1)]
    part = {"loss": 2.0, "gradient": 1.0, "embedding": {"rms": 1.0}, "layers": layers}
    start, end = (part | {"depth": {"residual": depth(weight)}} for weight in (1.0, -0.5))
    return {
        "format": 4,
        "run": run.name,
        "variant": run.spec["variant"],
        "seed": run.spec["seed"],
        "data": {"sequences": 2, "map_sequences": 1, "seq": 16},
        "weights": {"step": 40},
        "start": start,
        "end": end,
    }


def checkpoint(folder: Path, name: str, *, layers: int = 2, text: str = "a", missing: Any = None) -> Path:
    """What `addnorm inspect CHECKPOINT --text FILE --to FOLDER` keeps."""
    rows = [{"layer": layer, **dict.fromkeys(MEASURES, 0.5 + layer)} for layer in range(layers)]
    missing = [] if missing is None else [missing]
    place = folder / "measured" / name
    content = {
        "format": 4,
        "run": name,
        "weights": {"folder": f"/models/{name}"},
        "data": {"hash": text, "text": f"{text}.txt", "seq": 16, "sequences": 2, "map_sequences": 1},
        "missing": [str(sentence) for sentence in missing],
        "missing_notes": [sentence.note for sentence in missing],
        "end": {"loss": 2.0, "gradient": 1.0, "layers": rows, "depth": {"residual": depth(-0.5)}},
    }
    write_measured(place, Path("/models") / name, "insight.json", content)
    return place


def depth(weight: float) -> dict[str, Any]:
    """A depth matrix of two reads, with one weight that may differ."""
    matrix = [[1.0, 0.0], [weight, 1.0]]
    named = {"kind": "dense", "reads": ["0.attention", "close"], "sources": ["embedding", "0.attention"]}
    return named | dict.fromkeys(("weights", "shares", "relative"), matrix) | {"spread": [[0.0, 0.0], [0.0, 0.0]]}


def record_scalars(run: RunFolder, names: tuple[str, ...]) -> None:
    """What a worker keeps of learned scalars with each checkpoint."""
    count = len(names)
    kept = {key: np.zeros(count) for key in ("decay", "gradient", "mean", "mean_square")}
    kept |= {"value": np.full(count, 0.5), "init": np.ones(count), "log_kept": np.full(count, -1.0)}
    save_file(kept | {"steps": np.array(40)}, run.path / "scalars.safetensors", metadata={"names": json.dumps(names)})


def audit() -> dict[str, Any]:
    """What `addnorm audit DIR` keeps."""
    names = [f"layers.{layer}.attention.body.qk_bias.k" for layer in range(4)]
    reason = say("not_exported", reason="<b>no")
    variants = {
        "base": {"size": 190, "joint_null": 37, "redundant": names},
        "v4m5": {"reason": str(reason), "note": reason.note},
    }
    return {"addnorm": "0", "plan_hash": made_study.plan()["plan_hash"], "variants": variants}


def verdicts(*given: str) -> dict[str, Any]:
    """What `addnorm explain DIR` keeps: one run per verdict, all on the same number."""
    scalars = [
        {"variant": "v4m5", "scalars": [{"parameter": "scores.log_a.1", "index": [0, 2], "verdict": verdict}]}
        for verdict in given
    ]
    return {"time": 1.5e9, "runs": scalars}


def everything(out: Path) -> StudyFolder:
    """A finished study on which every command has been called."""
    study = made_study.finished(out)
    measure(study)
    return study


def measure(study: StudyFolder) -> None:
    """Leave in a study's folder what every command would."""
    for run in study.runs():
        write_json(run.path / "insight.json", flow(run))
        if run.spec["variant"] == "v4m5":
            record_scalars(run, ("scores.log_a.0[0, 0]", "scores.log_a.1[0, 1]", "scores.log_a.1[0, 2]"))
    write_json(study.runs()[0].path / "terms.json", four_terms())
    write_json(study.path / "extrapolation.json", evaluation())
    write_json(study.path / "audit.json", audit())
    write_json(study.path / "explain.json", verdicts("decayed", "learned", "decayed"))
    costs = {name: {"parameters": 100_000, "flops_per_token": 6e5} for name in study.plan["variants"]}
    write_json(study.path / "costs.json", {"variants": costs})
