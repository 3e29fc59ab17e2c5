#pragma once
// An emulated device without a real time: its clock moves only where the engine computes or waits, and its link carries
// chunks on that clock, as replay's does. What it does is the same in every run.

#include <atomic>
#include <cstring>
#include <memory>

#include "common/sharp_wait.h"
#include "common/tier/virtual_link.h"
#include "services/worker/device/device_experts.h"

namespace moestro::device::testing {

class VirtualExpertLink;

class VirtualTime final : public SteppedClock {
 public:
  Nanos now() const override { return Nanos(now_.load()); }
  void wait_until(Nanos end) const override;
  void set(Nanos now) const { now_ = now.count(); }
  void set_link(VirtualExpertLink* link) { link_ = link; }

 private:
  mutable std::atomic<int64_t> now_{0};
  VirtualExpertLink* link_ = nullptr;
};

/// There is no thread: all calls come from the engine's.
class VirtualExpertLink final : public ExpertLink {
 public:
  VirtualExpertLink(tier::DeviceTier& tier, const SlotMemory& slots, const LinkOptions& options, VirtualTime& time,
                    uint32_t keys)
      : ExpertLink(tier, time, keys),
        slots_(slots),
        time_(time),
        link_(tier, static_cast<double>(options.bytes_per_s), options.latency,
              [this](const tier::Chunk& chunk, Nanos end) { arrived(chunk, end); }) {
    time.set_link(this);
  }
  ~VirtualExpertLink() override { time_.set_link(nullptr); }

  bool is_copying(tier::Key key) const override { return link_.chunk() && link_.chunk()->key == key; }
  void wake() override { link_.poke(time_.now()); }
  /// The next chunk has arrived, unless that is later than `until`.
  void wait_for_end(std::unique_lock<std::mutex>&, uint64_t& seen, Nanos until) override {
    if (ends() == seen && failure().is_ok()) {
      link_.poke(time_.now());
      const auto end = link_.ends();
      if (!end || *end > until) return time_.set(until);
      link_.finish();
      time_.set(std::max(time_.now(), *end));
    }
    seen = ends();
  }
  void advance(Nanos now) { link_.advance(now); }

 private:
  void arrived(const tier::Chunk& chunk, Nanos end) {
    const Source& source = sources_[chunk.key];
    std::memcpy(slots_.slot(chunk.slot) + chunk.offset, source.data + chunk.offset, source.bytes_of(chunk));
    carried(chunk, end, end);  // nobody draws it
  }

  const SlotMemory& slots_;
  VirtualTime& time_;
  tier::VirtualLink link_;
};

inline void VirtualTime::wait_until(Nanos end) const {
  set(end);
  if (link_ != nullptr) link_->advance(end);
}

}  // namespace moestro::device::testing
