#pragma once
// A reader behind a gate: it accepts reads as usual, but reports them as complete only while the gate is open. So a
// test can act while reads are certainly in flight, however fast the drive is.

#include <unistd.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "store/reader/reader.h"

namespace moestro::store {

/// Of any number of readers. Called by the test's thread, and asked by the readers' threads. Outlives them.
class Gate {
 public:
  void close() { open_ = false; }
  /// Completions that were kept back are found.
  void open() {
    open_ = true;
    const std::lock_guard lock(mutex_);
    const uint64_t one = 1;
    for (const int fd : event_fds_) [[maybe_unused]] const ssize_t rung = ::write(fd, &one, sizeof one);
  }
  /// Everything that was given to the readers so far, in order.
  std::vector<ReadOp> submitted() const {
    const std::lock_guard lock(mutex_);
    return submitted_;
  }

 private:
  friend class GatedReader;
  void joins(int event_fd) {
    const std::lock_guard lock(mutex_);
    event_fds_.push_back(event_fd);
  }
  void leaves(int event_fd) {
    const std::lock_guard lock(mutex_);
    std::erase(event_fds_, event_fd);
  }
  void taken(const ReadOp& op) {
    const std::lock_guard lock(mutex_);
    submitted_.push_back(op);
  }

  std::atomic<bool> open_{true};
  mutable std::mutex mutex_;  ///< guards what follows
  std::vector<int> event_fds_;
  std::vector<ReadOp> submitted_;
};

class GatedReader final : public Reader {
 public:
  GatedReader(std::unique_ptr<Reader> inner, Gate& gate) : inner_(std::move(inner)), gate_(gate) {
    gate_.joins(inner_->event_fd());
  }
  ~GatedReader() override { gate_.leaves(inner_->event_fd()); }

  bool submit(const ReadOp& op) override {
    const bool taken = inner_->submit(op);
    if (taken) gate_.taken(op);
    return taken;
  }
  void reap(std::vector<ReadResult>& results) override {
    // First the bell, then the gate: whoever opens it rings after.
    uint64_t rung = 0;
    [[maybe_unused]] const ssize_t cleared = ::read(inner_->event_fd(), &rung, sizeof rung);
    if (gate_.open_) inner_->reap(results);
  }
  int event_fd() const override { return inner_->event_fd(); }
  uint32_t in_flight() const override { return inner_->in_flight(); }
  std::string_view name() const override { return inner_->name(); }
  bool unsent() const override { return inner_->unsent(); }
  Status set_files(uint32_t first, std::span<const int> fds) override { return inner_->set_files(first, fds); }

 private:
  std::unique_ptr<Reader> inner_;
  Gate& gate_;
};

}  // namespace moestro::store
