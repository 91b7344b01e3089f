"""A sphere the reader can turn: one canvas and fifty lines of JavaScript, no library, no network."""

import hashlib
import html
import json
from collections.abc import Sequence

import numpy as np
from IPython.display import HTML
from numpy.typing import ArrayLike

from nbs_lib.plots.sphere import VIEW, as_directions, contacts
from nbs_lib.plots.style import CLASS_COLOURS

_SCRIPT = """
(() => {
  const roots = document.querySelectorAll("[data-nbs-sphere='__ID__']:not([data-ready])");
  for (const root of roots) { root.dataset.ready = "1"; start(root.querySelector("canvas"), __DATA__); }
  function start(canvas, data) {
    const g = canvas.getContext("2d"), size = canvas.width, c = size / 2, r = 0.43 * size;
    const home = data.view.map(a => a * Math.PI / 180);
    let [tilt, turn] = home, held = null;
    const page = ([x, y, z]) => {
      const ct = Math.cos(turn), st = Math.sin(turn), ce = Math.cos(tilt), se = Math.sin(tilt);
      const f = x * ct + y * st;
      return [c + r * (y * ct - x * st), c - r * (z * ce - f * se), f * ce + z * se];
    };
    const arc = (u, v) => Array.from({length: 25}, (_, i) => {
      const t = i / 24, p = u.map((a, k) => (1 - t) * a + t * v[k]), n = Math.hypot(...p) || 1;
      return p.map(a => a / n);
    });
    const rings = [0, 1, 2].map(k => Array.from({length: 73}, (_, i) => {
      const a = i * Math.PI / 36, p = [0, 0, 0]; p[k] = Math.cos(a); p[(k + 1) % 3] = Math.sin(a); return p;
    }));
    const arcs = data.pairs.map(([i, j]) => arc(data.points[i], data.points[j]));
    function strokes(curves, front, colour, width) {
      g.strokeStyle = colour; g.lineWidth = width * size / 400; g.lineCap = "round"; g.beginPath();
      for (const curve of curves) {
        const q = curve.map(page);
        for (let i = 1; i < q.length; i++) if ((q[i - 1][2] + q[i][2] >= 0) === front) {
          g.moveTo(q[i - 1][0], q[i - 1][1]); g.lineTo(q[i][0], q[i][1]);
        }
      }
      g.stroke();
    }
    function dots(front) {
      const all = [];
      data.points.forEach((p, k) => all.push([page(p), data.colours[k % data.colours.length], 7, k]));
      data.features.forEach((p, i) =>
        all.push([page(p), data.colours[data.target[i] % data.colours.length], 2.6, -1]));
      const shown = all.filter(d => (d[0][2] >= 0) === front).sort((a, b) => a[0][2] - b[0][2]), s = size / 400;
      for (const [[x, y, z], colour, radius, k] of shown) {
        g.globalAlpha = front ? 1 : 0.3;
        if (k >= 0) {
          g.strokeStyle = colour; g.lineWidth = 2.4 * s;
          g.beginPath(); g.moveTo(c, c); g.lineTo(x, y); g.stroke();
        }
        g.fillStyle = colour; g.strokeStyle = k >= 0 ? "#fff" : "#333"; g.lineWidth = (k >= 0 ? 1.4 : 0.5) * s;
        g.beginPath(); g.arc(x, y, radius * s * (1 + 0.25 * z), 0, 7); g.fill(); g.stroke();
      }
      g.globalAlpha = 1;
    }
    function draw() {
      g.clearRect(0, 0, size, size);
      const ball = g.createRadialGradient(c - r * 0.35, c - r * 0.4, r * 0.05, c, c, r);
      ball.addColorStop(0, "#fbfcff"); ball.addColorStop(0.7, "#e3e7ee"); ball.addColorStop(1, "#c3cad6");
      g.fillStyle = ball; g.beginPath(); g.arc(c, c, r, 0, 7); g.fill();
      strokes(rings, false, "rgba(255,255,255,.35)", 1); strokes(arcs, false, "rgba(40,40,40,.22)", 1.6); dots(false);
      strokes(rings, true, "rgba(255,255,255,.95)", 1.2); strokes(arcs, true, "#333", 1.9); dots(true);
    }
    function move(dx, dy) {
      turn -= dx; tilt = Math.max(-1.55, Math.min(1.55, tilt + dy)); draw();
    }
    canvas.addEventListener("pointerdown", e => {
      held = [e.clientX, e.clientY]; canvas.setPointerCapture(e.pointerId);
    });
    canvas.addEventListener("pointermove", e => {
      if (!held) return;
      const k = 2.4 / canvas.clientWidth;
      move((e.clientX - held[0]) * k, (e.clientY - held[1]) * k); held = [e.clientX, e.clientY];
    });
    for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, () => { held = null; });
    canvas.addEventListener("dblclick", () => { [tilt, turn] = home; draw(); });
    canvas.addEventListener("keydown", e => {
      const step = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1]}[e.key];
      if (e.key === "Home") { [tilt, turn] = home; draw(); }
      else if (step) move(step[0] * 0.12, step[1] * 0.12);
      else return;
      e.preventDefault(); e.stopPropagation();
    });
    draw();
  }
})();
"""

_PAGE = """<div data-nbs-sphere="__ID__" style="max-width:420px;margin:0 auto;text-align:center">
<canvas width="840" height="840" tabindex="0" role="img" aria-label="__LABEL__"
 style="width:86%;aspect-ratio:1;touch-action:none;cursor:grab;border-radius:50%"></canvas>
<div style="font-size:0.85em;opacity:0.8">__CAPTION__</div></div>
<script>__SCRIPT__</script>"""


class RotatableSphere(HTML):
    """HTML output whose plain-text form is its caption, so that a stored notebook stays stable and readable."""

    def __init__(self, data: str, label: str) -> None:
        super().__init__(data)
        self.label = label

    def __repr__(self) -> str:
        """Return the label, for places that cannot draw."""
        return f"[rotatable sphere: {self.label}]"


def rotatable_sphere(
    prototypes: ArrayLike,
    features: ArrayLike | None = None,
    target: ArrayLike | None = None,
    *,
    label: str,
    pairs: Sequence[tuple[int, int]] | None = None,
    tolerance: float = 1.0,
    view: tuple[float, float] = VIEW,
) -> RotatableSphere:
    """Return a sphere to turn by drag, touch or arrow keys (Home or a double click turns it back).

    A few kilobytes of HTML and JavaScript that need no other file: it works in Jupyter, in Colab and in the built book,
    and several on one page do not disturb each other. Show a static picture beside it: a code host's preview runs no
    script.

    Args:
        prototypes: (K, 3), array or tensor; rows are normalised.
        features: (N, 3), optional; a few hundred at most.
        target: Class of each feature (N,); with one feature per class it may be left out.
        label: What the picture shows, read out by screen readers and written below it.
        pairs: Contacts to draw as arcs; None finds those within ``tolerance`` degrees of the smallest angle.
        tolerance: See ``pairs``; in degrees.
        view: First (elevation, azimuth) in degrees.

    Raises:
        ValueError: If points are not (n, 3), ``target`` does not fit ``features``, or ``label`` is empty.
    """
    if not label.strip():
        raise ValueError("label must say what the sphere shows, got an empty text")
    points = as_directions(prototypes, "prototypes")
    dots = np.empty((0, 3)) if features is None else as_directions(features, "features")
    names = np.arange(len(dots)) if target is None else np.asarray(target).astype(int)
    if names.shape != (len(dots),) or (target is None and len(dots) not in (0, len(points))):
        raise ValueError(f"target must name the class of each of the {len(dots)} features, got shape {names.shape}")
    data = {
        "points": points.round(4).tolist(),
        "features": dots.round(3).tolist(),
        "target": names.tolist(),
        "pairs": [list(pair) for pair in (contacts(points, tolerance) if pairs is None else pairs)],
        "colours": CLASS_COLOURS,
        "view": list(view),
    }
    payload = json.dumps(data, separators=(",", ":"))
    label = " ".join(label.split())
    # the identity comes from the content: a rerun writes the same page, and equal spheres share one script harmlessly
    identity = hashlib.sha256((label + payload).encode()).hexdigest()[:12]
    script = _SCRIPT.strip().replace("__ID__", identity).replace("__DATA__", payload)
    page = _PAGE.replace("__ID__", identity).replace("__SCRIPT__", script)
    page = page.replace("__LABEL__", html.escape(f"{label}. Drag, or use the arrow keys, to turn it.", quote=True))
    return RotatableSphere(page.replace("__CAPTION__", html.escape(f"{label} (drag or arrow keys to turn)")), label)
