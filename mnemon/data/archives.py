"""Sets of images in NumPy archives: reading a user's .npz, and storing what was read once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from mnemon.core.state import atomic_path
from mnemon.data.images import ImageSet
from mnemon.data.pictures import as_bytes

KEYS = ("images", "labels", "groups")


def from_npz(path: str | Path, *, split: str = "train", name: str | None = None) -> ImageSet:
    """Read a NumPy archive with `images` and, if it has them, `labels` and `groups`. Nothing is unpickled.

    Images are (N, H, W), (N, H, W, C) or (N, C, H, W) with C = 1 or 3, uint8 or floats in [0, 1]; labels and groups
    are whole numbers (N).
    """
    path = Path(path)
    arrays = _read_arrays(path)
    images, where = arrays["images"], f"from_npz: images in {path}"
    if images.ndim == 3:
        images = images[:, None]
    if images.ndim != 4 or not images.size:
        raise ValueError(
            f"{where}: expected (N, H, W), (N, H, W, C) or (N, C, H, W), N at least 1, got {arrays['images'].shape}"
        )
    first, last = images.shape[1] in (1, 3), images.shape[3] in (1, 3)
    if first == last:
        raise ValueError(
            f"{where}: expected 1 or 3 channels in the second or the last dimension, got {images.shape}; "
            "store grey images as (N, H, W), coloured ones as (N, 3, H, W)"
        )
    pixels = as_bytes(torch.from_numpy(images if first else images.transpose(0, 3, 1, 2)), where)
    labels, groups = (_numbers(arrays.get(key), key, len(pixels), path) for key in ("labels", "groups"))
    return ImageSet(pixels, labels, name or path.stem, split, groups)


def store(data: ImageSet, path: Path) -> None:
    """Write an .npz that `from_npz` reads; an existing file is replaced only by a complete new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    tensors = {key: getattr(data, key) for key in KEYS}
    arrays = {key: tensor.cpu().numpy() for key, tensor in tensors.items() if tensor is not None}
    with atomic_path(path) as temporary, open(temporary, "wb") as file:
        np.savez(file, **arrays)


def _numbers(array: np.ndarray | None, key: str, count: int, path: Path) -> Tensor | None:
    if array is None:
        return None
    if array.shape != (count,) or array.dtype.kind not in "iu":
        raise ValueError(
            f"from_npz: expected {count} whole numbers as {key} in {path}, one per image, got {array.dtype} "
            f"{array.shape}"
        )
    return torch.from_numpy(array.astype(np.int64))


def _read_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of an archive that are ours."""
    if not path.is_file():
        raise ValueError(f"from_npz: expected an .npz of images, got no file {path}; check the path")
    try:
        with np.load(path, allow_pickle=False) as archive:
            keys = list(archive.keys()) if isinstance(archive, np.lib.npyio.NpzFile) else None
            arrays: dict[str, np.ndarray] = {key: archive[key] for key in keys or () if key in KEYS}
    except Exception as error:  # zip, compression and header errors are of many kinds
        raise ValueError(
            f"from_npz: {path} is not a whole .npz file of plain arrays ({error}); write it with "
            "numpy.savez(path, images=..., labels=...)"
        ) from error
    if "images" not in arrays:
        found = f"the keys {keys}" if keys is not None else "a single array"
        raise ValueError(f"from_npz: expected a key 'images' in {path}, found {found}; rename it and save again")
    return arrays
