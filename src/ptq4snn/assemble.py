"""From a lattice and the bits of every channel to a Plan, and from a Plan to the model that computes it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor

from ptq4snn.bridge.conversions import conversions, power_of_two
from ptq4snn.bridge.couplings import ExponentTable, NeuronView, StateScales, choose_scales
from ptq4snn.bridge.lattice import SYNAPTIC, Lattice, NeuronLattice, ProjectionLattice
from ptq4snn.bridge.objective import SquaredError
from ptq4snn.bridge.replay import ChannelCosts, Dynamics, Replay
from ptq4snn.bridge.weights import per_channel
from ptq4snn.discovery.folding import Folded, MirrorSpec
from ptq4snn.errors import RecipeError
from ptq4snn.modules.quantized import Integers
from ptq4snn.network.plan import MirrorPlan, NeuronPlan, OutputPlan, Plan, ProjectionPlan, RescalePlan
from ptq4snn.numerics.dither import PHASE_BITS
from ptq4snn.numerics.fixed_point import Fraction2, dyadic_leak, multiplier
from ptq4snn.numerics.limits import INT32, WIDE_STATE
from ptq4snn.observation.observe import Observation
from ptq4snn.observation.traces import Trace
from ptq4snn.recipe import Recipe

__all__ = ["Assembly"]

LARGEST_K, LARGEST_K_FIRST = 15, 24
READOUT_BITS = 16
FIRST_MEMBRANE = Recipe.first_membrane  # its default


@dataclass
class Assembly:
    """Everything that stays the same while bits and couplings are tried. Neurons with a trace are judged by
    replay, the others by squared error."""

    lattice: Lattice
    traces: dict[str, Trace] = field(default_factory=dict)
    thresholds: dict[str, Tensor] = field(default_factory=dict)  # [C] where a correction moved them
    # what replay said of each neuron on the float network's currents; nothing in it changes a result
    flips: dict[str, ChannelCosts] = field(init=False, default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.tables = {n: self.table(n) for n in self.lattice.neurons}
        self._projections = {n: self._projection(p) for n, p in self.lattice.projections.items()}

    @property
    def folded(self) -> Folded:
        return self.lattice.basis.folded

    @property
    def seen(self) -> Observation:
        return self.lattice.basis.seen

    @property
    def recipe(self) -> Recipe:
        return self.lattice.basis.recipe

    def table(self, name: str) -> ExponentTable:
        """Costs of the exponents of one neuron."""
        n = self.lattice.neurons[name]  # other couplings than the bridge are what their authors did
        judged = self.bridged(name) and bool((n.theta > 0).all())  # replay measures in thresholds
        trace = self.traces.get(name) if judged else None
        if trace is None and name in self.lattice.tables:
            return self.lattice.tables[name]
        shifts = trace is not None and self.recipe.zero_point == "channel" and self.in_budget(name)
        ks, floor = self.exponents(n), self.floor(name)
        view = NeuronView(self.seen.neurons[name], n.theta, n.scale, n.own, ks, shifts, floor)
        if trace is not None:
            return ExponentTable(view, Replay(self.dynamics(n), trace))
        return self.lattice.tables.setdefault(name, ExponentTable(view, SquaredError()))

    def retrace(self, name: str, trace: Trace) -> None:
        """Judge a neuron by other currents from now on."""
        self.traces[name] = trace
        self.tables[name] = self.table(name)

    def dynamics(self, n: NeuronLattice, theta: Tensor | None = None) -> Dynamics:
        """The neuron for replay, with another threshold [C] if one is given."""
        spec = self.folded.specs[n.info.name]
        fires_at = n.theta if theta is None else theta
        leak, theta, rho = (v.float()[:, None] for v in (n.leak, fires_at, n.rho))
        strict, rounding = spec.comparator == ">", self.recipe.state_rounding
        behind = next((m for m in self.lattice.neurons.values() if m.info.synapse == n.info.name), None)
        membrane = None if behind is None else self.dynamics(behind)
        floor = None if (found := self.floor(n.info.name)) is None else found.float()[:, None]
        carried = spec.emits == "carried"
        return Dynamics(leak, theta, rho, spec.reset, strict, rounding, membrane, carried, floor, spec.limit)

    def floor(self, name: str) -> Tensor | None:
        """The least state [C] that a neuron may have; None: any."""
        floor = self.folded.specs[name].floor
        return None if floor is None else per_channel(self.folded, name, floor, "lower bound").cpu()

    def exponents(self, n: NeuronLattice) -> range:
        """Admissible k: from n - F, where a dyadic leak stays exact, to 15 or what 32 bits hold. A first
        layer counts in steps of input times weight, 8 bits each: a narrow state may need more than 15."""
        leaks = [dyadic_leak(v) for v in n.leak.tolist()]
        low = max((f.n if f.n <= 8 else 0) for f in leaks) - n.shift
        high = LARGEST_K_FIRST if n.info.stem and self.in_budget(n.info.name) else LARGEST_K
        if self.recipe.state_rounding == "dither":
            high = min(high, PHASE_BITS - n.shift)
        widest = self.fixed_bits(n.info.name) or 8 + (self.recipe.zero_point != "none")
        limit = SYNAPTIC if self.folded.specs[n.info.name].emits != "spikes" else INT32
        widest = min(widest, 16) + (self.folded.specs[n.info.name].floor is not None)  # levels on one side
        while high > low and n.input_bound + 2 ** (widest - 1 + high + n.shift) >= limit:
            high -= 1
        return range(low, high + 1)

    def coupling(self, name: str) -> str:
        rule = self.recipe.override(name)
        return rule.coupling or self.recipe.coupling

    def bridged(self, name: str) -> bool:
        return self.coupling(name) == "bridge"

    def plan(self, bits: Mapping[str, Tensor]) -> Plan:
        """The plan in which neuron `n` has the widths bits[n] [C]."""
        neurons: dict[str, NeuronPlan] = {}
        for name, lattice in self.lattice.neurons.items():
            neurons[name] = self._neuron(self._reached(lattice, neurons), bits[name])
        d = self.folded.discovery
        return Plan(
            recipe=self.recipe.to_dict(),
            arithmetic=self.recipe.arithmetic,
            steps=max(n.steps for n in d.neurons.values()),
            norms=d.norms,
            projections=self._projections,
            neurons=neurons,
            outputs=tuple(OutputPlan(o.projection, o.axis, o.then, o.scales) for o in d.outputs),
            mirrors={n: self._mirror(m) for n, m in self.folded.mirrors.items()},
            step_outputs=tuple(OutputPlan(o.projection, o.axis, o.then, o.scales) for o in d.step_outputs),
            excluded=d.excluded,
            edits=d.edits,
        )

    def replanned(self, plan: Plan, name: str, bits: Mapping[str, Tensor]) -> Plan:
        """`plan` with one neuron decided anew, and the membrane behind it if it is a synapse."""
        neurons = dict(plan.neurons)
        for other, lattice in self.lattice.neurons.items():
            if name in (other, lattice.info.synapse):
                neurons[other] = self._neuron(self._reached(lattice, neurons), bits[other])
        return replace(plan, neurons=neurons)

    def _reached(self, n: NeuronLattice, made: Mapping[str, NeuronPlan]) -> NeuronLattice:
        """With the largest current that the synapse in front of a membrane can emit."""
        if n.info.synapse is None:
            return n
        synapse = made[n.info.synapse]
        if synapse.emits == "current":
            return replace(n, input_bound=synapse.bound)
        factors = [math.ldexp(m, -s) for m, s in synapse.lift]
        reach = (2.0 ** (b - 1) * f for b, f in zip(synapse.bits, factors, strict=True))
        zero = (abs(z) * f for z, f in zip(synapse.zero, factors, strict=True))
        return replace(n, input_bound=math.ceil(max(r + z for r, z in zip(reach, zero, strict=True))) + 1)

    def _mirror(self, m: MirrorSpec) -> MirrorPlan:
        shift = m.shift.cpu() / self.lattice.projections[m.projection].unit
        exact = self.recipe.arithmetic == "float"
        signs = tuple(int(s) for s in m.sign.tolist())
        return MirrorPlan(m.projection, signs, tuple((shift if exact else shift.round()).tolist()), m.axis)

    def integers(self) -> dict[str, Integers]:
        """Weight and bias integers of every projection."""
        out = {}
        for name, p in self.lattice.projections.items():
            bias = (p.bias if p.places is None else p.bias + p.places) / p.unit
            exact = self.recipe.arithmetic == "float"
            out[name] = Integers(p.weight.kept, bias if exact else bias.round())
        return out

    def uniform_bits(self) -> dict[str, Tensor]:
        """The budget, rounded, for every channel inside it; the others keep their own width."""
        out = {}
        for name, n in self.lattice.neurons.items():
            width = self.fixed_bits(name) or round(self.recipe.membrane)
            out[name] = torch.full((len(n.scale),), width, dtype=torch.int64)
        return out

    def _projection(self, p: ProjectionLattice) -> ProjectionPlan:
        rescale = None
        if p.target is not None:
            exact = [multiplier(r) for r in (p.unit / p.target).tolist()]
            m, n = tuple(f.m for f in exact), tuple(f.n for f in exact)
            rescale = RescalePlan(m, n, p.target_bits, tuple(p.target.tolist()))
        return ProjectionPlan(
            name=p.info.name,
            role=p.info.role,
            bits=p.weight.bits,
            odd=p.weight.odd,
            scales=tuple(p.weight.scales.tolist()),
            lattice=tuple(p.lattice.tolist()),
            shift=p.shift,
            quantum=p.info.factor,
            over_time=p.info.over_time,
            bound=math.ceil(p.bound() * self._window(p)),
            input=p.input,
            rescale=rescale,
            decode=p.info.decode,
            places=() if p.info.places is None else tuple(p.info.places.shape[:-1]),
        )

    def _window(self, p: ProjectionLattice) -> float:
        """How many accumulators are added by the pooling behind a projection, in the carrier it emits."""
        readers = p.info.feeds if p.info.stream is None else ()
        return max((self.lattice.neurons[n].info.window for n in readers), default=1.0)

    def _scales(self, n: NeuronLattice, bits: Tensor) -> StateScales:
        coupling = self.coupling(n.info.name)
        if int(bits.max()) >= WIDE_STATE and self.folded.specs[n.info.name].floor is not None:
            raise RecipeError(
                f"the neuron '{n.info.name}' has a least state (min_v_mem), and states of {WIDE_STATE} bits "
                f"have none: give it 16 bits or fewer, overrides={{'{n.info.name}': {{'membrane': 16}}}}"
            )
        if int(bits.min()) >= WIDE_STATE:
            k = torch.full_like(bits, -n.shift)
            return StateScales(n.unit, k)
        # the stem keeps fewer bits than 32 also where nothing is coupled
        return choose_scales("bridge" if coupling == "none" else coupling, self.tables[n.info.name], bits)

    def _neuron(self, n: NeuronLattice, bits: Tensor) -> NeuronPlan:
        info, spec = n.info, self.folded.specs[n.info.name]
        chosen = self._scales(n, bits)
        leaks, trained = [dyadic_leak(v) for v in n.leak.tolist()], self._trained_leaks[info.name]
        ratios = (chosen.scales / n.unit).tolist()
        pairs = [conversions(r, f) for r, f in zip(ratios, leaks, strict=True)]
        if self.recipe.state_rounding == "dither" and any(s.m != 1 for _, s in pairs):
            raise RecipeError(
                f'state_rounding "dither" needs states that are shifted, but coupling '
                f"\"{self.coupling(info.name)}\" gives '{info.name}' a scale that is no power of two of its "
                f'input\'s: choose "even" or another coupling'
            )
        theta, rho = self.thresholds.get(info.name, n.theta) / n.unit, n.rho / n.unit
        if self.recipe.arithmetic == "integer":
            theta = theta.ceil() if spec.comparator == ">=" else theta.floor() + 1
            if spec.limit > 1:  # what is divided by is nearest: each of the thresholds that fit is off by it
                theta = (self.thresholds.get(info.name, n.theta) / n.unit).round().clamp_min(1)
            rho = rho.round()
        elif spec.comparator == ">":  # the least float32 above
            single = theta.float()
            above = single.nextafter(torch.full_like(single, torch.inf))
            theta = torch.where(single > theta, single, above).double()
        bound = self._bound(n, bits, chosen.zero, [c for c, _ in pairs])
        if spec.emits != "spikes":
            theta = torch.full_like(theta, bound + 1.0)
        lift = [conversions(r, Fraction2(1, 0))[0] for r in ratios] if spec.emits == "carried" else []
        k = chosen.k.tolist() if chosen.k is not None else [power_of_two(r * 2.0**-n.shift) for r in ratios]
        return NeuronPlan(
            name=info.name,
            kind=info.kind,
            layout=info.layout,
            coupling=self.coupling(info.name),
            comparator=spec.comparator,
            reset=spec.reset,
            rounding=self.recipe.state_rounding,
            v_rest=spec.v_rest,
            shift=n.shift,
            quantum=info.factor,
            over_time=info.over_time,
            emits_units=info.stream is None and bool(info.projections or info.synapse),
            bits=tuple(bits.tolist()),
            zero=tuple((chosen.zero if chosen.zero is not None else torch.zeros_like(bits)).tolist()),
            k=tuple(k),
            scales=tuple(chosen.scales.tolist()),
            unit=tuple(n.unit.tolist()),
            theta=tuple(theta.tolist()),
            rho=tuple(rho.tolist()) if spec.reset == "soft" else (0.0,) * len(theta),
            leak=tuple((f.m, f.n) for f in leaks),
            charge=tuple((c.m, c.n) for c, _ in pairs),
            settle=tuple((s.m, s.n) for _, s in pairs),
            bound=bound,
            leak_error=max(abs(f.value - v) for f, v in zip(leaks, trained, strict=True)),
            elements=info.layout.elements,
            steps=info.steps,
            in_budget=self.in_budget(info.name),
            stem=info.stem,
            readout=info.readout,
            zero_state=info.zero_state,
            emits=spec.emits,
            lift=tuple((f.m, f.n) for f in lift),
            most=spec.limit,
        )

    @cached_property
    def _trained_leaks(self) -> dict[str, list[float]]:
        specs = self.folded.specs
        return {n: per_channel(self.folded, n, specs[n].leak, "leak").tolist() for n in self.lattice.neurons}

    def _bound(self, n: NeuronLattice, bits: Tensor, zero: Tensor | None, charge: list[Fraction2]) -> int:
        """Largest |A|: the input and the largest state that fits its bits (or that can build up)."""
        if int(bits.max()) >= WIDE_STATE:  # whatever the number of steps, which may differ from calibration
            kept = n.input_bound / max(1e-9, 1 - float(n.leak.max()))
            return n.input_bound + math.ceil(min(kept, float(2 ** (WIDE_STATE - 1))))
        levels = torch.exp2(bits.double() - 1) + (0 if zero is None else zero.abs())
        kept = max(f.value * float(level) for level, f in zip(levels, charge, strict=True))
        return math.ceil(n.input_bound + kept) + 1

    @cached_property
    def has_middle(self) -> bool:
        """Whether a state lies between the first layer and what is read out."""
        neurons = self.folded.discovery.neurons.values()
        return any(n.carries_state and not (n.stem or n.readout) for n in neurons)

    def protected(self, name: str) -> bool:
        """Whether a state keeps a width of its own: the first layer's, and those that the model returns.

        That is for networks with a middle. Without one all states would be protected, so they get the bits
        that were asked for, but for a membrane that is the model's only use of a neuron: it is an output and
        keeps 16 bits. One that is returned beside its spikes (snnTorch's mem_rec) is a state like any other.
        A first_membrane other than 16 was asked for.
        """
        info = self.folded.discovery.neurons[name]
        if self.has_middle:
            return info.stem or info.readout
        if info.readout and name not in self._spiking:
            return True
        return info.stem and self.recipe.first_membrane != FIRST_MEMBRANE

    @cached_property
    def _spiking(self) -> set[str]:
        """Neurons whose spikes reach an output, as such or through others."""
        graph = self.folded.discovery.graph
        live = set(graph.outputs)
        for node in reversed(graph.nodes):
            if live.intersection(node.outputs):
                live.update(node.inputs)
        return {n.target for n in graph.nodes if n.kind == "neuron" and n.outputs[0] in live}

    def in_budget(self, name: str) -> bool:
        """Whether a neuron's state counts towards the average-bit budget."""
        info, rule = self.folded.discovery.neurons[name], self.recipe.override(name)
        fixed = rule.membrane is not None or rule.coupling == "none"
        return info.carries_state and not (self.protected(name) or fixed)

    def fixed_bits(self, name: str) -> int | None:
        """Width of a neuron outside the budget, None inside."""
        info, rule = self.folded.discovery.neurons[name], self.recipe.override(name)
        if self.coupling(name) == "none":
            return self.recipe.first_membrane if info.stem and self.protected(name) else WIDE_STATE
        if rule.membrane is not None:
            return rule.membrane
        if self.protected(name):
            return READOUT_BITS if info.readout else self.recipe.first_membrane
        return 8 if not info.carries_state else None
