#pragma once
// A bound on the bytes that all requests hold together.

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

namespace moestro::orchestrator {

/// From any thread.
class ByteBudget {
 public:
  /// `small_bytes`: a larger lease cannot use the last quarter, which is kept for smaller ones.
  ByteBudget(uint64_t bytes_max, uint64_t small_bytes) : most_(bytes_max), small_(small_bytes) {}

  uint64_t used() const { return used_.load(std::memory_order_relaxed); }

 private:
  friend class ByteLease;
  bool take(uint64_t more, uint64_t in_all) {
    const uint64_t most = in_all > small_ ? most_ - most_ / 4 : most_;
    uint64_t used = used_.load(std::memory_order_relaxed);
    do {
      if (more > most || used > most - more) return false;
    } while (!used_.compare_exchange_weak(used, used + more, std::memory_order_relaxed));
    return true;
  }
  void give_back(uint64_t bytes) { used_.fetch_sub(bytes, std::memory_order_relaxed); }

  const uint64_t most_, small_;
  std::atomic<uint64_t> used_{0};
};

/// The part of a budget that one request holds; the destructor returns it.
class ByteLease {
 public:
  explicit ByteLease(std::shared_ptr<ByteBudget> budget) : budget_(std::move(budget)) {}
  ~ByteLease() { budget_->give_back(bytes_); }
  ByteLease(const ByteLease&) = delete;
  ByteLease& operator=(const ByteLease&) = delete;

  /// Leases `bytes` in all. False if there is no room; the earlier lease stays.
  [[nodiscard]] bool cover(uint64_t bytes) {
    if (bytes <= bytes_) return true;
    if (!budget_->take(bytes - bytes_, bytes)) return false;
    bytes_ = bytes;
    return true;
  }

 private:
  const std::shared_ptr<ByteBudget> budget_;
  uint64_t bytes_ = 0;
};

}  // namespace moestro::orchestrator
