"""Does a bundle fit a target: the constraints, and the recipe that would meet them. Needs no torch."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ptq4snn.errors import BundleError, PTQ4SNNError
from ptq4snn.export.c99.export import generate
from ptq4snn.files import short
from ptq4snn.network.plan import Plan
from ptq4snn.runtime.demand import Limits
from ptq4snn.runtime.loading import read_contents
from ptq4snn.runtime.parameters import Model
from ptq4snn.targets.advice import Case, advise, recipe_of
from ptq4snn.targets.chips import MICROCONTROLLER, chip
from ptq4snn.targets.constraints import Finding, findings
from ptq4snn.targets.network_facts import network_of
from ptq4snn.targets.target import Target, read_target

__all__ = ["Verdict", "check", "check_model", "target_of"]


@dataclass(frozen=True)
class Verdict:
    """All constraints of a target, met or broken; what would mend those that are broken."""

    target: Target
    findings: tuple[Finding, ...]
    recipe: str | None  # TOML for `quantize --recipe`, where one helps
    beyond: tuple[str, ...]  # what no recipe mends

    @property
    def fits(self) -> bool:
        return all(f.met for f in self.findings)

    @property
    def broken(self) -> tuple[Finding, ...]:
        return tuple(f for f in self.findings if not f.met)

    def to_dict(self) -> dict[str, Any]:
        return {
            "target": self.target.name,
            "fits": self.fits,
            "constraints": [asdict(f) for f in self.findings],
            "recipe": self.recipe,
            "beyond": list(self.beyond),
            "note": self.target.note,
        }

    def lines(self) -> list[str]:
        """One line for each constraint, then the advice."""
        count = len(self.findings)
        head = "fits" if self.fits else "does not fit"
        tally = f"{count - len(self.broken)} of {count} constraints are met"
        out = [f"{self.target.name}: {head}, {tally}", ""]
        width = max((len(f.place) for f in self.findings), default=0)
        for f in self.findings:
            out.append(f"{'met   ' if f.met else 'BROKEN'}  {f.place:<{width}}  {f.text}")
        if self.recipe is not None:
            out += ["", "quantize again with this recipe (--recipe FILE.toml):", ""]
            out += [f"    {line}".rstrip() for line in self.recipe.splitlines()]
        if self.beyond:
            out += ["", "no recipe mends:", *(f"    {sentence}" for sentence in self.beyond)]
        if self.target.note:
            out += ["", f"note: {self.target.note}"]
        return out


def _written_as_nir(plan: Plan, model: Model) -> Finding:
    """By trying it; what NIR cannot say comes with its place."""
    from ptq4snn.export.nir_form.export import nodes_of  # here, because it needs nir

    try:
        nodes_of(plan, model)
    except PTQ4SNNError as why:
        return Finding("nir", "", False, str(why))
    return Finding("nir", "", True, "can be written as NIR")


def target_of(name: str, flash: int | None = None, ram: int | None = None) -> Target:
    """A target by its name, by a TOML file, or a microcontroller by its bytes."""
    if name.lower() == MICROCONTROLLER:
        if flash is None and ram is None:
            raise PTQ4SNNError("a microcontroller is its memory: give --flash BYTES, --ram BYTES, or both")
        note = "flash holds weights, tables and an estimate of the code; RAM one session, without the stack"
        return Target("microcontroller", flash=flash, ram=ram, note=note)
    if flash is not None or ram is not None:
        raise PTQ4SNNError(f"--flash and --ram are for --target {MICROCONTROLLER}: leave them out")
    return read_target(name) if name.lower().endswith(".toml") else chip(name)


def check(bundle: str | Path, target: str | Target, limits: Limits | None = None) -> Verdict:
    """Whether a bundle, which may ask for no more than `limits`, fits a target."""
    found = read_contents(bundle, limits or Limits())
    if found.model is None:
        why = " ".join(found.not_lowered.split())[:500] or "make the bundle again"
        raise BundleError(f"{short(bundle)}: it has no integer program that a target could run: {why}")
    return check_model(found.plan, found.model, target if isinstance(target, Target) else target_of(target))


def check_model(plan: Plan, model: Model, target: Target) -> Verdict:
    """The same of a plan and its program."""
    network, limited = network_of(plan, model), target.flash is not None or target.ram is not None
    figures = generate(model, "network").figures if limited else None
    results = tuple(findings(target, network, figures))
    results += (_written_as_nir(plan, model),) if target.nir else ()
    case = Case(target, network, figures, recipe_of(plan.recipe), [f for f in results if not f.met])
    advice = advise(case)
    return Verdict(target, results, advice.toml(case.recipe), tuple(advice.beyond))
