"""Sets of images as one uint8 tensor, from folders of pictures or any torch dataset; `archives` reads .npz files."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import math
import numbers
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor
from torch.utils.data import DataLoader

from mnemon.core.random import stream
from mnemon.data.pictures import as_bytes, find_pictures, open_picture, to_pixels

Unreadable = Literal["error", "skip"]
ImageShape = tuple[int, int, int]


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Images with their class numbers, if they have any, and the groups of their classes (alphabets), likewise.

    A vector of D numbers is an image of D channels and one pixel, as float32. `factors` says of what each image was
    made (digit, background), one column for each of `factor_names`.

    Shapes: images uint8 (N, C, H, W) or float32 (N, D, 1, 1), labels and groups int64 (N) or None, factors (N, F)
    """

    images: Tensor
    labels: Tensor | None = None
    name: str = "images"
    split: str = "train"
    groups: Tensor | None = None
    factors: Tensor | None = None
    factor_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        vectors = self.images.dtype == torch.float32 and self.images.shape[2:] == (1, 1)
        if not (self.images.dtype == torch.uint8 or vectors) or self.images.ndim != 4 or not self.images.numel():
            raise ValueError(
                f"ImageSet: expected uint8 images (N, C, H, W) with N >= 1, got {self.images.dtype} "
                f"{tuple(self.images.shape)}; from_dataset converts other images"
            )
        for what, given in (("labels", self.labels), ("groups", self.groups)):
            if given is not None and (given.dtype != torch.int64 or given.shape != self.images.shape[:1]):
                raise ValueError(
                    f"ImageSet: expected int64 {what} ({len(self.images)},), one per image, got {given.dtype} "
                    f"{tuple(given.shape)}"
                )
        expected = (len(self.images), len(self.factor_names))
        if self.factors is not None and (self.factors.dtype != torch.int64 or self.factors.shape != expected):
            raise ValueError(
                f"ImageSet: expected int64 factors {expected}, a column for each of factor_names, got "
                f"{self.factors.dtype} {tuple(self.factors.shape)}"
            )

    def __len__(self) -> int:
        return len(self.images)

    def __repr__(self) -> str:
        classes = f", {self.num_classes} classes" if self.labels is not None else ""
        classes += f" in {self.num_groups} groups" if self.groups is not None else ""
        shape = "x".join(map(str, self.image_shape))
        return f"ImageSet({self.name}, {self.split}: {len(self)} images {shape}{classes})"

    @property
    def image_shape(self) -> ImageShape:
        channels, height, width = self.images.shape[1:]
        return channels, height, width

    @property
    def num_classes(self) -> int:
        """How many different labels occur; 0 without labels."""
        return 0 if self.labels is None else self.labels.unique().numel()

    @property
    def num_groups(self) -> int:
        """How many different groups occur; 0 without groups."""
        return 0 if self.groups is None else self.groups.unique().numel()

    @functools.cached_property
    def fingerprint(self) -> str:
        """A digest of the images and of what episodes are made by, in their order: the same images in another order
        make another training. Groups decide only which images are held out."""
        digest = hashlib.blake2b(digest_size=8)
        for tensor in (self.images, self.labels, self.factors):
            if tensor is not None:
                digest.update(f"{tuple(tensor.shape)} {tensor.dtype}".encode())
                digest.update(tensor.cpu().reshape(-1).numpy().data)
        return digest.hexdigest()

    def to(self, device: str | torch.device) -> ImageSet:
        return self._map(lambda tensor: tensor.to(device))

    def subset(self, index: Tensor | Sequence[int]) -> ImageSet:
        """The images at `index`, in that order."""
        index = torch.as_tensor(index, device=self.images.device)
        return self._map(lambda tensor: tensor[index])

    def _map(self, change: Callable[[Tensor], Tensor]) -> ImageSet:
        """The same change to the images and to all that is known of them."""
        known = (self.labels, self.groups, self.factors)
        labels, groups, factors = (None if tensor is None else change(tensor) for tensor in known)
        images = change(self.images)
        return dataclasses.replace(self, images=images, labels=labels, groups=groups, factors=factors)

    def split_off(self, fraction: float, seed: int = 0) -> tuple[ImageSet, ImageSet]:
        """Two random parts without a common image, `(rest, part)`; `fraction` of the images go to the part.

        Each keeps the order of the whole. `train, validation = data.split_off(0.1)`
        """
        size = round(fraction * len(self)) if 0 < fraction < 1 else 0
        if not 0 < size < len(self):
            raise ValueError(
                f"split_off: expected a fraction that leaves both parts at least one of {len(self)} images, "
                f"got {fraction}"
            )
        order = torch.randperm(len(self), generator=stream(seed, len(self)))
        return self.subset(order[size:].sort().values), self.subset(order[:size].sort().values)

    def split_off_groups(self, number: int, seed: int = 0) -> tuple[ImageSet, ImageSet]:
        """Two parts without a common group, `(rest, part)`: `number` groups, drawn at random, go whole to the part.

        `train, validation = data.split_off_groups(5)` holds out five alphabets.
        """
        if self.groups is None:
            raise ValueError(
                f"split_off_groups: expected images in groups, but {self.name} has none; an .npz carries them as an "
                "array `groups`, one whole number per image"
            )
        present = self.groups.unique()
        if not 0 < number < len(present):
            raise ValueError(
                f"split_off_groups: expected a number that leaves both parts at least one of the {len(present)} groups "
                f"of {self.name}, got {number}"
            )
        order = torch.randperm(len(present), generator=stream(seed, len(present)))
        part = torch.isin(self.groups, present[order[:number].to(present.device)])
        return self.subset((~part).nonzero().squeeze(-1)), self.subset(part.nonzero().squeeze(-1))

    def of_classes(self, classes: Sequence[int] | Tensor) -> ImageSet:
        """The images of the given classes; the labels stay what they are."""
        if self.labels is None:
            raise ValueError(f"of_classes: expected labelled images, but {self.name} has no labels")
        wanted = torch.as_tensor(classes, dtype=torch.int64, device=self.labels.device)
        missing = wanted[~torch.isin(wanted, self.labels)]
        if missing.numel() or not wanted.numel():
            raise ValueError(
                f"of_classes: expected classes that occur in {self.name}, got {missing.tolist() or 'none'}; "
                f"it has {self.num_classes} classes from {self.labels.min()} to {self.labels.max()}"
            )
        return self.subset(torch.isin(self.labels, wanted).nonzero().squeeze(-1))


def from_folder(
    path: str | Path,
    *,
    image_shape: ImageShape | None = None,
    unreadable: Unreadable = "error",
    on_skip: Callable[[list[Path]], None] | None = None,
    classes: Sequence[str] | None = None,
) -> ImageSet:
    """Read all pictures under a folder, sorted by name. Hidden files are left out.

    If every picture lies in a subfolder, the first-level subfolders are the classes, numbered by name (or by
    their place in `classes`). With `image_shape=(C, H, W)` pictures are made grey or coloured, cropped about
    the centre to that aspect and resized; without, all must have one size. A file that cannot be read is an
    error, or is skipped and told to `on_skip`. Transparent pixels are shown on white.
    """
    path = Path(path)
    if not path.is_dir():
        raise ValueError(f"from_folder: no folder {path}")
    data, _ = from_files([path], image_shape=image_shape, unreadable=unreadable, on_skip=on_skip, classes=classes)
    return dataclasses.replace(data, name=path.resolve().name)


def from_files(
    paths: Sequence[str | Path],
    *,
    image_shape: ImageShape | None = None,
    unreadable: Unreadable = "error",
    on_skip: Callable[[list[Path]], None] | None = None,
    classes: Sequence[str] | None = None,
) -> tuple[ImageSet, list[Path]]:
    """Read pictures given as files and folders, in that order; also returns the paths of those kept.

    Files are tried whatever their suffix. Labels and sizes as in `from_folder`; a file named by itself has no
    class, so then there are no labels.
    """
    if unreadable not in ("error", "skip"):
        raise ValueError(f"from_files: expected unreadable='error' or 'skip', got {unreadable!r}")
    if image_shape is not None and (len(image_shape) != 3 or image_shape[0] not in (1, 3) or min(image_shape) < 1):
        raise ValueError(f"from_files: expected image_shape (1 or 3, H, W), got {image_shape}")
    files, groups = find_pictures([Path(path) for path in paths])

    def read(file: Path) -> np.ndarray | str:
        try:
            return open_picture(file, image_shape)
        except UnidentifiedImageError:
            return "no known image format"
        except Exception as error:  # broken pictures raise errors of many kinds
            return str(error) or type(error).__name__

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(read, files))
    kept = [at for at, pixels in enumerate(found) if not isinstance(pixels, str)]
    failed = [(files[at], reason) for at, reason in enumerate(found) if isinstance(reason, str)]
    if failed and (unreadable == "error" or not kept):
        shown = "; ".join(f"{file} ({reason})" for file, reason in failed[:5])
        raise ValueError(
            f"from_files: {len(failed)} of {len(files)} files cannot be read as images: {shown}"
            f"{'; ...' if len(failed) > 5 else ''}. Remove them, or skip them with unreadable='skip'"
        )
    if failed and on_skip is not None:
        on_skip([file for file, _ in failed])
    pixels = [array for array in found if not isinstance(array, str)]
    paths_kept = [files[at] for at in kept]
    _check_one_size(pixels, paths_kept)
    labels = None if groups is None else _number([groups[at] for at in kept], classes or sorted(set(groups)))
    return ImageSet(torch.from_numpy(np.stack(pixels)), labels), paths_kept


def _check_one_size(pixels: list[np.ndarray], files: list[Path]) -> None:
    for array, file in zip(pixels, files, strict=True):
        if array.shape != pixels[0].shape:
            raise ValueError(
                f"from_files: expected images of one size, but {files[0]} is {pixels[0].shape} and {file} is "
                f"{array.shape} (C, H, W); give image_shape=(C, H, W) to bring all to one size"
            )


def _number(groups: list[str], classes: Sequence[str]) -> Tensor:
    place = {name: at for at, name in enumerate(classes)}
    unknown = sorted(set(groups) - place.keys())
    if unknown:
        raise ValueError(f"from_files: expected the class folders {list(classes)}, got also {unknown}")
    return torch.tensor([place[group] for group in groups])


def from_dataset(dataset: Any, *, limit: int | None = None) -> ImageSet:
    """Take the images out of a torch `Dataset` of images or (image, label), or a `DataLoader` of batches of them.

    An image is a PIL image, a tensor (H, W) or (C, H, W), or an array (H, W) or (H, W, C); uint8, or floats in
    [0, 1]. `limit` stops after that many images.
    """
    if limit is not None and limit < 1:
        raise ValueError(f"from_dataset: expected a limit of at least 1, got {limit}")
    pairs = [(_item_pixels(image), label) for image, label in islice(_pairs(dataset), limit)]
    if not pairs:
        raise ValueError("from_dataset: expected at least one image, got an empty dataset")
    pixels = [image for image, _ in pairs]
    shapes = {tuple(image.shape) for image in pixels}
    if len(shapes) > 1:
        raise ValueError(
            f"from_dataset: expected images of one size, got {sorted(shapes)[:2]}; resize them in its transform"
        )
    labels = [label for _, label in pairs]
    name = type(dataset.dataset if isinstance(dataset, DataLoader) else dataset).__name__
    if any(label is None for label in labels):
        return ImageSet(torch.stack(pixels), None, name)
    if not all(isinstance(label, numbers.Integral) for label in labels):
        raise ValueError(
            f"from_dataset: expected whole numbers as labels, got {labels[0]!r}; leave the labels out, or number them"
        )
    return ImageSet(torch.stack(pixels), torch.tensor([int(label) for label in labels]), name)


def _pairs(dataset: Any) -> Iterator[tuple[Any, Any]]:
    """Image and label (None if it has none) of every item; batches of a loader are taken apart."""
    whole = isinstance(dataset, DataLoader)
    sized = not whole and hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")
    items: Iterable[Any] = (dataset[at] for at in range(len(dataset))) if sized else iter(dataset)
    for item in items:
        image, label = (*item, None)[:2] if isinstance(item, tuple | list) else (item, None)
        if not whole:
            yield (
                image,
                label.item() if isinstance(label, Tensor | np.generic) and math.prod(label.shape) == 1 else label,
            )
        elif label is None:
            yield from ((each, None) for each in image)
        else:
            yield from zip(image, label.tolist() if isinstance(label, Tensor) else label, strict=True)


def _item_pixels(image: Any) -> Tensor:
    """One image of any usual kind as uint8 (C, H, W)."""
    if isinstance(image, Image.Image):
        return torch.from_numpy(to_pixels(image))
    if isinstance(image, np.ndarray):
        image = torch.from_numpy(np.ascontiguousarray(image if image.ndim < 3 else image.transpose(2, 0, 1)))
    if not isinstance(image, Tensor) or image.ndim not in (2, 3) or not image.numel():
        got = tuple(image.shape) if isinstance(image, Tensor) else type(image).__name__
        raise ValueError(
            f"from_dataset: expected PIL images, tensors (C, H, W) or arrays (H, W, C), got {got}; "
            "give a dataset of images or (image, label)"
        )
    return as_bytes(image if image.ndim == 3 else image[None], "from_dataset")
