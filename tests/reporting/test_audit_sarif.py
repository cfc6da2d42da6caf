"""SARIF 2.1.0 as its schema wants it: for every object that is written, what it must have, what it may have, and which values.

Source: OASIS, sarif-schema-2.1.0.json (Errata 01), https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/: every
object there has `additionalProperties: false`. Sections in comments are of the prose specification.
"""

import copy
import re
from typing import Any
from urllib.parse import urlsplit

import pytest
from test_audit_table import audit as audit_of_three_layers

from addnorm.reporting.audit.sarif import sarif

audit = audit_of_three_layers

# Kind -> (required, and the kind of every allowed property that is written here; a tuple is an enumeration).
SCHEMA: dict[str, tuple[set[str], dict[str, Any]]] = {
    "log": ({"version", "runs"}, {"$schema": "uri", "version": ("2.1.0",), "runs": ["run"]}),  # 3.13
    "run": ({"tool"}, {"tool": "tool", "results": ["result"], "properties": "bag"}),  # 3.14
    "tool": ({"driver"}, {"driver": "driver", "properties": "bag"}),  # 3.18
    "driver": (
        {"name"},
        {"name": "text", "semanticVersion": "text", "version": "text", "informationUri": "uri", "rules": ["rule"]},
    ),  # 3.19
    "rule": (
        {"id"},
        {"id": "text", "shortDescription": "words", "fullDescription": "words", "defaultConfiguration": "settings"},
    ),  # 3.49
    "words": ({"text"}, {"text": "text", "markdown": "text"}),  # 3.12
    "settings": (set(), {"level": ("none", "note", "warning", "error"), "enabled": "flag"}),  # 3.50
    "result": (
        {"message"},
        {
            "ruleId": "text",
            "ruleIndex": "index",
            "level": ("none", "note", "warning", "error"),
            "message": "message",
            "locations": ["location"],
            "relatedLocations": ["location"],
            "partialFingerprints": "texts",
            "properties": "bag",
        },
    ),  # 3.27
    "message": ({"text"}, {"text": "text", "markdown": "text"}),  # 3.11: text, where there is no id
    "location": (
        set(),
        {"physicalLocation": "physical", "logicalLocations": ["logical"], "message": "message"},
    ),  # 3.28
    "physical": ({"artifactLocation"}, {"artifactLocation": "artifact", "region": "region"}),  # 3.29
    "artifact": ({"uri"}, {"uri": "uri", "uriBaseId": "text"}),  # 3.4
    "region": ({"startLine"}, {"startLine": "line", "endLine": "line"}),  # 3.30
    "logical": (set(), {"name": "text", "fullyQualifiedName": "text", "kind": "text"}),  # 3.33
}


def faults(value: Any, kind: Any, path: str = "$") -> list[str]:
    """Where a value is not of its kind."""
    if isinstance(kind, list):
        if not isinstance(value, list):
            return [f"{path} is no array"]
        return [fault for at, each in enumerate(value) for fault in faults(each, kind[0], f"{path}[{at}]")]
    if isinstance(kind, tuple):
        return [] if value in kind else [f"{path} is {value!r}"]
    if kind in SCHEMA:
        required, known = SCHEMA[kind]
        if not isinstance(value, dict):
            return [f"{path} is no object"]
        found = [f"{path} lacks {name}" for name in required - value.keys()]
        found += [f"{path} has {name}" for name in value.keys() - known.keys()]
        return found + [
            fault
            for name in value.keys() & known.keys()
            for fault in faults(value[name], known[name], f"{path}.{name}")
        ]
    good = {
        "text": lambda: isinstance(value, str) and bool(value),
        "texts": lambda: isinstance(value, dict) and all(isinstance(each, str) for each in value.values()),
        "flag": lambda: isinstance(value, bool),
        "line": lambda: isinstance(value, int) and value >= 1,
        "index": lambda: isinstance(value, int) and value >= -1,
        "bag": lambda: isinstance(value, dict),
        # RFC 3986: nothing but its own characters and percent signs before two hexadecimal digits.
        "uri": lambda: re.fullmatch(r"(?:[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=]|%[0-9A-Fa-f]{2})+", value) is not None,
    }
    return [] if good[kind]() else [f"{path} is {value!r}"]


@pytest.mark.parametrize("where", ["", "/a b/net.py:7"])
def test_every_object_is_as_the_schema_wants_it(audit: dict[str, Any], where: str) -> None:
    audit["findings"][5]["verdict"] = "partly redundant"
    found = sarif({**audit, "where": where})
    assert faults(found, "log") == []
    rules = found["runs"][0]["tool"]["driver"]["rules"]
    for result in found["runs"][0]["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]  # 3.27.7: if both are there they agree
        assert ("physicalLocation" in result["locations"][0]) == bool(where)


def test_files_below_the_present_folder_are_relative_and_others_absolute(
    audit: dict[str, Any], tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def uri(where: str) -> str:
        result = sarif({**audit, "where": where})["runs"][0]["results"][0]
        return result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]

    assert uri(f"{tmp_path}/my models/net.py:7") == "my%20models/net.py"
    assert urlsplit(uri("/elsewhere/net.py:7")).scheme == "file"


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda log: log.pop("version"), "$ lacks version"),
        (lambda log: log["runs"][0]["results"][0].update(level="severe"), "level is 'severe'"),
        (lambda log: log["runs"][0]["results"][0].update(verdict="x"), "has verdict"),
        (lambda log: log["runs"][0]["results"][0]["message"].pop("text"), "message lacks text"),
        (lambda log: log["runs"][0]["tool"]["driver"]["rules"][0].pop("id"), "rules[0] lacks id"),
    ],
)
def test_the_check_itself_can_fail(audit: dict[str, Any], spoil: Any, told: str) -> None:
    log = copy.deepcopy(sarif(audit))
    spoil(log)
    assert any(told in fault for fault in faults(log, "log"))
