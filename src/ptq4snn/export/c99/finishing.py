"""Softmax, log-softmax and argmax behind a decoded output, step by step as `numerics/finishing.py`."""

from __future__ import annotations

from math import prod

from ptq4snn.errors import PTQ4SNNError
from ptq4snn.export.c99.text import initializer
from ptq4snn.network.program import Output
from ptq4snn.numerics.finishing import (
    EXP_TERMS,
    LEAST,
    LN2_HIGH,
    LN2_LOW,
    LOG2_E,
    LOG_TERMS,
    ROOT_2,
    sum_bits,
)

__all__ = ["finish_lines", "finish_tables"]

WHOLE = 6755399441055744.0  # 3/2 2^52: behind it a double has no bits left, so that adding it rounds


def finish_tables(name: str, outputs: tuple[Output, ...]) -> list[str]:
    """exp and log, where an output needs them."""
    used = {how for out in outputs for how, _ in out.then}
    lines = _exp(name) if used & {"softmax", "log_softmax"} else []
    return lines + (_log(name) if "log_softmax" in used else [])


def _polynomial(name: str, terms: tuple[float, ...], x: str) -> list[str]:
    return [
        f"  static const double terms[{len(terms)}] = {{",
        *("  " + line for line in initializer([t.hex() for t in terms])),
        "  };",
        "  volatile double y = terms[0]; /* volatile: every result is rounded */",
        f"  for (int i = 1; i < {len(terms)}; i++) {{",
        f"    y = y * {x};",
        "    y = y + terms[i];",
        "  }",
    ]


def _exp(name: str) -> list[str]:
    return [
        "/* e^d of d <= 0 */",
        f"static double {name}_exp(double d)",
        "{",
        "  volatile double n = d, r;",
        f"  if (d < {LEAST.hex()}) {{",
        "    return 0.0;",
        "  }",
        f"  n = n * {LOG2_E.hex()};",
        f"  n = n + {WHOLE.hex()};",
        f"  n = n - {WHOLE.hex()};",
        f"  r = n * {LN2_HIGH.hex()};",
        "  r = d - r;",
        "  {",
        f"    volatile double low = n * {LN2_LOW.hex()};",
        "    r = r - low;",
        "  }",
        *_polynomial(name, EXP_TERMS, "r"),
        "  for (; n <= -32.0; n = n + 32.0) {",
        "    y = y * 0x1p-32;",
        "  }",
        "  for (; n < 0.0; n = n + 1.0) {",
        "    y = y * 0.5;",
        "  }",
        "  return y;",
        "}",
        "",
    ]


def _log(name: str) -> list[str]:
    return [
        "/* the logarithm of s >= 1 */",
        f"static double {name}_log(double s)",
        "{",
        "  volatile double m = s, k = 0.0, f, below, z;",
        "  for (; m >= 2.0; m = m * 0.5) {",
        "    k = k + 1.0;",
        "  }",
        f"  if (m > {ROOT_2.hex()}) {{",
        "    m = m * 0.5;",
        "    k = k + 1.0;",
        "  }",
        "  f = m - 1.0;",
        "  below = m + 1.0;",
        "  f = f / below;",
        "  z = f * f;",
        *_polynomial(name, LOG_TERMS, "z"),
        "  y = f * y;",
        f"  z = k * {LN2_LOW.hex()};",
        "  y = z + y;",
        f"  z = k * {LN2_HIGH.hex()};",
        "  y = z + y;",
        "  return y;",
        "}",
        "",
    ]


def finish_lines(name: str, number: int, out: Output) -> list[str]:
    """On y, which holds the decoded output, in place; an argmax reads the function `real` instead."""
    if len(out.then) > 1:
        raise PTQ4SNNError(
            f"output {number} ends with {' and '.join(how for how, _ in out.then)}, of which C has one: "
            "return the last of them only"
        )
    ((how, axis),) = out.then
    classes, inner = out.shape[axis], prod(out.shape[axis:]) // out.shape[axis]
    rows = [
        f"for (uint32_t row = 0; row < {prod(out.shape) // classes}; row++) {{",
        f"  const uint32_t first = row / {inner}U * {classes * inner}U + row % {inner}U;",
    ]
    if how == "argmax":
        rows += [
            "  uint32_t best = 0;",
            f"  for (uint32_t c = 1; c < {classes}; c++) {{ /* of equal ones the first */",
            f"    if ({name}_real{number}(out, steps, first + c * {inner}U) >",
            f"        {name}_real{number}(out, steps, first + best * {inner}U)) {{",
            "      best = c;",
            "    }",
            "  }",
            "  y[row] = (int64_t)best;",
        ]
        return [*rows, "}"]
    kind = "double" if out.given_type == "float64" else "float"
    bits = sum_bits(classes)
    rows += [
        "  volatile double top = (double)y[first], total = 0.0, e, d;",
        f"  for (uint32_t c = 1; c < {classes}; c++) {{",
        f"    top = (double)y[first + c * {inner}U] > top ? (double)y[first + c * {inner}U] : top;",
        "  }",
        f"  for (uint32_t c = 0; c < {classes}; c++) {{ /* whole numbers: exact */",
        f"    d = (double)y[first + c * {inner}U] - top;",
        f"    e = {name}_exp(d) * 0x1p{bits};",
        f"    e = e + {WHOLE.hex()};",
        f"    e = e - {WHOLE.hex()};",
        "    total = total + e;",
        "  }",
        f"  total = total * 0x1p-{bits};",
        *([f"  total = {name}_log(total);"] if how == "log_softmax" else []),
        f"  for (uint32_t c = 0; c < {classes}; c++) {{",
        f"    d = (double)y[first + c * {inner}U] - top;",
        "    e = d - total;" if how == "log_softmax" else f"    e = {name}_exp(d) / total;",
        f"    y[first + c * {inner}U] = ({kind})e;",
        "  }",
    ]
    return [*rows, "}"]
