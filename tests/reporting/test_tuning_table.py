"""The table of tuned points."""

from addnorm.reporting.sections.tuning import columns, rows


def tuned(variant: str, *rates: str) -> dict[str, object]:
    points = [{"point": f"{variant}, rate {rate}", "mean": 1.0, "as_good": False, "runs": []} for rate in rates]
    return {"variant": variant, "chosen": None, "edges": [], "flat": False, "points": points}


def test_a_wider_grid_keeps_its_order_among_the_columns() -> None:
    tuning = {"seeds": [7], "variants": [tuned("a", "2", "4"), tuned("b", "1", "2", "3", "4", "5"), tuned("c", "6")]}
    assert columns(tuning) == [f"rate {rate}" for rate in "123456"]
    assert [cell is not None for cell in rows(tuning)[0]["cells"]] == [False, True, False, True, False, False]
