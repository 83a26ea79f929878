"""Characters of the fonts that come with matplotlib, at 28 x 28: many classes of few examples, nothing to download.

A class is one character and has 12 renderings: the faces that have the character, then slightly turned, slanted,
stretched or thickened copies of them. Characters that look alike are one class, and the test split holds base letters
(with all their cases, accents and look-alikes) that training never shows.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.ft2font import FT2Font
from numpy.typing import ArrayLike
from PIL import Image, ImageDraw, ImageFont

from mnemon.core.state import atomic_path
from mnemon.data.cache import cache_folder

RENDERINGS = 12
SIDE = 28
SPLITS = ("train", "test", "all")

FONTS = Path(matplotlib.get_data_path(), "fonts", "ttf")
# Four families, upright before bold before italic: of a character that all sixteen faces have, the first twelve are
# used. Left out: LastResort (boxes that stand for missing characters), cm* (their own encodings, few characters),
# STIXSiz* and STIXNonUni* (pieces of brackets, private code points), DejaVu*Display (a few mathematical characters).
FACES = (
    *("DejaVuSans", "DejaVuSerif", "STIXGeneral", "DejaVuSansMono"),
    *("DejaVuSans-Bold", "DejaVuSerif-Bold", "STIXGeneralBol", "DejaVuSansMono-Bold"),
    *("DejaVuSans-Oblique", "DejaVuSerif-Italic", "STIXGeneralItalic", "DejaVuSansMono-Oblique"),
    *("DejaVuSans-BoldOblique", "DejaVuSerif-BoldItalic", "STIXGeneralBolIta", "DejaVuSansMono-BoldOblique"),
)
UPRIGHT = FACES[:4]
MIN_FACES = 4

CATEGORIES = frozenset(("Lu", "Ll", "Lt", "Lo", "Nd", "Nl", "No", "Pd", "Ps", "Pe", "Po", "Sc", "Sm", "So"))
# The same letter again in another style, size or width, which the faces and the fitting to the image already give.
RESTYLED = ("<font>", "<super>", "<sub>", "<noBreak>", "<isolated>", "<wide>", "<narrow>", "<small>")
# Patterns of dots and bars finer than 28 pixels, or told apart by position and size only: pieces of brackets, boxes and
# blocks, trigrams, braille, hexagrams, tetragrams, dominoes, playing cards, faces.
PATTERNS = (
    *((0x239B, 0x23BD), (0x2500, 0x259F), (0x2630, 0x2637), (0x2800, 0x28FF), (0x4DC0, 0x4DFF)),
    *((0x1D300, 0x1D356), (0x1F030, 0x1F093), (0x1F0A0, 0x1F0FF), (0x1F600, 0x1F64F)),
)

EM = 96  # pixels per em before the fit
OVERSAMPLE = 3
THICKEST = 0.035  # stroke added on either side at most, relative to the character's longer side
MARGIN = 2.5
MIN_EXTENT = 0.3  # em: smaller characters are marks, not shapes
MIN_INK = 0.06  # share of the image
# Relative squared differences below which two renderings count as one, two characters are one class, and two
# characters are similar enough to stay on one side of the split.
SAME_RENDERING, SAME_SHAPE, SIMILAR_SHAPE = 0.01, 0.06, 0.1
TEST_SHARE = 0.2


def load_glyphs(split: str = "train", *, cache: Path | None = None) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    """Images, labels and characters of a split: "train", "test" or "all"; ink is 255 on 0.

    Rendered on the first call and kept as `glyphs-v1-<matplotlib version>.npz` in the folder `cache`, by default
    `cache_folder()`. A folder that cannot be written to costs the rendering on every call, and nothing else.
    Shapes: images uint8 (12 n, 28, 28), labels int64 (12 n) in 0..n-1, n characters; row = 12 label + rendering
    """
    if split not in SPLITS:
        raise ValueError(f"load_glyphs: expected split one of {', '.join(SPLITS)}, got {split!r}; choose one of these")
    path = Path(cache or cache_folder()) / f"glyphs-v1-{matplotlib.__version__}.npz"
    stored = _read(path)
    if stored is None:
        stored = _make()
        _write(path, *stored)
    images, codes, in_test = stored
    chosen = np.ones_like(in_test) if split == "all" else in_test == (split == "test")
    labels = np.repeat(np.arange(chosen.sum(), dtype=np.int64), RENDERINGS)
    return images[chosen].reshape(-1, SIDE, SIDE), labels, tuple(chr(code) for code in codes[chosen])


def render(characters: Sequence[str]) -> np.ndarray:
    """The 12 distinct renderings of each character, the same bytes on every call. Shapes: uint8 (n, 12, 28, 28)"""
    images = np.zeros((len(characters), RENDERINGS, SIDE, SIDE), np.uint8)
    for row, character in enumerate(characters):
        found = 0
        for image in _attempts(character):
            if not (_differences(images[row, :found], image[None]) < SAME_RENDERING).any():
                images[row, found] = image
                found += 1
            if found == RENDERINGS:
                break
        else:
            raise ValueError(f"render: expected {RENDERINGS} renderings of {character!r}, got {found}; leave it out")
    return images


def _make() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Images (n, 12, 28, 28), code points (n) and test membership (n) of every class."""
    characters = _candidates()
    difference = _compare(characters)
    kept = _first_of_each(difference < SAME_SHAPE)
    in_test = _assign_test(_unite(characters, difference < SIMILAR_SHAPE), kept)
    classes = [characters[i] for i in kept]
    images = render(classes)
    _render_face.cache_clear()
    return images, np.array([ord(c) for c in classes], np.int64), in_test


def _candidates() -> list[str]:
    counts = Counter(character for face in FACES for character in _charset(face))
    return [c for c in sorted(counts) if counts[c] >= MIN_FACES and _is_text(c) and _has_shape(c)]


def _is_text(character: str) -> bool:
    return (
        unicodedata.category(character) in CATEGORIES
        and not unicodedata.decomposition(character).startswith(RESTYLED)
        and "SMALL CAPITAL" not in unicodedata.name(character, "")
        and not any(first <= ord(character) <= last for first, last in PATTERNS)
    )


def _has_shape(character: str) -> bool:
    """Whether the first face that has the character draws more than a speck."""
    face = next(face for face in FACES if character in _charset(face))
    large = max(_draw(character, face).size) >= MIN_EXTENT * EM
    return large and bool(_render_face(character, face).mean() >= 255 * MIN_INK)


def _compare(characters: Sequence[str]) -> np.ndarray:
    """Least relative difference of all pairs over the upright faces that have both, inf without one. Shapes: (n, n)"""
    difference = np.full((len(characters), len(characters)), np.inf)
    for face in UPRIGHT:
        rows = np.array([i for i, c in enumerate(characters) if c in _charset(face)], np.int64)
        images = np.array([_render_face(characters[i], face) for i in rows]).reshape(-1, SIDE, SIDE)
        block = np.ix_(rows, rows)
        difference[block] = np.minimum(difference[block], _differences(images, images))
    return difference


def _first_of_each(alike: np.ndarray) -> np.ndarray:
    """Indices of the characters that look like none kept before them."""
    kept: list[int] = []
    for i, row in enumerate(alike):
        if not row[kept].any():
            kept.append(i)
    return np.array(kept)


def _base(character: str) -> str:
    """First base character, without case, accents and compatibility forms: 'á', 'Ⓐ' -> 'a'."""
    folded = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", character).casefold())
    bases = [c for c in folded if not unicodedata.combining(c) and not c.isspace()]
    return bases[0] if bases else character


def _stem(character: str) -> str:
    """The character without what its Unicode name adds, which NFKD does not take off: 'ø' -> 'o'."""
    try:
        return unicodedata.lookup(unicodedata.name(character, "").split(" WITH ")[0])
    except KeyError:
        return character


def _unite(characters: Sequence[str], similar: np.ndarray) -> list[str]:
    """Each character's group: its base letter, those of its stem and of similar characters being one (union-find)."""
    bases, stems = [_base(c) for c in characters], [_base(_stem(c)) for c in characters]
    parent = {base: base for base in (*bases, *stems)}

    def root(base: str) -> str:
        while parent[base] != base:
            base = parent[base]
        return base

    shapes = ((bases[i], bases[j]) for i, j in zip(*np.nonzero(np.triu(similar, 1)), strict=True))
    for pair in (*zip(bases, stems, strict=True), *shapes):
        first, second = sorted(map(root, pair))
        parent[second] = first
    return [root(base) for base in bases]


def _assign_test(groups: Sequence[str], kept: np.ndarray) -> np.ndarray:
    """Whole groups into the test split, in the order of their hashes, as long as they fit in a fifth of the classes."""
    sizes = Counter(groups[i] for i in kept)
    room, chosen = round(TEST_SHARE * len(kept)), set()
    for group in sorted(sizes, key=lambda name: hashlib.sha256(name.encode()).digest()):
        if sizes[group] <= room:
            room -= sizes[group]
            chosen.add(group)
    return np.array([groups[i] in chosen for i in kept])


@cache
def _charset(face: str) -> frozenset[str]:
    return frozenset(chr(code) for code in FT2Font(str(FONTS / f"{face}.ttf")).get_charmap())


@cache
def _font(face: str) -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(str(FONTS / f"{face}.ttf"), EM, layout_engine=ImageFont.Layout.BASIC)


def _attempts(character: str) -> Iterator[np.ndarray]:
    """Every face as it is, then varied copies of the faces in turn, drawn from a stream seeded by the code point."""
    faces = [face for face in FACES if character in _charset(face) and _render_face(character, face).any()]
    yield from (_render_face(character, face) for face in faces)
    stream = np.random.RandomState(ord(character))
    for face in faces * RENDERINGS:
        thickest = 0.0 if "Bol" in face else THICKEST * max(_draw(character, face).size)
        spare = stream.uniform(0, 1)
        yield _fit(
            _draw(character, face, stroke=int(stream.uniform(0, 1) * thickest)),
            angle=np.deg2rad(stream.uniform(-8, 8)),
            slant=stream.uniform(-0.15, 0.2),
            width=np.exp(stream.uniform(-0.15, 0.15)),
            margin=MARGIN - 0.5 + spare,
            shift=spare * stream.uniform(-1, 1, 2),
        )


@lru_cache(maxsize=1 << 16)
def _render_face(character: str, face: str) -> np.ndarray:
    return _fit(_draw(character, face))


def _draw(character: str, face: str, stroke: int = 0) -> Image.Image:
    """The character cropped to its ink (no pixels for a blank), `stroke` pixels thicker all round."""
    font = _font(face)
    left, top, right, bottom = font.getbbox(character, stroke_width=stroke)
    image = Image.new("L", (int(right - left) + 4, int(bottom - top) + 4))
    ImageDraw.Draw(image).text((2 - left, 2 - top), character, fill=255, font=font, stroke_width=stroke)
    return image.crop(image.getbbox() or (0, 0, 0, 0))


def _fit(
    mask: Image.Image,
    angle: float = 0,
    slant: float = 0,
    width: float = 1,
    margin: float = MARGIN,
    shift: ArrayLike = 0,
) -> np.ndarray:
    """Widen, slant and turn the ink, scale its longer side to the image less the margins, and centre it.

    Shapes: (28, 28); the angle in radians, margin and shift in pixels of the image
    """
    ink = np.asarray(mask) > 64
    if not ink.any():
        return np.zeros((SIDE, SIDE), np.uint8)
    cos, sin = np.cos(angle), np.sin(angle)
    forward = np.array([[cos, -sin], [sin, cos]]) @ np.array([[width, -slant], [0.0, 1.0]])
    rows = np.flatnonzero(ink.any(1))
    first, last = ink.argmax(1)[rows], ink.shape[1] - ink[:, ::-1].argmax(1)[rows]
    outline = np.stack([np.tile(np.concatenate([first, last]), 2), np.concatenate([rows, rows, rows + 1, rows + 1])])
    placed = forward @ outline
    low, high = placed.min(1), placed.max(1)
    canvas = SIDE * OVERSAMPLE
    scale = OVERSAMPLE * (SIDE - 2 * margin) / (high - low).max()
    backward = np.linalg.inv(scale * forward)
    centre = np.full(2, canvas / 2) + OVERSAMPLE * np.asarray(shift)
    offset = np.linalg.inv(forward) @ ((low + high) / 2) - backward @ centre
    affine = (*backward[0], offset[0], *backward[1], offset[1])
    large = mask.transform((canvas, canvas), Image.Transform.AFFINE, affine, Image.Resampling.BILINEAR)
    return np.asarray(large.reduce(OVERSAMPLE))


def _differences(images: np.ndarray, others: np.ndarray) -> np.ndarray:
    """|a - b|^2 / (|a|^2 + |b|^2) of all pairs, from exact integers. Shapes: (n, 28, 28), (m, 28, 28) -> (n, m)"""
    a, b = (x.reshape(len(x), SIDE * SIDE).astype(np.float64) for x in (images, others))
    energy = (a * a).sum(1)[:, None] + (b * b).sum(1)
    return 1 - 2 * (a @ b.T) / np.maximum(energy, 1)


def _read(path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """What `_write` wrote, or None where there is no whole file."""
    try:
        with np.load(path, allow_pickle=False) as file:
            images, codes, in_test = file["images"], file["codes"], file["in_test"]
    except Exception:  # a damaged file fails in as many ways as zip, zlib and npy have; all mean: render again
        return None
    shapes = (images.shape, codes.shape, in_test.shape)
    whole = shapes == ((codes.size, RENDERINGS, SIDE, SIDE), (codes.size,), (codes.size,)) and codes.size > 0
    kinds = (images.dtype, codes.dtype, in_test.dtype) == (np.uint8, np.int64, np.bool_)
    return (images, codes, in_test) if whole and kinds else None


def _write(path: Path, images: np.ndarray, codes: np.ndarray, in_test: np.ndarray) -> None:
    """Keep the set for the next call, where the folder allows it."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_path(path) as temporary, open(temporary, "wb") as file:
            np.savez_compressed(file, images=images, codes=codes, in_test=in_test)
