"""Records of a benchmark that never was: numbers from a formula, for tests of pages and tables only."""

import math

from mnemon.evaluation.leaderboard import columns
from mnemon.evaluation.questions import BY_NAME, EXPERIMENT, QUESTIONS, empty_note, write_note
from mnemon.evaluation.results import result

MODELS = ("vae", "vbm-mixture", "vma", "ebmm")
LENGTHS = (1, 16, 256)
SETTINGS = {
    "recall": [{"corruption": kind, "level": level, "reads": reads}
               for kind, levels in (("salt_and_pepper", (0.1, 0.3)), ("half", (1.0,))) for level in levels
               for reads in (1, 3, 10)],
    "capacity_recall": [{"corruption": "salt_and_pepper", "level": 0.1}],
    "resized_recall": [{"size": size, "corruption": "salt_and_pepper", "level": 0.1} for size in (0.5, 1.0, 2.0)],
    "resized_bound": [{"size": size} for size in (0.5, 1.0, 2.0)],
    "distractors": [{"classes": classes, "examples": 4} for classes in (2, 8)],
    "novelty_written": [{"score": "gain"}],
    "novelty_same_class": [{"score": "gain"}],
    "fewshot": [{"ways": ways, "shots": shots, "by": "likelihood"} for ways in (5, 20) for shots in (1, 5)],
}  # fmt: skip


def made_up(question, model, data, value, *, interval=0.1, length=32, floats=1000, note=None, **values):
    asked = BY_NAME[question]
    common = {
        "experiment": EXPERIMENT, "model": model, "data": data, "split": "test", "scored": asked.scored,
        "metric": asked.metric, "bound": asked.bound, "unit": asked.unit, "interval": interval, "num_seeds": 1,
        "seed": 0, "episode_length": length, "memory_floats": floats, "updates": 10,
        "command": f"mnemon bench memory --data {data} --model {model}", "commit": "made-up",
    }  # fmt: skip
    return result(**{**common, "value": value, "note": note or write_note(question), **values})


def unanswered(question, model, data, reason, outcome="does not apply"):
    return made_up(question, model, data, None, interval=None, note=empty_note(question, outcome, reason))


def whole(models=MODELS, data=("made-up digits", "made-up colours"), scale=1.0):
    """A record for every question; `ebmm` has no likelihood, and cannot be asked some."""
    records = []
    for place, name in enumerate(data):
        for rank, model in enumerate(models):
            for question in QUESTIONS:
                if model == "ebmm" and "likelihood" in question.needs:
                    records.append(unanswered(question.name, model, name, "ebmm has no likelihood"))
                    continue
                if model in ("ebmm", "vae") and "resizing" in question.needs:
                    records.append(unanswered(question.name, model, name, f"{model} cannot be resized"))
                    continue
                records += _answers(question, model, name, rank, place, scale)
    return records


def _answers(question, model, data, rank, place, scale):
    lengths = LENGTHS if question.group == "capacity" and "size" not in question.settings else (32,)
    for number, settings in enumerate(SETTINGS.get(question.name, [{}])):
        for length in lengths:
            wave = 1 + 0.2 * math.sin(1 + rank + 3 * place) + 0.05 * number + 0.02 * math.log(length)
            usual = {"nats/frame": -90.0, "per pixel": 0.05, "auroc": 0.7, "share": 0.6}.get(question.unit, 12.0)
            value = wave * (usual if question.ranked else 3.0)
            floats = round(1000 * settings.get("size", 1.0))
            yield made_up(
                question.name, model, data, scale * value, interval=abs(value) * 0.01, length=length, floats=floats,
                note=write_note(question.name, **settings),
            )  # fmt: skip


def joint(*values, data="digits", interval=0.5):
    return [made_up("joint", f"m{i}", data, value, interval=interval) for i, value in enumerate(values)]


def column(records, question="joint", data="digits"):
    return next(c for c in columns(records, data) if c.question.name == question)


def nobody(model):
    return False


def of_fixed_size(*models):
    """Their memory at two lengths of the episode, the same; on data of their own."""
    return [made_up("capacity_recall", m, "sizes", 0.1, length=length) for m in models for length in (16, 256)]
