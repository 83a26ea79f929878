"""The demo's report: its numbers and pictures in plain words. Every claim is chosen by the numbers themselves."""

from __future__ import annotations

from matplotlib.figure import Figure
from torch import Tensor

import mnemon
from mnemon import plots, report
from mnemon.demo import CHAIN_READS, PER_CLASS, REPEATS, SAMPLE_READS, Group, Numbers, Pictures
from mnemon.evaluation.likelihood import Estimate
from mnemon.evaluation.pictures import memory_picture
from mnemon.evaluation.recall import RecallErrors
from mnemon.report import Html, bytes_text

SHOWN = 16
"""Damaged characters that are shown: as many of each class."""
NAMES = {"written": "written", "same_class": "same classes, not written", "unseen": "other classes"}
COMMANDS = """
mnemon write mixture-characters my-images/ -o memory.safetensors
mnemon read mixture-characters memory.safetensors damaged/ --steps 3 -o recalled
mnemon sample mixture-characters memory.safetensors -n 64 -o samples.png
mnemon score mixture-characters memory.safetensors new-images/
"""
PYTHON = """
import torch
from mnemon.data.images import from_files
from mnemon.pretrained import from_pretrained, save_memory

torch.set_grad_enabled(False)  # nothing is trained
model = from_pretrained("mixture-characters")
pixels = from_files(["my-images"], image_shape=(1, 28, 28))[0].images
images = (pixels > 95).float()  # ink is 1: for dark ink on paper, pixels < 160
memory = model.write(images)
recalled = model.read(memory, images, steps=3)
samples = model.sample(memory, 16)
scores = model.log_likelihood(memory, images, num_samples=16).value
save_memory("memory.safetensors", memory, model)
"""


def render(numbers: Numbers, pictures: Pictures) -> Html:
    """The whole page."""
    lead = [
        report.paragraph(
            "A generative memory takes in a few images in one pass, without any training, and keeps them as a small "
            "block of numbers. From that block it recalls damaged images, draws new ones, and says of any image how "
            "well it fits what was written.",
            lead=True,
        ),
        report.paragraph(
            f"This page shows one such memory, written by the model `{numbers.model}` that ships with mnemon, and "
            "measures how well it works."
        ),
        report.key_numbers(key_numbers(numbers)),
    ]
    sections = [
        _episode(numbers, pictures),
        _recall("Recalling noisy characters", "noisy", numbers.noisy, numbers, pictures),
        _recall("Completing half-erased characters", "half_erased", numbers.half_erased, numbers, pictures),
        _generated(numbers, pictures),
        _memory(numbers, pictures),
        _likelihood(numbers, pictures),
        _own_images(),
    ]
    footer = (
        f"Made by `mnemon demo --seed {numbers.seed}`, mnemon {mnemon.__version__}. Numbers of recall and likelihood "
        "are means over episodes; ± is half of a 95% interval."
    )
    return report.page("mnemon: a memory that generates", lead, sections, footer=footer)


def key_numbers(numbers: Numbers) -> list[tuple[str, str]]:
    """The cards at the top: value and meaning."""
    size = numbers.memory_bytes / numbers.image_bytes
    surely = _present(numbers.same_class.auroc).value
    return [
        (str(numbers.written_images), "images written, in one pass"),
        (f"{numbers.write_ms:.0f} ms", "to write them"),
        (
            bytes_text(numbers.memory_bytes),
            f"memory, {size:.0%} of the images' {bytes_text(numbers.image_bytes)} at a byte per pixel",
        ),
        (_percent(numbers.half_erased), "of the error of half-erased images removed"),
        (_percent(numbers.noisy), "of the error of noisy images removed"),
        (f"{surely:.2f}", "AUROC, new images of written classes against other classes"),
    ]


def in_short(numbers: Numbers, pictures: Pictures) -> dict[str, Tensor]:
    """What was written, damaged, recalled and generated, as rows of one picture; the recalls with the least error."""
    every = max(1, len(pictures.episode) // SHOWN)
    rows = {"written": pictures.episode}
    for name, errors in (("noisy", numbers.noisy), ("half_erased", numbers.half_erased)):
        rows[name.replace("_", " ")] = pictures.cues[name]
        rows[f"recalled from {name.split('_')[0]}"] = pictures.recalls[name][errors.best[0] - 1]
    rows["generated"] = pictures.samples
    return {name: images[::every] for name, images in rows.items()}


def removal(errors: RecallErrors) -> str:
    """What the best read does to the error, in words that hold whichever way it goes."""
    reads, best = errors.best
    times = "one read" if reads == 1 else f"{reads} reads"
    if errors.removed > 0:
        return (
            f"Reading removes {errors.removed:.0%} of the error (after {times}, the best of 1 to {len(errors.reads)})"
        )
    return (
        f"Reading does not remove error here: after {times}, the best of 1 to {len(errors.reads)}, it is "
        f"{best.value / errors.corrupted.value:.2f} times that of the cue"
    )


def comparison(group: Group) -> str:
    """The memory against the distance to the nearest written image, as far as the episodes can tell."""
    memory, pixels, lead = (_present(e) for e in (group.auroc, group.auroc_pixels, group.auroc_lead))
    if abs(lead.value) <= lead.interval:
        verdict = "the two cannot be told apart on these episodes"
    elif lead.value > 0:
        verdict = "the memory tells them better"
    else:
        verdict = "the distance, which needs every written image, tells them better"
    return (
        f"Of a new image of a written class and one of another class, the memory prefers the right one in "
        f"{memory.value:.1%} of all pairs; the distance to the nearest written image does so in {pixels.value:.1%}: "
        f"{verdict}."
    )


def _episode(numbers: Numbers, pictures: Pictures) -> Html:
    trained = " and ".join(numbers.trained_on)
    caveat = ""
    if "omniglot" in numbers.trained_on:
        caveat = " (Omniglot is handwritten; some of its letters may be the same in another shape.)"
    words = report.paragraph(
        f"{numbers.written_images} characters of {numbers.written_classes} kinds, {PER_CLASS} renderings of each, "
        "drawn from the fonts that come with matplotlib. They go in as plain 28 x 28 images: the memory is not told "
        "which of them belong together."
    ) + report.paragraph(
        f"The model was trained on {trained}. These characters are from the test split of the glyphs, whose letters "
        f"its training glyphs never show.{caveat} Writing them adjusts no weight of the model."
    )
    figure = report.picture_grid(
        pictures.episode.unflatten(0, (numbers.written_classes, PER_CLASS)),
        alt=f"The {numbers.written_images} characters that were written, a class in each row",
        caption="The episode: everything that was written, one class per row.",
        width="min(100%, 24rem)",
    )
    return report.section("What was written", report.columns(figure, Html(words)))


def _recall(title: str, name: str, errors: RecallErrors, numbers: Numbers, pictures: Pictures) -> Html:
    every = max(1, len(pictures.episode) // SHOWN)
    best = errors.best[0]
    other = best if best > 1 else len(errors.reads)
    cue = {"noisy": "cue: noisy", "half_erased": "cue: half erased"}[name]
    labels = {1: "1 read", other: f"{other} reads"}
    labels[best] += " (best)"
    rows = {"original": pictures.episode, cue: pictures.cues[name]}
    rows |= {f"recalled, {label}": pictures.recalls[name][reads - 1] for reads, label in labels.items()}
    damage = {
        "noisy": "A tenth of the pixels, chosen at random, are set to black or white.",
        "half_erased": "The right half is gone (tinted in the pictures), and the memory is told so.",
    }[name]
    words = (
        f"{damage} {removal(errors)}: squared error per pixel {errors.corrupted.value:.3f} before, "
        f"{errors.best[1].value:.3f} after, a mean over {errors.corrupted.count} episodes."
    )
    caption = (
        "Each column is one character. The cue is all that the memory is shown; the rows below are what it makes of "
        "it. With more than one read, each recall is the cue of the next."
    )
    if name == "half_erased":
        caption = "The left half of each recall is the cue's; the right half comes from the memory."
    strips = report.picture_strips({label: images[::every] for label, images in rows.items()}, caption=caption)
    return report.section(title, report.paragraph(words), strips)


def _generated(numbers: Numbers, pictures: Pictures) -> Html:
    side = numbers.written_classes
    samples = report.picture_grid(
        pictures.samples.unflatten(0, (side, -1)),
        alt=f"{len(pictures.samples)} generated characters",
        caption=f"Samples: a code is drawn from the memory, decoded, and read {SAMPLE_READS} times (the first column "
        "at the right shows samples that were not). They are not sorted and none was left out.",
    )
    chains = report.picture_grid(
        pictures.chains,
        alt="Rows of characters, each read again and again, with the nearest written character at the right",
        caption=f"Iterative reading: each row starts from a sample, which is read {CHAIN_READS} times; every picture "
        "is the cue for the next. Far right: the written image nearest to the last read.",
        ends=("sample, then reads", "nearest written"),
    )
    words = report.paragraph(
        "The memory is a distribution, so new images can be drawn from it. Reading a sample again and again shows "
        "where the memory pulls it."
    )
    return report.section("Generating from the memory", words, report.columns(samples, chains))


def _memory(numbers: Numbers, pictures: Pictures) -> Html:
    sizes = (
        ("the memory", numbers.memory_bytes),
        ("the images, 1 bit per pixel", numbers.image_bits_bytes),
        ("the images, 1 byte per pixel", numbers.image_bytes),
        ("the images, float32", numbers.image_float_bytes),
    )
    table = report.table(
        ("what", "size", "relative"),
        [(what, bytes_text(size), f"{size / numbers.memory_bytes:.2f}") for what, size in sizes],
        caption="Sizes against the memory's. The weights of the model, shared by all memories, take "
        f"{bytes_text(numbers.model_bytes)}.",
    )
    less = numbers.image_bits_bytes < numbers.memory_bytes
    fair = (
        f"These images are black and white; packed into bits they take {'less' if less else 'more'} than the memory. "
    )
    words = report.paragraph(
        f"{fair}The memory's size is fixed: it stays the same however many images are written."
    ) + report.paragraph(
        f"Writing {numbers.written_images} images takes {numbers.write_ms:.0f} ms, reading as many "
        f"{numbers.read_ms:.0f} ms (medians of {REPEATS} runs on this machine's CPU, "
        f"{numbers.threads} thread{'s' if numbers.threads > 1 else ''})."
    )
    figure = memory_picture(pictures.state)
    if figure is None:
        return report.section("The memory: size and time", Html(words + table))
    figure.set_size_inches(5.4, 4.2)
    drawn = report.plot(
        figure,
        alt="A matrix of coloured cells: the mean of the memory",
        caption="The memory itself: the mean of its slots. A recalled code is the centre of one cluster (not shown) "
        "plus a weighted sum of that cluster's rows. Warm colours are positive, cold ones negative; pale rows say "
        "little.",
    )
    return report.section("The memory: size and time", report.columns(Html(words + table), drawn))


def _likelihood(numbers: Numbers, pictures: Pictures) -> Html:
    groups: list[Group] = [getattr(numbers, name) for name in NAMES]
    rows = [
        ("images", *(f"{group.images * numbers.episodes:,}" for group in groups)),
        ("log p(x | memory)", *(_plus_minus(group.log_p, 1) for group in groups)),
        ("gain", *(_plus_minus(group.gain, 1) for group in groups)),
        ("AUROC, by gain", *(_plus_minus(group.auroc, 3) for group in groups)),
        ("AUROC, by nearest image", *(_plus_minus(group.auroc_pixels, 3) for group in groups)),
    ]
    table = report.table(
        ("", *NAMES.values()),
        rows,
        caption="log p: a lower bound, nats per image. Gain: how much higher it is than with an empty memory. AUROC: "
        "the chance that such an image scores above one of another class, by gain, or by its distance in pixels to "
        "the nearest written image.",
    )
    words = report.paragraph(
        "The memory scores an image by how likely it makes it. The numbers are means over "
        f"{numbers.episodes} memories of {numbers.written_images} characters each. {comparison(numbers.same_class)}"
    )
    plot = report.plot(
        _histograms(pictures.gains),
        alt="Histograms of the gain for written images, new images of the written classes and other classes",
        caption="The gain of single images: right of zero, the memory makes an image more likely than no memory does.",
    )
    return report.section("Telling what fits the memory", words, report.columns(plot, table))


def _histograms(gains: dict[str, Tensor]) -> Figure:
    figure = Figure(figsize=(5.4, 3.4), layout="constrained")
    axis = figure.subplots()
    groups = {NAMES[name]: values.flatten().numpy() for name, values in gains.items()}
    plots.score_histograms(axis, groups, xlabel="gain: log p(x | memory) - log p(x | empty memory), nats")
    axis.set_ylim(top=1.25 * axis.get_ylim()[1])  # room for the legend
    axis.axvline(0, color=plots.INK, linewidth=0.8)
    return figure


def _own_images() -> Html:
    shell = (
        "In a shell. Pictures are scaled to 28 x 28; for dark ink on light paper, add `--invert` to write, read and "
        "score."
    )
    python = report.paragraph("The same in Python:")
    return report.section(
        "With your own images", report.paragraph(shell), report.code(COMMANDS), python, report.code(PYTHON)
    )


def _plus_minus(estimate: Estimate | None, digits: int) -> str:
    """Breaks before the ±, if at all."""
    if estimate is None:
        return ""
    value = f"{estimate.value:.{digits}f}".replace("-", "\N{MINUS SIGN}")
    return f"{value} ±\N{NO-BREAK SPACE}{estimate.interval:.{digits}f}"


def _percent(errors: RecallErrors) -> str:
    return f"{errors.removed:.0%}" if errors.removed > 0 else "none"


def _present(estimate: Estimate | None) -> Estimate:
    if estimate is None:
        raise ValueError("expected a group that is told from unseen classes, got the unseen classes themselves")
    return estimate
