// The block of a plan: its header, its tables of int64 and its arrays, none of which can be read outside of it.
#pragma once
#include <type_traits>

#include "plan.h"

namespace ptq {

using Row = std::vector<int64_t>;

// x as int32, refused outside of low .. high.
int32_t small(int64_t x, int64_t low, int64_t high);

class Tables {
 public:
  Tables(const uint8_t* bytes, int64_t size);

  int64_t head(int field) const { return head_[(size_t)field]; }
  Row value(int64_t i) const { return row(values_, i, vFields); }
  Row op(int64_t i) const { return row(ops_, i, oFields); }

  // Copies every array but the weights into memory of its own.
  void copy_arrays(Block& memory);

  int64_t count_of(int64_t id, int64_t type) const { return id < 0 ? 0 : array(id, type).count; }

  // The numbers of array `id`, exactly `count` of them; null for -1 unless it is needed.
  template <class T>
  const T* numbers(int64_t id, int64_t count, bool needed = true) const {
    if (id < 0 && !needed) return nullptr;
    const Array& a = array(id, sizeof(T) == 4 ? tI32 : std::is_same<T, double>::value ? tF64 : tI64);
    if (a.count != count) throw Refused("an array of the plan has not the size that its operation needs");
    return reinterpret_cast<const T*>(a.data);
  }

  const int8_t* weights(int64_t id, int64_t count) const;

 private:
  struct Array {
    int64_t type, count;
    const uint8_t* data;
  };
  Row row(int64_t at, int64_t i, int fields) const;
  int64_t table_end(int64_t at, int64_t rows, int fields) const;
  const Array& array(int64_t id, int64_t type) const;
  void find_arrays(int64_t at);

  const uint8_t* bytes_;
  int64_t size_, values_ = 0, ops_ = 0;
  Row head_;
  std::vector<Array> arrays_;
};

}  // namespace ptq
