import dataclasses
import math

import pandas as pd
import pytest

from nbs_lib.publish import results


@pytest.mark.parametrize(
    ("cells", "name"),
    [
        ({"loss": "ce"}, "CE"),
        (
            {"loss": "ce", "scale": None, "margin": math.nan, "sample_margin": 0.5, "freeze_prototypes": ""},
            "CE + 0.5Rsm",
        ),
        ({"loss": "normface", "scale": 10.0, "sample_margin": 0.5}, "NormFace (s = 10) + 0.5Rsm"),
        ({"loss": "cosface", "scale": "64.0", "margin": "0.1", "sample_margin": "1.0"}, "CosFace (s = 64) + Rsm"),
        ({"loss": "arcface", "scale": 20, "margin": 0.5, "sample_margin": 0.0}, "ArcFace (s = 20, m = 0.5)"),
        ({"loss": "normface", "scale": 10, "freeze_prototypes": "simplex"}, "NormFace (s = 10, fixed simplex)"),
        ({"loss": "lm_softmax", "scale": 20.0, "sample_margin": 0.0}, "LM-Softmax (s = 20)"),
        ({"loss": "sample_margin", "sample_margin": 0.0}, "Rsm"),
        ({"loss": "arcface", "scale": 64.0, "margin": 0.1, "zero_centroid": 2.0}, "ArcFace (s = 64) + 2Rw"),
        ({"loss": "ce", "label_smoothing": 0.1, "mixup": 0.2}, "CE (smoothing 0.1, mixup 0.2)"),
        ({"loss": "focal", "gamma": 2.0}, "Focal (γ = 2)"),
        ({"loss": "ce", "imbalance": "step"}, "CE"),
        ({"loss": "focal", "imbalance": "step", "gamma": 1.0}, "Focal"),
        ({"loss": "ce", "imbalance": "step", "zero_centroid": "5.0"}, "CE (λ = 5)"),
        ({"loss": "normface", "imbalance": "long_tailed", "scale": 5.0, "zero_centroid": 0.0}, "NormFace (λ = 0)"),
        ({"loss": "ldam", "imbalance": "long_tailed", "scale": 5, "margin": 0.5, "zero_centroid": 2}, "LDAM (λ = 2)"),
        ({"loss": "cosface", "imbalance": "step", "scale": 5.0, "margin": 0.35}, "CosFace (λ = 0)"),
        ({"loss": "cosface", "imbalance": "step", "scale": 10.0, "margin": 0.1}, "CosFace (λ = 0, s = 10, m = 0.1)"),
        ({"loss": "ldam", "imbalance": "step", "scale": 5, "margin": 0.5, "reweight": "drw"}, "LDAM (λ = 0) + DRW"),
    ],
)
def test_a_run_has_the_name_of_the_paper(cells, name):
    assert results.method(cells) == name


def test_every_row_of_the_sweep_that_the_paper_has_is_found_under_its_name():
    from nbs_lib.config import paper_config, table_configs

    paper = results.printed("margins_table5", "MNIST")
    names = [results.method(dataclasses.asdict(c)) for c in table_configs(paper_config(), (5, 10, 20, 40, 64))]
    missing = {name for name in names if name not in paper.index}
    assert missing == {f"LM-Softmax (s = {s})" for s in (5, 10, 20, 40, 64)}
    assert len(names) - len(missing) == 32


def test_the_runs_of_the_imbalanced_tables_are_found_under_their_names():
    margins = {"cosface": 0.35, "arcface": 0.1, "normface": None, "ldam": 0.5, "lm_softmax": None}
    runs = [
        {"loss": loss, "scale": 5.0, "margin": m, "zero_centroid": w}
        for loss, m in margins.items()
        for w in (0, 1, 2, 5, 10, 20)
    ]
    runs += [{"loss": "ce"}, {"loss": "focal", "gamma": 1.0}]
    names = {results.method(run | {"imbalance": "long_tailed"}) for run in runs}
    assert names == set(results.printed("margins_table6", "Imbalanced CIFAR-10", "step rho=10").index)


def test_the_printed_table_keeps_values_and_order():
    paper = results.printed("margins_table5", "MNIST")
    assert paper.index[0] == "CE"
    assert paper.loc["CE"].tolist() == [99.11, 87.39, 0.5014]
    assert paper.loc["NormFace (s = 64) + Rsm"].tolist() == [99.14, 95.34, 1.025]
    assert results.printed("margins_table5", "CIFAR-10").loc["ArcFace (s = 64)"].isna().all()
    assert results.printed("margins_table5", "no such set").empty


def test_outside_a_clone_there_is_nothing_and_no_error(monkeypatch):
    monkeypatch.setattr(results, "book_folder", lambda: None)
    assert results.printed("margins_table5", "MNIST").empty
    assert results.recorded("margins_table5_mnist").empty
    assert results.by_method(results.recorded("margins_table5_mnist")).empty


def test_a_table_that_was_never_recorded_is_empty():
    assert results.recorded("no_such_sweep").empty


def test_runs_are_averaged_over_seeds_and_the_diverged_left_out():
    row = {"loss": "ce", "scale": "", "margin": "", "sample_margin": 0.0, "epochs": 8, "status": "finished"}
    runs = pd.DataFrame(
        [
            row | {"seed": 0, "accuracy": 0.98, "class_margin": 80, "mean_sample_margin": 0.4},
            row | {"seed": 1, "accuracy": 0.99, "class_margin": 90, "mean_sample_margin": 0.5},
            row | {"seed": 2, "accuracy": "", "class_margin": "", "mean_sample_margin": "", "status": "diverged"},
            row | {"seed": 3, "epochs": 2, "accuracy": 0.5, "class_margin": 10, "mean_sample_margin": 0.1},
        ]
    )
    table = results.by_method(runs)
    assert table.index.tolist() == ["CE"]
    assert table.loc["CE"].tolist() == pytest.approx([98.5, 85, 0.45, 2, 8])


def test_sources_stand_beside_each_other_measure_by_measure():
    measures = list(results.MEASURES.values())
    paper = pd.DataFrame([[99.114, 87.39, 0.5014]], index=["CE"], columns=measures)
    here = pd.DataFrame([[98, 80, 0.4], [97, math.nan, 0.5]], index=["CE", "CE + 0.5Rsm"], columns=measures)
    table = results.beside(paper=paper, live=here)
    assert table.index.tolist() == ["CE", "↳\u00a0+\u00a00.5Rsm"]
    assert table["accuracy (%)"].values.tolist() == [["99.11", "98.00"], ["–", "97.00"]]
    assert table["class margin (°)"].values.tolist() == [["87.4", "80.0"], ["–", "–"]]
    assert table["mean sample margin"].columns.tolist() == ["paper", "live"]
    alone = results.beside(["CE + 0.5Rsm", "LM"], live=here)
    assert alone.index.tolist() == ["CE\u00a0+\u00a00.5Rsm", "LM"], "named in full where its loss does not stand above"
    assert alone["accuracy (%)"].tolist() == ["97.00", "–"]
    assert results.beside(paper=paper.iloc[:0]).empty


def test_methods_sort_by_scale_and_keep_their_order_within_one():
    names = ["NormFace (s = 64)", "CE", "ArcFace (s = 10, m = 0.5)", "CosFace (s = 5.5) + 0.5Rsm", "Rsm", "A (s = 10)"]
    assert results.by_scale(names) == [names[i] for i in (1, 4, 3, 2, 5, 0)]


def test_a_sweep_hands_over_its_records_and_their_prototypes_by_epoch(tmp_path):
    from nbs_lib import run

    config = run.quick_config(epochs=2, limit_per_class=4, batch_size=20, loss="normface", scale=10, device="cpu")
    records = []
    run.run_all([config], tmp_path / "table.csv", on_record=records.append)
    table = run.run_all([config], tmp_path / "table.csv", on_record=records.append)
    assert len(records) == 1, "a run that was already recorded hands over nothing"
    (record,) = records
    assert record.on_test.cosines.shape == (2000, 10)
    assert record.history[-1]["class_margin"] == pytest.approx(record.metrics["class_margin"])
    assert record.history[-1]["prototype_norm_ratio"] == pytest.approx(record.metrics["prototype_norm_ratio"])
    assert results.by_method(table).index.tolist() == ["NormFace (s = 10)"]
