"""Prototypes and features on the sphere S^2, drawn for a lecture: shaded ball, contacts as great-circle arcs."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from numpy.typing import ArrayLike

from nbs_lib.plots.style import CLASS_COLOURS, axes_or_new

VIEW = (22.0, 35.0)
"""Default (elevation, azimuth) of the eye in degrees."""


def as_directions(points: ArrayLike, name: str) -> np.ndarray:
    """Return ``points`` as unit rows (n, 3) in float64.

    Raises:
        ValueError: If the shape is not (n, 3), or a row is zero or not finite.
    """
    array = np.asarray(points.detach().cpu() if hasattr(points, "detach") else points, dtype=float)
    if array.ndim != 2 or array.shape[1] != 3:
        raise ValueError(f"{name} must have shape (n, 3) to lie on the sphere S^2, got {array.shape}")
    norm = np.linalg.norm(array, axis=1, keepdims=True)
    if not np.all(np.isfinite(norm)) or np.any(norm == 0):
        raise ValueError(f"{name} must have finite, non-zero rows")
    return array / norm


def contacts(prototypes: ArrayLike, tolerance: float = 1.0) -> list[tuple[int, int]]:
    """Return the pairs (i, j), i < j, whose angle is within ``tolerance`` degrees of the smallest one."""
    points = as_directions(prototypes, "prototypes")
    rows, columns = np.triu_indices(len(points), 1)
    degrees = np.rad2deg(np.arccos(np.clip(np.sum(points[rows] * points[columns], axis=1), -1, 1)))
    if degrees.size == 0:
        return []
    near = degrees <= degrees.min() + tolerance
    return list(zip(rows[near].tolist(), columns[near].tolist(), strict=True))


def view_basis(elevation: float, azimuth: float) -> np.ndarray:
    """Return the rotation (3, 3) whose rows are the page's right, its up, and the direction towards the eye."""
    e, a = np.deg2rad([elevation, azimuth])
    eye = np.array([np.cos(e) * np.cos(a), np.cos(e) * np.sin(a), np.sin(e)])
    right = np.array([-np.sin(a), np.cos(a), 0.0])
    return np.stack([right, np.cross(eye, right), eye])


def best_view(points: np.ndarray, pairs: Sequence[tuple[int, int]] = ()) -> tuple[float, float]:
    """Return the (elevation, azimuth) on a fixed grid that shows most.

    Good is: points apart from each other and from the centre on the page, many in front, no arc seen edge-on.
    """
    best, best_score = VIEW, -1.0
    centred = np.vstack([points, np.zeros(3)])
    normals = np.array([np.cross(points[i], points[j]) for i, j in pairs]).reshape(-1, 3)
    for elevation in np.arange(6, 40, 4.0):
        for azimuth in np.arange(5, 360, 7.5):
            basis = view_basis(elevation, azimuth)
            page = centred @ basis.T
            gaps = np.linalg.norm(page[:, None, :2] - page[None, :, :2], axis=-1) + 9 * np.eye(len(page))
            open_arcs = np.abs(normals @ basis[2]).min(initial=1.0)
            score = gaps.min() + 0.4 * np.mean(page[:, 2] > 0.1) + 0.6 * open_arcs
            if score > best_score + 1e-9:
                best, best_score = (float(elevation), float(azimuth)), float(score)
    return best


def _ball(ax: Axes) -> None:
    """Paint the shaded ball: light from the upper left, as an image so that the PNG stays small."""
    x, y = np.meshgrid(np.linspace(-1, 1, 360), np.linspace(-1, 1, 360))
    depth = np.sqrt(np.clip(1 - x**2 - y**2, 0, None))
    light = np.clip(-0.42 * x + 0.50 * y + 0.76 * depth, 0, 1)
    shade = 0.80 + 0.18 * light + 0.02 * light**12
    edge = np.clip((1 - np.hypot(x, y)) * 180, 0, 1)
    image = np.dstack([shade * 0.965, shade * 0.98, np.minimum(shade * 1.01, 1), edge])
    # a few grey levels compress far better than a full gradient, and look the same
    ax.imshow(np.round(image * 96) / 96, extent=(-1, 1, -1, 1), origin="lower", interpolation="bilinear", zorder=0)


def _strokes(ax: Axes, paths: np.ndarray, zorder: float, colour: str, linewidth: float) -> None:
    """Draw space curves (n, steps, 3) in page coordinates: solid in front of the ball, faint behind it."""
    for alpha, order, sign in ((0.25, 1.0, -1), (1.0, zorder, 1)):
        runs = []
        for path in paths:
            seen = sign * path[:, 2] >= -1e-9
            # whole runs, not single segments: where translucent segments overlap they would show as dots
            cuts = np.flatnonzero(np.diff(seen.astype(int))) + 1
            pieces = zip(np.split(path[:, :2], cuts), np.split(seen, cuts), strict=True)
            runs += [piece for piece, visible in pieces if visible[0] and len(piece) > 1]
        ax.add_collection(LineCollection(runs, linewidths=linewidth, colors=colour, alpha=alpha, zorder=order))


def _arc(u: np.ndarray, v: np.ndarray, steps: int = 60) -> np.ndarray:
    """Return points (steps, 3) along the shorter great circle from ``u`` to ``v``."""
    t = np.linspace(0, 1, steps)[:, None]
    chord = (1 - t) * u + t * v
    norm = np.linalg.norm(chord, axis=1, keepdims=True)
    return chord / np.maximum(norm, 1e-9)


def sphere_scatter(
    prototypes: ArrayLike,
    features: ArrayLike | None = None,
    target: ArrayLike | None = None,
    *,
    pairs: Sequence[tuple[int, int]] | None = None,
    tolerance: float = 1.0,
    labels: Sequence[str] | None = None,
    title: str = "",
    view: tuple[float, float] | str = "best",
    spokes: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """Draw prototypes (and features) on the unit sphere S^2.

    Every class has a colour; its prototype is a large dot on a spoke from the centre, its features are small dots.
    Contacts (pairs at the smallest angle) are great-circle arcs. What lies behind the ball is faint.

    Args:
        prototypes: (K, 3), array or tensor; rows are normalised.
        features: (N, 3), optional.
        target: Class of each feature (N,); with one feature per class it may be left out.
        pairs: Contacts to draw; None finds those within ``tolerance`` degrees of the smallest angle, () draws none.
        tolerance: See ``pairs``; in degrees.
        labels: Text written beside each prototype.
        title: Title of the axes.
        view: (elevation, azimuth) in degrees, or "best" for the view in which prototypes hide each other least.
        spokes: Whether to join the prototypes to the centre; without, many points stay readable.
        ax: Axes to draw on; a new figure if absent.

    Returns:
        The axes.

    Raises:
        ValueError: If points are not (n, 3), or ``target`` is missing or does not fit ``features``.
    """
    ax = axes_or_new(ax, 5.0)
    points = as_directions(prototypes, "prototypes")
    pairs = contacts(points, tolerance) if pairs is None else pairs
    basis = view_basis(*(best_view(points, pairs) if isinstance(view, str) else view))
    page = points @ basis.T
    _ball(ax)
    circle = np.linspace(0, 2 * np.pi, 90)
    for tilt in range(3):  # three great circles give the eye the ball's orientation
        ring = np.roll(np.stack([np.cos(circle), np.sin(circle), 0 * circle], axis=1), tilt, axis=1) @ basis.T
        _strokes(ax, ring[None], 1.2, "white", 0.9)
    if len(pairs):
        _strokes(ax, np.stack([_arc(page[i], page[j]) for i, j in pairs]), 2.0, "#333333", 1.6)
    for k, point in enumerate(page):
        front = point[2] >= 0
        colour = CLASS_COLOURS[k % len(CLASS_COLOURS)]
        order = 3 + point[2] if front else 1.1
        shown = 1.0 if front else 0.38
        if spokes:
            ax.plot([0, point[0]], [0, point[1]], color=colour, linewidth=2.2, alpha=0.9 * shown, zorder=order - 0.5)
        size = 115 * (1 + 0.35 * point[2])
        ax.scatter(*point[:2], s=size, color=colour, alpha=shown, edgecolor="white", linewidth=1.3, zorder=order)
        if labels is not None:
            away = point[:2] / max(np.hypot(*point[:2]), 1e-6)
            ax.text(
                *(point[:2] + 0.11 * away), labels[k], ha="center", va="center", fontsize=9.5, alpha=shown, zorder=6
            )
    _features(ax, features, target, len(points), basis)
    ax.set(xlim=(-1.13, 1.13), ylim=(-1.13, 1.13), aspect="equal")
    ax.set_axis_off()
    if title:
        ax.set_title(title, loc="center")
    return ax


def _features(ax: Axes, features: ArrayLike | None, target: ArrayLike | None, classes: int, basis: np.ndarray) -> None:
    if features is None:
        return
    dots = as_directions(features, "features") @ basis.T
    if target is None and len(dots) != classes:
        raise ValueError(f"target must name the class of each of the {len(dots)} features")
    names = np.arange(classes) if target is None else np.asarray(target).astype(int)
    if names.shape != (len(dots),):
        raise ValueError(f"target must have shape ({len(dots)},), got {names.shape}")
    colours = np.array([CLASS_COLOURS[k % len(CLASS_COLOURS)] for k in names])
    for mask, alpha, order in ((dots[:, 2] < 0, 0.25, 1.05), (dots[:, 2] >= 0, 0.85, 4.5)):
        ax.scatter(
            *dots[mask, :2].T, s=14, c=colours[mask], alpha=alpha, edgecolor="#222222", linewidth=0.4, zorder=order
        )
