import unicodedata
from pathlib import Path

import matplotlib
import numpy as np
import pytest

from mnemon.data import glyphs
from mnemon.data.cache import cache_folder
from mnemon.data.glyphs import RENDERINGS, SIDE, load_glyphs, render


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("cache") / "made" / "on demand"


@pytest.fixture(scope="module")
def everything(folder):
    return load_glyphs("all", cache=folder)


@pytest.fixture
def small(monkeypatch):
    """A set of three classes in place of the whole one, and the list of the times it was rendered."""
    calls = []

    def make():
        calls.append(1)
        return render("ABж"), np.array([ord(c) for c in "ABж"], np.int64), np.array([False, True, False])

    monkeypatch.setattr(glyphs, "_make", make)
    return calls


def cache_file(folder: Path) -> Path:
    return folder / f"glyphs-v1-{matplotlib.__version__}.npz"


def bases(character: str) -> set[str]:
    """First base letters of a character, compatibility forms taken off before or after the case."""
    forms = (character, character.casefold(), unicodedata.normalize("NFKD", character).casefold())
    return {unicodedata.normalize("NFKD", form).strip()[:1].casefold() for form in forms} - {""}


def test_shapes_and_order(everything):
    images, labels, characters = everything
    assert images.dtype == np.uint8
    assert labels.dtype == np.int64
    assert len(characters) >= 1500
    assert len(set(characters)) == len(characters)
    assert images.shape == (RENDERINGS * len(characters), SIDE, SIDE)
    np.testing.assert_array_equal(labels, np.arange(len(images)) // RENDERINGS)
    assert set("0258AEKRfgkt?@&ßñΔΩЖЯ") <= set(characters)


def test_every_class_has_twelve_distinct_renderings_of_its_own(everything):
    images, _, characters = everything
    sets = [frozenset(image.tobytes() for image in rows) for rows in images.reshape(-1, RENDERINGS, SIDE, SIDE)]
    assert {len(each) for each in sets} == {RENDERINGS}
    assert len(frozenset.union(*sets)) == RENDERINGS * len(characters)


def test_ink_fills_the_image_inside_the_margin(everything):
    images = everything[0]
    share = images.mean((1, 2)) / 255
    assert share.min() > 0.03
    assert share.max() < 0.75
    inner = images[:, 2:-2, 2:-2]
    edge = images.sum((1, 2), dtype=np.int64) - inner.sum((1, 2), dtype=np.int64)
    assert (edge / images.sum((1, 2))).max() < 0.05
    dark = images > 64
    rows, columns = dark.any(2), dark.any(1)
    extents = np.stack([SIDE - side.argmax(1) - side[:, ::-1].argmax(1) for side in (rows, columns)])
    assert extents.max(0).min() >= SIDE - 8
    centres = np.stack([(side.argmax(1) + SIDE - 1 - side[:, ::-1].argmax(1)) / 2 for side in (rows, columns)])
    assert np.abs(centres - (SIDE - 1) / 2).max() <= 2


def test_marks_blanks_and_styles_are_left_out(everything):
    characters = set(everything[2])
    assert not characters & set(" .,·\u00a0\u0301\u2800─█¹ₐ𝐀ᴀʰ")


def test_splits_share_no_base_letter(folder, everything):
    train, test = (load_glyphs(split, cache=folder)[2] for split in ("train", "test"))
    assert sorted(train + test) == sorted(everything[2])
    assert len(test) == pytest.approx(0.2 * len(everything[2]), rel=0.1)
    assert not set().union(*map(bases, train)) & set().union(*map(bases, test))


def test_split_rows_are_those_of_the_whole(folder, everything):
    images, _, characters = everything
    test_images, test_labels, test_characters = load_glyphs("test", cache=folder)
    rows = images.reshape(-1, RENDERINGS, SIDE, SIDE)[[characters.index(c) for c in test_characters]]
    np.testing.assert_array_equal(test_images, rows.reshape(-1, SIDE, SIDE))
    np.testing.assert_array_equal(test_labels, np.repeat(np.arange(len(test_characters)), RENDERINGS))


# Latin, Greek and Cyrillic
@pytest.mark.parametrize(
    "alike", ["A\u0391\u0410", "B\u0392\u0412", "H\u0397\u041d", "M\u039c\u041c", "p\u0440", "T\u03a4\u0422"]
)
def test_homoglyphs_are_one_class_on_one_side(folder, everything, alike):
    assert set(alike) & set(everything[2]) == {alike[0]}
    letters = {letter for c in alike for letter in bases(c)}
    sides = [any(bases(c) & letters for c in load_glyphs(split, cache=folder)[2]) for split in ("train", "test")]
    assert sum(sides) == 1


def test_similar_shapes_stay_on_one_side(folder):
    train, test = (set(load_glyphs(split, cache=folder)[2]) for split in ("train", "test"))
    for first, second in ("oø", "oO", "dđ", "hħ", "lł"):
        assert not (first in train and second in test)
        assert not (first in test and second in train)


def test_rendering_again_gives_the_same_bytes(everything):
    images, _, characters = everything
    for c in "AЖع⇒":
        glyphs._render_face.cache_clear()
        row = characters.index(c) * RENDERINGS
        np.testing.assert_array_equal(render(c)[0], images[row : row + RENDERINGS])


def test_a_character_no_face_has():
    with pytest.raises(ValueError, match="expected 12 renderings of '漢', got 0"):
        render("漢")


def test_the_cache_is_read(small, tmp_path):
    first = load_glyphs("train", cache=tmp_path)
    again = load_glyphs("train", cache=tmp_path)
    assert len(small) == 1
    assert first[2] == again[2] == ("A", "ж")
    np.testing.assert_array_equal(first[0], again[0])
    assert [path.name for path in tmp_path.iterdir()] == [cache_file(tmp_path).name]


@pytest.mark.parametrize("damage", ["cut", "noise", "empty", "missing", "short", "pickle", "array"])
def test_a_damaged_cache_is_made_again(small, tmp_path, damage):
    path = cache_file(tmp_path)
    load_glyphs(cache=tmp_path)
    whole = path.read_bytes()
    parts = dict(np.load(path))
    if damage == "cut":
        path.write_bytes(whole[: len(whole) // 2])
    elif damage == "noise":
        path.write_bytes(whole[:200] + bytes(200) + whole[400:])
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "missing":
        np.savez(path, images=parts["images"], codes=parts["codes"])
    elif damage == "short":
        np.savez(path, **{**parts, "images": parts["images"][:-1]})
    elif damage == "pickle":
        np.savez(path, **{**parts, "codes": np.array([{}, {}, {}], object)})
    else:
        with open(path, "wb") as file:
            np.save(file, parts["images"])
    assert load_glyphs("all", cache=tmp_path)[2] == ("A", "B", "ж")
    assert len(small) == 2
    load_glyphs(cache=tmp_path)
    assert len(small) == 2


def test_a_folder_that_cannot_be_written_to_is_no_error(small, tmp_path):
    (tmp_path / "file").write_text("")
    for _ in range(2):
        assert load_glyphs("test", cache=tmp_path / "file" / "folder")[2] == ("B",)
    assert len(small) == 2


def test_cache_folder(small, tmp_path, monkeypatch):
    monkeypatch.setenv("MNEMON_CACHE", str(tmp_path / "chosen"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "shared"))
    assert cache_folder() == tmp_path / "chosen"
    load_glyphs()
    assert cache_file(tmp_path / "chosen").is_file()
    monkeypatch.delenv("MNEMON_CACHE")
    assert cache_folder() == tmp_path / "shared" / "mnemon"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "mnemon"


def test_unknown_split():
    with pytest.raises(ValueError, match="expected split one of train, test, all, got 'valid'"):
        load_glyphs("valid")
