"""Writes the JSON schemas of what commands answer with `--json`: `python docs/answers.py`.

One file per answer in src/addnorm/schemas, which `addnorm list schema` lists, and docs/answers.md. Types and meanings are those
of the dataclasses that the answers are made of; what differs there is in `OBJECTS`. tests/cli/test_schemas.py holds the schemas
against answers: each field of an answer is in its schema, and each field of a schema in some answer.
"""

import ast
import inspect
import json
import textwrap
import types
from collections.abc import Mapping
from dataclasses import is_dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from addnorm.insight.port.pairing import ParameterPair
from addnorm.insight.port.result import PortComparison, PortDifference
from addnorm.insight.scale_check import ScaleCheck, ScaleSlope
from addnorm.outside.targets.target import Target
from addnorm.statistics import ranking, run_noise, seeds_in_stages, stuck_runs, trend, tuning
from addnorm.statistics.effects import downstream as items
from addnorm.statistics.effects.equal_loss import EqualLoss
from addnorm.statistics.effects.next_step import NextStep
from addnorm.statistics.effects.posterior import Posterior
from addnorm.statistics.effects.speedup import CurveLaw, Speedup
from addnorm.statistics.pairs import comparison
from addnorm.statistics.rules.check import ConditionOutcome, Design, PassRate, RuleCheck
from addnorm.statistics.stream.rule import StreamRule
from addnorm.statistics.stream.state import Proposal
from addnorm.store.questions.downstream import Downstream, DownstreamRow
from addnorm.store.questions.judge import Judgement
from addnorm.store.questions.rule import RuleResult
from addnorm.store.questions.speedup import Worths
from addnorm.store.status import RunStatus
from addnorm.supervision.cluster_estimate import ClusterEstimate, VariantOnCluster
from addnorm.supervision.cost_estimate import CostEstimate, ScoreSumCost, TuningCost, VariantCost
from addnorm.supervision.start_check import LargeEps, StartCheck, Unlearnable

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "src" / "addnorm" / "schemas"
VERSION = 1
"""Raised when a field goes, or changes its type or meaning; further fields do not raise it."""

TEXT: dict[str, Any] = {"type": "string"}
NUMBER: dict[str, Any] = {"type": "number"}
WHOLE: dict[str, Any] = {"type": "integer"}
TRUTH: dict[str, Any] = {"type": "boolean"}
TEXTS = {"type": "array", "items": TEXT}
NOTES = {"type": "array", "items": {"type": "object"}, "description": "Codes and values of the warnings."}
INTERVAL = {"type": "array", "items": NUMBER, "minItems": 2, "maxItems": 2}


def _or_null(schema: Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(schema.get("type"), str):
        return {**schema, "type": [schema["type"], "null"]} | (
            {"enum": [*schema["enum"], None]} if "enum" in schema else {}
        )
    return {"anyOf": [dict(schema), {"type": "null"}]}


def _about(schema: Mapping[str, Any], text: str) -> dict[str, Any]:
    return {**schema, "description": text}


def _list(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": dict(schema)}


def _by_name(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": dict(schema)}


def _of(name: str) -> dict[str, Any]:
    return {"$ref": f"#/$defs/{name}"}


def _object(**properties: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*properties]}


METRIC = {
    "metric": TEXT,
    "unit": _about(_or_null(TEXT), "None if nobody gave it."),
    "better": {"enum": ["lower", "higher"]},
}
WARNINGS = {"warnings": TEXTS}
SD = _object(sd=NUMBER, interval=INTERVAL, df=NUMBER)
REASON = _about(TEXT, "Why there are no numbers.")
AUDITED = {
    "anyOf": [
        _object(
            size=_about(WHOLE, "Number of bias scalars."),
            joint_null=_about(WHOLE, "How many of them can be removed together."),
            redundant=_about(TEXTS, "Parameters that are redundant alone."),
        ),
        _object(reason=REASON),
    ]
}
AUDITED["anyOf"][1]["properties"]["note"] = _about({"type": "object"}, "Code and values of the reason.")
LEARNED = _about(
    _by_name(
        {
            "anyOf": [
                _object(reason=REASON),
                _by_name(
                    _object(
                        numbers=WHOLE,
                        unread=_about(WHOLE, "Numbers of which nothing depends."),
                        matter=_about(WHOLE, "Directions that change what the model computes."),
                    )
                ),
            ]
        }
    ),
    "With --numbers, by variant: the learned numbers of each joint, and how many of them can matter.",
)
AT_SEED = _list(_object(seed=WHOLE, difference=NUMBER))
TUNING_RUN = _object(run=_or_null(TEXT), seed=WHOLE, state=TEXT, loss=_or_null(NUMBER), reason=_or_null(TEXT))
VALUES = _about({"type": "object"}, "Values of a point by the path of the field.")
NOISE = _object(
    sd=_or_null(NUMBER), df=WHOLE, even=TRUTH, noisy_references=TEXTS, set_apart=TEXTS, assumed_sd=_or_null(NUMBER),
)  # fmt: skip
NOISE["properties"]["seeds_differ"] = _about(
    TEXTS, "References on which seeds act in another way than on the other variants."
)

OBJECTS: dict[str, tuple[type, str, dict[str, Any], str]] = {
    "comparison": (
        comparison.VariantComparison,
        "verdict difference interval seeds_needed seeds_needed_for seeds standard_error p p_equivalent accuracy_difference "
        "accuracy_agrees reason by_seed seeds_lower",
        {"by_seed": AT_SEED, "tuning": AT_SEED},
        "reason_code again tuning quiet text_error posterior",
    ),
    "again": (comparison.Again, "state seeds difference p by_seed seeds_lower", {"by_seed": AT_SEED}, ""),
    "stuck": (
        stuck_runs.StuckRuns,
        "variant seeds runs gap share share_interval unstuck",
        {"share": _about(NUMBER, "Share of stuck runs."), "share_interval": INTERVAL},
        "",
    ),
    "tier": (ranking.Tier, "label gaps firm", {}, ""),
    "run": (ranking.RunValue, "run seed state loss accuracy counted reason planned after_look", {}, ""),
    "variant": (
        ranking.VariantRank,
        "variant seeds mean interval accuracy tier rank_interval versus adjusted_mean sd residual_sd perplexity same_as values",
        {},
        "",
    ),
    "stages": (seeds_in_stages.Stages, "design complete undecided hopeless continuing", {}, ""),
    "design_of_stages": (seeds_in_stages.SeedsInStages, "seeds looks hopeless", {}, ""),
    "tuned_point": (
        tuning.TunedPoint,
        "point values mean as_good runs",
        {"point": TEXT, "values": VALUES, "runs": _list(TUNING_RUN)},
        "",
    ),
    "edge": (tuning.Edge, "path value end", {}, ""),
    "tuned_variant": (
        tuning.TunedVariant,
        "variant chosen values edges flat points notes",
        {"values": VALUES, "notes": TEXTS},
        "curve",
    ),
    "fitted_optimum": (tuning.FittedOptimum, "path best interval", {"interval": _or_null(INTERVAL)}, ""),
    "tuning": (tuning.TuningOutcome, "seeds complete noise_sd variants", {"complete": TRUTH}, ""),
    "next_step": (NextStep, "action seeds variants sentence", {}, ""),
    "posterior": (Posterior, "better equivalent worse", {}, ""),
    "rank": (
        ranking.Ranking,
        "metric margin provisional references variants warnings notes confidence lines family noise added_after_look stages "
        "tuning unplanned answer next",
        {
            "notes": NOTES,
            "noise": NOISE,
            "answer": _about(TEXTS, "What was asked, what was found, and what is open, in words."),
            "next": _of("next_step"),
            "unit": METRIC["unit"],
            "better": METRIC["better"],
            "pairs": _about(_list(TEXTS), "The [variant, reference] that are compared, if not every one with every one."),
            "others": _list({"$ref": "#"}),
        },
        "pairs second stuck unpaired unit better others together",
    ),
    "variant_noise": (run_noise.VariantNoise, "variant runs mean sd", {"sd": _or_null(SD)}, ""),
    "smallest_difference": (run_noise.SmallestDifference, "difference interval", {"interval": INTERVAL}, ""),
    "seeds_for_difference": (
        run_noise.SeedsForDifference, "difference paired paired_range unpaired unpaired_range", {}, "",
    ),
    "noise": (
        run_noise.RunNoise,
        "metric unit confidence power comparisons one_run paired variants smallest needed warnings notes",
        {
            **METRIC,
            "power": _about(NUMBER, "Probability with which the seeds decide a difference."),
            "one_run": SD,
            "paired": _or_null(SD),
            "smallest": _about(
                _list(
                    _object(
                        seeds=WHOLE, paired=_or_null(_of("smallest_difference")), unpaired=_of("smallest_difference")
                    )
                ),
                "Smallest difference that a number of seeds decides.",
            ),
            "needed": _list(_of("seeds_for_difference")),
            "notes": NOTES,
        },
        "",
    ),
    "proposal": (
        Proposal,
        "proposal number baseline runs verdict why difference log10_evidence log10_needed",
        {
            "proposal": TEXT,
            "log10_evidence": _about(_or_null(NUMBER), "Power of ten of its e-value."),
            "log10_needed": _about(NUMBER, "Power of ten of the e-value at which it is kept."),
        },
        "",
    ),
    "stream_rule": (StreamRule, "alpha baseline_runs most_runs", {}, ""),
    "judge": (
        Judgement,
        "ledger metric unit better rule baseline baseline_runs baseline_missing noise_sd baselines proposals decided open "
        "recorded notes next",
        {
            "decided": _about(TEXTS, "Proposals that this call decided."),
            "open": _about(_or_null(TEXT), "The open proposal."),
            "baselines": _about(_list(_object(variant=TEXT, runs=WHOLE, mean=_or_null(NUMBER))), "Every baseline so far."),
        },
        "",
    ),
    "trend_of_variant": (
        trend.VariantTrend,
        "variant versus",
        {
            "versus": _by_name(
                _object(
                    means=_about(_list(_or_null(NUMBER)), "Mean difference at each size."),
                    differences=_list(AT_SEED),
                    direction=_or_null({"type": "string", "enum": [*get_args(trend.Direction)]}),
                    change=_of("comparison"),
                )
            )
        },
        "",
    ),
    "trend": (
        trend.Trend,
        "sizes references margin confidence variants warnings",
        {"sizes": _list(_object(name=TEXT, parameters=NUMBER))},
        "decisions",
    ),
    "decision_accuracy": (
        trend.DecisionAccuracy,
        "smaller larger pairs kept share interval chance",
        {"interval": _or_null(INTERVAL), "chance": INTERVAL},
        "",
    ),
    "rule_design": (Design, "runs reference_runs added_up_to", {}, ""),
    "pass_rate": (PassRate, "about effect rate rate_when_added", {}, ""),
    "condition": (ConditionOutcome, "kind statistic name needed passed", {}, ""),
    "rule_check": (
        RuleCheck,
        "variant reference verdict conditions runs mean reference_mean noise_sd noise_interval design rates tables",
        {},
        "",
    ),
    "rule": (
        RuleResult,
        "rule metric unit better reference sizes variants warnings",
        {**METRIC, "rule": _object(name=TEXT, source=_or_null(TEXT), conditions=_list({"type": "object"}))},
        "",
    ),
    "law": (CurveLaw, "limit coefficient exponent", {}, ""),
    "speedup_of_variant": (
        Speedup,
        "variant verdict worth interval df law by_size outside",
        {"variant": TEXT, "verdict": {"enum": ["worth more", "worth less", "undecided"]}},
        "",
    ),
    "steps_of_variant": (
        EqualLoss,
        "variant verdict worth interval loss steps reference_steps df",
        {"variant": TEXT, "verdict": {"enum": ["worth more", "worth less", "undecided"]}},
        "",
    ),
    "speedup": (
        Worths,
        "reference of metric unit confidence sizes variants warnings",
        {**METRIC, "variants": _list({"anyOf": [_of("speedup_of_variant"), _of("steps_of_variant")]})},
        "",
    ),
    "item_comparison": (
        items.ItemComparison,
        "difference interval standard_error p df method items documents seeds shared_seeds only_first only_second unpaired_z",
        {"df": _about(_or_null(NUMBER), "None for the test of McNemar.")},
        "",
    ),
    "downstream_row": (
        DownstreamRow, "task metric better variant mean reference_mean verdict about comparison", {}, "",
    ),
    "downstream": (Downstream, "reference confidence margin family rows warnings", {}, ""),
    "scale_slope": (ScaleSlope, "place what slope interval growth sizes", {"interval": INTERVAL}, ""),
    "scale_check": (
        ScaleCheck,
        "study variant over values steps seeds learning_rate scaled band places steady",
        {"steady": _about(TRUTH, "True if nothing grows, and nothing but the logits shrinks.")},
        "",
    ),
    "parameter_pair": (ParameterPair, "ours theirs how transposed", {"transposed": TRUTH}, ""),
    "port_difference": (PortDifference, "check what ours theirs size last_equal hint text", {}, ""),
    "port": (
        PortComparison,
        "first second equal first_difference differences skipped pairs only_ours only_theirs unequal copied",
        {"first": _of("model"), "second": _of("model")},
        "",
    ),
    "model": (Target, "name kind shrunk notes", {}, ""),
    "plan": (
        CostEstimate,
        "study runs seeds steps tokens_per_run tokens flops workers threads seconds flops_per_second variants tuning audit start "
        "notes",
        {
            "audit": _about(_by_name(AUDITED), "Redundant bias scalars, by variant."),
            "start": _about(_by_name(_of("start_check")), "What was found before the first step, by variant."),
            "notes": _about(TEXTS, "Warnings, in words."),
            "budgets": _about(_by_name(_by_name(NUMBER)), "Budgets that were given in place of steps, by variant."),
            "learned": LEARNED,
            "pairs": _about(_list(TEXTS), "The [variant, reference] that are compared, if not every one with every one."),
        },
        "budgets learned pairs",
    ),
    "variant_cost": (
        VariantCost,
        "variant parameters steps tokens flops_per_token flops peak_bytes seconds relative ways",
        {"ways": _list(_of("score_sum_cost"))},
        "",
    ),
    "score_sum_cost": (ScoreSumCost, "attention taken flops_per_token peak_bytes seconds", {}, ""),
    "tuning_cost": (TuningCost, "runs seeds tokens flops seconds points", {}, ""),
    "start_check": (StartCheck, "unlearnable large_eps", {}, ""),
    "unlearnable": (Unlearnable, "parameter entries of first gradient", {}, ""),
    "large_eps": (LargeEps, "norm eps mean_square", {}, ""),
    "plan_cluster": (
        ClusterEstimate, "study runs gpus at_once seconds device_hours storage_bytes variants", {}, "",
    ),
    "variant_on_cluster": (
        VariantOnCluster,
        "variant devices parameters flops peak_bytes runs_per_device seconds storage_bytes tree_bytes ring_bytes tree_seconds "
        "remedy",
        {},
        "",
    ),
    "run_status": (
        RunStatus, "run variant seed state step steps loss accuracy perplexity attempts reason uncompiled", {}, "",
    ),
}  # fmt: skip
"""Objects of the answers: class, fields, fields that are written in another way than the class has them, optional fields."""
STATUS = {
    "description": "State of every run of a study.",
    **_object(study=TEXT, plan_hash=TEXT, runs=_list(_of("run_status"))),
}
STATUS["properties"]["tuning"] = _of("tuning")
RUN = {**STATUS, "description": "State of every run of a study, when it was trained as far as it could be."}
LISTED = {
    "description": "Kinds of every room; with a room, its kinds with what is known of them.",
    **_by_name(
        {"type": ["array", "string"], "items": {"anyOf": [TEXT, {"type": "object", "required": ["kind", "summary"]}]}}
    ),
}
SMALL: dict[str, dict[str, Any]] = {
    "report": {
        "description": "Files of a report.",
        **_object(
            report=_about(TEXT, "The page."),
            pdf=_about(_or_null(TEXT), "Null unless --pdf is given."),
            files=_about(TEXTS, "Figures and tables beside it."),
            left_out=_about(TEXTS, "Sections that lack numbers."),
            not_inspected=_about(_by_name(TEXT), "Reason by run that could not be inspected."),
        ),
    },
    "new": {"description": "A study file that was written.", **_object(study=_or_null(TEXT), file=TEXT)},
    "reindex": {
        "description": "The index of a study, made anew.",
        **_object(runs=WHOLE, damaged=_about(_by_name(TEXT), "Reason by run that cannot be read.")),
    },
    "doctor": {
        "description": "Checks of the installation, by name.",
        **_by_name(_object(ok=TRUTH, detail=TEXT)),
    },
    "watch": {"description": "The address of a page that is served.", **_object(url=TEXT)},
}
"""Answers that no dataclass holds."""
ANSWERS = {
    "rank": "addnorm rank TABLE --json",
    "noise": "addnorm noise TABLE --json",
    "judge": "addnorm judge LEDGER --json",
    "trend": "addnorm trend TABLE TABLE --json",
    "rule": "addnorm rank TABLE --rule RULE --json",
    "speedup": "addnorm rank TABLE --as speedup --json",
    "downstream": "addnorm rank TABLE --as downstream --json",
    "scale_check": "addnorm scale-check STUDY --json",
    "port": "addnorm port FIRST SECOND --json",
    "status": "addnorm status DIR --json",
    "list": "addnorm list --json",
    "plan": "addnorm plan STUDY --json",
    "plan_cluster": "addnorm plan STUDY --cluster DEVICES --json",
    "run": "addnorm run STUDY --json",
    "report": "addnorm report DIR --json",
    "new": "addnorm new STUDY --json",
    "reindex": "addnorm reindex DIR --json",
    "doctor": "addnorm doctor --json",
    "watch": "addnorm watch DIR --json",
}
"""The answers by name, with a command that gives each."""
_BY_CLASS = {entry[0]: name for name, entry in OBJECTS.items()}
_PLAIN = {str: TEXT, float: NUMBER, int: WHOLE, bool: TRUTH}


def schema_of(name: str) -> dict[str, Any]:
    """The schema of an answer, with the objects that it is made of."""
    body = {"status": STATUS, "run": RUN, "list": LISTED, **SMALL}.get(name) or _described(name)
    needed: dict[str, Any] = {}
    _collect(body, needed)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:addnorm:{name}:{VERSION}",
        "title": ANSWERS[name],
        **body,
        **({"$defs": dict(sorted(needed.items()))} if needed else {}),
    }


def _collect(part: Any, needed: dict[str, Any]) -> None:
    """Add the objects that a schema refers to."""
    if isinstance(part, Mapping):
        if part.get("$ref", "#") != "#" and (name := part["$ref"].removeprefix("#/$defs/")) not in needed:
            needed[name] = _described(name)
            _collect(needed[name], needed)
        part = [*part.values()]
    for each in part if isinstance(part, list) else ():
        _collect(each, needed)


def _described(name: str) -> dict[str, Any]:
    cls, names, other, optional = OBJECTS[name]
    docs, hints = _meanings(cls), _hints(cls)
    properties = {}
    for field in (*names.split(), *optional.split()):
        if field == "posterior":
            properties[field] = _or_null(_of("posterior"))
            continue
        schema = other[field] if field in other else _schema(hints[field])
        properties[field] = {
            **schema,
            **({"description": docs[field]} if field in docs and "description" not in schema else {}),
        }
    summary = (inspect.getdoc(cls) or "").partition("\n\n")[0].replace("\n", " ")
    return {"description": summary, "type": "object", "properties": properties, "required": names.split()}


def _hints(cls: type) -> dict[str, Any]:
    """Types of the fields and properties of a class."""
    hints = get_type_hints(cls)
    for name, member in inspect.getmembers(cls, lambda member: isinstance(member, property)):
        hints[name] = get_type_hints(member.fget).get("return", Any)
    return hints


def _meanings(cls: type) -> dict[str, str]:
    """The string behind each attribute of a class, and the docstring of each property."""
    found = {}
    for base in reversed(cls.__mro__[:-1]):
        try:
            body = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0].body  # type: ignore[attr-defined]
        except OSError:
            continue
        for statement, behind in pairwise(body):
            if (
                isinstance(statement, ast.AnnAssign)
                and isinstance(behind, ast.Expr)
                and isinstance(statement.target, ast.Name)
            ):
                found[statement.target.id] = " ".join(ast.literal_eval(behind.value).split())
    for name, member in inspect.getmembers(cls, lambda member: isinstance(member, property)):
        found[name] = (inspect.getdoc(member) or "").partition("\n")[0]
    return found


def _schema(hint: Any) -> dict[str, Any]:
    """The schema of a value of that type."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        (inner,) = (each for each in arguments if each is not type(None))
        return _or_null(_schema(inner))
    if origin is Literal:
        return {"type": "string", "enum": [*arguments]}
    if origin is tuple and arguments[-1] is not Ellipsis:
        return {**_list(_schema(arguments[0])), "minItems": len(arguments), "maxItems": len(arguments)}
    if origin is tuple:
        return _list(_schema(arguments[0]))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _by_name(_schema(arguments[1]))
    if hint in _BY_CLASS:
        return _of(_BY_CLASS[hint])
    if isinstance(hint, type) and not is_dataclass(hint):
        return dict(_PLAIN[next(kind for kind in hint.__mro__ if kind in _PLAIN)])
    raise TypeError(f"no schema is known for {hint}")


HEAD = """# Answers of the commands as JSON

Answers of the commands that need no torch, and of `addnorm port`, have JSON schemas (draft
2020-12). `python docs/answers.py` writes this page and the schemas from the dataclasses that the
answers are made of; a test holds them against answers. `addnorm list schema` lists them, `addnorm
list schema --json` prints them all; they are in the wheel, in `addnorm/schemas/`.

The number at the end of `$id` is the version. It is raised when a field goes, or changes its type
or its meaning. Fields may be added without a new version: read those that you know.

"""


def page() -> str:
    """The text of docs/answers.md."""
    parts = [HEAD + "| answer of | schema |\n|---|---|"]
    parts += [
        f"| `{command}` | [{name}.json](../src/addnorm/schemas/{name}.json) |" for name, command in ANSWERS.items()
    ]
    for name in ANSWERS:
        schema = schema_of(name)
        if "properties" in schema:
            rows = [f"| `{field}` | {entry.get('description', '')} |" for field, entry in schema["properties"].items()]
            parts.append(
                "\n".join(
                    [
                        f"\n## {name}\n",
                        textwrap.fill(schema["description"], 100),
                        "\n| field | meaning |\n|---|---|",
                        *rows,
                    ]
                )
            )
    return "\n".join(parts) + "\n"


def files() -> dict[Path, str]:
    """Text of every file that is written."""
    texts = {
        FOLDER / f"{name}.json": json.dumps(schema_of(name), indent=1, ensure_ascii=False) + "\n" for name in ANSWERS
    }
    return {**texts, ROOT / "docs" / "answers.md": page()}


if __name__ == "__main__":
    for path, text in files().items():
        path.write_text(text, encoding="utf-8")
