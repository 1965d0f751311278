"""Sums over other steps than at calibration: what doubles do, without one."""

from __future__ import annotations

__all__ = ["steps_lines"]


def steps_lines(name: str) -> list[str]:
    """What a double does, without one: rint(x * (T / steps) + bias), rounded to 53 bits after each step."""
    return f"""/* x (T / steps) + bias as a whole number: what was summed over `steps` steps, as if over T.
   Quotient, product and sum are each rounded to 53 bits, halves to even, as floats of 64 bits are; |x| and
   the result are below 2^53. */
static uint64_t {name}_length(uint64_t x)
{{
  uint64_t n = 0;
  for (; x != 0; x >>= 1) {{
    n++;
  }}
  return n;
}}

static int64_t {name}_steps(int64_t x, int64_t bias, uint32_t T, uint32_t steps)
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
    const uint64_t length = hi != 0 ? 64 + {name}_length(hi) : {name}_length(lo);
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
    const uint64_t length = {name}_length(whole);
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
