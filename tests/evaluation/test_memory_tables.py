"""Tables of what memories hold: which numbers they show, and which of other parts they leave alone."""

from mnemon.evaluation.denoising import Point
from mnemon.evaluation.memory_tables import conditional_section, denoising_section, lengths_section
from mnemon.evaluation.tables import bounds_section
from tests.evaluation.test_tables import record

KPP = {"experiment": "kpp-mnist", "model": "kanerva-pp", "data": "fixed_mnist", "memory_floats": 12288}
WRITTEN = "the scored frames are those that were written"


def bound(value, note, **more):
    return record(**{**KPP, "metric": "bound", "bound": "conditional", "value": value, "note": note, **more})


def of_length(value, length, encoded, scored="written", **more):
    return bound(value, f"lengths: {length} frames; scored frames encoded {encoded}", episode_length=length,
                 scored=scored, **more)  # fmt: skip


def test_a_conditional_bound_stands_beside_the_papers_and_its_parts():
    records = [
        bound(-91.0, f"{WRITTEN}; encoded together", paper_value=-41.58),
        record(**KPP, metric="reconstruction", value=-58.9, bound=None),
        record(**KPP, metric="address_kl", value=6.4, bound=None),
        record(**KPP, metric="no_bound", value=-70.5, bound=None, note="NO BOUND: one noise"),
        of_length(-11.0, 5, "alone"),
        bound(-12.0, "episodes of 5 classes x 12"),
        bound(-13.0, "log |M| = 7.6", episode_length=2048),
        record(**KPP, metric="address_kl", value=7.4, bound=None, episode_length=2048),
        bound(-14.0, "log |M| = 7.6", num_samples=4),
    ]
    first, second = conditional_section(records).cells
    assert first[:3] == ["kpp-mnist", "fixed_mnist", "64"]
    assert first[4:] == ["together", "-91.0 ± 0.5", "", "", "-58.9 ± 0.5", "", "6.4 ± 0.5", "10"]
    assert second[4:8] == ["shared noise: NO BOUND", "-70.5 ± 0.5", "", "41.58 nats"]
    (alone,) = conditional_section([r for r in records if r["metric"] != "no_bound"]).cells
    assert alone[5:8] == ["-91.0 ± 0.5", "", "41.58 nats"]


def test_models_with_a_joint_bound_and_no_paper_stay_in_the_first_table():
    joint = record(metric="bound", bound="joint", value=-100.0)
    conditional = record(metric="bound", bound="conditional", value=-97.0, note=WRITTEN)
    twin = record(metric="bound", bound="conditional", value=-5.0, scored="same_class", note="lengths: 64 frames; "
                  "scored frames encoded alone", episode_length=64)  # fmt: skip
    bits = record(metric="bits_per_dim", bound="conditional", value=9.0, note=twin["note"])
    assert not conditional_section([joint, conditional]).rows
    (row,) = bounds_section([joint, conditional, twin, bits]).cells
    assert "-97.0 ± 0.5" in row
    assert not {"-5.0 ± 0.5", "9.000"} & {*row}


def test_lengths_are_columns_and_twins_rows():
    records = [of_length(-7.0, 1, "alone"), of_length(-8.0, 64, "alone"), of_length(-9.0, 64, "together"),
               of_length(-99.0, 64, "alone", scored="same_class"), bound(-1.0, WRITTEN)]  # fmt: skip
    section = lengths_section(records)
    assert list(section.heads)[-2:] == ["1", "64"]
    assert [row[4:] for row in section.cells] == [
        ["written", "alone", "-7.0 ± 0.5", "-8.0 ± 0.5"],
        ["written", "together", "", "-9.0 ± 0.5"],
        ["same class", "alone", "", "-99.0 ± 0.5"],
    ]


def test_trainings_of_one_preset_stand_apart():
    both = [of_length(-7.0, 1, "alone"), of_length(-8.0, 1, "alone", updates=20)]
    assert [row[2::4] for row in lengths_section(both).cells] == [["10", "-7.0 ± 0.5"], ["20", "-8.0 ± 0.5"]]


def test_denoising_shows_the_last_read_beside_the_noisy_images():
    def point(level, reads, value):
        metric = "mse_denoised" if reads else "mse_noisy"
        note = Point("speckle", level, reads).note()
        return record(**KPP, metric=metric, value=value, unit="per pixel", note=note, interval=0.01)

    records = [point(*values) for values in ((0.2, 0, 0.5), (0.2, 1, 0.4), (0.2, 10, 0.3), (0.4, 0, 0.8))]
    section = denoising_section([*records, record(metric="bound", bound="joint", value=1.0)])
    assert [row[2:] for row in section.cells] == [
        ["level of the noise", "", "", "0.2", "0.4"],
        ["noisy", "", "", "0.5000", "0.8000"],
        ["kpp-mnist", "64", "10", "0.3000 ± 0.0100", ""],
    ]
    longer = {**records[2], "updates": 20, "value": 0.1}
    cells = denoising_section([records[2], longer]).cells
    assert [row[4:] for row in cells] == [["", "0.2"], ["", ""], ["10", "0.3000 ± 0.0100"], ["20", "0.1000 ± 0.0100"]]
    assert denoising_section([]).rows == []
