#pragma once
// The experts of a device with its own memory, as the engine's source of weights.
//
// An expert is leased from a slot of the device. An expert without a slot is copied there from host memory, which is
// leased from the underlying source (the store's client) until its copy has ended. common/tier decides what is copied
// when, and a link carries it: that of an emulated device (emulated_link.h) or of a CUDA device (cuda_link.h).
//
// Dense weights come from that source, in host memory. Those of some layers may take turns in the device's memory
// (device_dense.h).
//
// On a CUDA device a lease's data() is the slot's device address, which the host never reads. Kernels that read it may
// be queued while it is held. Then call launched(), and release the leases: a slot is not written again before the
// queued work has ended.
//
// One thread, the engine's, calls everything here.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/config/device_spec.h"
#include "common/dtype.h"
#include "common/prediction/forecast.h"
#include "common/tier/tier_figures.h"
#include "services/worker/device/arena_registration.h"
#include "services/worker/device/device_dense.h"
#include "services/worker/device/emulated_link.h"
#include "services/worker/device/expert_link.h"
#include "services/worker/device/expert_tier.h"
#include "services/worker/device/recent_uses.h"
#include "services/worker/device/slot_memory.h"
#include "services/worker/device/slot_table.h"
#include "store/blob_source.h"

namespace moestro::device {

struct DeviceExpertsOptions {
  config::EmulatedDevice device = {};  ///< used if there is no `cuda`
  std::optional<CudaSlots> cuda = std::nullopt;
  DType precision = DType::kBF16;  ///< of the experts that the engine asks for
  std::optional<MixedOptions> mixed = std::nullopt;  ///< an emulated device: it has low copies too
  std::string cache = "auto";      ///< policy::make_device_policy
  bool prefetch = true;  ///< false: forecasts only protect resident experts, and nothing is prefetched
  bool poison_slots = false;       ///< tests
  bool kv = false;  ///< its link carries the KV of running sequences too
  std::optional<DenseTurns> dense = std::nullopt;  ///< these take turns on the device, in addition to the memory above,
                                                   ///< which is for experts
  /// Tests: another link than the device's own.
  std::function<std::unique_ptr<ExpertLink>(tier::DeviceTier&, const SlotMemory&, const LinkOptions&, uint32_t keys)>
      make_link = nullptr;
};

class DeviceExperts final : public store::BlobSource, public SlotTable, public ExpertTier {
 public:
  /// kInvalidArgument: the memory does not hold even one expert. kExhausted: the device does not have the planned
  /// memory. `host` and `clock` outlive it. On a CUDA device it registers host memory, which takes a while; the calling
  /// thread uses that device from then on.
  static Result<std::unique_ptr<DeviceExperts>> create(store::BlobSource& host, const DeviceExpertsOptions& options,
                                                       const Clock& clock);
  ~DeviceExperts() override;

  /// What carries the KV of running sequences; null: nothing does.
  engine::KvLink* kv_link() const { return link_->kv(); }

  int32_t slots() const { return tier_options_.slots; }
  uint64_t slot_bytes() const { return tier_options_.expert_bytes; }
  int32_t low_slots() const { return tier_options_.low_slots; }
  tier::TierCounters tier_counters() const;
  /// What it has done since the previous call.
  void take_figures(tier::TierFigures& out);
  /// Whether figures of a window of last uses are on their way.
  bool replays_uses() const { return recent_.replaying(); }

  // What a step does and will need.

  int32_t layers() const override { return tier_options_.layers; }
  int32_t experts() const override { return tier_options_.experts; }
  bool fits_all() const override { return slots() >= layers() * experts(); }  ///< full copies
  /// Returns the bytes that the link has carried so far.
  uint64_t begin_step(PlanId plan, bool scan) override;
  void resume_step(PlanId plan, bool scan, int32_t layer) override;
  void sequence_began(int32_t running) override;
  /// No step is running, nor will one soon: host memory is given back that only copies would read which the link does
  /// not carry now. Others who use it have a right to it.
  void idle();
  /// Whether everything that need() has named since the last call was there.
  bool routed(MoeLayerId /*layer*/, std::span<const tier::DeviceTier::Wanted> /*wanted*/) override {
    return std::exchange(all_there_, true);
  }
  /// Always true: what is not likely enough for a copy still says what to keep.
  bool forecast(int32_t layer, const prediction::Forecast& forecast) override;
  void unforeseen() override;
  /// By key, 1: it is whole in a slot, so host memory is not asked for it. `out`: [layers * experts]
  void mark_held(std::span<uint8_t> out) const;
  /// Every expert has a slot, and idle time of the link goes to bringing those that are not there yet.
  bool filling() const { return tier_options_.fill && !holds_all(); }

  // What kernels read:

  void addresses(MoeLayerId layer, std::span<uint64_t> out) override;
  bool holds_all() const override;
  void choose_for_cpu(std::span<Missing> missing) override;
  void lend() override { lends_ = true; }
  std::optional<store::Lease> lease_host(uint32_t blob) override;
  void decided() override;
  uint32_t dense_places() const override { return dense_ ? dense_->places() : 0; }
  void dense_read(uint32_t blob) override;
  /// Does nothing on an emulated device, which computes before it releases leases.
  Status launched() override { return link_->launched(); }
  /// kUnavailable: the device has failed, and the worker must end.
  Status check() const;
  /// For the log: how copies read host memory; empty on an emulated device.
  std::string describe() const { return arena_ ? arena_->describe() : std::string(); }

  // For the timeline.

  /// What link and drive have brought since the last call.
  void take_copied(std::vector<Copied>& out) override;
  Late why_late(tier::Key key) const override;
  uint32_t copies(tier::Key key) override;

  // The BlobSource of the engine.

  const store::Manifest& manifest() const override { return host_.manifest(); }
  store::BlobSource& in_host_memory() override { return host_; }
  void need(const store::LayerNeeds& needs) override;
  void serve(std::span<store::Serving> experts) override;
  std::optional<store::Lease> try_pin(uint32_t blob, store::UseWeight weight = {}) override;
  Status fetch(std::span<const uint32_t> blobs, store::WantedBy why) override;
  Result<store::Lease> next_arrival(std::chrono::milliseconds timeout) override;
  std::optional<uint32_t> failed_blob() const override { return failed_blob_; }
  void cancel_fetches() override;
  /// Counters of the device: a miss is an expert without a slot, late or not.
  Counters counters() const override;
  /// For the host's bytes, which slots have copies of.
  uint32_t finds(uint32_t blob) const override { return host_.finds(blob); }
  uint64_t finds_of_all() const override { return host_.finds_of_all(); }
  std::span<const uint32_t> streamed() const override;
  bool ask_streamed(uint32_t blob, store::WantedBy why) override;
  Result<store::Lease> take_streamed(uint32_t blob, std::chrono::milliseconds timeout) override;

 private:
  /// How often a wait for the link looks at host memory too, while something has to come from the drive.
  static constexpr Nanos kHostLook{100'000};
  static constexpr Nanos kLongWait{50'000'000};
  static constexpr tier::Key kDense = UINT32_MAX;
  struct Expert {
    uint32_t blob = 0;
    bool needed = false;        ///< need() named it, and it has not been unpinned
    bool host_asked = false;    ///< the host's source has been asked for it
    Nanos host_asked_at{0};
    bool from_drive = false;    ///< since need() named it last, the host's source has been asked for it
    bool served_low = false;    ///< of a full copy: need() last named the low one of its expert
    uint32_t copies = 0;        ///< that have ended
    uint32_t finds = 0;         ///< of the host's bytes, when they were last leased for a copy
    store::Lease host;          ///< of host memory, until its copy has ended, and the CPU has computed with it
    bool lent = false;          ///< lease_host() has lent `host`
    Status failure;             ///< why it cannot be loaded, until the engine has been told
  };

  DeviceExperts(store::BlobSource& host, const Clock& clock, SlotMemory slots, const tier::TierOptions& tier_options,
                std::unique_ptr<policy::CachePolicy> policy, std::unique_ptr<policy::CachePolicy> low_policy,
                std::vector<tier::Key> key_of, std::vector<Expert> experts);
  Status make_link(const DeviceExpertsOptions& options);
  Status make_dense(const DeviceExpertsOptions& options);
  std::optional<store::Lease> pin_dense(uint32_t blob, store::UseWeight weight);
  void unpin_dense(uint32_t blob);
  void unpin(uint32_t blob) override;
  // With the link's lock held:
  std::optional<store::Lease> lease_slot(tier::Key key);
  std::optional<Result<store::Lease>> next_ready();
  void let_ended_go();
  Status find_sources();
  bool link_awake() const;
  void take_source(tier::Key key, store::Lease lease);
  void drop_sources_nobody_needs();
  void take_back(tier::Key key);
  void count_recent();
  void look_for_wrong();
  tier::Key served(tier::Key full) const { return experts_[full].served_low ? tier_options_.low_of(full) : full; }
  Status take_host_arrival();

  store::BlobSource& host_;
  const Clock& clock_;
  const tier::TierOptions tier_options_;
  const SlotMemory slots_;
  const std::vector<tier::Key> key_of_;  ///< blob -> key of a copy; kDense
  std::vector<Expert> experts_;          ///< by key
  std::vector<tier::Key> with_source_;   ///< keys that lease host memory
  std::vector<tier::Key> wanted_;        ///< requested by fetch() and not arrived
  bool lends_ = false;                   ///< lend()
  bool all_there_ = true;                ///< what need() has named since routed()
  std::vector<tier::DeviceTier::Choice> choices_;  ///< scratch
  std::vector<tier::DeviceTier::Wanted> needed_;  ///< scratch
  std::vector<tier::Key> found_;         ///< scratch
  std::vector<tier::Found> how_found_;   ///< scratch
  std::vector<tier::DeviceTier::Wanted> needed_full_;  ///< scratch: of those, full copies
  std::vector<tier::Found> found_full_;  ///< scratch
  std::vector<Copied> ended_, copied_;
  std::optional<uint32_t> failed_blob_;
  PlanId plan_;
  uint32_t host_fetches_ = 0;            ///< outstanding
  uint64_t finds_seen_ = 0;              ///< by look_for_wrong(), of the host's blobs
  RecentUses recent_;
  bool foreseen_ = false;                ///< forecasts are being made; under the link's lock
  tier::DeviceTier tier_;
  tier::FiguresSince told_;              ///< reported by take_figures()
  uint64_t told_staged_bytes_ = 0;
  std::unique_ptr<ArenaRegistration> arena_;  ///< of a CUDA device
  std::optional<DeviceDense> dense_;     ///< none: all dense weights stay
  std::unique_ptr<ExpertLink> link_;     ///< last: its thread uses slots, tier, and leased host memory
};

}  // namespace moestro::device
