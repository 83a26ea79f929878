"""mnemon write, read, sample, score: a memory of the user's own images."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import torch
import typer
from torch import Tensor

from mnemon.commands.common import (
    Device,
    Images,
    Invert,
    Json,
    Quiet,
    Run,
    Seed,
    Skip,
    check_file,
    cluster_options,
    make_console,
    make_folder,
    make_notes,
    pick_device,
    plain_errors,
    print_json,
    read_images,
    say,
)

Memory = Annotated[Path, typer.Argument(help="A memory file, made by mnemon write.")]


@plain_errors
def write(
    run: Run,
    images: Images,
    out: Annotated[Path, typer.Option("--out", "-o", help="Memory file to write.")] = Path("memory.safetensors"),
    onto: Annotated[Path | None, typer.Option(help="A memory to write on into, with all it holds.")] = None,
    clusters: Annotated[int | None, typer.Option(help="Clusters of a mixture or tree memory.", min=1)] = None,
    skip_unreadable: Skip = False,
    invert: Invert = False,
    seed: Seed = 0,
    device: Device = "auto",
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Write images into a memory, in one pass, without training.

    Example: mnemon write mixture-characters my-letters/ -o letters.safetensors
    """
    from mnemon.pretrained import load_memory, load_run, save_memory

    check_file(out)
    console = make_console(quiet or as_json)
    place = pick_device(device)
    model, config = load_run(run, device=place)
    x, kept = read_images(images, config, skip=skip_unreadable, invert=invert, notes=make_notes(quiet))
    options = cluster_options(model, config, clusters)
    if onto is not None:
        options["prior"] = load_memory(onto, model, device=place)
    generator = torch.Generator(place).manual_seed(seed)
    began = time.perf_counter()
    with torch.no_grad():
        state = model.write(x.to(place), generator=generator, **options)
    seconds = time.perf_counter() - began
    save_memory(out, state, model)
    size, raw = state.nbytes, x.numel()
    if as_json:
        print_json({"memory": str(out), "images": len(kept), "bytes": size, "raw_bytes": raw, "seconds": seconds})
        return
    told = f"{out}: {len(kept)} images in {1e3 * seconds:.0f} ms, what the first call prepares included"
    say(console, f"{told}; {size:,} bytes, the images take {raw:,}")


@plain_errors
def read(
    run: Run,
    memory: Memory,
    images: Images,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the recalled images.")] = Path("recalled"),
    steps: Annotated[int, typer.Option(help="Reads, each cued by the one before.", min=1)] = 1,
    observed: Annotated[
        str | None,
        typer.Option(help="Which half of the cues to trust: left, right, top or bottom; the rest is recalled."),
    ] = None,
    skip_unreadable: Skip = False,
    invert: Invert = False,
    device: Device = "auto",
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Recall images through a memory: noisy or half-erased ones come back as what the memory makes of them.

    Example: mnemon read mixture-characters letters.safetensors noisy/ --steps 3 -o recalled
    """
    from mnemon import plots
    from mnemon.pretrained import load_memory, load_run

    console = make_console(quiet or as_json)
    place = pick_device(device)
    model, config = load_run(run, device=place)
    state = load_memory(memory, model, device=place)
    cue, kept = read_images(images, config, skip=skip_unreadable, invert=invert, notes=make_notes(quiet))
    known = None if observed is None else _half(observed, cue.shape[-2:]).to(place)
    with torch.no_grad():
        recalled = model.read(state, cue.to(place), observed=known, steps=steps).cpu()
    if known is not None:
        recalled = torch.where(known.cpu(), cue, recalled)
    make_folder(out)
    files = []
    for number, (image, source) in enumerate(zip(recalled, kept, strict=True)):
        files.append(out / f"{number:03d}-{source.stem}.png")
        plots.save_image(1 - image if invert else image, files[-1])
    shown = cue if known is None else torch.where(known.cpu(), cue, 0.25)  # what was not to be trusted is greyed
    plots.save_rows({"cue": shown[:16], "recalled": recalled[:16]}, out / "rows.png")
    if as_json:
        print_json({"folder": str(out), "files": [str(file) for file in files]})
        return
    say(console, f"{out}: {len(files)} recalled images, and rows.png with cues and recalls side by side")


@plain_errors
def sample(
    run: Run,
    memory: Memory,
    number: Annotated[int, typer.Option("--number", "-n", help="How many images.", min=1)] = 16,
    steps: Annotated[int, typer.Option(help="Iterative reads that follow each sample.", min=0)] = 0,
    out: Annotated[Path, typer.Option("--out", "-o", help="PNG file.")] = Path("samples.png"),
    invert: Invert = False,
    seed: Seed = 0,
    device: Device = "auto",
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Generate new images from a memory; with --steps, each row shows a sample and its iterative reads.

    Example: mnemon sample mixture-characters letters.safetensors -n 32 -o samples.png
    """
    from mnemon import plots
    from mnemon.models.reading import iterate
    from mnemon.pretrained import load_memory, load_run

    check_file(out, ".png")
    place = pick_device(device)
    model, _ = load_run(run, device=place)
    state = load_memory(memory, model, device=place)
    generator = torch.Generator(place).manual_seed(seed)
    with torch.no_grad():
        if steps:
            images = iterate(model, state, number, steps, generator=generator)
        else:
            images = model.sample(state, number, generator=generator)
    plots.save_grid(1 - images.cpu() if invert else images.cpu(), out)
    if as_json:
        print_json({"file": str(out), "images": number, "steps": steps})
    else:
        say(make_console(quiet), f"{out}: {number} images")


@plain_errors
def score(
    run: Run,
    memory: Memory,
    images: Images,
    samples: Annotated[int, typer.Option(help="Importance samples per image.", min=1)] = 16,
    skip_unreadable: Skip = False,
    invert: Invert = False,
    seed: Seed = 0,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Say of each image how much more likely the memory makes it: log p(x | memory) - log p(x | empty memory), nats.

    Example: mnemon score mixture-characters letters.safetensors new/
    """
    from mnemon.evaluation.novelty import memory_gain
    from mnemon.pretrained import load_memory, load_run

    console = make_console(as_json)
    place = pick_device(device)
    model, config = load_run(run, device=place)
    state = load_memory(memory, model, device=place)
    x, kept = read_images(images, config, skip=skip_unreadable, invert=invert, notes=make_notes(False))
    with torch.no_grad():
        gains = memory_gain(model, state, x.to(place), torch.Generator(place).manual_seed(seed), samples).cpu()
    if as_json:
        print_json([{"file": str(file), "gain": float(gain)} for file, gain in zip(kept, gains, strict=True)])
        return
    for file, gain in zip(kept, gains, strict=True):
        say(console, f"{float(gain):10.2f}  {file}")
    say(make_notes(False), "nats; the higher, the more like what was written: compare with scores of images that were")


def _half(side: str, size: torch.Size) -> Tensor:
    """Which pixels count. Shapes: -> (H, W)"""
    height, width = size
    rows, columns = torch.arange(height)[:, None], torch.arange(width)
    halves = {
        "left": (columns < width // 2).expand(height, width),
        "right": (columns >= width // 2).expand(height, width),
        "top": (rows < height // 2).expand(height, width),
        "bottom": (rows >= height // 2).expand(height, width),
    }
    if side not in halves:
        raise ValueError(f"--observed: expected left, right, top or bottom, got {side!r}")
    return halves[side]
