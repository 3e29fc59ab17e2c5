#pragma once
// The memories of a replay: what its steps take experts from, and what forecasts fill. They do what the worker's do
// (services/worker/device), without bytes and on a virtual clock.

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "common/tier/replay.h"
#include "common/tier/replay_host.h"
#include "common/tier/virtual_link.h"

namespace moestro::tier {

/// A memory that experts are brought to ahead (a worker's ExpertTier).
class ReplayStage {
 public:
  virtual ~ReplayStage() = default;
  virtual bool fits_all() const = 0;
  /// Returns a count that grows with everything that is brought.
  virtual uint64_t begin_step(Nanos now, bool scan) = 0;
  virtual void sequence_began(int32_t /*running*/) {}
  /// False if an expert was missing: of this layer, or, where that is known only afterwards, since the previous call.
  virtual bool routed(Nanos now, int32_t layer, std::span<const DeviceTier::Wanted> wanted) = 0;
  /// Whether anything is likely enough to be acted on.
  virtual bool forecast(Nanos now, int32_t layer, const prediction::Forecast& forecast) = 0;
  virtual void unforeseen(Nanos now) = 0;
};

/// What the steps take experts from.
class ReplaySource {
 public:
  virtual ~ReplaySource() = default;
  /// The expert was routed and is needed now. kHit: it is there until released(). Otherwise it has to be waited for.
  virtual Found take(const DeviceTier::Wanted& wanted) = 0;
  /// Requests what take() did not give since the last call.
  virtual void request_missing(uint64_t step, int32_t layer) = 0;
  /// Whether an expert that was waited for is there now.
  virtual bool arrived(Key key) = 0;
  virtual bool holds(Key key) const = 0;
  virtual void released(Nanos now, Key key) = 0;
  /// Whether the expert, when it was missing, had to be read from the drive.
  virtual bool from_drive(Key key) const = 0;
  virtual std::optional<Nanos> next_event() = 0;
  /// Everything that happens until `now` while something computes.
  virtual void advance(Nanos now) = 0;
  /// Nothing can be computed: looks at what has come, as a worker does while it waits.
  virtual void look(Nanos /*now*/) {}
};

/// Slots of a device and its link. Below it is host memory: one that has everything (`host` null), or a ReplayHost.
class DeviceMemory final : public ReplayStage, public ReplaySource {
 public:
  DeviceMemory(const TierOptions& options, std::unique_ptr<policy::CachePolicy> policy,
               std::unique_ptr<policy::CachePolicy> low, const ReplayTimes& times, ReplayHost* host, NextChunk next);

  bool fits_all() const override;
  uint64_t begin_step(Nanos now, bool scan) override;
  void sequence_began(int32_t running) override { tier_.sequence_began(running); }
  /// DeviceTier::choose(), of the layer that is routed next. What the CPU computes is not brought for this layer.
  void choose(std::span<DeviceTier::Choice> choices);
  bool routed(Nanos now, int32_t layer, std::span<const DeviceTier::Wanted> wanted) override;
  bool forecast(Nanos now, int32_t layer, const prediction::Forecast& forecast) override;
  void unforeseen(Nanos now) override;

  Found take(const DeviceTier::Wanted& wanted) override;
  void request_missing(uint64_t, int32_t) override {}  // routed() did
  bool arrived(Key key) override { return holds(key); }
  bool holds(Key key) const override { return tier_.slot_of(key).has_value(); }
  void released(Nanos now, Key key) override;
  bool from_drive(Key key) const override { return host_ != nullptr && sources_[key].from_drive; }
  std::optional<Nanos> next_event() override;
  void advance(Nanos now) override;
  void look(Nanos now) override;

  const DeviceTier& tier() const { return tier_; }
  /// Flags what is in slots.
  void mark_held(std::span<uint8_t> out) const;

 private:
  /// An expert's copy in host memory, for the link.
  struct Source {
    bool pinned = false;      ///< the link may read it
    bool asked = false;       ///< it is to arrive from the drive
    bool needed = false;      ///< a layer needs it, and it has not been released
    bool from_drive = false;  ///< when it was last needed
    bool copied = false;      ///< its copy has ended, so the pin may go
  };
  void find_sources(Nanos now);
  void take_source(Key key);
  /// Pins end of those that `may_go` names.
  template <typename MayGo>
  void let_go(MayGo may_go);
  void let_copied_go();
  void drop_sources_nobody_needs();

  const TierOptions options_;
  ReplayHost* const host_;
  DeviceTier tier_;
  VirtualLink link_;
  uint64_t steps_ = 0;
  int32_t asked_ = 0;                 ///< sources that are to arrive
  std::vector<Source> sources_;       ///< [key]; empty: host memory has everything
  std::vector<Key> pinned_;           ///< of those
  std::vector<Key> wanted_sources_;
  std::vector<Found> found_;          ///< of the layer that was routed last: for each of
  std::vector<Key> routed_;
  std::vector<Key> on_cpu_;           ///< of those
};

/// Host memory as a memory that is filled ahead (a worker's HostOutlook).
class HostStage final : public ReplayStage {
 public:
  /// `above`: the device that takes experts from it; null: the CPU computes them where they lie.
  HostStage(ReplayHost& host, const Routes& routes, const DeviceMemory* above);

  bool fits_all() const override { return host_.fits_all(); }
  uint64_t begin_step(Nanos now, bool scan) override;
  bool routed(Nanos now, int32_t layer, std::span<const DeviceTier::Wanted> wanted) override;
  bool forecast(Nanos now, int32_t layer, const prediction::Forecast& forecast) override;
  void unforeseen(Nanos now) override;

 private:
  ReplayHost& host_;
  const DeviceMemory* const above_;
  OutlookMaker maker_;
  bool foreseen_ = false;  ///< forecasts are being made
  uint64_t misses_ = 0;    ///< of the host, when it was last looked at
  std::vector<uint8_t> held_;  ///< [key]: on the device above; empty: there is none
};

/// Host memory as what the CPU takes experts from (the engine's ExpertDispatch).
class HostMemory final : public ReplaySource {
 public:
  HostMemory(ReplayHost& host, size_t keys) : host_(host), arrived_(keys) {}

  Found take(const DeviceTier::Wanted& wanted) override;
  void request_missing(uint64_t step, int32_t layer) override;
  bool arrived(Key key) override;
  bool holds(Key key) const override { return host_.holds(key); }
  void released(Nanos now, Key key) override;
  bool from_drive(Key) const override { return true; }
  std::optional<Nanos> next_event() override { return host_.next_event(); }
  void advance(Nanos now) override { host_.advance(now); }

 private:
  ReplayHost& host_;
  std::vector<Key> missing_;
  std::vector<uint8_t> arrived_;  ///< [key]
};

}  // namespace moestro::tier
