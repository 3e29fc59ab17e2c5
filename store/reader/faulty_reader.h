#pragma once
// A reader with faults, for tests of this folder and (store.inject_read_faults) of a whole store.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>

#include "store/reader/reader.h"

namespace moestro::store {

/// How many of a thousand reads fail, and how.
struct FaultPlan {
  uint32_t eio = 0, enospc = 0, enomem = 0, eagain = 0, eintr = 0;
  uint32_t short_reads = 0;
  uint32_t flip = 0;  ///< one wrong byte
  uint64_t seed = 1;
  uint32_t delay_ms = 0;  ///< after each read: a slow drive, one read at a time
};

/// "eio=5,short=50,flip=1,seed=7,delay=20"; kInvalidArgument names what is wrong.
Result<FaultPlan> parse_fault_plan(const std::string& text);

/// Changes the result of a completed read.
using Fault = std::function<void(const ReadOp& op, ReadResult& result)>;
Fault random_faults(const FaultPlan& plan);

/// Applies `fault` to every read of `inner`.
class FaultyReader final : public Reader {
 public:
  FaultyReader(std::unique_ptr<Reader> inner, Fault fault) : inner_(std::move(inner)), fault_(std::move(fault)) {}

  bool submit(const ReadOp& op) override;
  void reap(std::vector<ReadResult>& results) override;
  int event_fd() const override { return inner_->event_fd(); }
  uint32_t in_flight() const override { return inner_->in_flight(); }
  std::string_view name() const override { return inner_->name(); }
  Status registered() const override { return inner_->registered(); }
  bool unsent() const override { return inner_->unsent(); }
  Status set_files(uint32_t first, std::span<const int> fds) override { return inner_->set_files(first, fds); }

 private:
  std::unique_ptr<Reader> inner_;
  Fault fault_;
  std::unordered_map<uint64_t, ReadOp> ops_;  ///< in flight, by tag
};

}  // namespace moestro::store
