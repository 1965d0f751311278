"""Rows of packed weights added up, four at a time, in lanes of one word."""

from __future__ import annotations

from ptq4snn.export.c99.weights import PLANES, lane_terms

__all__ = ["add_lines", "drain_lines", "mac_lines", "weight_lines", "wide_lines", "widen_lines"]


def add_lines(name: str, bits: str, times: str) -> list[str]:
    """Sums of rows, four to a word, each in a byte."""
    terms = lane_terms(int(bits), "j", "n")
    by = " * x" if times == "x" else ""
    last = ", uint32_t x)" if times == "x" else ")"
    lines = [f"  for (uint32_t j = 0; j < n / {len(terms)}U; j++) {{"]
    for i, term in enumerate(terms):
        at = f"{len(terms)} * j + {i}" if len(terms) > 1 else "j"
        lines.append(f"    sums[{at}] += ({term}){by};")
    return [
        f"/* adds a row of {bits}-bit weights, n lanes of four, to sums of 8 bits */",
        f"static void {name}_add{bits}_{times}(uint32_t *restrict sums, const uint32_t *restrict w,",
        f"    uint32_t n{last}",
        "{",
        *lines,
        "  }",
        "}",
    ]


def wide_lines(name: str, bits: str, times: str) -> list[str]:
    """Sums of rows, two to a word, each in 16 bits."""
    terms = lane_terms(int(bits), "j", "n")
    by = " * x" if times == "x" else ""
    last = ", uint32_t x)" if times == "x" else ")"
    lines = [f"  for (uint32_t j = 0; j < n / {len(terms)}U; j++) {{", "    uint32_t l;"]
    for i, term in enumerate(terms):
        at = f"2 * ({len(terms)} * j + {i})" if len(terms) > 1 else "2 * j"
        lines += [
            f"    l = {term};",
            f"    sums[{at}] += (l & 0x00FF00FFU){by};",
            f"    sums[{at} + 1] += ((l >> 8) & 0x00FF00FFU){by};",
        ]
    return [
        f"/* adds a row of {bits}-bit weights, n lanes of four, to sums of 16 bits */",
        f"static void {name}_wide{bits}_{times}(uint32_t *restrict sums, const uint32_t *restrict w,",
        f"    uint32_t n{last}",
        "{",
        *lines,
        "  }",
        "}",
    ]


def widen_lines(name: str) -> list[str]:
    return [
        "/* sums of 8 bits into those of 16; they begin anew */",
        f"static void {name}_widen(uint32_t *restrict narrow, uint32_t *restrict sums, uint32_t n)",
        "{",
        "  for (uint32_t l = 0; l < n; l++) {",
        "    const uint32_t x = narrow[l];",
        "    sums[2 * l] += x & 0x00FF00FFU;",
        "    sums[2 * l + 1] += (x >> 8) & 0x00FF00FFU;",
        "    narrow[l] = 0;",
        "  }",
        "}",
    ]


def drain_lines(name: str, size: str) -> list[str]:
    """Lanes of 8 or 16 bits into sums of 32."""
    if size == "8":
        lines = [f"    sums[4 * l + {i}] += (narrow[l] >> {8 * i}) & 0xFFU;" for i in range(4)]
        lines.append("    narrow[l] = 0;")
    else:
        lines = [
            f"    sums[4 * l + {i}] += (narrow[2 * l + {i % 2}] >> {16 * (i // 2)}) & 0xFFFFU;"
            for i in range(4)
        ]
        lines += ["    narrow[2 * l] = 0;", "    narrow[2 * l + 1] = 0;"]
    return [
        f"/* sums of {size} bits into those of 32; they begin anew */",
        f"static void {name}_drain{size}(uint32_t *restrict narrow, uint32_t *restrict sums, uint32_t n)",
        "{",
        "  for (uint32_t l = 0; l < n; l++) {",
        *lines,
        "  }",
        "}",
    ]


def mac_lines(name: str, bits: str, size: str) -> list[str]:
    """Products of a row with a number."""
    terms = lane_terms(int(bits), "j", "n")
    lines = [f"  for (uint32_t j = 0; j < n / {len(terms)}U; j++) {{", "    uint32_t l;"]
    for i, term in enumerate(terms):
        at = f"4 * ({len(terms)} * j + {i})" if len(terms) > 1 else "4 * j"
        lines.append(f"    l = {term};")
        lines += [f"    sums[{at} + {b}] += ((l >> {8 * b}) & 0xFFU) * x;" for b in range(4)]
    return [
        f"/* adds x times a row of {bits}-bit weights, n lanes of four, modulo 2^{size} */",
        f"static void {name}_mac{bits}_{size}(uint{size}_t *restrict sums, const uint32_t *restrict w,",
        f"    uint32_t n, uint{size}_t x)",
        "{",
        *lines,
        "  }",
        "}",
    ]


def weight_lines(name: str, bits: str) -> list[str]:
    """One weight."""
    parts, below, begin = [], 0, ""
    for plane in PLANES[int(bits)]:
        held = 8 // plane
        at = f"{begin}i / {4 * held}U"
        shift = f"8U * (i % 4U) + {plane}U * (i / 4U % {held}U)" if held > 1 else "8U * (i % 4U)"
        parts.append(f"(((w[{at}] >> ({shift})) & {2**plane - 1}U) << {below})")
        begin += f"n / {held}U + "
        below += plane
    unused = [] if "n /" in " ".join(parts) else ["  (void)n;"]
    return [
        f"/* weight i of a row of {bits} bits with n lanes of four */",
        f"static int32_t {name}_weight{bits}(const uint32_t *w, uint32_t n, uint32_t i)",
        "{",
        *unused,
        f"  return (int32_t)({' + '.join(parts)}) - {2 ** (int(bits) - 1)};",
        "}",
    ]
