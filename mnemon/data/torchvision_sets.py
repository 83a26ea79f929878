"""Published image sets in the form the papers use, read by torchvision from its own files.

torchvision is imported when a set is read, because that takes a while.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mnemon.data.pictures import open_picture, to_pixels

THREADS = 8
CELEBA_CROP = 108


def read(name: str, split: str, root: Path, *, download: bool = False) -> tuple[Tensor, Tensor]:
    """Images uint8 (N, C, H, W) and labels int64 (N) of a set whose files lie under `root`."""
    images, labels = READERS[name](root, split, download)
    return images.contiguous(), labels.to(torch.int64)


def files_of(name: str, split: str, root: Path) -> Path:
    """Where torchvision keeps the set's files: not there, and there is nothing to read."""
    folder = {
        "mnist": "MNIST/raw",
        "fashion_mnist": "FashionMNIST/raw",
        "omniglot": f"omniglot-py/images_{'background' if split == 'train' else 'evaluation'}",
        "cifar10": "cifar-10-batches-py",
        "celeba": "celeba/img_align_celeba",
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


def _open(kind: str, root: Path, **options: Any) -> Any:
    """One of torchvision's datasets; RuntimeError when its files are not there or not whole."""
    from torchvision import datasets  # type: ignore[import-untyped]

    return getattr(datasets, kind)(str(root), **options)


def _mnist(kind: str) -> Callable[[Path, str, bool], tuple[Tensor, Tensor]]:
    def reader(root: Path, split: str, download: bool) -> tuple[Tensor, Tensor]:
        dataset = _open(kind, root, train=split == "train", download=download)
        return dataset.data.unsqueeze(1), dataset.targets

    return reader


def _cifar10(root: Path, split: str, download: bool) -> tuple[Tensor, Tensor]:
    dataset = _open("CIFAR10", root, train=split == "train", download=download)
    return torch.from_numpy(dataset.data).permute(0, 3, 1, 2), torch.tensor(dataset.targets)


def _omniglot(root: Path, split: str, download: bool) -> tuple[Tensor, Tensor]:
    """The background set for training, the evaluation set for test; ink is 255, 105 x 105 averaged to 28 x 28.

    Classes are numbered in the order of the file names (0001_01.png, ...): torchvision's own order is that of
    the file system. A name such as 0001_01 is that of class 1, drawer 1.
    """
    dataset = _open("Omniglot", root, background=split == "train", download=download, loader=Path)
    files = sorted((dataset[at][0] for at in range(len(dataset))), key=lambda file: (file.name, file))
    with ThreadPoolExecutor(THREADS) as pool:
        pages = list(pool.map(lambda file: open_picture(file, None)[0], files))
    folders = [file.parent for file in files]
    number = {folder: at for at, folder in enumerate(dict.fromkeys(folders))}
    ink = 255 - torch.from_numpy(np.stack(pages))
    return area_average(ink, 28).unsqueeze(1), torch.tensor([number[folder] for folder in folders])


def _celeba(root: Path, split: str, download: bool) -> tuple[Tensor, Tensor]:
    """The middle 108 x 108 pixels of the aligned pictures, resized to 32 x 32; labels are the persons."""
    dataset = _open("CelebA", root, split=split, target_type="identity", download=download)

    def face(at: int) -> np.ndarray:
        picture = dataset[at][0]
        left, top = (picture.width - CELEBA_CROP) // 2, (picture.height - CELEBA_CROP) // 2
        return to_pixels(picture.crop((left, top, left + CELEBA_CROP, top + CELEBA_CROP)), (3, 32, 32))

    with ThreadPoolExecutor(THREADS) as pool:
        faces = list(pool.map(face, range(len(dataset))))
    return torch.from_numpy(np.stack(faces)), dataset.identity[:, 0]


READERS: dict[str, Callable[[Path, str, bool], tuple[Tensor, Tensor]]] = {
    "mnist": _mnist("MNIST"),
    "fashion_mnist": _mnist("FashionMNIST"),
    "omniglot": _omniglot,
    "cifar10": _cifar10,
    "celeba": _celeba,
}
