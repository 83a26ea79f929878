"""The blocks of a report, and the demo's page made of them."""

import base64
import dataclasses
import io
import re

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from PIL import Image

from mnemon import demo, demo_page, plots, report
from mnemon.evaluation.likelihood import Estimate
from mnemon.evaluation.recall import RecallErrors


def pictures(document):
    return [
        np.asarray(Image.open(io.BytesIO(base64.b64decode(data))))
        for data in re.findall(r"data:image/png;base64,([^\"]+)", document)
    ]


def test_text_is_escaped_and_backticks_are_code():
    assert report.paragraph("a < b & `c > d`") == "<p>a &lt; b &amp; <code>c &gt; d</code></p>\n"
    assert "<b>" not in report.table(("<b>", "x"), [("<b>", "<b>")], caption="<b>")
    assert 'alt="&quot;quoted&quot;"' in report.picture_grid(torch.zeros(1, 1, 1, 4, 4), alt='"quoted"', caption="")


def test_a_row_of_the_wrong_length():
    with pytest.raises(ValueError, match="expected 2 cells in each row, got 3"):
        report.table(("a", "b"), [("1", "2", "3")])


def test_ink_is_dark_on_white():
    image = torch.zeros(1, 1, 1, 6, 6)
    image[..., 2:4, 2:4] = 1
    (found,) = pictures(report.picture_grid(image, alt="", caption=""))
    assert found[0, 0] == 255
    assert found[len(found) // 2, len(found) // 2] == 0
    assert report.picture_strips({"a": image[0], "b": image[0]}, caption="two").count("<img") == 2
    (drawn,) = pictures(report.plot(Figure(figsize=(1, 1)), alt="", caption=""))
    assert drawn.shape[:2] == (150, 150)


def test_sizes_for_people():
    assert [report.bytes_text(size) for size in (812, 23_856, 2_379_460)] == ["812 bytes", "23.9 kB", "2.4 MB"]


def test_an_unwritable_place(tmp_path):
    with pytest.raises(ValueError, match="expected an existing folder"):
        report.save(report.page("t", [], [], footer=""), tmp_path / "absent" / "report.html")


def estimate(value, interval=0.01):
    return Estimate(value, interval, 4)


def test_words_follow_the_numbers():
    better = RecallErrors(estimate(0.1), (estimate(0.06), estimate(0.05)))
    worse = RecallErrors(estimate(0.1), (estimate(0.2), estimate(0.3)))
    assert "removes 50% of the error (after 2 reads, the best of 1 to 2)" in demo_page.removal(better)
    assert "does not remove error here: after one read" in demo_page.removal(worse)
    assert "2.00 times" in demo_page.removal(worse)
    group = demo.Group(8, estimate(-80.0), estimate(9.0), estimate(0.9), estimate(0.9), estimate(0.0))
    verdicts = [
        demo_page.comparison(dataclasses.replace(group, auroc_lead=estimate(lead))) for lead in (0.005, 0.1, -0.1)
    ]
    for verdict, expected in zip(verdicts, ("cannot be told apart", "the memory tells", "the distance"), strict=True):
        assert expected in verdict.rsplit(": ")[-1]
    with pytest.raises(ValueError, match="unseen classes themselves"):
        demo_page.comparison(demo.Group(8, estimate(-80.0), estimate(9.0)))


@pytest.fixture(scope="module")
def measured():
    threads = torch.get_num_threads()
    yield demo.measure(seed=1, episodes=2)
    torch.set_num_threads(threads)


def test_the_memory_works(measured):
    numbers, shown = measured
    assert (numbers.written_images, shown.episode.shape) == (64, (64, 1, 28, 28))
    assert numbers.image_bytes == 8 * numbers.image_bits_bytes == numbers.image_float_bytes // 4
    assert numbers.half_erased.removed > 0.2
    assert numbers.written.auroc.value > 0.9
    assert numbers.same_class.auroc.value > 0.85
    assert numbers.written.gain.value > 0 > numbers.unseen.gain.value - numbers.written.gain.value
    assert numbers.unseen.auroc is None
    assert numbers.as_dict()["noisy"]["best_reads"] == numbers.noisy.best[0]


def test_gains_are_those_of_the_library(measured):
    """AUROCs of the demo and of `mnemon eval` come from the same episodes and scores."""
    from mnemon.data import catalog
    from mnemon.evaluation.likelihood import TestSet
    from mnemon.evaluation.novelty import novelty
    from mnemon.pretrained import load_run
    from mnemon.training.data import preprocessing_of

    model, config = load_run(demo.MODEL)
    test = TestSet.of(catalog.load(demo.DATA, "test"), preprocessing_of(config.data))
    expected = novelty(model, test, num_episodes=2, seed=1)
    numbers = measured[0]
    for name in ("written", "same_class"):
        group = getattr(numbers, name)
        assert group.auroc.value == pytest.approx(expected[f"model_{name}"].value, abs=1e-6)
        assert group.auroc_pixels.value == pytest.approx(expected[f"pixels_{name}"].value, abs=1e-6)


def test_one_page_with_everything_in_it(measured):
    document = demo_page.render(*measured)
    assert not re.search(r"https?://|<script|<link|url\(", document)
    assert len(pictures(document)) == 1 + 4 + 4 + 2 + 1 + 1
    assert document.count("<figcaption>") == document.count("<figure>") == 7
    assert all(alt for alt in re.findall(r'<img [^>]*alt="([^"]*)"', document))
    assert document.count("<img ") == len(re.findall(r"<img [^>]*alt=", document))
    assert "nan" not in re.sub(r"base64,[^\"]+", "", document)
    for words in ("What was written", "log p(x | memory)", "mnemon write mixture-characters"):
        assert words in document


def test_the_python_of_the_page_runs(tmp_path, monkeypatch, measured):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my-images").mkdir()
    for number, image in enumerate(measured[1].episode[:16]):
        plots.save_image(image, tmp_path / "my-images" / f"{number:02d}.png")
    found = {}
    try:
        exec(demo_page.PYTHON, found)
    finally:
        torch.set_grad_enabled(True)
    torch.testing.assert_close(found["images"], measured[1].episode[:16])
    assert found["samples"].shape == (16, 1, 28, 28)
    assert (tmp_path / "memory.safetensors").stat().st_size > 1000


def test_one_episode_is_too_few():
    with pytest.raises(ValueError, match="at least 2"):
        demo.measure(episodes=1)
