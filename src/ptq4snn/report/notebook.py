"""A report as a small HTML fragment for notebooks, light and dark: it takes the text's colour, and a blue.

No script, nothing fetched. Where a viewer drops the style the numbers remain, as a list and a table.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from ptq4snn.network.plan import Plan
from ptq4snn.report import digest
from ptq4snn.report.static import report_of_plan
from ptq4snn.report.text import number
from ptq4snn.report.units import percent, significant, size, smaller
from ptq4snn.schema.report_types import Neuron, Report, Summary

__all__ = ["fragment"]

BLUE = "#2f8fd0"  # reads on white and on black
# widths up to: how much of BLUE
TINTS = {2: 25, 3: 35, 4: 50, 8: 75}
STYLE = f"""
.ptq4snn {{font: 13px/1.45 system-ui, sans-serif; color: inherit; max-width: 900px}}
.ptq4snn * {{box-sizing: border-box}}
.ptq4snn p {{margin: 0 0 8px}}
.ptq4snn dl {{display: flex; flex-wrap: wrap; gap: 8px; margin: 0 0 10px}}
.ptq4snn dl div {{border: 1px solid; border-color: rgba(128,128,128,.4); border-radius: 6px; padding: 6px 12px; min-width: 112px}}
.ptq4snn dt {{font-size: 11px; opacity: .75; margin: 0}}
.ptq4snn dd {{margin: 0; font-size: 15px; font-weight: 600}}
.ptq4snn dd small {{display: block; font-weight: 400; font-size: 11px; opacity: .75}}
.ptq4snn .bits {{display: flex; width: 100%; height: 12px; border-radius: 3px; overflow: hidden}}
.ptq4snn .bits span, .ptq4snn .bar {{background: {BLUE}}}
.ptq4snn .over {{max-height: 330px; overflow: auto; margin-top: 8px}}
.ptq4snn table {{border-collapse: collapse; width: 100%; margin: 0; border: 0; font: inherit; color: inherit; font-variant-numeric: tabular-nums}}
.ptq4snn th, .ptq4snn td {{text-align: right; padding: 2px 8px; border: 0; border-bottom: 1px solid rgba(128,128,128,.25); background: none; white-space: nowrap}}
.ptq4snn th:first-child, .ptq4snn td:first-child {{text-align: left}}
.ptq4snn .bar {{display: inline-block; height: 8px; border-radius: 2px; vertical-align: baseline}}
.ptq4snn .room {{display: inline-block; width: 64px; margin-left: 6px; text-align: left}}
"""  # noqa: E501


def fragment(report: Report) -> str:
    """Cards, the bits of the states, and a table of the layers; what is not known is left out."""
    summary, neurons = report.get("summary") or {}, report.get("neurons") or []
    words = " · ".join(digest.headline(summary))
    notes = "".join(f"<p>{escape(text)}</p>" for text in digest.notes(report))
    return (
        f'<div class="ptq4snn"><style>{STYLE}</style><p><b>ptq4snn</b> {escape(words)}</p>'
        f"<dl>{''.join(_cards(report))}</dl>{_composition(neurons)}{_table(neurons)}{notes}</div>"
    )


def _cards(report: Report) -> Iterable[str]:
    s: Summary = report.get("summary") or {}
    for row in digest.accuracies(report)[-1:]:
        before = "" if row.before is None else f"float {row.before:.2f} %, "
        yield _card(row.metric, f"{row.after:.2f} %", f"{before}{row.samples:,} samples")
    if s.get("average_bits"):  # 0: nothing is in the budget
        every = number(s.get("average_bits_all"), "{:.3f}", missing="–")
        yield _card("bits of a state", f"{s['average_bits']:.3f}", f"all states {every}")
    for name, change in digest.memory(s).items():
        text = f"{size(change.before)} → {size(change.after)}"
        times = smaller(*change)
        beside = [] if times is None else [f"{times} smaller"]
        beside += [f"and {size(digest.beside_weights(s))} of scales and biases"] if name == "weights" else []
        yield _card(f"{name}, memory", text, ", ".join(beside))
    if s.get("agreement") is not None:
        text = f"with float, {s['held_out']:,} samples"
        yield _card("agreement", f"{100 * s['agreement']:.2f} %", text)
    if s.get("flip_rate") is not None:
        yield _card("spike flips", percent(s["flip_rate"]), f"{significant(s['saturation'])} % saturated")
    if s.get("state_energy") is not None:
        yield _card("state energy", significant(s["state_energy"]), "of M32")


def _card(label: str, value: str, beside: str) -> str:
    small = f"<small>{escape(beside)}</small>" if beside else ""
    return f"<div><dt>{escape(label)}</dt><dd>{escape(value)}{small}</dd></div>"


def _composition(neurons: Sequence[Neuron]) -> str:
    """One bar of all resident states."""
    total: dict[int, int] = {}
    for widths in digest.composition(neurons).values():
        for b, n in widths.items():
            total[b] = total.get(b, 0) + n
    if not total:
        return ""
    states = sum(total.values())
    words = ", ".join(f"{b}-bit {percent(total[b] / states)}" for b in sorted(total))
    return f"<p>{states:,} resident states: {words}</p>{_bits_bar(total)}"


def _bits_bar(widths: dict[int, int]) -> str:
    """More bits, more colour."""
    total = sum(widths.values())
    parts = []
    for b in sorted(widths):
        tint = next((tint for most, tint in TINTS.items() if b <= most), 100)
        share = 100 * widths[b] / total
        parts.append(f'<span title="{b} bits" style="width:{share:.2f}%;opacity:{tint / 100:g}"></span>')
    return f'<div class="bits">{"".join(parts)}</div>'


def _table(neurons: Sequence[Neuron]) -> str:
    if not neurons:
        return ""
    measured = any(n.get("flip_rate") is not None for n in neurons)
    titles = ["layer", "kind", "state", "bits", "k"]
    titles += ["saturated %", "flips %", "firing rate"] if measured else []
    top = max((n.get("flip_rate") or 0.0 for n in neurons), default=0.0) or 1.0
    head = "".join(f'<th scope="col">{t}</th>' for t in titles)
    body = "".join(f"<tr>{''.join(_cells(n, measured, top))}</tr>" for n in neurons)
    return (
        '<div class="over" tabindex="0" role="region" aria-label="layers"><table>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _cells(n: Neuron, measured: bool, top: float) -> Iterable[str]:
    texts = [n["name"], n["kind"], digest.shape(n), f"{digest.average_bits(n):.2f}", digest.exponents(n)]
    yield from (f"<td>{escape(str(t))}</td>" for t in texts)
    if not measured:
        return
    flips, rates = n.get("flip_rate"), n.get("firing_rate")
    bar = f'<span class="bar" style="width:{100 * (flips or 0.0) / top:.0f}%"></span>'
    before, after = (number(rates and rates[k], "{:.3f}", missing="–") for k in ("before", "after"))
    yield f"<td>{number(n.get('saturation'), missing='–')}</td>"
    yield f'<td>{number(flips, factor=100, missing="–")}<span class="room">{bar}</span></td>'
    yield f"<td>{before} → {after}</td>"


Plan.view = lambda plan: fragment(report_of_plan(plan))
