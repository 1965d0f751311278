// Weights of a plan, packed once when it is read; they live nowhere else.
#pragma once
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
  const Tables& tables_;
  uint8_t* next_ = nullptr;
};

}  // namespace ptq
