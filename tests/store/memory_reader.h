#pragma once
// A reader of one file that lies in memory. The test says when a read is done, and in which order.

#include <cstring>
#include <string>
#include <vector>

#include "store/reader/reader.h"

namespace moestro::store {

class MemoryReader final : public Reader {
 public:
  MemoryReader(std::string file, uint32_t depth) : file_(std::move(file)), depth_(depth) {}

  bool submit(const ReadOp& op) override {
    if (pending.size() >= depth_ || refuse > 0) {
      refuse -= refuse > 0;
      return false;
    }
    pending.push_back(op);
    submitted.push_back(op.offset);
    return true;
  }
  /// The newest first: reads complete out of order. None while `hold`.
  void reap(std::vector<ReadResult>& results) override {
    while (!hold && !pending.empty()) {
      const ReadOp op = pending.back();
      pending.pop_back();
      finish(op, results);
      if (!all_at_once) break;
    }
  }
  int event_fd() const override { return -1; }
  uint32_t in_flight() const override { return static_cast<uint32_t>(pending.size()); }
  std::string_view name() const override { return "memory"; }
  Status set_files(uint32_t, std::span<const int>) override { return Status::ok(); }

  std::vector<ReadOp> pending;
  std::vector<uint64_t> submitted;  ///< offsets, in order
  bool hold = false;
  bool all_at_once = false;  ///< or one with each reap()
  int refuse = 0;  ///< so many calls of submit() are turned away

 private:
  void finish(const ReadOp& op, std::vector<ReadResult>& results) const {
    const uint64_t left = op.offset >= file_.size() ? 0 : file_.size() - op.offset;
    const auto n = static_cast<int64_t>(std::min<uint64_t>(op.length, left));
    std::memcpy(op.into, file_.data() + std::min<uint64_t>(op.offset, file_.size()), static_cast<size_t>(n));
    results.push_back({op.tag, n});
  }
  std::string file_;
  const uint32_t depth_;
};

}  // namespace moestro::store
