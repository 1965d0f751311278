"""C functions that several operations share; only those that are used are written."""

from __future__ import annotations

from collections.abc import Callable

from ptq4snn.export.c99.text import uses
from ptq4snn.export.c99.weights import PLANES, lane_terms

__all__ = ["Helpers"]


class Helpers:
    """`use(name)` gives the name of a helper in C and remembers that it is needed."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._used: dict[str, list[str]] = {}

    def use(self, what: str) -> str:
        if what not in self._used:
            kind, _, arguments = what.partition(":")
            self._used[what] = []  # its place, before those that it needs itself
            text = _HELPERS[kind](self, *arguments.split(",")) if arguments else _HELPERS[kind](self)
            del self._used[what]
            self._used[what] = text
        return f"{self.name}_{what.replace(':', '').replace(',', '_')}"

    def lines(self, code: list[str]) -> list[str]:
        """The helpers that `code` calls, and those that they call."""
        out: list[str] = []
        for what, text in reversed(self._used.items()):
            if uses([*code, *out], self.use(what)):
                out = [*text, "", *out]
        return out


def _even(h: Helpers, size: str) -> list[str]:
    return [
        "/* a / 2^n, halves to even */",
        f"static int{size}_t {h.name}_even{size}(int{size}_t a, int32_t n)",
        "{",
        "  if (n == 0) {",
        "    return a;",
        "  }",
        f"  return (a + (((int{size}_t)1 << (n - 1)) - 1) + ((a >> n) & 1)) >> n;",
        "}",
    ]


def _first(h: Helpers) -> list[str]:
    order, x = [0] * 32, 0x077CB531
    for i in range(32):
        order[((x << i) & 0xFFFFFFFF) >> 27] = i
    places = ", ".join(map(str, order))
    return [
        "/* the number of the lowest bit of x that is set */",
        "#if defined(__GNUC__) && !defined(__ARM_ARCH_6M__)",
        f"#define {h.name}_first(x) ((uint32_t)__builtin_ctzl((unsigned long)(x)))",
        "#else",
        f"static uint32_t {h.name}_first(uint32_t x)",
        "{",
        f"  static const uint8_t places[32] = {{{places}}};",
        "  return places[((x & (0U - x)) * 0x077CB531U) >> 27];",
        "}",
        "#endif",
    ]


def _get(h: Helpers) -> list[str]:
    return [
        "/* the field of `width` bits from bit `at` on, with its sign */",
        f"static int32_t {h.name}_get(const uint8_t *row, uint32_t at, uint32_t width)",
        "{",
        "  uint32_t x = 0;",
        "  for (uint32_t i = 0; i < width;) {",
        "    const uint32_t from = (at + i) % 8U;",
        "    x |= ((uint32_t)row[(at + i) / 8U] >> from) << i;",
        "    i += 8U - from;",
        "  }",
        "  x <<= 32U - width;",
        "  return (int32_t)x >> (32U - width);",
        "}",
    ]


def _put(h: Helpers) -> list[str]:
    return [
        "/* and its inverse */",
        f"static void {h.name}_put(uint8_t *row, uint32_t at, uint32_t width, int32_t v)",
        "{",
        "  for (uint32_t i = 0; i < width;) {",
        "    const uint32_t from = (at + i) % 8U;",
        "    const uint32_t room = 8U - from;",
        "    const uint32_t take = width - i < room ? width - i : room;",
        "    const uint32_t mask = ((1U << take) - 1U) << from;",
        "    const uint32_t bits = (((uint32_t)v >> i) << from) & mask;",
        "    uint8_t *byte = &row[(at + i) / 8U];",
        "    *byte = (uint8_t)((*byte & ~mask) | bits);",
        "    i += take;",
        "  }",
        "}",
    ]


def _add(h: Helpers, bits: str, times: str) -> list[str]:
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
        f"static void {h.name}_add{bits}_{times}(uint32_t *restrict sums, const uint32_t *restrict w, uint32_t n{last}",
        "{",
        *lines,
        "  }",
        "}",
    ]


def _wide(h: Helpers, bits: str, times: str) -> list[str]:
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
        f"static void {h.name}_wide{bits}_{times}(uint32_t *restrict sums, const uint32_t *restrict w, uint32_t n{last}",
        "{",
        *lines,
        "  }",
        "}",
    ]


def _widen(h: Helpers) -> list[str]:
    return [
        "/* sums of 8 bits into those of 16; they begin anew */",
        f"static void {h.name}_widen(uint32_t *restrict narrow, uint32_t *restrict sums, uint32_t n)",
        "{",
        "  for (uint32_t l = 0; l < n; l++) {",
        "    const uint32_t x = narrow[l];",
        "    sums[2 * l] += x & 0x00FF00FFU;",
        "    sums[2 * l + 1] += (x >> 8) & 0x00FF00FFU;",
        "    narrow[l] = 0;",
        "  }",
        "}",
    ]


def _drain(h: Helpers, size: str) -> list[str]:
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
        f"static void {h.name}_drain{size}(uint32_t *restrict narrow, uint32_t *restrict sums, uint32_t n)",
        "{",
        "  for (uint32_t l = 0; l < n; l++) {",
        *lines,
        "  }",
        "}",
    ]


def _mac(h: Helpers, bits: str, size: str) -> list[str]:
    """Products of a row with a number."""
    terms = lane_terms(int(bits), "j", "n")
    lines = [f"  for (uint32_t j = 0; j < n / {len(terms)}U; j++) {{", "    uint32_t l;"]
    for i, term in enumerate(terms):
        at = f"4 * ({len(terms)} * j + {i})" if len(terms) > 1 else "4 * j"
        lines.append(f"    l = {term};")
        lines += [f"    sums[{at} + {b}] += ((l >> {8 * b}) & 0xFFU) * x;" for b in range(4)]
    return [
        f"/* adds x times a row of {bits}-bit weights, n lanes of four, modulo 2^{size} */",
        f"static void {h.name}_mac{bits}_{size}(uint{size}_t *restrict sums, const uint32_t *restrict w, uint32_t n, "
        f"uint{size}_t x)",
        "{",
        *lines,
        "  }",
        "}",
    ]


def _weight(h: Helpers, bits: str) -> list[str]:
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
        f"static int32_t {h.name}_weight{bits}(const uint32_t *w, uint32_t n, uint32_t i)",
        "{",
        *unused,
        f"  return (int32_t)({' + '.join(parts)}) - {2 ** (int(bits) - 1)};",
        "}",
    ]


def _phase(h: Helpers) -> list[str]:
    return [
        "/* the dither of a step, of a cycle of 16: its bits in reverse order, the highest ones of 16 */",
        f"static uint32_t {h.name}_phase(uint32_t t)",
        "{",
        "  return ((t & 1U) << 15) | ((t & 2U) << 13) | ((t & 4U) << 11) | ((t & 8U) << 9);",
        "}",
    ]


def _steps(h: Helpers) -> list[str]:
    """What a double does, without one: rint(x * (T / steps) + bias), rounded to 53 bits after each step."""
    return f"""/* x (T / steps) + bias as a whole number: what was summed over `steps` steps, as if over T.
   Quotient, product and sum are each rounded to 53 bits, halves to even, as floats of 64 bits are; |x| and
   the result are below 2^53. */
static uint64_t {h.name}_length(uint64_t x)
{{
  uint64_t n = 0;
  for (; x != 0; x >>= 1) {{
    n++;
  }}
  return n;
}}

static int64_t {h.name}_steps(int64_t x, int64_t bias, uint32_t T, uint32_t steps)
{{
  uint64_t num = T, den = steps, q = 0, hi, lo, whole, part;
  uint64_t m = x < 0 ? (uint64_t)-x : (uint64_t)x;
  int32_t e = 0;
  int more = 0;
  int negative = x < 0;
  if (T == steps || m == 0) {{
    return x + bias;
  }}
  for (; num < den; e--) {{ /* q 2^(e - 52) = T / steps */
    num <<= 1;
  }}
  for (; num >= 2 * den; e++) {{
    den <<= 1;
  }}
  for (int32_t i = 0; i < 53; i++) {{
    q <<= 1;
    if (num >= den) {{
      num -= den;
      q |= 1;
    }}
    num <<= 1;
  }}
  q += num > den || (num == den && (q & 1) != 0);
  e -= 52;
  {{ /* hi 2^64 + lo = m q */
    const uint64_t a = m >> 32, b = m & 0xFFFFFFFFU, c = q >> 32, d = q & 0xFFFFFFFFU;
    const uint64_t middle = a * d + ((b * d) >> 32) + ((b * c) & 0xFFFFFFFFU);
    lo = (middle << 32) | ((b * d) & 0xFFFFFFFFU);
    hi = a * c + ((b * c) >> 32) + (middle >> 32);
  }}
  {{ /* m 2^e, rounded to 53 bits */
    const uint64_t length = hi != 0 ? 64 + {h.name}_length(hi) : {h.name}_length(lo);
    if (length > 53) {{
      const uint64_t drop = length - 53; /* 1 .. 53 */
      const uint64_t rest = lo & ((UINT64_C(1) << drop) - 1), half = UINT64_C(1) << (drop - 1);
      m = (hi << (64 - drop)) | (lo >> drop);
      m += rest > half || (rest == half && (m & 1) != 0);
      e += (int32_t)drop;
    }} else {{
      m = lo;
    }}
  }}
  if (e >= 0) {{
    whole = m << e;
    return (negative ? -(int64_t)whole : (int64_t)whole) + bias;
  }}
  e = -e; /* m / 2^e is whole + part / 2^64, and perhaps a little more */
  if (e < 64) {{
    whole = m >> e;
    part = m << (64 - e);
  }} else {{
    whole = 0;
    part = e == 64 ? m : e < 128 ? m >> (e - 64) : 0;
    more = e == 64 ? 0 : e < 128 ? (m & ((UINT64_C(1) << (e - 64)) - 1)) != 0 : 1;
  }}
  {{ /* the sum with the bias, its sign apart */
    const uint64_t other = bias < 0 ? (uint64_t)-bias : (uint64_t)bias;
    if (negative == (bias < 0)) {{
      whole += other;
    }} else if (whole >= other) {{
      whole -= other;
    }} else {{ /* other - (whole + part) */
      const uint64_t borrow = part != 0 || more;
      negative = !negative;
      whole = other - whole - borrow;
      if (more) {{
        part = ~part;
      }} else {{
        part = 0 - part;
      }}
    }}
  }}
  {{ /* rounded to 53 bits, and then to a whole number */
    const uint64_t length = {h.name}_length(whole);
    if (length > 0 && length + 64 > 53) {{
      const uint64_t drop = length + 11; /* of the 64 bits of part */
      if (drop < 64) {{
        const uint64_t rest = part & ((UINT64_C(1) << drop) - 1), half = UINT64_C(1) << (drop - 1);
        uint64_t kept = part >> drop;
        kept += rest > half || (rest == half && (more || (kept & 1) != 0));
        whole += kept >> (64 - drop);
        part = kept << drop;
        more = 0;
      }}
    }}
    {{
      const uint64_t half = UINT64_C(1) << 63;
      whole += part > half || (part == half && (more || (whole & 1) != 0));
    }}
  }}
  return negative ? -(int64_t)whole : (int64_t)whole;
}}""".split("\n")


_HELPERS: dict[str, Callable[..., list[str]]] = {
    "even": _even, "first": _first, "get": _get, "put": _put, "add": _add, "wide": _wide, "widen": _widen,
    "drain": _drain, "mac": _mac, "weight": _weight, "phase": _phase, "steps": _steps,
}  # fmt: skip
