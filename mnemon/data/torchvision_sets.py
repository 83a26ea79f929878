"""Published image sets in the form the papers use, read by torchvision from its own files.

torchvision is imported when a set is read, because that takes a while.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from mnemon.data.pictures import open_picture, to_pixels

THREADS = 8
CELEBA_CROP = 108
OMNIGLOT_TEST = ("Sylheti", "Syriac_(Serto)", "Tengwar", "Tibetan", "ULOG")
"""The five test alphabets of the 45/5 split: by name the last of the fifty, all of the evaluation set."""


class Arrays(NamedTuple):
    """What a set is made of. Shapes: images uint8 (N, C, H, W), labels int64 (N), groups likewise or None"""

    images: Tensor
    labels: Tensor
    groups: Tensor | None = None


def read(name: str, split: str, root: Path, *, download: bool = False) -> Arrays:
    """A set whose files lie under `root`."""
    images, labels, groups = READERS[name](root, split, download)
    return Arrays(images.contiguous(), labels.to(torch.int64), groups)


def files_of(name: str, split: str, root: Path) -> Path:
    """Where torchvision keeps the set's files: not there, and there is nothing to read."""
    omniglot = f"omniglot-py/images_{'background' if split == 'train' else 'evaluation'}"
    folder = {
        "mnist": "MNIST/raw",
        "fashion_mnist": "FashionMNIST/raw",
        "omniglot": omniglot,
        "omniglot26": omniglot,
        "cifar10": "cifar-10-batches-py",
        "celeba": "celeba/img_align_celeba",
        "celeba64": "celeba/img_align_celeba",
        "imagenet32": f"imagenet32/{'train_data_batch_1' if split == 'train' else 'val_data'}.npz",
    }[name]
    return root / folder


def area_average(images: Tensor, side: int) -> Tensor:
    """Shrink by averaging exactly over the area of each new pixel, halves rounded up.

    A pixel that two new ones share counts for each by its part. Shapes: uint8 (N, H, W) -> (N, side, side)
    """
    down, across = (_overlaps(length, side) for length in images.shape[-2:])
    area = images.shape[-2] * images.shape[-1]
    chunks = []
    for chunk in images.split(1000):
        total = (down @ (chunk.double() @ across.mT)).long()  # whole numbers below 2^53, so exact
        chunks.append(((2 * total + area) // (2 * area)).to(torch.uint8))
    return torch.cat(chunks)


def _overlaps(length: int, side: int) -> Tensor:
    """How much of each old pixel lies in each new one, in units of 1 / side pixel. Shapes: -> (side, length)"""
    old, new = torch.arange(length), torch.arange(side)[:, None]
    end = torch.minimum((old + 1) * side, (new + 1) * length)
    return (end - torch.maximum(old * side, new * length)).clamp(min=0).double()


def max_pool(images: Tensor, cell: int) -> Tensor:
    """The largest pixel of every cell x cell square; rows and columns that fill no square are dropped.

    Shapes: uint8 (N, H, W) -> (N, H // cell, W // cell)
    """
    down, across = (length // cell for length in images.shape[-2:])
    whole = images[:, : down * cell, : across * cell]
    return whole.unflatten(2, (across, cell)).unflatten(1, (down, cell)).amax((2, 4))


def _open(kind: str, root: Path, **options: Any) -> Any:
    """One of torchvision's datasets; RuntimeError when its files are not there or not whole."""
    from torchvision import datasets  # type: ignore[import-untyped]

    return getattr(datasets, kind)(str(root), **options)


def _mnist(kind: str) -> Callable[[Path, str, bool], Arrays]:
    def reader(root: Path, split: str, download: bool) -> Arrays:
        dataset = _open(kind, root, train=split == "train", download=download)
        return Arrays(dataset.data.unsqueeze(1), dataset.targets)

    return reader


def _cifar10(root: Path, split: str, download: bool) -> Arrays:
    dataset = _open("CIFAR10", root, train=split == "train", download=download)
    return Arrays(torch.from_numpy(dataset.data).permute(0, 3, 1, 2), torch.tensor(dataset.targets))


def _omniglot(root: Path, split: str, download: bool) -> Arrays:
    """The background set for training, the evaluation set for test; ink is 255, 105 x 105 averaged to 28 x 28."""
    files = _omniglot_files(root, background=split == "train", download=download)
    return Arrays(area_average(_ink(files), 28).unsqueeze(1), *_omniglot_numbers(files))


def _omniglot26(root: Path, split: str, download: bool) -> Arrays:
    """All but five alphabets for training, those for test; 105 x 105 less the last row and column, pooled to 26 x 26.

    The drawings are binary, so they stay binary. VMA, section 4.2.
    """
    parts = (True, False) if split == "train" else (False,)
    files = [file for part in parts for file in _omniglot_files(root, background=part, download=download)]
    files = [file for file in files if (file.parent.parent.name in OMNIGLOT_TEST) == (split == "test")]
    if not files:
        raise ValueError(f"omniglot26: expected drawings of {', '.join(OMNIGLOT_TEST)}, found none")
    return Arrays(max_pool(_ink(files), 4).unsqueeze(1), *_omniglot_numbers(files))


def _omniglot_files(root: Path, *, background: bool, download: bool) -> list[Path]:
    """ALPHABET/CHARACTER/0001_01.png in the order of the file names: class 1, drawer 1 is the first.

    torchvision's own order is that of the file system.
    """
    dataset = _open("Omniglot", root, background=background, download=download, loader=Path)
    return sorted((dataset[at][0] for at in range(len(dataset))), key=lambda file: (file.name, file))


def _ink(files: list[Path]) -> Tensor:
    """Drawings with ink 255 on 0. Shapes: -> (N, 105, 105)"""
    with ThreadPoolExecutor(THREADS) as pool:
        pages = list(pool.map(lambda file: open_picture(file, None)[0], files))
    return 255 - torch.from_numpy(np.stack(pages))


def _omniglot_numbers(files: list[Path]) -> tuple[Tensor, Tensor]:
    """Characters numbered in the order of the files, alphabets in that of their names. Shapes: -> (N), (N)"""
    characters = [file.parent for file in files]
    alphabets = [folder.parent.name for folder in characters]
    number = {folder: at for at, folder in enumerate(dict.fromkeys(characters))}
    group = {name: at for at, name in enumerate(sorted(set(alphabets)))}
    return torch.tensor([number[each] for each in characters]), torch.tensor([group[each] for each in alphabets])


def _celeba(side: int, crop: int | None) -> Callable[[Path, str, bool], Arrays]:
    """The middle `crop` x `crop` pixels of the aligned pictures, or all of them, resized; labels are the persons."""

    def reader(root: Path, split: str, download: bool) -> Arrays:
        dataset = _open("CelebA", root, split=split, target_type="identity", download=download)

        def face(at: int) -> np.ndarray:
            picture = dataset[at][0]
            if crop is not None:
                left, top = (picture.width - crop) // 2, (picture.height - crop) // 2
                picture = picture.crop((left, top, left + crop, top + crop))
            return to_pixels(picture, (3, side, side))

        with ThreadPoolExecutor(THREADS) as pool:
            faces = list(pool.map(face, range(len(dataset))))
        return Arrays(torch.from_numpy(np.stack(faces)), dataset.identity[:, 0])

    return reader


def _imagenet32(root: Path, split: str, download: bool) -> Arrays:
    """Chrabaszcz et al. (2017) at 32 x 32, the .npz edition: batches of `data` (N, 3072) and `labels` from 1."""
    if download:
        raise ValueError(BY_HAND["imagenet32"])
    files = sorted((root / "imagenet32").glob("train_data_batch_*.npz" if split == "train" else "val_data.npz"))
    images, labels = [], []
    for file in files:
        with np.load(file, allow_pickle=False) as batch:
            images.append(np.asarray(batch["data"], np.uint8).reshape(-1, 3, 32, 32))
            labels.append(np.asarray(batch["labels"], np.int64) - 1)
    return Arrays(torch.from_numpy(np.concatenate(images)), torch.from_numpy(np.concatenate(labels)))


READERS: dict[str, Callable[[Path, str, bool], Arrays]] = {
    "mnist": _mnist("MNIST"),
    "fashion_mnist": _mnist("FashionMNIST"),
    "omniglot": _omniglot,
    "omniglot26": _omniglot26,
    "cifar10": _cifar10,
    "celeba": _celeba(32, crop=CELEBA_CROP),
    "celeba64": _celeba(64, crop=None),  # K++, appendix B
    "imagenet32": _imagenet32,
}
BY_HAND = {
    "imagenet32": "Its files come from image-net.org with an account: unpack Imagenet32_train_npz.zip and "
    "Imagenet32_val_npz.zip into the folder imagenet32",
}
"""Sets that are read but cannot be fetched, and what to do instead."""
VALIDATED = ("celeba", "celeba64")
"""Sets with a validation split of their own."""
