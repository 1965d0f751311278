"""Make src/ptq4snn/assets/vega/vega.min.js: Vega, Vega-Lite and Vega-Embed in one file, to work offline.

pip install "ptq4snn[figures]" && python scripts/make_vega_bundle.py
"""

from __future__ import annotations

from pathlib import Path

import vl_convert

FOLDER = Path(__file__).parents[1] / "src" / "ptq4snn" / "assets" / "vega"
VEGA_LITE = "6.4"  # one of vl_convert.get_vegalite_versions()


def main() -> None:
    parts = {
        "Vega": vl_convert.get_vega_version(),
        "Vega-Lite": VEGA_LITE,
        "Vega-Embed": vl_convert.get_vega_embed_version(),
    }
    versions = ", ".join(f"{name} {version}" for name, version in parts.items())
    code = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", VEGA_LITE)
    if "</script" in code.lower() or "<!--" in code:
        raise SystemExit("the bundle would end the <script> it is put into")
    head = f"/* {versions}; licences in LICENSE. Made by scripts/make_vega_bundle.py. */"
    # a function of its own: the bundle's many short names stay out of the page
    text = f'{head}\n(()=>{{"use strict";{code}}})();\n'
    target = FOLDER / "vega.min.js"
    target.write_text(text, encoding="utf-8")
    print(f"{target}: {len(text.encode()):,} bytes, {versions}")


if __name__ == "__main__":
    main()
