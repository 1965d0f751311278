#include "weights.h"

#include <cstring>

#include "layer.h"

namespace ptq {

namespace {

// Weights [taps][cin / groups][cout] of a projection.
struct Sizes {
  int taps, each, cout, bits;
  bool plain;  // for kProjectRows: a nibble or a byte each, in their order

  explicit Sizes(const Row& f) {
    const int most = 1 << 24;
    const int cin = small(f[oCin], 1, most), groups = small(f[oGroups], 1, most);
    taps = small(f[oTaps], 1, most);
    cout = small(f[oCout], 1, most);
    bits = small(f[oBits], 2, 8);
    plain = f[oKind] == kProjectRows;
    if (cin % groups || cout % groups) throw Refused("a projection's groups do not divide its channels");
    each = cin / groups;
    times(times(taps, each), padded(cout));  // packed weights fit as well
  }

  std::array<int64_t, 6> key(const Row& f) const { return {f[oWeights], taps, each, cout, bits, plain}; }

  int64_t count() const { return times(times(taps, each), cout); }

  int64_t bytes() const {
    const int64_t own = bits > 4 ? count() : (count() + 1) / 2;
    return ((plain ? own : (int64_t)hot::weights_bytes(taps, each, cout, bits)) + 63) / 64 * 64;
  }
};

}  // namespace

bool has_weights(int64_t kind) { return kind == kProject || kind == kProjectNeuron || kind == kProjectRows; }

void Packer::make_room(Block& memory) {
  int64_t total = 0;
  for (int64_t i = 0; i < tables_.head(hOps); ++i) {
    const Row f = tables_.op(i);
    if (!has_weights(f[oKind])) continue;
    const Sizes s(f);
    tables_.weights(f[oWeights], s.count());  // so many are there: the room is in proportion to the plan
    if (made_.emplace(s.key(f), nullptr).second) total = plus(total, s.bytes());
  }
  memory.resize(total);
  next_ = memory.data();
}

const void* Packer::pack(const Row& f) {
  const Sizes s(f);
  const uint8_t*& known = made_[s.key(f)];
  if (known != nullptr) return known;
  const int64_t count = s.count();
  const int8_t* w = tables_.weights(f[oWeights], count);
  const int low = -(1 << (s.bits - 1)), high = -low - 1;
  for (int64_t k = 0; k < count; ++k)
    if (w[k] < low || w[k] > high) throw Refused("a weight does not fit its bits");
  uint8_t* out = next_;
  known = out;
  next_ += s.bytes();
  std::memset(out, 0, (size_t)s.bytes());
  if (!s.plain)
    hot::pack_weights(w, s.taps, s.each, s.cout, s.bits, out);
  else if (s.bits > 4)
    std::memcpy(out, w, (size_t)count);
  else
    for (int64_t k = 0; k < count; ++k) out[k / 2] = (uint8_t)(out[k / 2] | (w[k] & 15) << (4 * (k % 2)));
  return out;
}

}  // namespace ptq
