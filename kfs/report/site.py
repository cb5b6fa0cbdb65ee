"""A run's site: an index page with the headline, figures and provenance, and a page for each executed notebook.

Plain files that open without a server or a network, readable on a phone, light or dark; the folder can be moved alone.
Shows what a run holds and computes nothing.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import yaml

from kfs.errors import MissingDependencyError
from kfs.pairs import REFERENCE_SUBSETS
from kfs.records import atomic_write
from kfs.report.execute import no_uri_grammar

TEMPLATES = Path(__file__).parent / "templates"
HEADLINES = {
    "headline": "Headline: every test pair",
    "headline_sample": "The sample that slow forecasters run on",
}
_SHOWN = ("accuracy", "within_one", "half_brier", "crps", "ece", "spearman")


def build_site(out_dir: Path, manifest: dict) -> list[Path]:
    """Write ``site/`` of a run.

    Parameters
    ----------
    out_dir : Path
        The run's folder, with notebooks/, tables/ and figures/.
    manifest : dict
        What the run made; see ``study.py``.

    Returns
    -------
    list of Path
        Every file of the site.

    Raises
    ------
    MissingDependencyError
        If nbconvert is not installed.
    """
    site = out_dir / "site"
    if site.exists():
        shutil.rmtree(site)
    for folder in ("figures", "tables"):
        (site / folder).mkdir(parents=True)
    for file in [*manifest["figures"], *manifest["tables"]]:
        shutil.copyfile(out_dir / file, site / file)
    names = [n["notebook"] for n in manifest["notebooks"]]
    links = [{"href": "index.html", "text": "index"}, *({"href": f"{n}.html", "text": n} for n in names)]
    for name in names:
        path = out_dir / "notebooks" / f"{name}.ipynb"
        _write_page(site / f"{name}.html", f"{name} – {manifest['study']}", notebook_body(path), links)
    _write_page(site / "index.html", f"kfs study {manifest['study']}", _index(out_dir, manifest), links)
    return sorted(p for p in site.rglob("*") if p.is_file())


def _environment():
    import jinja2

    return jinja2.Environment(loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, trim_blocks=True)


def _write_page(path: Path, title: str, body: str, links: list[dict]) -> None:
    from markupsafe import Markup

    css = (TEMPLATES / "style.css").read_text() + _code_colours()
    page = _environment().get_template("page.html.j2").render(title=title, css=Markup(css), body=Markup(body), links=links)
    atomic_write(path, page.encode())


def _code_colours() -> str:
    """Colours of source code for light and for dark."""
    from pygments.formatters import HtmlFormatter

    light = HtmlFormatter(style="default").get_style_defs(".highlight")
    dark = HtmlFormatter(style="github-dark").get_style_defs(".highlight")
    keep = lambda css: "\n".join(
        line for line in css.splitlines() if not re.match(r"(pre|td|span|\.highlight\s*\{)", line.strip())
    )
    return f"\n{keep(light)}\n@media (prefers-color-scheme: dark) {{\n{keep(dark)}\n}}\n"


def notebook_body(path: Path) -> str:
    """An executed notebook as HTML: its code folded, progress bars and papermill's own cell left out."""
    try:
        with no_uri_grammar():
            import nbformat
            from nbconvert import HTMLExporter
    except ImportError as error:
        raise MissingDependencyError(f"the site needs nbconvert ({error}); install it with: pip install -e .[lab]") from error

    notebook = nbformat.read(path, as_version=4)
    notebook.cells = [c for c in notebook.cells if "injected-parameters" not in c.metadata.get("tags", [])]
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [o for o in cell.outputs if not _is_progress(o)]
    exporter = HTMLExporter(template_name="notebook", extra_template_basedirs=[str(TEMPLATES)])
    body, _ = exporter.from_notebook_node(notebook)
    return body


def _is_progress(output: dict) -> bool:
    """A progress bar, drawn as text or as a widget that a page without a kernel cannot show."""
    if output.get("output_type") == "stream":
        return output.get("name") == "stderr"
    return "application/vnd.jupyter.widget-view+json" in output.get("data", {})


def _index(out_dir: Path, manifest: dict) -> str:
    notebooks = []
    for entry in manifest["notebooks"]:
        title, question = _opening(out_dir / "notebooks" / f"{entry['notebook']}.ipynb")
        figures = [{"file": f"figures/{name}.png", "caption": caption} for name, caption in entry["figures"].items()]
        notebooks.append(
            {
                "name": entry["notebook"],
                "title": title or entry["notebook"],
                "question": question,
                "seconds": f"{entry['seconds']:.0f}",
                "figures": figures,
                "tables": list(entry["tables"].values()),
            }
        )
    tables = [t for name, title in HEADLINES.items() if (t := _headline(out_dir / "tables" / f"{name}.csv", title, manifest))]
    config = manifest["config"]
    level = config["bootstrap"]["level"]
    provenance = [
        ("run", f"{manifest['study']}/{manifest['digest']}"),
        ("git commit", _by_notebook(manifest, lambda n: n["git_commit"] or "none: not a git checkout")),
        ("seed", config["seed"]),
        ("intervals", f"{level:.0%} bootstrap over tasks and kernels, {config['bootstrap']['n_resamples']} resamples"),
        ("notebooks took", f"{manifest['seconds']:.0f} s"),
        ("data", f"{len(manifest['data'])} files, digests below"),
        ("versions", _by_notebook(manifest, lambda n: ", ".join(f"{k} {v}" for k, v in n["versions"].items()))),
    ]
    return (
        _environment()
        .get_template("index.html.j2")
        .render(
            manifest=manifest,
            notebooks=notebooks,
            tables=tables,
            provenance=provenance,
            config=yaml.safe_dump(config, sort_keys=False),
        )
    )


def _by_notebook(manifest: dict, describe: Callable[[dict], str]) -> str:
    """What the notebooks ran on: one text where all agree, else each text with the notebooks it holds for."""
    names: dict[str, list[str]] = {}
    for entry in manifest["notebooks"]:
        names.setdefault(describe(entry), []).append(entry["notebook"])
    return next(iter(names)) if len(names) == 1 else "; ".join(f"{text} ({', '.join(n)})" for text, n in names.items())


def _opening(path: Path) -> tuple[str, str]:
    """Title and first paragraph of a notebook's first cell, as plain text."""
    cell = json.loads(path.read_text())["cells"][0]
    if cell["cell_type"] != "markdown":
        return "", ""
    parts = [p.strip() for p in "".join(cell["source"]).split("\n\n") if p.strip()]
    title = parts.pop(0).lstrip("# ") if parts and parts[0].startswith("#") else ""
    question = parts[0] if parts else ""
    return title, re.sub(r"[*`]", "", " ".join(question.split()))


def _headline(path: Path, title: str, manifest: dict) -> dict | None:
    """A headline table's main subsets, ready for the page; None where the run has no such table."""
    if f"tables/{path.name}" not in manifest["tables"]:
        return None
    import pandas as pd

    frame = pd.read_csv(path)
    main = [s for s in ("all", *REFERENCE_SUBSETS) if (frame["subset"] == s).any()]
    rows = []
    for subset in main:
        for row in frame[frame["subset"] == subset].to_dict("records"):
            cells = [{"value": row["forecaster"]}, {"value": subset}]
            cells += [_cell(row[m], row[f"{m}_low"], row[f"{m}_high"]) for m in _SHOWN]
            rows.append([*cells, *({"value": row[k]} for k in ("n", "n_accuracy", "n_parse_failed"))])
    columns = ["forecaster", "subset", *(m.replace("_", " ") for m in _SHOWN), "n", "n certain", "unparsed"]
    level = manifest["config"]["bootstrap"]["level"]
    note = (
        f"Small: {level:.0%} bootstrap interval. Accuracy and ECE count the pairs whose own interval is not known to cross a bin "
        "edge (n certain); an unparsed reply is wrong in accuracy and left out of ECE. Every subset:"
    )
    return {"title": title, "columns": columns, "rows": rows, "note": note, "file": f"tables/{path.name}"}


def _cell(value: float, low: float, high: float) -> dict[str, str]:
    if value != value:
        return {"value": "–"}
    return {"value": f"{value:.3f}", "interval": f"{low:.3f} to {high:.3f}" if low == low else ""}
