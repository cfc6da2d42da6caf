"""An audit's printed forms: the table, SARIF, HTML, the certificate."""

import json
import re
from html.parser import HTMLParser
from typing import Any

import pytest

from addnorm.reporting.audit import certificate as certificates
from addnorm.reporting.audit.html import html
from addnorm.reporting.audit.sarif import RULES, sarif
from addnorm.reporting.audit.table import merged_names, rows, summary, text
from addnorm.words import speaking


def finding(parameter: str, verdict: str, free: int, absorbable: int, reason: str, **more: Any) -> dict[str, Any]:
    return {
        "parameter": parameter,
        "verdict": verdict,
        "size": 8,
        "redundant_dof": free,
        "absorbable_dof": absorbable,
        "directions": {"kind": "none"},
        "fold_into": [],
        "blocked_by": [],
        "reason": reason,
    } | more


@pytest.fixture
def audit() -> dict[str, Any]:
    """Three layers; the last one's norm differs, and a name needs escaping."""
    blocked = {"op": "tanh", "module": "pool", "where": "/a b/model.py:12", "rank": 8, "why": "unchanged"}
    fold = {
        "into": "layer.1.query.bias",
        "formula": "layer.1.query.bias -= W @ layer.0.norm.bias",
        "amplification": 1.5,
    }
    norm = [
        finding("layer.0.norm.bias", "foldable", 0, 8, "layer.1.query.bias can take over.", fold_into=[fold]),
        finding("layer.1.norm.bias", "foldable", 0, 8, "layer.2.query.bias can take over.", fold_into=[fold]),
        finding("layer.2.norm.bias", "effective", 0, 0, "tanh in pool needs it unchanged.", blocked_by=[blocked]),
    ]
    keys = [finding(f"layer.{i}.key.bias", "redundant", 8, 8, "cancelled.") for i in range(3)]
    small = [
        finding(f"layer.{i}.rope.bias", "negligible", 0, 0, f"a unit move changes the output by {i + 1}.5e-1{i}.")
        for i in range(3)
    ]
    return {
        "model": "Net<T>",
        "joint_null": 40,
        "size": 80,
        "assumptions": ["inputs have length 12"],
        "findings": [*keys, *norm, *small, finding("odd[bold].bias", "undecided", 1, 1, "counts <differ>.")],
        "certificate": None,
        "observe": "softmax",
        "training": True,
        "methods": "both",
        "notes": ["a note"],
        "disagreements": ["odd[bold].bias: counts <differ>."],
        "numeric_joint_null": 40,
        "versions": {"addnorm": "0.1.0", "torch": "2.13.0"},
        "seconds": {"total": 1.25},
        "target": {"name": "x", "kind": "function", "notes": ["weights: random"]},
        "track": "bias",
    }


def test_the_same_finding_in_several_layers_is_one_row(audit):
    found = {row.parameters: row for row in rows(audit)}
    assert list(found) == [
        "layer.{0-2}.key.bias",
        "layer.{0-1}.norm.bias",
        "layer.2.norm.bias",
        "layer.{0-2}.rope.bias",
        "odd[bold].bias",
    ]
    assert found["layer.{0-2}.key.bias"].names == ("layer.0.key.bias", "layer.1.key.bias", "layer.2.key.bias")
    assert found["layer.{0-1}.norm.bias"].why == "layer.{1-2}.query.bias can take over."
    assert sum(len(row.names) for row in found.values()) == len(audit["findings"])


def test_numbers_that_were_measured_do_not_part_layers(audit):
    row = next(row for row in rows(audit) if "rope" in row.parameters)
    assert len(row.names) == 3
    assert row.why == "a unit move changes the output by 1.5e-10."


def test_names_in_a_reason_begin_at_the_own_layer(audit):
    for i, entry in enumerate(audit["findings"][:3]):
        entry["reason"] = f"layer.{i}.query.bias and layer.{i + 1}.norm.bias."
    assert rows(audit)[0].why == "query.bias and layer.{1-3}.norm.bias."


def test_reasons_that_cannot_be_merged_are_the_first_ones(audit):
    audit["findings"][1]["reason"] = "another one."
    row = rows(audit)[0]
    assert len(row.names) == 3
    assert row.why == "cancelled. (So key.bias; for the others see --json.)".replace("key", "layer.0.key")


@pytest.mark.parametrize(
    ("names", "merged"),
    [
        (["a.0.b", "a.1.b", "a.2.b"], ["a.{0-2}.b"]),
        (["a.0.b", "a.2.b", "a.3.b"], ["a.{0,2-3}.b"]),
        (["a.0.b.0", "a.0.b.1", "a.1.b.0", "a.1.b.1"], ["a.{0-1}.b.{0-1}"]),
        (["a.0.b.0", "a.1.b.2", "a.2.b.1"], ["a.0.b.0", "a.1.b.2", "a.2.b.1"]),  # no product: nothing is made up
        (["layer4.bias", "layer5.bias"], ["layer4.bias", "layer5.bias"]),
        (["bias_l0"], ["bias_l0"]),
        ([], []),
    ],
)
def test_merged_names(names, merged):
    assert merged_names(names) == merged


def test_the_table_says_everything(audit):
    printed = text(audit, width=140)
    assert "odd[bold].bias" in printed
    assert re.search(r"layer\.\{0-2\}\.key\.bias +redundant +8 +8 +8\n +cancelled\.", printed)
    assert "Net<T>: of 80 bias scalars, 40 (50 %) can be given up together" in printed
    assert "the output's softmax in training mode" in printed
    assert "! The methods disagree: odd[bold].bias: counts <differ>." in printed
    assert "in 1.2 s; addnorm 0.1.0, torch 2.13.0." in printed
    assert "\x1b[" not in printed
    assert all(len(line) <= 140 for line in printed.splitlines())


def test_what_one_method_alone_left_open_is_no_disagreement(audit):
    alone = audit | {"methods": "numeric", "disagreements": []}
    printed = text(alone, width=140)
    assert "Undecided: 1 of 10 parameters, for the reasons beside them. One method spoke alone" in printed
    assert "disagree" not in printed
    assert "Methods: numerical alone" in printed


def test_colours_are_for_terminals(audit):
    assert "\x1b[" in text(audit, colour="standard")


def test_an_audit_of_nothing_is_printed(audit):
    empty = audit | {"findings": [], "size": 0, "joint_null": 0, "disagreements": [], "seconds": {}}
    assert f"{audit['model']} has no bias scalars, so nothing can be given up." in " ".join(text(empty).split())
    assert summary(empty)[-1].endswith("torch 2.13.0.")


def test_sarif_has_what_the_format_requires(audit):
    found = sarif(audit)
    assert json.loads(json.dumps(found)) == found
    assert found["version"] == "2.1.0"
    (run,) = found["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == [verdict.replace(" ", "-") for verdict in RULES]
    assert {result["level"] for result in run["results"]} <= {"none", "note", "warning", "error"}
    wasted = [entry for entry in audit["findings"] if entry["verdict"] != "effective"]
    assert [result["partialFingerprints"]["parameter/v1"] for result in run["results"]] == [
        f"Net<T>.{entry['parameter']}" for entry in wasted
    ]
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["message"]["text"]
        assert result["locations"][0]["logicalLocations"][0]["fullyQualifiedName"].startswith("Net<T>.")


def test_sarif_names_the_line_that_holds_a_parameter(audit):
    audit["findings"][5]["verdict"] = "partly redundant"
    places = [
        result["relatedLocations"] for result in sarif(audit)["runs"][0]["results"] if "relatedLocations" in result
    ]
    assert places == [
        [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": "file:///a%20b/model.py"},
                    "region": {"startLine": 12},
                },
                "message": {"text": "tanh holds 8 of its directions"},
            }
        ]
    ]
    audit["findings"][5]["blocked_by"][0]["where"] = ""
    assert not any("relatedLocations" in result for result in sarif(audit)["runs"][0]["results"])


class Page(HTMLParser):
    """Tags that are open, attributes, and text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag != "meta":
            self.open.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def test_html_stands_alone_and_escapes(audit):
    page = Page()
    page.feed(html(audit))
    assert page.open == []
    words = " ".join(" ".join(page.words).split())
    assert "Audit of Net<T>" in words
    assert "counts <differ>." in words
    assert "layer.1.query.bias -= W @ layer.0.norm.bias" in words
    assert "/a b/model.py:12" in words
    assert not {"src", "href", "onclick"} & {name for name, _ in page.attributes}
    assert "<script" not in html(audit)


def compared(dtype: str, difference: float, rounding: float, bound: float, *, passed: bool) -> dict[str, Any]:
    return {
        "mode": "eval",
        "dtype": dtype,
        "difference": difference,
        "rounding": rounding,
        "bound": bound,
        "skipped": "",
        "passed": passed,
    }


CERTIFICATE = {
    "passed": False,
    "removed": ["layer.0.key.bias", "layer.1.key.bias"],
    "zeroed": [],
    "changed": ["out.bias"],
    "refused": [],
    "scalars": 16,
    "lengths": [6, 17],
    "fresh": 9,
    "compared": [
        compared("float64", 1e-15, 2e-15, 4e-15, passed=True),
        compared("float32", 1e-2, 2e-7, 8e-7, passed=False),
        compared("bfloat16", 0, 0, 0, passed=True) | {"skipped": "no kernel"},
    ],
}


def test_an_audit_and_its_certificate_are_chinese_where_they_are_words(audit):
    reason = "it changes the output when moved alone, but layer.{0-1}.key.bias can absorb all of it."
    with speaking("zh"):
        printed = text(
            audit
            | {"findings": [finding("norm.bias", "foldable", 0, 8, reason)], "notes": [], "disagreements": []}
            | {"assumptions": ["inputs have lengths 12, 13"]}
            | {"versions": {"addnorm": "0.2", "torch": "2.13", "python": "3.11"}}
        )
        certificate = certificates.text(CERTIFICATE, "out.safetensors", given_up=20)
    assert "norm.bias  可合并" in printed
    assert "单独移动它会改变输出，但 layer.{0-1}.key.bias 可以全部吸收。" in printed
    assert "证书未通过: 9 个输入，长度 6, 17，相对于输出自身的大小：" in certificate
    english = [
        line for line in (printed + certificate).split("\n") if re.search(r"[a-z]{2,} [a-z]{2,} [a-z]{2,}", line)
    ]
    code = ("from safetensors", "gone, _", "for name in", "model.get_parameter")
    assert [line for line in english if not line.strip().startswith(code)] == []


def test_a_certificate_shows_each_comparison_with_its_bound():
    printed = certificates.text(CERTIFICATE, "out.safetensors")
    assert "Wrote out.safetensors: 16 bias scalars less." in printed
    assert "Gone: layer.{0-1}.key.bias." in printed
    assert "Took over: out.bias." in printed
    assert "Zeros" not in printed
    assert "Certificate FAILED: on 9 inputs and lengths 6, 17" in printed
    lines = [line for line in printed.splitlines() if line.startswith("  eval, ")]
    assert [line.endswith("<-- TOO LARGE") for line in lines] == [False, True, False]
    assert "not compared, since the model itself does not run so: no kernel" in lines[-1]


def test_a_difference_is_said_in_words():
    same = {"equivalent": True, "difference": 1e-9, "parameter": "w", "bound": 1e-6, "moved": 0.5}
    assert "a and b differ only where it cannot matter" in certificates.difference(same, "a", "b")
    assert "a and b are the same in every parameter" in certificates.difference(same | {"moved": 0}, "a", "b")
    other = same | {"equivalent": False, "difference": 0.2}
    assert "a and b are different models: w is 0.2 apart" in certificates.difference(other, "a", "b")
