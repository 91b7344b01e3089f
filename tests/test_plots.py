"""Figures: what is drawn is the data, pixels depend on the drawing alone, the rotatable sphere is self-contained."""

import io
import itertools
import json
import re
from types import SimpleNamespace

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest

from nbs_lib import plots
from nbs_lib.plots import sphere, style

OCTAHEDRON = np.array([[1, 0, 0], [-1, 0, 0], [0, 1, 0], [0, -1, 0], [0, 0, 1], [0, 0, -1]], dtype=float)


@pytest.fixture(autouse=True)
def _clean():
    plots.use_style()
    yield
    plt.close("all")


def test_two_losses_never_share_colour_or_both_line_and_marker():
    for one, two in itertools.combinations(plots.LOSS_STYLES.values(), 2):
        assert one.colour != two.colour
        assert (one.linestyle, one.marker) != (two.linestyle, two.marker)
    assert {"ce", "normface", "cosface", "arcface", "sphereface", "lm_softmax"} <= set(plots.LOSS_STYLES)


def test_unknown_loss_is_drawn_under_its_own_name():
    assert plots.style_of("my loss").label == "my loss"
    assert plots.style_of("arcface").but(label="easy").colour == plots.LOSS_STYLES["arcface"].colour


def test_text_is_readable_and_figures_are_as_wide_as_the_page():
    keys = ("font.size", "axes.labelsize", "xtick.labelsize", "ytick.labelsize", "legend.fontsize")
    assert all(plt.rcParams[key] >= 9 for key in keys)
    assert plt.rcParams["figure.figsize"][0] == plots.PAGE_WIDTH


def test_png_depends_on_the_drawing_alone():
    def render():
        figure, ax = plt.subplots(figsize=(3, 2))
        ax.plot([0, 1], [0, 1])
        return style.png_bytes(figure)

    first = render()
    assert first == render()
    assert b"Software" not in first
    assert b"tEXt" not in first


def test_png_keeps_white_and_the_colours_of_the_losses():
    figure, ax = plt.subplots(figsize=(3, 2))
    for i, loss in enumerate(plots.LOSS_STYLES.values()):
        ax.barh(i, 1 + i, color=loss.colour)
    picture = plt.imread(io.BytesIO(style.png_bytes(figure)))[..., :3]
    shown = {tuple(colour) for colour in np.round(255 * picture.reshape(-1, 3)).astype(int).tolist()}
    for colour in ("white", *(loss.colour for loss in plots.LOSS_STYLES.values())):
        assert tuple(round(255 * level) for level in matplotlib.colors.to_rgb(colour)) in shown


def test_show_carries_the_alt_text_and_closes_the_figure(monkeypatch):
    shown = []
    monkeypatch.setattr(style, "display", shown.append)
    figure = plots.target_logit_curves([0, np.pi], {"normface": [1, -1]}).figure
    plots.show(figure, alt="A falling\n    line.")
    data, metadata = shown[0]._repr_png_()
    assert metadata == {"alt": "A falling line."}
    assert len(data) < 100_000
    assert not plt.fignum_exists(figure.number)


def test_show_refuses_a_figure_without_alt_text():
    with pytest.raises(ValueError, match="alt must say"):
        plots.show(plt.figure(), alt=" ")


@pytest.mark.parametrize("draw", [plots.target_logit_curves, plots.gradient_curves])
def test_curves_are_the_data_in_degrees(draw):
    theta = np.linspace(0, np.pi, 7)
    special = plots.LOSS_STYLES["arcface"].but(label="ArcFace, easy")
    ax = draw(theta, {"cosface": np.cos(theta), "easy": np.sin(theta)}, styles={"easy": special})
    lines = ax.get_lines()
    np.testing.assert_allclose(lines[0].get_xdata(), np.linspace(0, 180, 7))
    np.testing.assert_allclose(lines[1].get_ydata(), np.sin(theta))
    assert [line.get_label() for line in lines] == ["CosFace", "ArcFace, easy"]
    assert lines[1].get_color() == special.colour


def test_contacts_of_the_octahedron_are_its_twelve_edges():
    pairs = plots.contacts(OCTAHEDRON)
    assert len(pairs) == 12
    assert (0, 1) not in pairs


@pytest.mark.parametrize("view", [(0, 0), (22, 35), (-70, 200)])
def test_view_is_a_right_handed_rotation(view):
    basis = sphere.view_basis(*view)
    np.testing.assert_allclose(basis @ basis.T, np.eye(3), atol=1e-12)
    assert np.linalg.det(basis) == pytest.approx(1)


def test_view_from_the_equator_sees_east_to_the_right_and_north_up():
    page = OCTAHEDRON @ sphere.view_basis(0, 0).T
    np.testing.assert_allclose(page[0], [0, 0, 1], atol=1e-12)  # towards the eye
    np.testing.assert_allclose(page[2], [1, 0, 0], atol=1e-12)
    np.testing.assert_allclose(page[4], [0, 1, 0], atol=1e-12)


def test_spokes_can_be_left_out():
    with_spokes, without = (plots.sphere_scatter(OCTAHEDRON, pairs=(), spokes=on) for on in (True, False))
    assert len(with_spokes.lines) - len(without.lines) == len(OCTAHEDRON)


def test_sphere_scatter_takes_arrays_and_refuses_what_is_not_on_a_sphere():
    ax = plots.sphere_scatter(3 * OCTAHEDRON, OCTAHEDRON, labels=list("abcdef"), title="octahedron")
    assert ax.get_title(loc="center") == "octahedron"
    assert ax.get_aspect() == 1
    with pytest.raises(ValueError, match=r"prototypes must have shape \(n, 3\)"):
        plots.sphere_scatter(np.ones((4, 2)))
    with pytest.raises(ValueError, match="non-zero"):
        plots.sphere_scatter(np.zeros((4, 3)))
    with pytest.raises(ValueError, match="target must name"):
        plots.sphere_scatter(OCTAHEDRON, np.ones((4, 3)))


def test_rotatable_sphere_is_small_self_contained_and_stable():
    label = 'six <b>"points"</b>'
    page = plots.rotatable_sphere(OCTAHEDRON, OCTAHEDRON, label=label)
    assert page.data == plots.rotatable_sphere(OCTAHEDRON, OCTAHEDRON, label=label).data
    assert len(page.data) < 9_000
    assert not re.search(r"https?:|src=|import", page.data)
    assert "<b>" not in page.data
    assert "__" not in page.data
    assert repr(page) == f"[rotatable sphere: {label}]"


def test_rotatable_sphere_holds_the_data_and_an_identity_of_its_own():
    page = plots.rotatable_sphere(OCTAHEDRON, label="one").data
    data = json.loads(re.search(r'start\(root\.querySelector\("canvas"\), (\{.*?\})\);', page).group(1))
    assert data["points"] == OCTAHEDRON.tolist()
    assert len(data["pairs"]) == 12
    identity = re.search(r'data-nbs-sphere="(\w+)"', page).group(1)
    assert f"data-nbs-sphere='{identity}'" in page
    assert identity not in plots.rotatable_sphere(OCTAHEDRON, label="two").data


def test_rotatable_sphere_wants_a_label():
    with pytest.raises(ValueError, match="label must say"):
        plots.rotatable_sphere(OCTAHEDRON, label="")


@pytest.mark.parametrize("draw", [plots.cosine_histograms, plots.sample_margin_histograms])
def test_histograms_are_shares_on_common_bins(draw):
    rng = np.random.default_rng(0)
    ax = draw({"ce": rng.uniform(-0.5, 0.4, 100), "normface": rng.uniform(0.2, 0.9, 400)}, bins=20, cap=0.95)
    outlines = [patch.get_data() for patch in ax.patches][1::2]
    assert [round(outline.values.sum(), 6) for outline in outlines] == [100, 100]
    np.testing.assert_array_equal(outlines[0].edges, outlines[1].edges)
    assert ax.get_xlim()[1] > 0.95
    with pytest.raises(ValueError, match="at least one"):
        draw({})


def test_training_curves_skip_epochs_without_a_measurement():
    history = [{"epoch": 1, "loss": 2.0}, {"epoch": 2, "loss": 1.0, "accuracy": 0.5}]
    ax = plots.training_curves({"ce": history}, "accuracy", reference=0.9, reference_label="best")
    np.testing.assert_array_equal(ax.get_lines()[0].get_xydata(), [[2, 0.5]])
    with pytest.raises(ValueError, match="'class_margin' is in no record of run 'ce'"):
        plots.training_curves({"ce": history}, "class_margin")


def test_reliability_diagram_leaves_out_empty_bins_and_states_the_error():
    bins = SimpleNamespace(
        edges=np.array([0, 0.5, 0.75, 1.0]), confidence=[0.0, 0.6, 0.9], accuracy=[0.0, 0.5, 1.0], count=[0, 10, 30]
    )
    ax = plots.reliability_diagram(bins, label="CE")
    assert ax.get_title(loc="left") == "CE: ECE 10.0 %"  # (10 x 0.1 + 30 x 0.1) / 40
    assert len(ax.containers[0]) == 2


def test_decision_circle_shares_the_opening_between_classes_and_band():
    ax = plots.decision_circle(np.deg2rad(120), np.deg2rad(30), style="arcface")
    assert ax.get_title(loc="center") == "ArcFace: 30°"
    full = [wedge.theta2 - wedge.theta1 for wedge in ax.patches if getattr(wedge, "width", 1) is None]
    assert sorted(round(angle, 6) for angle in full) == [30, 45, 45]
    with pytest.raises(ValueError, match="band <= opening"):
        plots.decision_circle(1.0, 1.2, style="arcface")
