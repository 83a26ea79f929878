"""The HTML report from made-up records, and from the real ones of this repository."""

import html.parser
import json
import math
import re

import pytest
from PIL import Image
from typer.testing import CliRunner

from mnemon import results_report, small_multiples
from mnemon.cli import app
from mnemon.commands.results import linked
from mnemon.evaluation.conditions import conditions
from mnemon.evaluation.tables import read_results
from mnemon.evaluation.which_memory import which_memory_page
from mnemon.small_multiples import Axis, Point, drawn_range, panels, robust_range
from tests.evaluation.made_up import MODELS, made_up, unanswered, whole
from tests.test_examples import ROOT

VOID = {"meta", "img", "br", "circle", "path", "use"}


class Balanced(html.parser.HTMLParser):
    """Every tag is closed, in order; names of anchors are counted."""

    def __init__(self):
        super().__init__()
        self.open, self.anchors, self.links = [], [], []

    def handle_starttag(self, tag, attributes):
        told = dict(attributes)
        self.anchors += [told["id"]] if "id" in told else []
        self.links += [told["href"]] if "href" in told else []
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        told = dict(attributes)
        self.links += [told["href"]] if "href" in told else []

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def check(document):
    parser = Balanced()
    parser.feed(document)
    assert not parser.open
    assert len(set(parser.anchors)) == len(parser.anchors)
    assert {link.removeprefix("#") for link in parser.links} <= set(parser.anchors)
    assert not re.search(r"https?://|<script|<link|url\(", document)
    assert not re.search(r"\bnan\b|\bNone\b", re.sub(r"base64,[^\"]+", "", document))
    return document


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made-up")
    (folder / "memory_digits.json").write_text(json.dumps(whole()))
    for model in MODELS:
        path = folder / "memory" / "made-up digits" / f"{model}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (8, 8), 90).save(path)
    out = folder / "out" / "report.html"
    arguments = ["results", folder, "--out", folder / "docs" / "results.md", "--html", out]
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exit_code == 0, done.output
    assert "Which memory for which job" in (folder / "docs" / "which_memory.md").read_text()
    return out.read_text()


def test_the_page_is_whole_and_needs_nothing_else(page):
    check(page)
    for words in ("Which memory for which job", "made-up digits", "made-up colours", "Capacity: how much fits in?"):
        assert words in page
    for part in ("Likelihood", "Recall", "Capacity", "Curves", "Samples, side by side"):
        assert re.search(rf'<li><a href="#data-made-up-digits-\d+">{part}</a></li>', page), part
    assert page.count('alt="Samples of ') == len(MODELS)
    assert "prefers-color-scheme: dark" in page
    assert "width=device-width" in page


def test_pages_link_to_what_is_beside_them_and_name_their_folder(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "memory_digits.json").write_text(json.dumps(whole()))
    command = ["results", str(tmp_path / "mine"), "--out", str(tmp_path / "pages" / "mine.md")]
    for beside in (False, True):
        assert CliRunner().invoke(app, command).exit_code == 0
        for page in ("mine.md", "which_memory.md"):
            text = (tmp_path / "pages" / page).read_text()
            assert "from `mine/*.json`" in text
            assert ("(benchmark.md)" in text) == beside
            assert ("benchmark.md (of mnemon's docs)" in text) != beside
        (tmp_path / "pages" / "benchmark.md").touch()
    (tmp_path / "pages" / "benchmark.md").unlink()
    text = "as [benchmark.md](benchmark.md#costs) has [0, 1) [which-memory.md](which-memory.md) ![a](b.md) [r](../R.md)"
    plain = "as benchmark.md (of mnemon's docs) has [0, 1) which-memory.md (of mnemon's docs) ![a](b.md) [r](../R.md)"
    assert linked(text, []) == plain
    for wrong, told in ((["--out", str(tmp_path / "page")], "ends in .md"), ([], "got a file")):
        folder = tmp_path / "mine" / ("" if wrong else "memory_digits.json")
        done = CliRunner().invoke(app, ["results", str(folder), *wrong])
        assert done.exit_code == 2
        assert told in done.stderr


def test_reasons_stand_in_hover_and_in_text(page):
    assert 'title="ebmm has no likelihood">n/a<sup' in page
    assert "<li>this model has no likelihood</li>" in page


def test_a_question_that_nobody_answers_takes_no_column(tmp_path):
    reason = "training on digits has episodes of any images"
    records = [made_up("joint", "vae", "digits", -90.0), unanswered("joint_classes", "vae", "digits", reason)]
    (tmp_path / "memory_digits.json").write_text(json.dumps(records))
    told = f"No answers here. Joint bound, of a few classes: {reason}."
    html_page = check(results_report.render(read_results(tmp_path), tmp_path))
    assert told in html_page
    assert html_page.count('<th scope="col" title=') == 1
    page = which_memory_page(read_results(tmp_path), lambda model: False)
    assert told in page
    assert "| model | floats | Joint bound |" in page
    nothing = which_memory_page(records[1:], lambda model: False)
    assert told in nothing


def test_the_best_is_marked_and_ties_are_told_apart(tmp_path):
    values = {"a": -90.0, "b": -95.0, "c": -80.0}
    records = [made_up("joint", name, "digits", value) for name, value in values.items()]
    page = check(results_report.render(records, tmp_path))
    assert '<td class="best">-80.0 ± 0.1 ★' in page
    assert "☆</td>" not in page.split("</style>")[1].replace(results_report.boards.LEGEND, "")
    order = re.findall(r'<th scope="row">(\w)<small>1,000 floats</small></th>', page)
    assert order == ["c", "a", "b"]


def test_what_runs_quickly_is_no_advice(tmp_path):
    records = [made_up("joint", name, "digits", value) for name, value in (("a", -90.0), ("b", -80.0))]
    said = "says nothing about trained ones"
    assert said not in results_report.render(records, tmp_path)
    quick = [{**record, "command": f"{record['command']} --quick"} for record in records]
    assert said in check(results_report.render(quick, tmp_path))
    assert said in which_memory_page(quick, lambda model: False)


def test_columns_of_one_question_are_named_by_what_differs(page):
    assert ">Salt and pepper 0.1, 3 reads<" in page
    assert ">Right half erased, 3 reads<" in page


def test_text_of_records_is_escaped(tmp_path):
    records = [made_up("joint", "<b>", "digits", -90.0), unanswered("joint", "other", "digits", 'a "<i>" in it')]
    page = check(results_report.render(records, tmp_path))
    assert "<b>" not in page
    assert "<i>" not in page


def test_papers_numbers_are_marked_as_theirs(tmp_path):
    ours = made_up("joint", "a", "digits", -90.0, paper_value=-77.5, paper_protocol="other nets; a paper, table 9")
    page = check(results_report.render([ours], tmp_path))
    assert "-77.5 (theirs)</td>" in page
    assert "other nets; a paper, table 9" in page
    assert "-77.5" not in page.split('id="papers"')[0]  # never in a leaderboard


def test_the_real_results():
    records = read_results(ROOT / "results")
    page = check(results_report.render(records, ROOT / "results"))
    papers = [record for record in records if record["paper_value"] is not None]
    assert page.count("(theirs)") == len(papers) > 50
    assert "vbm-table2-categorical" in page


def test_an_html_report_alone_leaves_pages_alone(tmp_path, monkeypatch):
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "memory_digits.json").write_text(json.dumps(whole()))
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["results", "--html", "report.html"])
    assert done.exit_code == 0, done.output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "results"]
    done = CliRunner().invoke(app, ["results"])
    assert sorted(path.name for path in (tmp_path / "docs").iterdir()) == ["results.md", "which_memory.md"]
    assert done.output.count("written: ") == 2


def test_a_record_that_holds_no_number_is_named(tmp_path):
    records = whole()
    records[2]["value"] = "abc"
    (tmp_path / "memory_digits.json").write_text(json.dumps(records))
    done = CliRunner().invoke(app, ["results", str(tmp_path), "--out", str(tmp_path / "a.md")])
    assert done.exit_code == 2
    assert "memory_digits.json: record 3: value: expected a number or null, got 'abc'" in done.stderr


def test_without_records(tmp_path):
    assert "has not been run yet" in check(results_report.render([], tmp_path))


# -- small multiples -------------------------------------------------------------------------------


def test_axes_send_ends_to_ends():
    axis = Axis(1, 1000, 40, 210, math.log)
    assert [axis(value) for value in (1, 1000)] == [40, 210]
    assert axis(10) == pytest.approx(40 + 170 / 3, abs=0.05)
    assert Axis(2, 2, 0, 10)(2) == 5
    both = Axis(-1000, 1000, 0, 100, math.asinh)
    assert both(0) == 50
    assert both(-10) == pytest.approx(100 - both(10))
    assert both(1000) - both(100) == pytest.approx(both(100) - both(10), abs=0.15)  # pixels are rounded


def test_answers_of_either_sign_that_are_orders_apart_are_all_drawn():
    lines = {str(i): [Point(1, 0.5 + i), Point(2, -1.0)] for i in range(8)} | {"off": [Point(1, -3.0), Point(2, -1e5)]}
    straight, bent = (check(panels(lines, name="c", orders=orders)) for orders in (False, True))
    assert "beyond the axis" in straight
    assert "beyond the axis" not in bent
    assert "-100k" in bent
    assert ">0<" in bent


def test_a_panel_for_each_model_with_its_points():
    lines = {"a": [Point(1, 0.5, 0.1), Point(2, 0.25)], "b": [Point(1, 0.75), Point(2, 1.0)]}
    drawn = check(panels(lines, name="c"))
    assert drawn.count('class="panel"') == 2
    assert drawn.count("<circle") == 4
    assert drawn.count('class="other"') == 2  # drawn once, used by every panel
    assert drawn.count('href="#c"') == 2
    assert "a: 1: 0.5; 2: 0.25" in drawn
    left, right = small_multiples.LEFT, small_multiples.WIDTH - small_multiples.RIGHT
    assert re.search(rf'class="own" d="M{left},[\d.]+ L{right},[\d.]+"', drawn)


def test_one_model_far_off_does_not_flatten_the_others():
    lines = {str(i): [Point(1, 1.0 + i), Point(2, 2.0 + i)] for i in range(8)} | {"off": [Point(1, 1e9), Point(2, 5.0)]}
    low, high = robust_range(lines)
    assert low <= 1
    assert 9 < high < 30
    drawn = panels(lines, name="c")
    assert "1e+09" in drawn  # it is told, if not drawn
    assert drawn.count("beyond the axis") == 1


@pytest.mark.parametrize(
    ("low", "drawn"),
    [
        (Point(1, 0.04, 0.06), (0, 1.0)),  # no error is below 0, if its interval is
        (Point(1, 0.09, 0.01), (0, 1.0)),
        (Point(1, 0.30, 0.05), (0.25, 1.0)),
        (Point(1, -0.1, 0.1), (-0.2, 1.0)),
    ],
)
def test_what_is_not_negative_is_drawn_from_zero_if_that_is_near(low, drawn):
    lines = {"a": [low, Point(2, 0.6)], "b": [Point(1, 0.9, 0.1), Point(2, 0.5)]}
    assert drawn_range(lines) == pytest.approx(drawn)


def test_how_many_seeds_there_are_is_told():
    def told(*seeds):
        records = [made_up("joint", f"m{n}", "digits", -90.0, num_seeds=n) for n in seeds]
        times = made_up("write_latency", "m3", "digits", 1.0)  # with the first seed only
        untrained = made_up("recall", "slots", "digits", 0.1, updates=None)
        return conditions([*records, times, untrained], "digits")

    assert "1 seed. The interval is over test episodes alone" in told(1)
    assert "3 seeds. The interval is over seeds" in told(3)
    assert "very wide" not in told(3)
    assert "; 2 or 3 seeds. The interval is over seeds" in told(2, 3)
    assert "very wide" in told(2, 3)
    assert "; 1 or 3 seeds. The interval is over seeds" in told(1, 3)
    assert "Of models with one seed it is over test episodes alone" in told(1, 3)


@pytest.mark.parametrize("content", [None, '{"a": 1}', '[{"a": 1}]'])
def test_a_folder_without_records_leaves_the_pages_alone(tmp_path, content):
    page = tmp_path / "docs.md"
    page.write_text("good")
    (tmp_path / "results").mkdir()
    if content is not None:
        (tmp_path / "results" / "other.json").write_text(content)
    done = CliRunner().invoke(app, ["results", str(tmp_path / "results"), "--out", str(page)])
    assert done.exit_code != 0
    assert "found no record in any" in " ".join(done.output.split())
    assert page.read_text() == "good"
