"""Curves, their thinning, their chart, and the story of a run's attempts."""

import math

import pytest
from scipy import stats

import made_study
from addnorm.errors import InputError
from addnorm.reporting.formats.numbers import ticks
from addnorm.reporting.reader import Reader
from addnorm.reporting.sections.cards import cards, spark
from addnorm.reporting.sections.cost import costs
from addnorm.reporting.sections.curves import FIRST_SHOWN, chart_of, charts, curves, table
from addnorm.reporting.sections.curves.download import download
from addnorm.reporting.sections.curves.reading import Series, smoothed
from addnorm.reporting.sections.report.title import title
from addnorm.reporting.view import Selection
from addnorm.store import Index, Milestones, StudyFolder, write_json


@pytest.fixture
def snapshot(tmp_path):
    made_study.finished(tmp_path / "study")
    return Reader(tmp_path / "study").look()


def test_mean_and_band_are_those_of_the_seeds(snapshot):
    mean = curves(snapshot, Selection(variants=("base",))).series[0]
    seeds = curves(snapshot, Selection(variants=("base",), mode="seeds")).series
    assert len(seeds) == 3
    for place in range(len(mean.steps)):
        column = [line.values[place] for line in seeds]
        assert mean.values[place] == pytest.approx(sum(column) / 3, rel=1e-12)
        assert (mean.low[place], mean.high[place]) == (min(column), max(column))


def test_a_seed_that_is_behind_does_not_hide_the_others(tmp_path):
    made_study.half_done(tmp_path / "study")
    snapshot = Reader(tmp_path / "study").look()
    line = curves(snapshot, Selection(variants=("base",))).series[0]
    assert line.steps == tuple(range(2, 41, 2))


def test_means_are_of_the_first_batch_of_seeds_and_lists_of_both(tmp_path):
    """Only variants of verdicts are trained on the second one: other means would compare different seeds."""
    plan = made_study.plan(seeds=range(6))
    plan["runs"] = [run for run in plan["runs"] if run["seed"] < 3 or run["variant"] != "v4m5"]
    study = StudyFolder.create(tmp_path / "study", {**plan, "seeds": [0, 1, 2], "replicate": [3, 4, 5]})
    for run in study.runs():
        again = run.spec["seed"] > 2
        made_study.finish(run, level=3.4 if again else 2.4, attempts=2 if again else 1)
    snapshot = Reader(study.path).look()
    (mean,) = curves(snapshot, Selection(variants=("base",))).series
    seeds = curves(snapshot, Selection(variants=("base",), mode="seeds")).series
    assert len(seeds) == 6
    assert mean.values[-1] == pytest.approx(sum(line.values[-1] for line in seeds[:3]) / 3)
    assert {(card.seeds_counted, card.seeds) for card in cards(snapshot)} == {(3, 3)}
    assert not any(cost.paused for cost in costs(snapshot))
    block = title(snapshot)
    assert (block.seeds, block.second_seeds) == (3, 3)


def test_unknown_models_are_left_out_and_without_any_the_first_are_shown(snapshot):
    assert [line.variant for line in curves(snapshot, Selection(variants=("base", "none"))).series] == ["base"]
    assert len(curves(snapshot, Selection(variants=("none",))).series) == min(3, FIRST_SHOWN)
    with pytest.raises(InputError, match=r"no curve 'train\.nonsense'"):
        Selection(metrics=("train.nonsense",))


def test_the_table_behind_the_chart_holds_the_lines_own_values(snapshot):
    found = curves(snapshot, Selection(variants=("base",)))
    steps, lines = table(found, count=4)
    assert (steps[0], steps[-1]) == (2, 40)
    assert lines[0][1][-1] == found.series[0].values[-1]
    assert lines[0][1][0] == found.series[0].values[0]


@pytest.mark.parametrize("log", ["linear", "log"])
def test_the_chart_stays_in_its_box(snapshot, log):
    drawn = chart_of(curves(snapshot, Selection(log=log, y="all")))
    assert drawn is not None
    for line in drawn.lines:
        for pair in line.points.split():
            assert all(-0.1 <= float(part) <= 1000.1 for part in pair.split(","))
    assert all(-1e-9 <= at <= 100 + 1e-9 for at, _ in (*drawn.x_ticks, *drawn.y_ticks))
    assert len(drawn.y_ticks) >= 2


def test_ticks_are_round_and_inside():
    assert ticks(0, 40, 5) == [0, 10, 20, 30, 40]
    assert ticks(2.37, 5.4, 5) == [3.0, 4.0, 5.0]
    assert ticks(1, 1, 5) == [1]
    assert spark([1], [2.0], 10) == ""


@pytest.mark.parametrize("indexed", [True, False], ids=["index", "files"])
@pytest.mark.parametrize(("first", "last", "parts"), [(0, 40, 300), (0, 40, 7), (5, 23, 4), (39, 40, 1), (0, 400, 3)])
def test_thinning_gives_the_means_of_equal_stretches(tmp_path, indexed, first, last, parts):
    study = made_study.finished(tmp_path / "study")
    index = Index(study.path)
    if indexed:
        index.sync()
    for run in (study.runs()[0], study.runs()[3]):  # one attempt, two attempts
        whole = [(step, value) for step, value in index.curve(run.name, "train.loss") if first <= step <= last]
        stretch = max(1, math.ceil((last - first + 1) / parts))
        groups: dict[int, list[tuple[int, float]]] = {}
        for step, value in whole:
            groups.setdefault((step - first) // stretch, []).append((step, value))
        found = index.thinned(run.name, "train.loss", first=first, last=last, parts=parts)
        assert len(found) <= parts
        assert [step for step, _ in found] == [group[-1][0] for group in groups.values()]
        assert [value for _, value in found] == pytest.approx(
            [sum(v for _, v in group) / len(group) for group in groups.values()], rel=1e-12
        )


def test_thinning_joins_the_index_and_what_came_after_it(tmp_path):
    study = made_study.make(tmp_path / "study")
    run, index = study.runs()[0], Index(study.path)
    with run.claim() as events:
        made_study.train(run, events, 0, 10)
        index.sync()
        events.write("train", step=12, loss=7.0)
        events.write("train", step=14, loss=float("nan"))
        found = index.thinned(run.name, "train.loss", first=0, last=40, parts=2)
        values = [value for _, value in index.curve(run.name, "train.loss") if math.isfinite(value)]
        assert found == [(12, pytest.approx(sum(values) / len(values), rel=1e-12))]


def test_milestones_are_read_once_and_then_added_to(tmp_path):
    study = made_study.make(tmp_path / "study")
    run = study.runs()[0]
    made_study.finish(run, attempts=2)
    milestones = Milestones(run.events_path)
    expected = ["start", "start", "replayed", "end"]
    assert [event["type"] for event in milestones.look()] == expected
    assert [event["type"] for event in milestones.look()] == expected
    with open(run.events_path, "ab") as file:
        file.write(b'{"time":1.0,"attempt":3,"type":"start","step":0,"resumed_from":0}\n{"time":1.0,"att')
    assert [event["type"] for event in milestones.look()] == [*expected, "start"]
    run.events_path.write_bytes(b'{"time":1.0,"attempt":1,"type":"start","step":0}\n')
    assert [event["type"] for event in milestones.look()] == ["start"]
    assert Milestones(tmp_path / "missing").look() == []


@pytest.mark.parametrize("indexed", [True, False], ids=["index", "files"])
def test_a_zoom_between_two_points_keeps_their_line(tmp_path, indexed):
    """Held-out loss is known at steps 10, 20, 30 and 40 alone; nothing of it lies in view."""
    study = made_study.finished(tmp_path / "study")
    if indexed:
        Index(study.path).sync()
    snapshot = Reader(study.path).look()
    for first, last, expected in ((21.0, 29.0, (20, 30)), (12.0, 31.0, (10, 20, 30, 40)), (0.0, 5.0, (10,))):
        found = curves(snapshot, Selection(metrics=("eval.loss",), first=first, last=last))
        assert [line.steps for line in found.series] == [expected] * 3
        assert found.limits is not None
        entering = [value for line in found.series for value in line.values]
        assert min(entering) - 0.1 < found.limits[0] < found.limits[1] < max(entering) + 0.1
        assert found.limits[1] - found.limits[0] > 1e-3, "lines, not dots"
        assert chart_of(found) is not None


def test_a_difference_is_paired_by_seed(snapshot):
    found = curves(snapshot, Selection(versus="base", mode="seeds"))
    assert {line.variant for line in found.series} == {"v2m1", "v4m5"}
    own, base = (curves(snapshot, Selection(variants=(name,), mode="seeds")).series[1] for name in ("v2m1", "base"))
    line = next(line for line in found.series if (line.variant, line.seed) == ("v2m1", 1))
    assert line.values == pytest.approx([a - b for a, b in zip(own.values, base.values, strict=True)])


def test_the_band_of_a_difference_is_students_interval(snapshot):
    mean = curves(snapshot, Selection(versus="base", variants=("v2m1",))).series[0]
    seeds = curves(snapshot, Selection(versus="base", variants=("v2m1",), mode="seeds")).series
    last = [line.values[-1] for line in seeds]
    expected = stats.t.interval(0.95, 2, loc=sum(last) / 3, scale=stats.sem(last))
    assert (mean.low[-1], mean.high[-1]) == pytest.approx(expected)


def test_smoothing_keeps_a_straight_line_and_the_raw_one(snapshot):
    straight = Series(
        label="", variant="", style=0, pattern=0, seed=None, steps=(), xs=(), values=tuple(2.0 * k for k in range(101))
    )
    smooth = smoothed(straight, 0.6)
    assert smooth.values[50] == pytest.approx(100.0)
    assert smooth.raw == straight.values
    noisy = curves(snapshot, Selection(smooth=0.9)).series[0]
    assert noisy.raw == curves(snapshot, Selection()).series[0].values


def test_every_axis_places_the_last_step_where_the_run_ends(snapshot):
    write_json(
        snapshot.path / "costs.json", {"variants": {name: {"flops_per_token": 10.0} for name in snapshot.variants}}
    )
    # 40 steps of 64 tokens, at 640 tokens a second
    for axis, end in (("step", 40), ("tokens", 2560), ("time", 4.0), ("flops", 25600)):
        found = curves(snapshot, Selection(x=axis))
        assert found.last_x == pytest.approx(end), axis
        assert [line.xs[-1] for line in found.series] == pytest.approx([end] * 3)
        half = curves(snapshot, Selection(x=axis, first=end / 2, last=end))
        assert half.series[0].steps[:2] == (18, 20), axis


def test_robust_limits_leave_out_the_start(snapshot):
    robust, whole = (curves(snapshot, Selection(y=y)).limits for y in ("robust", "all"))
    assert robust is not None
    assert whole is not None
    assert robust[1] < 4 < whole[1]


def test_seeds_of_one_model_differ_in_colour_and_of_several_in_pattern(snapshot):
    one = curves(snapshot, Selection(mode="seeds", variants=("base",))).series
    assert len({line.style for line in one}) == 3
    several = [line for line in curves(snapshot, Selection(mode="seeds")).series if line.variant == "base"]
    assert ({line.style for line in several}, len({line.pattern for line in several})) == ({0}, 3)


def test_what_is_shown_can_be_saved(snapshot):
    found = [curves(snapshot, Selection(metrics=(metric,), versus="base")) for metric in ("train.loss", "eval.loss")]
    lines = download(found, "csv", "en").decode().splitlines()
    assert lines[0] == "metric,variant,seed,minus,step,axis,x,value,raw,low,high"
    assert len(lines) == 1 + sum(len(line.steps) for each in found for line in each.series)
    assert download(found[:1], "png", "en").startswith(b"\x89PNG")
    drawn = download(found, "svg", "zh").decode()
    assert drawn.count('id="axes_') == 2, "a panel per chart"
    zoomed = [curves(snapshot, Selection(first=20.0, last=30.0))]
    rows = download(zoomed, "csv", "en").decode().splitlines()[1:]
    steps = {int(row.split(",")[4]) for row in rows}
    assert steps == {18, *range(20, 31, 2), 32}, "what is in view, and the points that its lines come from and go to"


def test_a_study_without_any_step_downloads_a_head_without_rows(tmp_path):
    made_study.make(tmp_path / "study")
    drawn = charts(Reader(tmp_path / "study").look(), Selection())
    head = b"metric,variant,seed,minus,step,axis,x,value,raw,low,high\n"
    assert download(drawn, "csv", "en") == head
    assert download(drawn, "svg", "en").startswith(b"<?xml")
