"""One look for the whole book: page width, fonts, a colour-blind-safe style per loss, and the way onto the page."""

import io
from dataclasses import dataclass, replace

import matplotlib.pyplot as plt
import numpy as np
import PIL.Image
import PIL.ImageColor
import seaborn as sns
from IPython.display import Image, display
from matplotlib.axes import Axes
from matplotlib.figure import Figure

PAGE_WIDTH = 7.2
"""Width of a figure in inches: 864 pixels at :data:`DPI`, which the book's text column shows at about 700."""

DPI = 120
"""Pixels per inch of every figure: sharp enough for a lecture, small enough for git."""


@dataclass(frozen=True)
class LossStyle:
    """How one loss is drawn everywhere: the name a reader sees, colour, line style and marker.

    Colour is never the only difference: line style and marker repeat it for colour-blind readers and grey printers.
    """

    label: str
    colour: str
    linestyle: str | tuple = "-"
    marker: str = "o"

    def but(self, **changes) -> "LossStyle":
        """Return the same style with some fields replaced, e.g. ``style.but(label="ArcFace, easy", linestyle=":")``."""
        return replace(self, **changes)

    def line(self) -> dict:
        """Return keywords for ``Axes.plot`` of a smooth curve."""
        return {"color": self.colour, "linestyle": self.linestyle, "label": self.label}


DASHES = {"dash": (0, (6, 2)), "dots": (0, (1.2, 1.6)), "dashdot": (0, (6, 2, 1.2, 2)), "long": (0, (10, 3))}
"""Named line styles, wide enough apart to be told from each other at page width."""

LOSS_STYLES: dict[str, LossStyle] = {
    "ce": LossStyle("softmax CE", "#5f5f5f", DASHES["long"], "s"),
    "normface": LossStyle("NormFace", "#0173b2", "-", "o"),
    "cosface": LossStyle("CosFace", "#c77400", DASHES["dash"], "^"),
    "arcface": LossStyle("ArcFace", "#029e73", DASHES["dashdot"], "D"),
    "sphereface": LossStyle("SphereFace", "#a1499a", DASHES["dots"], "v"),
    "lm_softmax": LossStyle("LM-Softmax", "#d55e00", "-", "P"),
    "lm_softmax_total": LossStyle("LM-total", "#1b1b1b", DASHES["dash"], "X"),
    "unified": LossStyle("unified form", "#8c6239", DASHES["dash"], "h"),
    "gm_softmax": LossStyle("GM-Softmax", "#3a9fd8", DASHES["dashdot"], "d"),
    "sample_margin": LossStyle("sample margin", "#b8860b", DASHES["dots"], ">"),
    "zero_centroid": LossStyle("zero centroid", "#7f7f7f", DASHES["dots"], "<"),
    "ldam": LossStyle("LDAM", "#7a5195", DASHES["dashdot"], "p"),
    "focal": LossStyle("focal", "#88694a", DASHES["dots"], "H"),
    "bce": LossStyle("BCE", "#c23b75", "-", "*"),
}
"""Style of each loss, by the name ``nbs_lib.losses.build`` knows it under; shared by every chapter."""

CLASS_COLOURS: list[str] = [
    "#0173b2", "#de8f05", "#029e73", "#d55e00", "#cc78bc", "#8c6239", "#e377a8", "#7f7f7f", "#b5a800", "#56b4e9",
]  # fmt: skip
"""Ten colours for classes (seaborn's colour-blind palette, its two palest entries darkened); they repeat after ten."""


def style_of(name: str | LossStyle) -> LossStyle:
    """Return the style of a loss by name; an unknown name is drawn in black under its own name."""
    return name if isinstance(name, LossStyle) else LOSS_STYLES.get(name, LossStyle(name, "#1b1b1b"))


def use_style() -> None:
    """Set the book's look: seaborn's white grid, page-wide figures, text of at least 9 points, no automatic pop-up.

    Call it once, in the set-up cell of a chapter.
    """
    sns.set_theme(
        style="whitegrid",
        rc={
            "figure.figsize": (PAGE_WIDTH, 3.8),
            "figure.dpi": DPI,
            "savefig.dpi": DPI,
            "figure.constrained_layout.use": True,
            "font.size": 10.5,
            "axes.titlesize": 11,
            "axes.labelsize": 10.5,
            "xtick.labelsize": 9.5,
            "ytick.labelsize": 9.5,
            "legend.fontsize": 9.5,
            "legend.handlelength": 2.7,  # long enough to tell one dash pattern from another
            "legend.frameon": True,
            "legend.framealpha": 0.92,
            "legend.edgecolor": "0.85",
            "axes.edgecolor": "0.55",
            "grid.color": "0.9",
            "lines.linewidth": 2.0,
            "axes.titlelocation": "left",
            "axes.prop_cycle": plt.cycler(color=CLASS_COLOURS),
            "mathtext.fontset": "dejavusans",
        },
    )


def axes_or_new(ax: Axes | None, height: float = 3.8) -> Axes:
    """Return ``ax``, or the axes of a new page-wide figure of ``height`` inches."""
    return plt.subplots(figsize=(PAGE_WIDTH, height))[1] if ax is None else ax


def png_bytes(figure: Figure, dpi: int = DPI) -> bytes:
    """Render ``figure`` as PNG bytes that depend on the drawing alone: no date, no software version.

    256 colours make the file a third of its size: white and those of classes and losses, which must not shift, and
    the picture's own.
    """
    raw, small = io.BytesIO(), io.BytesIO()
    figure.savefig(raw, format="png", dpi=dpi, bbox_inches="tight", pad_inches=0.08, facecolor="white")
    raw.seek(0)
    fixed = ["white", *CLASS_COLOURS, *(style.colour for style in LOSS_STYLES.values())]
    with PIL.Image.open(raw) as picture:
        picture = picture.convert("RGB")
    own = picture.quantize(256 - len(fixed), dither=PIL.Image.Dither.NONE).getpalette()
    palette = np.array([*map(PIL.ImageColor.getrgb, fixed), *np.reshape(own, (-1, 3))[: 256 - len(fixed)]])
    # nearest colour by hand: Pillow's own search rounds to multiples of four, and white would turn grey
    codes, where = np.unique(np.asarray(picture) @ [65536, 256, 1], return_inverse=True)
    colours = np.stack([codes >> 16, codes >> 8 & 255, codes & 255], axis=1)
    nearest = (np.square(palette).sum(axis=1) - 2 * colours @ palette.T).argmin(axis=1).astype(np.uint8)
    indexed = PIL.Image.fromarray(nearest[where].reshape(picture.height, picture.width), mode="P")
    indexed.putpalette(palette.ravel().tolist())
    indexed.save(small, format="PNG", optimize=True)
    return small.getvalue()


def show(figure: Figure, *, alt: str, dpi: int = DPI) -> None:
    """Display ``figure`` as a PNG with alternative text, and close it.

    Args:
        figure: A Matplotlib figure.
        alt: What a reader who cannot see the picture needs to know, in a sentence or two. It travels in the output's
            metadata, which Jupyter, nbconvert and the book's build turn into the ``alt`` of the image.
        dpi: Pixels per inch.

    Raises:
        ValueError: If ``alt`` is empty.
    """
    if not alt.strip():
        raise ValueError("alt must say what the figure shows, got an empty text")
    png = png_bytes(figure, dpi)
    plt.close(figure)
    display(Image(data=png, format="png", alt=" ".join(alt.split())))
