"""What a memory adds to the nets it shares with a model without one: by made-up numbers, and that nets are shared."""

import math
from collections import Counter

import pytest

from mnemon.evaluation.benchmark.protocol import Protocol
from mnemon.evaluation.gains import gain, gain_sections, known_floors
from mnemon.evaluation.jobs import holds_nothing
from mnemon.evaluation.leaderboard import columns
from mnemon.evaluation.questions import write_note
from mnemon.training.setup import fresh_model
from tests.evaluation.made_up import made_up, unanswered

RECALL = write_note("recall", corruption="salt_and_pepper", level=0.1, reads=3)
FLOORS = {"wise": "plain", "forgetful": "plain", "lonely": "absent"}


def table(question, data="digits", **values):
    """The one column of a question; values: by model, a number with its interval, or a reason to have none."""
    records = [
        unanswered(question, model, data, value)
        if isinstance(value, str)
        else made_up(question, model, data, value[0], interval=value[1], note=RECALL if question == "recall" else None)
        for model, value in values.items()
    ]
    return columns(records, data)


@pytest.mark.parametrize(
    ("own", "other", "value", "outcome"),
    [
        ((-90.0, 1.0), (-95.0, 2.0), 5.0, "better"),
        ((-95.0, 1.0), (-90.0, 2.0), -5.0, "worse"),
        ((-90.0, 1.0), (-92.5, 2.0), 2.5, "level"),
        ((-90.0, 1.0), (-93.0, 2.0), 3.0, "level"),  # intervals that touch
        ((-90.0, 0.0), (-90.0, 0.0), 0.0, "level"),
    ],
)
def test_level_is_whose_intervals_overlap(own, other, value, outcome):
    (column,) = table("joint", wise=own, plain=other)
    found = gain(column, "wise", "plain")
    assert (found.value, found.reach, found.outcome) == (value, own[1] + other[1], outcome)


def test_less_error_is_a_gain():
    (column,) = table("recall", wise=(0.02, 0.001), plain=(0.05, 0.002))
    found = gain(column, "wise", "plain")
    assert math.isclose(found.value, 0.03)
    assert found.outcome == "better"
    assert found.text == "+0.0300 ± 0.0030 ▲"
    assert gain(column, "plain", "wise").text == "-0.0300 ± 0.0030 ▼"


def test_who_has_no_answer_or_no_floor_has_no_gain():
    (column,) = table("joint", wise="does not apply: no", plain=(-90.0, 1.0), lonely=(-80.0, 1.0))
    assert gain(column, "wise", "plain") is None
    assert gain(column, "plain", "wise") is None
    assert gain(column, "lonely", "absent") is None
    whole, by_data = gain_sections({"digits": [column]}, FLOORS)
    assert whole.markdown() == ""
    assert by_data == []


def test_data_sets_are_counted():
    better, worse = {"wise": (-90.0, 1.0), "plain": (-99.0, 1.0)}, {"wise": (-99.0, 1.0), "plain": (-90.0, 1.0)}
    tables = {
        "letters": table("joint", "letters", **better, forgetful=(-99.5, 1.0)),
        "digits": table("joint", "digits", **better) + table("recall", "digits", wise=(0.1, 0.0), plain=(0.2, 0.0)),
        "clothes": table("joint", "clothes", **worse, forgetful="does not apply: no"),
    }
    whole, by_data = gain_sections(tables, FLOORS)
    assert list(whole.heads[2:]) == ["Joint bound", "Recall of damaged frames (salt and pepper 0.1, 3 reads)"]
    assert whole.rows == [
        ["`wise`", "`plain`", "2 / 0 / 1", "1 / 0 / 0"],
        ["`forgetful`", "`plain`", "0 / 1 / 0", "n/a"],
    ]
    assert "No memory is better" not in whole.note
    assert [one.title for one in by_data] == ["letters", "digits", "clothes"]
    assert by_data[0].rows == [["`wise`", "`plain`", "+9.0 ± 2.0 ▲"], ["`forgetful`", "`plain`", "-0.5 ± 2.0"]]
    assert by_data[2].rows == [["`wise`", "`plain`", "-9.0 ± 2.0 ▼"]]
    none_better, _ = gain_sections({"clothes": tables["clothes"]}, FLOORS)
    assert none_better.note.endswith("No memory is better than its floor by: Joint bound.")


@pytest.mark.parametrize(("model", "floor"), known_floors().items())
def test_a_floor_has_no_memory_and_the_same_nets(model, floor):
    """The decoder to the last weight; the encoder but for the layers that give the code."""
    assert holds_nothing(floor)
    assert floor not in known_floors()
    protocol = Protocol.load()
    for data in protocol.sets:
        nets, floors = (fresh_model(protocol.config_by_catalogue(data, name, seed=0)).codec for name in (model, floor))
        assert weights(nets.decoder) == weights(floors.decoder)
        own, floors_own = weights(nets.encoder), weights(floors.encoder)
        # the weights and the biases of the encoder's last layer
        assert (floors_own - own).total() <= 2
        assert (own - floors_own).total() <= 2


def weights(net):
    return Counter(tuple(weight.shape) for weight in net.parameters())
