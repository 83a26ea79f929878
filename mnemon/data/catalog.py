"""Data by name or by path: `load("glyphs", "train")`, `load("mnist", "test")`, `load("photos/", "train")`."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mnemon.data import derived, torchvision_sets
from mnemon.data.archives import from_npz, store
from mnemon.data.cache import cache_folder
from mnemon.data.images import ImageSet, ImageShape, Unreadable, from_folder
from mnemon.data.named_sets import CATALOG

SPLITS = ("train", "valid", "test", "all")
TEST_FRACTION = 0.1
"""Of a file or a folder that is not divided into train and test."""


def data_root(root: str | Path | None = None) -> Path:
    """Where data are looked for: `root`, else the folder named by MNEMON_DATA, else `data` in the cache folder."""
    chosen = root or os.environ.get("MNEMON_DATA")
    return Path(chosen).expanduser() if chosen else cache_folder() / "data"


def load(
    spec: str | Path,
    split: str,
    *,
    root: str | Path | None = None,
    download: bool = False,
    image_shape: ImageShape | None = None,
    unreadable: Unreadable = "error",
    on_skip: Callable[[list[Path]], None] | None = None,
) -> ImageSet:
    """The split ("train", "test", "all", for some sets "valid") of a named set, a file or a folder.

    A name is looked for among the embedded sets, as ROOT/NAME/SPLIT.npz, and in torchvision's files under ROOT. A
    path is an .npz file, a folder with train.npz and test.npz, a folder of pictures with train/ and test/, or a plain
    folder of pictures; what is not divided is, at random but always alike, nine to one. A folder called like a
    named set is "./mnist". "all" is train and test together. `image_shape`, `unreadable` and `on_skip` are for
    pictures, as in `from_folder`.
    """
    if split not in SPLITS:
        raise ValueError(f"load: expected split one of {', '.join(SPLITS)}, got {split!r}")
    if isinstance(spec, str) and spec in CATALOG:
        data = _named(spec, split, data_root(root), download)
    else:
        path = Path(spec).expanduser()
        if not path.exists():
            raise ValueError(_unknown(str(spec)))
        data = _path(path, split, {"image_shape": image_shape, "unreadable": unreadable, "on_skip": on_skip})
    if image_shape is not None and data.image_shape != tuple(image_shape):
        raise ValueError(f"load: expected images {tuple(image_shape)}, but {spec} has {data.image_shape}")
    return data


def describe(root: str | Path | None = None) -> list[dict[str, Any]]:
    """What there is, and what of it is here: one record per named set.

    `here` is "embedded", "found" or "missing"; `where` the files, or the command that gets them.
    """
    root = data_root(root)
    records = []
    for name, entry in CATALOG.items():
        found = [file for split in ("train", "test") for file in _places(name, split, root) if file.exists()]
        source = derived.SOURCES.get(name)
        if entry.embedded or (entry.derived and source is None):
            here, where = "embedded", "nothing to fetch"
        elif source is not None:
            found = [file for split in ("train", "test") for file in _places(source, split, root) if file.exists()]
            here = "found" if found else "missing"
            where = f"made of {source}" if found else _remedy(source, "train", root)
        elif found:
            here, where = "found", str(found[0].parent if found[0].suffix == ".npz" else found[0])
        else:
            here, where = "missing", _remedy(name, "train", root)
        record = {"name": name, "about": entry.about, "source": entry.source, "image_shape": entry.image_shape}
        records.append(record | {"classes": entry.classes, "here": here, "where": where})
    return records


def _named(name: str, split: str, root: Path, download: bool) -> ImageSet:
    entry = CATALOG[name]
    if split == "all":
        parts = [_named(name, part, root, download) for part in ("train", "test")]
        return _together(parts, apart=entry.renumbered)
    if entry.derived:
        return derived.make(name, split, lambda other, part: _named(other, part, root, download))
    if entry.embedded:
        if split == "valid":
            raise ValueError(f"load: {name} has no split 'valid'; take train and split some off: data.split_off(0.1)")
        return ImageSet(*entry.embedded(split), name, split)
    stored = root / name / f"{split}.npz"
    if stored.is_file():
        return from_npz(stored, split=split, name=name)
    if name not in torchvision_sets.READERS or (split == "valid" and name not in torchvision_sets.VALIDATED):
        raise ValueError(f"load: {name}, {split} is not here; looked for {stored}. {_remedy(name, split, root)}")
    found = _by_torchvision(name, split, root, download)
    data = ImageSet(found.images, found.labels, name, split, found.groups)
    with contextlib.suppress(OSError):  # keeping it only saves time
        store(data, stored)
    return data


def _by_torchvision(name: str, split: str, root: Path, download: bool) -> torchvision_sets.Arrays:
    looked = " and ".join(map(str, _places(name, split, root)))
    if not download and not torchvision_sets.files_of(name, split, root).exists():
        raise ValueError(f"load: {name}, {split} is not here; looked for {looked}. {_remedy(name, split, root)}")
    if download:
        root.mkdir(parents=True, exist_ok=True)
    try:
        return torchvision_sets.read(name, split, root, download=download)
    except Exception as error:  # no connection, files that are cut off, a missing package, ...
        what = "cannot be fetched" if download else "is not here whole"
        reason = " ".join(str(error).split())
        raise ValueError(
            f"load: {name}, {split} {what} ({reason}); looked for {looked}. {_remedy(name, split, root)}"
        ) from error


def _places(name: str, split: str, root: Path) -> list[Path]:
    known = name in torchvision_sets.READERS
    return [root / name / f"{split}.npz", *([torchvision_sets.files_of(name, split, root)] if known else [])]


def _remedy(name: str, split: str, root: Path) -> str:
    shape = CATALOG[name].image_shape
    size = f"(N, {shape[1]}, {shape[2]})" if shape[0] == 1 else f"(N, {shape[1]}, {shape[2]}, {shape[0]})"
    own = f"put your own at {root / name / f'{split}.npz'}, with images uint8 {size} and, if any, labels and groups (N)"
    if name not in torchvision_sets.READERS:
        return f"It cannot be downloaded: {own}"
    if split == "valid" and name not in torchvision_sets.VALIDATED:
        return f"It has no validation split; take train and split some off (data.split_off(0.1)), or {own}"
    if name in torchvision_sets.BY_HAND:
        return f"{torchvision_sets.BY_HAND[name]} of {root} ; or {own}"
    return f"Get it with: mnemon data get {name} --root {root} ; or {own}"


def _path(path: Path, split: str, pictures: dict[str, Any]) -> ImageSet:
    name = path.resolve().stem
    if path.is_file():
        return _divided(from_npz(path, name=name), split)
    if any((path / f"{part}.npz").is_file() for part in ("train", "test")):
        parts = [from_npz(path / f"{part}.npz", split=part, name=name) for part in _parts(path, split, ".npz")]
        return _together(parts)
    if all((path / part).is_dir() for part in ("train", "test")):
        names = {each.name for part in SPLITS for each in (path / part).glob("*") if each.is_dir()}
        folders = _parts(path, split, "")
        parts = [from_folder(path / part, classes=sorted(names), **pictures) for part in folders]
        parts = [dataclasses.replace(part, name=name, split=at) for part, at in zip(parts, folders, strict=True)]
        return _together(parts)
    return _divided(from_folder(path, **pictures), split)


def _parts(path: Path, split: str, suffix: str) -> tuple[str, ...]:
    parts = ("train", "test") if split == "all" else (split,)
    for part in parts:
        if not (path / f"{part}{suffix}").exists():
            raise ValueError(f"load: expected {path / f'{part}{suffix}'} for the split {split!r}, found none")
    return parts


def _divided(data: ImageSet, split: str) -> ImageSet:
    """Nine tenths for training, the rest for test."""
    if split == "all":
        return dataclasses.replace(data, split=split)
    if split == "valid" or round(TEST_FRACTION * len(data)) < 1:
        raise ValueError(
            f"load: {data.name} has {len(data)} images that are not divided into splits; expected 'train' or 'test' of "
            f"at least 6 images, or 'all', got {split!r}"
        )
    rest, part = data.split_off(TEST_FRACTION, seed=0)
    return dataclasses.replace(rest if split == "train" else part, split=split)


def _together(parts: list[ImageSet], apart: bool = False) -> ImageSet:
    """Train and test as one; `apart` numbers the classes and groups of test after those of train."""
    if len(parts) == 1:
        return parts[0]
    first, second = parts
    if first.image_shape != second.image_shape:
        raise ValueError(f"load: train has images {first.image_shape}, test {second.image_shape}; expected one shape")
    labels = _joined(first.labels, second.labels, apart)
    groups = _joined(first.groups, second.groups, apart)
    factors = _joined(first.factors, second.factors, False)
    images = torch.cat([first.images, second.images])
    return ImageSet(images, labels, first.name, "all", groups, factors, first.factor_names)


def _joined(first: Tensor | None, second: Tensor | None, apart: bool) -> Tensor | None:
    if first is None or second is None:
        return None
    return torch.cat([first, second + (int(first.max()) + 1 if apart else 0)])


def _unknown(spec: str) -> str:
    near = difflib.get_close_matches(spec, CATALOG, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"load: expected a file, a folder or one of {', '.join(CATALOG)}, got {spec!r}{hint}"
