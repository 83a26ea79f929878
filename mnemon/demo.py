"""The demo: one memory of 64 characters that the shipped model never saw, and everything that can be asked of it.

`measure` computes the numbers and the pictures; `mnemon.demo_page` puts them into words.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mnemon.core.protocol import MemoryModel
from mnemon.core.random import stream
from mnemon.data import catalog
from mnemon.data.corruptions import corrupt
from mnemon.data.episodes import NoveltyEpisodes, novelty_episodes
from mnemon.evaluation.likelihood import Estimate, TestSet, scored_groups
from mnemon.evaluation.novelty import auroc
from mnemon.evaluation.pictures import with_neighbours
from mnemon.evaluation.recall import RecallErrors, successive_reads
from mnemon.models.reading import iterate
from mnemon.pretrained import load_run
from mnemon.training.data import preprocessing_of

MODEL, DATA = "mixture-characters", "glyphs"
CLASSES, PER_CLASS = 8, 8
EPISODES, RECALL_EPISODES = 16, 4
"""Episodes that likelihoods, and errors of recall, are averaged over."""
READS, CHAIN_READS, CHAINS = 5, 10, 12
SAMPLE_READS = 2
"""Reads after each sample: weights are drawn without regard to one another, and reading puts them in order."""
SAMPLES = 4
"""Importance samples of a bound."""
REPEATS = 5
"""Runs of which a time is the median."""
STEPS = 6
"""How often `run` says what it is doing."""
DEMO = 15
"""Random streams of the demo."""
CORRUPTIONS = {"noisy": ("salt_and_pepper", 0.1), "half_erased": ("half", 1.0)}

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Group:
    """Images scored by memories: nats, and how surely they are told from unseen classes (None: these are those)."""

    images: int
    log_p: Estimate
    gain: Estimate
    auroc: Estimate | None = None
    auroc_pixels: Estimate | None = None
    auroc_lead: Estimate | None = None
    """The memory's AUROC less that of the nearest written image, per episode."""


@dataclass(frozen=True)
class Numbers:
    """The demo's numbers. Errors are squared, per pixel; bounds are nats per image; times are medians."""

    model: str
    trained_on: tuple[str, ...]
    seed: int
    episodes: int
    written_images: int
    written_classes: int
    memory_bytes: int
    image_bytes: int
    image_bits_bytes: int
    image_float_bytes: int
    model_bytes: int
    write_ms: float
    read_ms: float
    """For all written images at once."""
    threads: int
    noisy: RecallErrors
    half_erased: RecallErrors
    written: Group
    same_class: Group
    unseen: Group

    def as_dict(self) -> dict[str, Any]:
        """For machines; recall also gets what follows from it."""
        recall = {
            name: asdict(errors) | {"best_reads": errors.best[0], "removed": errors.removed}
            for name, errors in (("noisy", self.noisy), ("half_erased", self.half_erased))
        }
        return asdict(self) | recall


@dataclass(frozen=True, eq=False)
class Pictures:
    """What the report shows of the first episode.

    Shapes: episode, samples (T, *X); chains (n, steps, *X); cues and recalls by corruption: (T, *X), READS of those
    """

    episode: Tensor
    samples: Tensor
    chains: Tensor
    cues: dict[str, Tensor]
    recalls: dict[str, list[Tensor]]
    state: Any
    gains: dict[str, Tensor]


def run(out: Path, seed: int = 0, *, episodes: int = EPISODES, tell: Tell = lambda _: None) -> Numbers:
    """Write, recall, sample and score, and write `out`/report.html and `out`/demo.png, one picture of it all. `tell`
    hears what is done next."""
    from mnemon import plots
    from mnemon.demo_page import in_short, render
    from mnemon.report import save

    threads = torch.get_num_threads()
    try:
        numbers, pictures = measure(seed, episodes=episodes, tell=tell)
    finally:
        torch.set_num_threads(threads)
    tell("writing the report")
    save(render(numbers, pictures), out / "report.html")
    plots.save_rows(in_short(numbers, pictures), out / "demo.png")
    return numbers


@torch.no_grad()
def measure(seed: int = 0, *, episodes: int = EPISODES, tell: Tell = lambda _: None) -> tuple[Numbers, Pictures]:
    """All numbers and pictures. The first of the episodes is the one that is shown.

    Leaves torch with one thread where that is faster here, as on a machine with other work; `run` puts it back.
    """
    if episodes < 2:
        raise ValueError(f"episodes: expected at least 2, to tell how far they differ, got {episodes}")
    tell("drawing the characters (the first time, about half a minute)")
    model, config = load_run(MODEL)
    test = TestSet.of(catalog.load(DATA, "test"), preprocessing_of(config.data))
    drawn = novelty_episodes(test.data, num_classes=CLASSES, per_class=PER_CLASS, num_episodes=episodes, seed=seed)
    generator = stream(seed, DEMO)
    x = test.draw(drawn.written[:RECALL_EPISODES], generator)
    episode = x[0]
    tell("writing and reading the memory")
    state = model.write(episode, generator=generator)
    _choose_threads(lambda: model.read(state, episode))
    write_ms = _median_ms(lambda: model.write(episode, generator=generator))
    read_ms = _median_ms(lambda: model.read(state, episode))
    tell("recalling noisy and half-erased characters")
    states = model.write(x, generator=generator)
    noisy, half = (_recall(model, states, x, *CORRUPTIONS[name], generator) for name in CORRUPTIONS)
    tell("generating")
    samples = iterate(model, state, len(episode), SAMPLE_READS, generator=generator)[:, -1]
    chains = with_neighbours(iterate(model, state, CHAINS, CHAIN_READS, generator=generator), episode)
    chains[:, -2] = 0  # a gap of paper
    tell(f"scoring {episodes} episodes")
    groups, gains = _score(model, test, drawn, seed)
    numbers = Numbers(
        model=MODEL,
        trained_on=(config.data.name, *config.data.extra),
        seed=seed,
        episodes=episodes,
        written_images=len(episode),
        written_classes=CLASSES,
        memory_bytes=state.nbytes,
        image_bytes=episode.numel(),
        image_bits_bytes=-(-episode.numel() // 8),
        image_float_bytes=episode.nbytes,
        model_bytes=sum(tensor.nbytes for tensor in model.state_dict().values()),
        write_ms=write_ms,
        read_ms=read_ms,
        threads=torch.get_num_threads(),
        noisy=noisy.errors,
        half_erased=half.errors,
        **groups,
    )
    cues, recalls = {"noisy": noisy.cue, "half_erased": half.cue}, {"noisy": noisy.reads, "half_erased": half.reads}
    return numbers, Pictures(episode, samples, chains, cues, recalls, state, gains)


@dataclass(frozen=True, eq=False)
class _Recalled:
    errors: RecallErrors
    cue: Tensor
    reads: list[Tensor]


def _recall(
    model: MemoryModel, states: Any, x: Tensor, name: str, level: float, generator: torch.Generator
) -> _Recalled:
    """Damage written images and read them 1 to READS times; pictures of the first episode. Shapes: x (E, T, *X)"""
    cue, observed = corrupt(name, x, level, generator)
    reads = successive_reads(model, states, cue, observed, READS)
    before, *after = (Estimate.of((images - x).square().flatten(1).mean(1)) for images in (cue, *reads))
    shown = cue[0] if observed is None else torch.where(observed, cue[0], 0.15)  # what is erased is tinted
    return _Recalled(RecallErrors(before, tuple(after)), shown, [images[0] for images in reads])


def _score(
    model: MemoryModel, test: TestSet, drawn: NoveltyEpisodes, seed: int
) -> tuple[dict[str, Group], dict[str, Tensor]]:
    """Bounds, gains and AUROCs of what was written, of new images of its classes, and of other classes."""
    episodes = len(drawn.written)
    scores = scored_groups(
        model, test, num_classes=CLASSES, per_class=PER_CLASS, num_episodes=episodes, seed=seed, score=_bound_and_gain
    )
    generator = stream(seed, DEMO, 1)
    frames = {name: test.draw(getattr(drawn, name), generator).flatten(2) for name in scores}
    nearness = {name: -torch.cdist(images, frames["written"]).min(-1).values for name, images in frames.items()}
    gains = {name: score[..., 1] for name, score in scores.items()}
    groups = {}
    for name, score in scores.items():
        means = [Estimate.of(score[..., part].mean(-1)) for part in (0, 1)]
        surely: list[Estimate] = []
        if name != "unseen":
            memory, pixels = (_aurocs(by[name], by["unseen"]) for by in (gains, nearness))
            surely = [Estimate.of(values) for values in (memory, pixels, memory - pixels)]
        groups[name] = Group(score.shape[1], *means, *surely)
    return groups, gains


def _bound_and_gain(model: Any, state: Any, x: Tensor, generator: torch.Generator) -> Tensor:
    """log p(x | memory), and that less log p(x | prior), with common random numbers. Shapes: -> (*B, Q, 2)"""
    seed = int(torch.randint(2**62, (), generator=generator))
    with_memory, without = (
        model.log_likelihood(of, x, num_samples=SAMPLES, generator=torch.Generator().manual_seed(seed)).value
        for of in (state, model.prior_state(x.shape[:-4]))
    )
    return torch.stack((with_memory, with_memory - without), dim=-1)


def _aurocs(known: Tensor, novel: Tensor) -> Tensor:
    """One per episode. Shapes: (E, n), (E, m) -> (E)"""
    return torch.tensor([auroc(a, b) for a, b in zip(known, novel, strict=True)], dtype=torch.float64)


def _choose_threads(call: Callable[[], Any]) -> None:
    """All of torch's threads, or one if that is faster: threads that wait for busy cores cost more than they give."""
    many = torch.get_num_threads()
    with_many = _median_ms(call)
    torch.set_num_threads(1)
    if with_many < _median_ms(call):
        torch.set_num_threads(many)


def _median_ms(call: Callable[[], Any]) -> float:
    call()
    times = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return 1e3 * statistics.median(times)
