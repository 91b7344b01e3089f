"""What the rendered pages need beyond Jupyter Book: alternative texts, equation tags, formulas without a network."""

import base64
import hashlib
import json
import re
import shutil
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

_MATHJAX = ("tex-chtml.js", "output/chtml/fonts/woff-v2")  # 1.5 of the 24 MB of the distribution


def alternative_texts(path: Path) -> dict[str, str]:
    """Return the texts that ``IPython.display.Image(alt=...)`` left in a notebook, keyed by the picture's SHA-256.

    MyST-NB names a picture's file by that hash; it reads alternative texts from the cell's metadata only, one a cell.
    """
    texts = {}
    for cell in json.loads(path.read_text("utf8"))["cells"]:
        for output in cell.get("outputs", []):
            for kind, attributes in output.get("metadata", {}).items():
                if isinstance(attributes, dict) and "alt" in attributes and kind.startswith("image/"):
                    data = output["data"][kind]
                    content = base64.b64decode("".join(data) if isinstance(data, list) else data)
                    texts[hashlib.sha256(content).hexdigest()] = str(attributes["alt"])
    return texts


def _add_alternative_texts(app: Sphinx, doctree: nodes.document) -> None:
    path = Path(app.env.doc2path(app.env.docname))
    if path.suffix == ".ipynb":
        texts = alternative_texts(path)
        for image in doctree.findall(nodes.image):
            text = texts.get(PurePosixPath(image["uri"]).stem)
            if text:
                image["alt"] = text


def _keep_tags(_: Sphinx, doctree: nodes.document) -> None:
    r"""Hand a formula with ``\tag`` over as it is: it may not stand in the ``split`` of Sphinx."""
    for block in doctree.findall(nodes.math_block):
        formula = block.astext()
        if re.search(r"\\tag\b", formula) and not block.get("nowrap"):
            block["nowrap"] = True
            block.children = [nodes.Text(rf"\[{formula}\]")]


def _use_local_mathjax(app: Sphinx, _: Any) -> None:
    source = _mathjax_folder()
    if source is not None:
        app.config.mathjax_path = "mathjax/tex-chtml.js"


def _copy_mathjax(app: Sphinx, error: Exception | None) -> None:
    source = _mathjax_folder()
    if error is not None or source is None or app.builder.format != "html":
        return
    for name in _MATHJAX:
        target = Path(app.outdir, "_static", "mathjax", name)
        target.parent.mkdir(parents=True, exist_ok=True)
        if (source / name).is_dir():
            shutil.copytree(source / name, target, dirs_exist_ok=True)
        else:
            shutil.copyfile(source / name, target)


def _mathjax_folder() -> Path | None:
    """Find the files of sphinx-mathjax-offline; without it, pages load MathJax from the network, Sphinx's default."""
    spec = find_spec("sphinx-mathjax-offline")
    folder = Path(spec.origin).parent / "static" / "mathjax" if spec and spec.origin else None
    return folder if folder and folder.is_dir() else None


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.connect("config-inited", _use_local_mathjax)
    app.connect("doctree-read", _add_alternative_texts)
    app.connect("doctree-read", _keep_tags)
    app.connect("build-finished", _copy_mathjax)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
