"""Picture files: finding them, and reading one as uint8 pixels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm", ".pbm")


def find_pictures(paths: list[Path]) -> tuple[list[Path], list[str] | None]:
    """The files that `paths` stand for, and the first-level subfolder each lies in.

    A file stands for itself, a folder for the pictures at any depth in it, sorted by name. The groups are None
    unless every file comes from a subfolder of a given folder.
    """
    files: list[Path] = []
    groups: list[str] = []
    for path in paths:
        if path.is_dir():
            inside = [file.relative_to(path) for file in path.rglob("*") if file.suffix.lower() in SUFFIXES]
            inside = sorted(file for file in inside if not any(part.startswith(".") for part in file.parts))
            if not inside:
                raise ValueError(f"from_files: no images in the folder {path}; looked for {', '.join(SUFFIXES)}")
            files += [path / file for file in inside]
            groups += [file.parts[0] for file in inside if len(file.parts) > 1]
        elif path.exists():
            files.append(path)
        else:
            raise ValueError(
                f"from_files: expected images, or folders of them, got no file or folder {path}; check the path"
            )
    if not files:
        raise ValueError("from_files: expected at least one file or folder, got none")
    return files, groups if len(groups) == len(files) else None


def open_picture(path: Path, image_shape: tuple[int, int, int] | None) -> np.ndarray:
    """One picture file as uint8 (C, H, W), turned upright as its camera noted, the first frame of several."""
    with Image.open(path) as image:
        return to_pixels(ImageOps.exif_transpose(image), image_shape)


def to_pixels(image: Image.Image, image_shape: tuple[int, int, int] | None = None) -> np.ndarray:
    """A picture as uint8 (C, H, W): grey ones have one channel, all others three, unless `image_shape` says.

    To change the size, it is cropped about the centre to the new aspect and resized with antialiasing.
    """
    image = _plain(image)
    if image_shape is not None:
        channels, height, width = image_shape
        image = image.convert("L" if channels == 1 else "RGB")
        image = _fit(image, width, height)
    pixels = np.array(image)
    return pixels[None] if pixels.ndim == 2 else np.ascontiguousarray(pixels.transpose(2, 0, 1))


def _fit(image: Image.Image, width: int, height: int) -> Image.Image:
    """The largest centred part of the wanted aspect, resized; what is cut off leaves no trace."""
    scale = min(image.width / width, image.height / height)
    wide, high = max(1, round(width * scale)), max(1, round(height * scale))
    left, top = (image.width - wide) // 2, (image.height - high) // 2
    part = image.crop((left, top, left + wide, top + high))
    return part if part.size == (width, height) else part.resize((width, height), Image.Resampling.BILINEAR)


def _plain(image: Image.Image) -> Image.Image:
    """Any mode to grey (L) or RGB: transparency onto white, 16-bit levels to the nearest of 256."""
    if image.mode in ("L", "RGB") and "transparency" not in image.info:
        return image
    if image.mode.startswith("I"):
        levels = np.clip(np.asarray(image).astype(np.float64) / 257, 0, 255)
        return Image.fromarray(np.round(levels).astype(np.uint8))
    if image.mode == "F":
        values = np.asarray(image)
        if not (values.min() >= 0 and values.max() <= 1):
            raise ValueError("floating pixels outside [0, 1]")
        return Image.fromarray(np.round(values * 255).astype(np.uint8))
    if image.mode == "1":
        return image.convert("L")
    if image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
        shown = image.convert("RGBA")
        ground = Image.new("RGBA", shown.size, (255, 255, 255, 255))
        grey = image.mode in ("L", "LA", "La")
        return Image.alpha_composite(ground, shown).convert("L" if grey else "RGB")
    return image.convert("RGB")


def as_bytes(pixels: Tensor, where: str) -> Tensor:
    """uint8 as it is, floats in [0, 1] to the nearest of 256 levels; always contiguous."""
    if pixels.dtype.is_floating_point:
        low, high = (value.item() for value in torch.aminmax(pixels))
        if not (low >= 0 and high <= 1):
            raise ValueError(
                f"{where}: expected floats in [0, 1], got {low:g} to {high:g}; rescale them, or give uint8 pixels"
            )
        pixels = (pixels * 255).round().to(torch.uint8)
    elif pixels.dtype == torch.bool:
        pixels = pixels.to(torch.uint8) * 255
    elif pixels.dtype != torch.uint8:
        raise ValueError(f"{where}: expected uint8 or floats in [0, 1], got {pixels.dtype}; convert the pixels first")
    return pixels.contiguous()
