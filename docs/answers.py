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

from addnorm.insight.extrapolation.summary import Scoring
from addnorm.insight.port.pairing import ParameterPair
from addnorm.insight.port.result import PortComparison, PortDifference
from addnorm.insight.rounded_loss import RoundedLoss
from addnorm.insight.scalars.over_seeds import OverallVerdict
from addnorm.insight.scalars.scalar import ScalarVerdict
from addnorm.insight.scale_check import ScaleCheck, ScaleSlope
from addnorm.outside.targets.target import Target
from addnorm.redundancy.equivalence import Equivalence
from addnorm.redundancy.result import Audit
from addnorm.redundancy.rewriting.certificate import Certificate, Compared
from addnorm.redundancy.rewriting.key_cache import CachedKeys, KeySizes
from addnorm.redundancy.verdict.finding import Blocked, Directions, Finding, Fold
from addnorm.statistics import ranking, run_noise, seeds_in_stages, stuck_runs, trend, tuning
from addnorm.statistics.departures import FamilyDepartures
from addnorm.statistics.effects import downstream as items
from addnorm.statistics.effects.equal_loss import EqualLoss
from addnorm.statistics.effects.joint_law import CurveLaw
from addnorm.statistics.effects.next_step import NextStep
from addnorm.statistics.effects.posterior import Posterior
from addnorm.statistics.effects.prediction import Predicted, Prediction, PredictionScore
from addnorm.statistics.effects.speedup import Speedup
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
from addnorm.symmetry.bases.certificate import BasisCertificate
from addnorm.symmetry.bases.quantising import WeightError
from addnorm.symmetry.bases.representative import WeightDistance
from addnorm.symmetry.result import Family, Member, Near, Symmetries, Unexplained

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


WORTH_AGAIN = _about(
    _object(worth=NUMBER, interval=_or_null(INTERVAL), found=TRUTH),
    "On the second batch of seeds of a study, where the first gives a verdict; `found`: whether the second gives it too.",
)

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
        "metric unit sizes references margin confidence variants warnings",
        {"metric": TEXT, "unit": METRIC["unit"], "sizes": _list(_object(name=TEXT, parameters=NUMBER))},
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
        {"variant": TEXT, "verdict": {"enum": ["worth more", "worth less", "undecided"]}, "again": WORTH_AGAIN},
        "again",
    ),
    "steps_of_variant": (
        EqualLoss,
        "variant verdict worth interval loss steps reference_steps df",
        {
            "variant": TEXT,
            "verdict": {"enum": ["worth more", "worth less", "undecided"]},
            "again": WORTH_AGAIN,
            "costs": _about(
                _by_name(_object(relative=NUMBER, worth=NUMBER, interval=_or_null(INTERVAL))),
                "Of a study: worth in `compute` and `time` to equal loss, and those of a step relative to the reference.",
            ),
        },
        "costs again",
    ),
    "speedup": (
        Worths,
        "reference of metric unit confidence sizes variants warnings",
        {**METRIC, "variants": _list({"anyOf": [_of("speedup_of_variant"), _of("steps_of_variant")]})},
        "",
    ),
    "predicted": (
        Predicted,
        "variant reference value interval verdict naive observed observed_verdict",
        {"interval": _or_null(INTERVAL)},
        "",
    ),
    "prediction_score": (
        PredictionScore,
        "losses_held differences_held of_losses of_differences error naive_error verdicts_right verdicts_predicted decisions",
        {},
        "",
    ),
    "prediction": (
        Prediction,
        "sizes largest references margin confidence seeds law losses differences left_out score",
        {},
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
        "study runs seeds steps tokens_per_run tokens flops workers threads seconds flops_per_second variants tuning audit "
        "start notes",
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
    "audit": (
        Audit,
        "model joint_null size assumptions findings certificate observe observed unobserved training methods notes "
        "disagreements numeric_joint_null versions seconds target track where",
        {
            "certificate": _or_null(_of("certificate")),
            "target": _of("model"),
            "track": _about(TEXT, "Parameters that were audited."),
            "where": _about(TEXT, "Source line of the model's class, `file:line`; empty if unknown."),
            "kv_cache": _about(_list(_of("cached_keys")), "With --kv-cache, by call of attention."),
        },
        "kv_cache",
    ),
    "finding": (
        Finding,
        "parameter verdict size redundant_dof absorbable_dof directions fold_into blocked_by reason effect negligible_dof norm "
        "largest idle_norm unread contradicted numeric_redundant_dof numeric_absorbable_dof",
        {},
        "",
    ),
    "directions": (Directions, "kind", {"basis": _list(_list(NUMBER))}, "coordinates basis"),
    "fold": (Fold, "into formula amplification solved", {}, ""),
    "blocked": (Blocked, "op module where rank why", {}, ""),
    "certificate": (
        Certificate,
        "passed removed zeroed changed reduced refused scalars lengths fresh left float32 compared",
        {},
        "",
    ),
    "compared": (
        Compared, "mode dtype difference rounding bound skipped stored integers integers_changed passed", {}, "",
    ),
    "cached_keys": (CachedKeys, "before after", {}, ""),
    "key_sizes": (KeySizes, "largest center spread int8 int4", {}, ""),
    "audit_diff": (
        Equivalence,
        "a b equivalent difference parameter bound moved parameters_agree outputs_agree output_difference output_bound "
        "output_integers_changed same_computation inputs reordered rounded_to unstored settings weights",
        {
            "a": _about(_of("model"), "The first model."),
            "b": _about(_of("model"), "The second model."),
            "outputs_agree": _about(TRUTH, "True if the outputs differ by no more than rounding."),
            "output_difference": _about(NUMBER, "Largest difference of an output, in float64."),
            "output_bound": _about(NUMBER, "Largest difference that rounding explains."),
            "output_integers_changed": _about(WHOLE, "Number of observed integers that differ."),
            "same_computation": _about(TRUTH, "True if both models perform the same operations."),
            "inputs": _about(WHOLE, "Number of inputs compared."),
            "weights": _or_null(_of("weight_distance")),
        },
        "",
    ),
    "weight_distance": (WeightDistance, "equal as_stored canonical families apart", {}, ""),
    "audit_all": (
        Symmetries,
        "target parameters families redundant",
        {
            "target": _of("model"),
            "families": _about(
                {"anyOf": [_list(_of("family")), _by_name(WHOLE)]},
                "Directions by family; of large models their number alone.",
            ),
            "gap": _or_null(NUMBER),
            "effective": _about(WHOLE, "Numbers that are read, less the redundant directions."),
            "certificate": _about(_of("basis_certificate"), "Of large models: all families moved at random at once."),
            "stays": _about(_by_name(TEXTS), "Of large models: parameters with a freedom that was not moved, by family."),
        },
        "model training unread effective unexplained gap near refuted notes seconds certificate stays",
    ),
    "family": (Family, "name size members", {}, ""),
    "member": (Member, "parameters size", {}, ""),
    "unexplained": (Unexplained, "parameters size", {}, ""),
    "near": (Near, "family parameters singular_value", {}, ""),
    "rounded_loss": (RoundedLoss, "text tokens before after bound passed", {}, ""),
    "basis_certificate": (
        BasisCertificate,
        "passed exact stored rounding integers_changed inputs lengths",
        {"held_out": _about(_or_null(_of("rounded_loss")), "With --quantise-ready; null without a text.")},
        "held_out",
    ),
    "weight_error": (WeightError, "weights outputs", {}, ""),
    "family_departures": (
        FamilyDepartures,
        "variant parameter numbers seeds departed mixed directions shared_directions shared_with",
        {"variant": TEXT},
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
MEASURED = _or_null(NUMBER)
ROWS = _list(_by_name({"type": ["number", "string", "null"]}))
FLOW = {
    "type": "object",
    "properties": {
        "loss": _about(MEASURED, "Nats per scored token."),
        "gradient": _about(MEASURED, "Norm over all parameters."),
        "embedding": _about(_by_name(MEASURED), "The stream that enters the first site."),
        "layers": _about(ROWS, "Measures by name; those that do not apply are absent, and null is not finite."),
        "sites": _about(ROWS, "The same of each attention and feed-forward network."),
        "attention": _about(_list({"type": "object"}), "The same of each attention, with those of its `heads`."),
        "depth": _about(
            _by_name({"type": "object", "required": ["kind", "reads", "sources"]}), "Depth matrices by room."
        ),
    },
    "required": ["layers", "sites", "attention"],
}
MATRIX = _or_null(_list(_list(MEASURED)))
MATRICES = _object(start=MATRIX, end=MATRIX, difference=MATRIX, sd=_about(MATRIX, "Over seeds; null with one."))
SKIPPED = _about(_by_name(TEXT), "Reason by run that could not be read.")
MEASURED_RUN = _object(run=TEXT, weights={"type": "object"}, data={"type": "object"}, end=FLOW)
MEASURED_RUN["properties"] |= {
    "format": WHOLE, "addnorm": TEXT, "variant": TEXT, "seed": WHOLE,
    "start": _about(FLOW, "Before training; absent of a checkpoint."),
    "missing": _about(TEXTS, "Parts that were not found in a checkpoint."),
}  # fmt: skip
ABLATED = _object(
    format=WHOLE, run=TEXT, variant=TEXT, seed=WHOLE, addnorm=TEXT, weights={"type": "object"}, data={"type": "object"},
    loss=_about(NUMBER, "As trained, in nats per scored token."),
    groups=_list(
        _object(
            group=TEXT,
            set_to={"enum": ["neutral", "start"]},
            entries=WHOLE,
            loss=NUMBER,
            change=_about(NUMBER, "Loss with the group set, minus the loss as trained."),
            gauge=_about(TRUTH, "True if other parameters can absorb every change of the group."),
        )
    ),
)  # fmt: skip
BAND = _by_name(_object(mean=_list(NUMBER), low=_list(NUMBER), high=_list(NUMBER)))
SCALAR = _object(
    parameter=TEXT, layer=_or_null(WHOLE), index=_list(WHOLE), effective=NUMBER, init=NUMBER, final=NUMBER,
    decay_only=_about(NUMBER, "Value that weight decay alone would have left."),
    decay_share=MEASURED, snr=MEASURED, verdict={"enum": [*get_args(ScalarVerdict)]},
)  # fmt: skip
EXPLAINED_RUN = _object(
    run=TEXT, variant=TEXT, seed=_or_null(WHOLE), mechanism=TEXT, formula=TEXT, decay_factor=NUMBER, steps=WHOLE,
    scalars=_list(SCALAR),
    lockstep=_about(
        _list(
            _object(
                parameters=TEXTS, difference_init=NUMBER, difference_final=NUMBER, difference_decay_only=NUMBER,
            )
        ),
        "Pairs of numbers whose gradients are the same.",
    ),
    directions=_about(_list(_object(parameters=TEXTS, coefficients=_list(NUMBER))), "Moves that change no output."),
    gauges=_about(TEXTS, "Groups of learned numbers of which other parameters can absorb every change."),
    absorbed_by=_about(_by_name(TEXTS), "By gauge, the families of `addnorm audit --all` with directions that move it."),
    too_few_steps=TEXTS, undriven=_about(TEXTS, "Numbers that no gradient reached."),
)  # fmt: skip
SPREAD = _object(
    variant=TEXT, entry=TEXT, parameter=TEXT, seeds=WHOLE, final_mean=NUMBER, final_sd=MEASURED, effective_mean=NUMBER,
    effective_sd=MEASURED, decay_only=NUMBER, decay_share=MEASURED, snr=MEASURED,
    directions=_about(_list(WHOLE), "The redundant directions that it is part of, counted from 1."),
    verdict={"enum": [*(each for part in get_args(OverallVerdict) for each in (get_args(part) or (part,)))]},
)  # fmt: skip
AT_LENGTH = {
    "loss": _about(MEASURED, "Mean, in nats per token."),
    "loss_interval": _or_null(INTERVAL),
    "accuracy": MEASURED,
    "accuracy_interval": _or_null(INTERVAL),
    "perplexity": MEASURED,
    "targets": _or_null(WHOLE),
}
LENGTH_ROW = _object(
    label=TEXT, variant=TEXT, switch=TEXT, length=WHOLE, multiple=WHOLE, seeds=WHOLE, **AT_LENGTH,
    buckets=_about(_list(_object(**{"from": WHOLE, "to": WHOLE}, **AT_LENGTH)), "The same of stretches of positions."),
    values=_list(
        _object(run=TEXT, seed=WHOLE, state=TEXT, reason=_or_null(TEXT), loss=MEASURED, accuracy=MEASURED)
    ),
    versus=_about(_by_name(_of("comparison")), "By reference."),
)  # fmt: skip
EXTRAPOLATED = _object(
    study=TEXT, metric=TEXT, unit=METRIC["unit"], trained=_about(WHOLE, "Train length in tokens."), lengths=_list(WHOLE),
    scoring={"enum": [*get_args(Scoring)]}, ending=_about(WHOLE, "Targets at the end of a window with --scoring ending."),
    data_hash=TEXT, stretch=_about(WHOLE, "Tokens of a stretch of text."), stretches=WHOLE,
    lines=_list(_object(label=TEXT, variant=TEXT, switch=TEXT)), references=TEXTS, margin=MEASURED, confidence=NUMBER,
    intervals_over={"enum": ["seeds", "segments"]}, rows=_list(LENGTH_ROW),
    rankings=_about(
        _by_name({"type": "object", "required": ["variants", "references", "lines"]}),
        "By length: what `addnorm rank --json` answers, without `answer` and `next`.",
    ),
    **WARNINGS, notes=NOTES, problems=_about(_by_name(TEXT), "Reason by run that could not be evaluated."),
)  # fmt: skip
EXTRAPOLATED["properties"]["plan_hash"] = TEXT
EXPORTED = _object(run=TEXT, folder=TEXT, files=TEXTS)
EXPORTED["properties"] |= {
    "loading": _about(TEXT, "Code that loads a model of others."),
    "architecture": _about(TEXT, "With --format hf: the class of Transformers."),
    "needs_addnorm": _about(TRUTH, "With --format hf: false if Transformers loads it alone."),
    "notes": _about(TEXTS, "With --format hf: what other programs cannot express."),
}
WRITTEN = _object(
    families=_about(_by_name(WHOLE), "Directions by family."), certificate=_of("basis_certificate"), target=_of("model"),
    stays=_about(_by_name(TEXTS), "With --canonical: parameters whose freedom is not used up, by family."), written=TRUTH,
)  # fmt: skip
WRITTEN["properties"] |= {
    "choice": _about(TEXT, "With --quantise-ready: the candidate with the least error."),
    "before": _of("weight_error"),
    "after": _of("weight_error"),
}
EXPLAINED = _object(
    runs=_list(EXPLAINED_RUN), families=_about(_list(_of("family_departures")), "Parameters over layers and seeds."),
    spread=_about(_list(SPREAD), "Numbers over seeds."), skipped=SKIPPED,
)  # fmt: skip
EXPLAINED["properties"] |= {
    "conclusions": _about(
        _list(_object(id=TEXT, variant=TEXT, text=TEXT, zh=TEXT, follows=TRUTH, why=TEXT)),
        "Of printed values: printed conclusions, and whether they follow.",
    ),
    "learned": LEARNED,
}
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
    "inspect": {
        "description": "Measures of runs or of a checkpoint, layer by layer.",
        **_object(
            runs=_list(MEASURED_RUN),
            skipped=SKIPPED,
            depth=_about(
                _list(
                    _object(
                        variant=TEXT,
                        room=TEXT,
                        kind=TEXT,
                        reads=TEXTS,
                        sources=TEXTS,
                        seeds=WHOLE,
                        varies=_about(TRUTH, "True if weights depend on the tokens."),
                        weights=MATRICES,
                        shares=MATRICES,
                        relative=MATRICES,
                    )
                ),
                "Which site reads which, over seeds.",
            ),
        ),
    },
    "inspect_terms": {
        "description": "The four terms of scores with rotary position and biases of queries and keys.",
        **_object(
            models=_list(
                _object(
                    format=WHOLE,
                    run=TEXT,
                    label=TEXT,
                    trained=_or_null(WHOLE),
                    samples=WHOLE,
                    length=WHOLE,
                    causal=TRUTH,
                    q_bias=TRUTH,
                    k_bias=TRUTH,
                    checks=_list(_object(layer=WHOLE, largest_error=NUMBER, rounding=NUMBER)),
                    largest_error=_about(NUMBER, "Of the sum against the model's own scores."),
                    rounding=_about(NUMBER, "Its bound."),
                    band=_about(INTERVAL, "Quantiles of `low` and `high`."),
                    weights=_about(TEXT, "Digest of the weights."),
                    data_hash=TEXT,
                )
            ),
            rows=_list(
                _object(
                    label=TEXT,
                    trained=_or_null(WHOLE),
                    layer=WHOLE,
                    head=WHOLE,
                    distances=_list(NUMBER),
                    terms=_about(BAND, "By term, at each distance."),
                    isotropy=_by_name(NUMBER),
                )
            ),
        ),
    },
    "inspect_ablate": {
        "description": "Change of loss when groups of learned coefficients are set to neutral values.",
        **_object(
            runs=_list(ABLATED),
            skipped=SKIPPED,
            over_seeds=_list(
                _object(
                    variant=TEXT,
                    group=TEXT,
                    set_to={"enum": ["neutral", "start"]},
                    mean=NUMBER,
                    low=MEASURED,
                    high=MEASURED,
                    seeds=WHOLE,
                )
            ),
        ),
    },
    "audit_study": {
        "description": "Redundant bias scalars of every variant of a study.",
        **_object(addnorm=TEXT, plan_hash=TEXT, variants=_by_name(AUDITED)),
    },
    "audit_canonical": {"description": "A model that computes the same with other weights.", **WRITTEN},
    "explain": {"description": "What learned numbers learned, and what weight decay left.", **EXPLAINED},
    "export": {"description": "Files of an exported run.", **EXPORTED},
    "generate": {
        "description": "A continued text.",
        **_object(
            target=TEXT,
            prompt=TEXT,
            text=_about(TEXT, "The prompt and what follows it."),
            new_tokens=WHOLE,
            temperature=NUMBER,
            top_k=_about(_or_null(WHOLE), "Null if all tokens were drawn from."),
            seed=WHOLE,
            step=_about(_or_null(WHOLE), "Step of a run's weights; null of other models."),
        ),
    },
    "extrapolate": {"description": "Losses at longer lengths, with verdicts at each.", **EXTRAPOLATED},
    "watch": {"description": "The address of a page that is served.", **_object(url=TEXT)},
}
"""Answers that no dataclass holds."""
ANSWERS = {
    "rank": "addnorm rank TABLE --json",
    "noise": "addnorm noise TABLE --json",
    "judge": "addnorm judge LEDGER --json",
    "trend": "addnorm trend TABLE TABLE --json",
    "rule": "addnorm rank TABLE --rule RULE --json",
    "prediction": "addnorm trend DIR DIR --predict DIR --json",
    "speedup": "addnorm rank TABLE --as speedup --json",
    "downstream": "addnorm rank TABLE --as downstream --json",
    "scale_check": "addnorm scale-check STUDY --json",
    "port": "addnorm port FIRST SECOND --json",
    "status": "addnorm status DIR --json",
    "list": "addnorm list --json",
    "plan": "addnorm plan STUDY --json",
    "plan_cluster": "addnorm plan STUDY --cluster DEVICES --json",
    "run": "addnorm run STUDY --json",
    "inspect": "addnorm inspect DIR --json",
    "inspect_terms": "addnorm inspect DIR --terms --json",
    "inspect_ablate": "addnorm inspect DIR --ablate --json",
    "audit": "addnorm audit TARGET --json",
    "audit_study": "addnorm audit DIR --json",
    "audit_diff": "addnorm audit --diff FIRST SECOND --json",
    "audit_all": "addnorm audit TARGET --all --json",
    "audit_canonical": "addnorm audit TARGET --canonical FILE --json",
    "explain": "addnorm explain DIR --json",
    "export": "addnorm export RUN --json",
    "generate": "addnorm generate TARGET --prompt TEXT --json",
    "extrapolate": "addnorm extrapolate DIR --json",
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
    hints = get_type_hints(
        cls, localns={"Subject": Any}
    )  # a field outside of the answer, imported for type checks only
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

The answer of every command to `--json` has a JSON schema (draft 2020-12). `python docs/answers.py`
writes this page and the schemas from the dataclasses that the answers are made of; a test holds
them against answers. `addnorm list schema` lists them, `addnorm list schema --json` prints them
all; they are in the wheel, in `addnorm/schemas/`.

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
