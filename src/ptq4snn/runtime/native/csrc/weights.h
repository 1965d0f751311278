// Weights of a plan, packed once when it is read; they live nowhere else.
#pragma once
#include <array>
#include <map>

#include "tables.h"

namespace ptq {

bool has_weights(int64_t kind);

class Packer {
 public:
  explicit Packer(const Tables& tables) : tables_(tables) {}

  // Memory for the weights of all operations.
  void make_room(Block& memory);

  // The packed weights of an operation; Refused where one does not fit its bits.
  const void* pack(const Row& op);

 private:
  // Array, taps, channels of a group, output channels, bits, form: what is alike is packed once.
  typedef std::array<int64_t, 6> Key;

  const Tables& tables_;
  std::map<Key, const uint8_t*> made_;
  uint8_t* next_ = nullptr;
};

}  // namespace ptq
