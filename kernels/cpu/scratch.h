#pragma once
// A 64-byte aligned buffer that grows to the largest requested size and keeps it, so nothing is allocated after
// warm-up.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <new>

namespace moestro::kernels::cpu {

template <class T>
class Scratch {
 public:
  /// Room for `count` values. Its contents are lost when it grows.
  T* at_least(int64_t count) {
    if (count > count_) {
      buffer_.reset();
      count_ = std::max(count, count_ + count_ / 2);
      buffer_.reset(static_cast<T*>(::operator new(static_cast<size_t>(count_) * sizeof(T), kAlign)));
    }
    return buffer_.get();
  }

 private:
  static constexpr std::align_val_t kAlign{64};
  struct Free {
    void operator()(T* p) const { ::operator delete(p, kAlign); }
  };
  std::unique_ptr<T, Free> buffer_;
  int64_t count_ = 0;
};

}  // namespace moestro::kernels::cpu
