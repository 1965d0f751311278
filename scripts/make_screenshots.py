"""Make the README's pictures, docs/images/report.png and docs/images/summary.svg, from the embedded default.

    python scripts/make_screenshots.py [--bundle FILE] [--out DIR] [--browser FILE]

Without --bundle the default is quantized and evaluated first (some two minutes of one core). A bundle must
have its report beside it; run `ptq4snn evaluate FILE --float` on it before, so that the accuracy is shown.
Needs playwright and Pillow, and a Chromium: the one on the PATH, or --browser.
"""

from __future__ import annotations

import argparse
import io
import shutil
import tempfile
from pathlib import Path
from typing import Any

from ptq4snn.cli import main as ptq4snn
from ptq4snn.files import write_whole
from ptq4snn.report.finished_run import read_run
from ptq4snn.report.page import write_page
from ptq4snn.report.screen import WIDTH, screen
from ptq4snn.report.terminal import rich_text
from ptq4snn.report.text import Marks

OUT = Path(__file__).parents[1] / "docs" / "images"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
PAGE_WIDTH, PAGE_HEIGHT, SCALE = 1200, 1320, 1.5
COLOURS = 256  # enough for a page of charts, and a third of the bytes

# rich's own format fetches fonts from a server
SVG = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{font-family: Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: {char_height}px;
line-height: {line_height}px}}
.{unique_id}-title {{font-size: 18px; font-weight: bold; font-family: sans-serif}}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--bundle", metavar="FILE", help="a finished run (the default is quantized)")
    p.add_argument("--out", type=Path, default=OUT, metavar="DIR", help="where the pictures go (docs/images)")
    p.add_argument("--browser", metavar="FILE", help="Chromium's program (looked for on the PATH)")
    args = p.parse_args()
    browser = args.browser or next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        p.error("there is no Chromium on the PATH: name one by --browser")
    with tempfile.TemporaryDirectory() as folder:
        report: Any = read_run(args.bundle or quantized(Path(folder))).data
        page = Path(folder) / "model.ptq.report.html"
        write_page(report, page)
        args.out.mkdir(parents=True, exist_ok=True)
        for name, picture in (("report.png", page_picture(page, browser)), ("summary.svg", terminal(report))):
            write_whole(args.out / name, picture)
            print(f"{args.out / name}: {len(picture):,} bytes")


def quantized(folder: Path) -> Path:
    """The embedded default by its default recipe, measured on the embedded test images."""
    bundle = folder / "model.ptq"
    for command in (["quantize", "--out", str(bundle)], ["evaluate", str(bundle), "--float"]):
        if ptq4snn(command) != 0:
            raise SystemExit(f"ptq4snn {' '.join(command)} failed")
    return bundle


def page_picture(page: Path, browser: str) -> bytes:
    """The top of the page, with fewer colours."""
    from PIL import Image
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        chromium = play.chromium.launch(executable_path=browser, args=["--no-sandbox", "--disable-gpu"])
        view = chromium.new_page(
            viewport={"width": PAGE_WIDTH, "height": PAGE_HEIGHT}, device_scale_factor=SCALE
        )
        view.goto(page.as_uri(), wait_until="load")
        view.wait_for_selector("html[data-ready]")  # all charts are drawn
        shot = view.screenshot()
        chromium.close()
    out = io.BytesIO()
    picture = Image.open(io.BytesIO(shot)).convert("RGB")
    picture.quantize(COLOURS, dither=Image.Dither.NONE).save(out, "PNG", optimize=True)
    return out.getvalue()


def terminal(report: Any) -> bytes:
    """The summary as a terminal shows it."""
    from rich.console import Console

    console = Console(
        record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="standard"
    )
    for line in [*screen(report, marks=Marks(unicode=True)), []]:  # the last line is cut off
        console.print(rich_text(line), soft_wrap=True, highlight=False)
    return console.export_svg(
        title="ptq4snn summary model.ptq", code_format=SVG, unique_id="ptq4snn"
    ).encode()


if __name__ == "__main__":
    main()
