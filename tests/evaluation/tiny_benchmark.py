"""A protocol of the benchmark that takes seconds."""

import copy

from mnemon.evaluation.benchmark.protocol import Protocol


def tiny(**changes):
    """The quick protocol, smaller still: two epochs of a few updates, everything asked of a few frames."""
    tables = copy.deepcopy(dict(Protocol.load(quick=True).tables))
    tables |= {"updates": 20, "train_images": 240}
    tables["base"]["data"] |= {"episode_length": 4, "num_classes": 2, "batch_size": 2, "batches_per_epoch": 10}
    tables["base"]["training"] |= {"checkpoint_every": 6}
    tables["base"]["model"] |= {"num_filters": 4}
    tables["models"]["vbm-mixture"]["model"] |= {"num_clusters": 2, "num_steps": 2}
    tables["sizes"] |= {
        "test_images": 32, "episodes": 2, "samples": 1, "reads": [1, 2], "recall_episodes": 2, "lengths": [1, 4],
        "clusters": [1, 2], "kept": [2, 4], "distractors": [1, 2], "fewshot": [[2, 1]], "fewshot_queries": 8,
        "judge_steps": 3, "repeats": 2, "corruptions": [["salt_and_pepper", 0.1], ["half", 1.0]],
    }  # fmt: skip
    for name, change in changes.items():
        tables["models"][name] |= change
    return Protocol.of("memory-quick", tables)
