"""What a memory generates: is it like the episode, and is it all of the episode?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from mnemon.core.random import stream
from mnemon.core.state import atomic_path
from mnemon.data.episodes import ClassEpisodes, IidEpisodes
from mnemon.data.images import ImageSet
from mnemon.data.preprocess import Preprocessing
from mnemon.evaluation.benchmark.holding import Records
from mnemon.evaluation.benchmark.subject import Subject, most_frames
from mnemon.evaluation.experiments import sizes_of_classes
from mnemon.evaluation.judge import FactorJudge, train_judge
from mnemon.evaluation.likelihood import Estimate, TestSet

SAMPLES = 25
"""The random stream of this file."""
HELD_OUT = 0.2


@dataclass(frozen=True, eq=False)
class Judge:
    """A classifier of the test images' classes, trained on most of them, and its accuracy on the others."""

    net: FactorJudge
    accuracy: float

    @classmethod
    def train(cls, data: ImageSet, preprocessing: Preprocessing, *, device: torch.device, num_steps: int) -> Judge:
        assert data.labels is not None
        named = replace(data.to("cpu"), factors=data.labels.cpu()[:, None], factor_names=("class",))
        known, held_out = named.split_off(HELD_OUT)
        net = train_judge(known, preprocessing, device=device, num_steps=num_steps)
        images = preprocessing(held_out.images.to(device), stream(0, SAMPLES, device=str(device)))
        assert held_out.labels is not None
        right = net.values(images)[..., 0].cpu() == held_out.labels
        return cls(net, float(right.double().mean()))

    @classmethod
    def cached(cls, path: Path, test: TestSet, *, num_steps: int) -> Judge | None:
        """The judge of a data set, trained when it is first asked for, or where the one in the file was trained
        otherwise; None without labels."""
        if test.data.labels is None:
            return None
        settings = f"{num_steps} steps on {len(test.data)} images, {test.preprocessing}"
        num_classes = int(test.data.labels.max()) + 1
        if not path.is_file() or not _is_of(path, settings, num_classes):
            # `fix` has been applied: what is left to do is the same for train and test
            made = cls.train(test.data, test.preprocessing, device=test.device, num_steps=num_steps)
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_path(path) as temporary:
                tensors = {name: tensor.cpu() for name, tensor in made.net.state_dict().items()}
                save_file(tensors | {"accuracy": torch.tensor(made.accuracy)}, temporary, {"settings": settings})
            return made
        tensors = load_file(path)
        accuracy = float(tensors.pop("accuracy"))
        net = FactorJudge(test.data.image_shape[0], (num_classes,))
        net(torch.zeros(1, *test.data.image_shape))  # gives the lazy layer its size
        net.load_state_dict(tensors)
        return cls(net.to(test.device).eval(), accuracy)


def _is_of(path: Path, settings: str, num_classes: int) -> bool:
    """Whether a stored judge was trained so; those of an earlier version do not say how."""
    try:
        with safe_open(path, framework="pt") as file:
            told = dict(file.metadata() or {}).get("settings", settings)
            return bool(told == settings and file.get_slice("heads.0.bias").get_shape() == [num_classes])
    except (SafetensorError, OSError) as error:
        raise ValueError(
            f"{path}: expected the classifier that judges samples, got what cannot be read ({error}); delete it, and "
            "it is trained again"
        ) from error


class Episodes(NamedTuple):
    """Frames to be written, and their classes where these are known. Shapes: x (B, T, *X), labels (B, T)"""

    x: Tensor
    labels: Tensor | None
    generator: torch.Generator


def samples(subject: Subject, asked: set[str], judge: Judge | None) -> Records:
    """Samples seen by the judge, and by their neighbours in the episode; as many as the episode has frames."""
    found: dict[str, list[Tensor]] = {}
    length = 0
    for x, labels, generator in _episodes(subject):
        length = x.shape[1]
        with torch.no_grad():
            state = subject.model.write(x, generator=generator)
            drawn = subject.model.sample(state, length, generator=generator).clamp(0, 1)
        far = torch.cdist(drawn.flatten(2), x.flatten(2)).square() / x[0, 0].numel()
        nearest, place = far.min(-1)
        values = {"sample_nearest": nearest.mean(-1), "sample_coverage": share_of(place, length)}
        if judge is not None and labels is not None:
            values |= _judged(judge.net.values(drawn)[..., 0], labels)
        for question, value in values.items():
            found.setdefault(question, []).append(value.double().cpu())
    floats = subject.floats(length)
    for question in sorted(asked):
        settings = {"judge": round(judge.accuracy, 3)} if judge is not None and "judged" in _metric(question) else {}
        estimate = Estimate.of(torch.cat(found[question]))
        yield subject.record(question, estimate, settings, episode_length=length, memory_floats=floats)


def share_of(place: Tensor, number: int) -> Tensor:
    """Which share of so many places occurs. Shapes: int (B, n) -> (B)"""
    seen = torch.zeros(len(place), number, device=place.device).scatter_(1, place, 1.0)
    return seen.mean(-1)


def _judged(classes: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """Shapes: classes of samples (B, n), labels of frames (B, T) -> (B) each"""
    same = classes[:, :, None] == labels[:, None, :]
    # each class has equally many frames, so that a mean over frames is one over classes
    return {"sample_fidelity": same.any(-1).double().mean(-1), "sample_diversity": same.any(1).double().mean(-1)}


def _metric(question: str) -> str:
    return "judged" if question in ("sample_fidelity", "sample_diversity") else question


def _episodes(subject: Subject) -> Iterator[Episodes]:
    """Episodes of classes, or of any images where there are no classes."""
    test, number = subject.tests.every, subject.sizes.episodes
    sizes = sizes_of_classes(test.data)
    if sizes is None:
        test = subject.tests.some
        number = min(number, len(test.data) // subject.length)
        index = IidEpisodes(subject.length, number).epoch(test.data, seed=0, epoch=0).index[0]
    else:
        sampler = ClassEpisodes(sizes["num_classes"], sizes["per_class"], number, batches_per_epoch=1)
        index = sampler.epoch(test.data, seed=0, epoch=0).index[0]
    for at, part in enumerate(index.split(most_frames(subject.model) // index.shape[1])):
        generator = stream(0, SAMPLES, at, device=str(test.device))
        x = test.draw(part, generator)
        labels = None if test.data.labels is None else test.data.labels[part.to(test.device)]
        yield Episodes(x, labels, generator)
