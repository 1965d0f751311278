"""Which chip a bundle fits: constraints as data, checked neuron by neuron, and the recipe that meets them."""
