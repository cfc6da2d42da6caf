"""An audit as SARIF 2.1.0, which code hosts and editors show as warnings: one result per parameter that is wasted.

A result is placed in the source of the model's class, where its biases are switched on or off; what holds the parameter is a
related location.

Source: OASIS 2020, "Static Analysis Results Interchange Format", https://docs.oasis-open.org/sarif/sarif/v2.1.0/.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

Json = Mapping[str, Any]

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"

RULES = {
    "redundant": ("warning", "No value of this parameter changes the output: it cannot learn. Leave it out."),
    "partly redundant": ("note", "Some directions of this parameter change nothing."),
    "foldable": ("note", "Other parameters can take over what this one does."),
    "negligible": ("note", "What this parameter does is below float32's rounding at the lengths looked at."),
    "unproved": ("note", "This parameter changes nothing at the inputs tested, which no rule of the audit proves."),
    "undecided": (
        "warning",
        "The two methods of the audit disagree on this parameter, or none of them could tell.",
    ),
}
"""Level and meaning of each verdict that is reported; an effective parameter is no result."""


def sarif(audit: Json) -> dict[str, Any]:
    """One run of the tool with its results.

    Args:
        audit: the JSON of an audit; its `where`, if there is one, is the line (`file:line`) of the model's class.
    """
    verdicts = list(RULES)
    findings = [finding for finding in audit["findings"] if finding["verdict"] in RULES]
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "addnorm audit",
                        "semanticVersion": audit["versions"].get("addnorm", "0"),
                        "rules": [_rule(verdict) for verdict in verdicts],
                    }
                },
                "results": [_result(finding, verdicts, audit["model"], audit.get("where", "")) for finding in findings],
                "properties": {
                    "model": audit["model"],
                    "jointNull": audit["joint_null"],
                    "size": audit["size"],
                    "observe": audit["observe"],
                    "observed": list(audit.get("observed", ())),
                    "unobserved": list(audit.get("unobserved", ())),
                    "assumptions": list(audit["assumptions"]),
                    "disagreements": list(audit["disagreements"]),
                },
            }
        ],
    }


def _rule(verdict: str) -> dict[str, Any]:
    level, meaning = RULES[verdict]
    return {
        "id": verdict.replace(" ", "-"),
        "shortDescription": {"text": meaning},
        "defaultConfiguration": {"level": level},
    }


def _result(finding: Json, verdicts: list[str], model: str, where: str) -> dict[str, Any]:
    verdict, parameter = finding["verdict"], finding["parameter"]
    result: dict[str, Any] = {
        "ruleId": verdict.replace(" ", "-"),
        "ruleIndex": verdicts.index(verdict),
        "level": RULES[verdict][0],
        "message": {"text": f"{parameter} is {verdict}: {finding['reason']}"},
        "locations": [
            {
                **_physical(where),
                "logicalLocations": [
                    {"name": parameter.rpartition(".")[2], "fullyQualifiedName": f"{model}.{parameter}"}
                ],
            }
        ],
        "partialFingerprints": {"parameter/v1": f"{model}.{parameter}"},
        "properties": {
            key: finding[key] for key in ("size", "redundant_dof", "absorbable_dof", "directions", "fold_into")
        },
    }
    places = [place for blocked in finding["blocked_by"] if (place := _place(blocked))]
    if places:
        result["relatedLocations"] = places
    return result


def _place(blocked: Json) -> dict[str, Any] | None:
    """Source location of a module that uses part of the parameter; None if its line is unknown."""
    physical = _physical(blocked["where"])
    text = f"{blocked['op']} holds {blocked['rank']} of its directions"
    return {**physical, "message": {"text": text}} if physical else None


def _physical(where: str) -> dict[str, Any]:
    """The physical location of `file:line`; nothing where that is not known."""
    file, _, line = where.rpartition(":")
    if not file or not line.isdigit():
        return {}
    return {
        "physicalLocation": {
            "artifactLocation": {"uri": _uri(file)},
            "region": {"startLine": max(1, int(line))},
        }
    }


def _uri(file: str) -> str:
    """Relative below the present folder, as code hosts expect it, else absolute."""
    path, home = Path(os.path.abspath(file)), Path.cwd()
    return quote(path.relative_to(home).as_posix()) if path.is_relative_to(home) else path.as_uri()
