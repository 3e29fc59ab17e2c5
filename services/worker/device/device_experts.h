#pragma once
// The experts of a device with a memory of its own, as the engine's source of weights.
//
// An expert is leased from a slot of the device. What no slot holds is copied there from host memory: leased from the
// source behind this one (the store's client) until its copy has ended. Dense weights are the source's own, in host
// memory. common/tier decides what is copied when, a link carries it: an emulated device's (copy_lane.h), or a CUDA
// device's (cuda_link.h).
//
// On a CUDA device a lease's data() is the slot's address there, which the host never reads. Kernels that read it may
// be queued while it is held; when they are, call launched(), then let go of the leases: a slot is not written again
// before what was queued has ended.
//
// One thread, the engine's, calls everything here.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/config/device_spec.h"
#include "common/dtype.h"
#include "common/prediction/forecast.h"
#include "common/tier/tier_figures.h"
#include "services/worker/device/arena_registration.h"
#include "services/worker/device/expert_link.h"
#include "services/worker/device/recent_uses.h"
#include "services/worker/device/slot_memory.h"
#include "services/worker/device/slot_table.h"
#include "store/blob_source.h"

namespace moestro::device {

struct DeviceExpertsOptions {
  config::EmulatedDevice device = {};  ///< where there is no `cuda`
  std::optional<CudaSlots> cuda = std::nullopt;
  DType precision = DType::kBF16;  ///< of the experts that the engine asks for
  std::string cache = "auto";      ///< policy::make_device_policy
  bool prefetch = true;  ///< false: what is foreseen protects what is there, and nothing is copied before it is wanted
  bool poison_slots = false;       ///< tests
};

class DeviceExperts final : public store::BlobSource, public SlotTable {
 public:
  /// kInvalidArgument: the memory holds not even one expert. kExhausted: the device has not what was planned. `host`
  /// and `clock` outlive it. On a CUDA device it registers the host's memory, which takes a while; the calling thread
  /// uses that device from then on.
  static Result<std::unique_ptr<DeviceExperts>> create(store::BlobSource& host, const DeviceExpertsOptions& options,
                                                       const Clock& clock);
  ~DeviceExperts() override;

  int32_t slots() const { return tier_options_.slots; }
  uint64_t slot_bytes() const { return tier_options_.expert_bytes; }
  tier::TierCounters tier_counters() const;
  /// What it has done since the call before.
  void take_figures(tier::TierFigures& out);

  // What a step wants, before the engine asks for it blob by blob.

  int32_t layers() const { return tier_options_.layers; }    ///< MoE layers
  int32_t experts() const { return tier_options_.experts; }  ///< of a layer
  /// `scan`: most of its tokens are of prompts. The bytes that the link has carried so far.
  uint64_t begin_step(PlanId plan, bool scan);
  /// A sequence that no step had before; `running`: those there are, with it.
  void sequence_began(int32_t running);
  /// The experts of `layer` that the step needs now, each once. Whether all of them are there.
  bool routed(MoeLayerId layer, std::span<const tier::DeviceTier::Wanted> wanted);
  /// What is likely next; `layer` -1: before the first.
  void foresee(int32_t layer, const prediction::Forecast& forecast);
  /// Nothing is foreseen for now.
  void unforeseen();
  void abandon();
  // What kernels read:

  void addresses(MoeLayerId layer, std::span<uint64_t> out) override;
  bool holds_all() const override;
  Nanos copy_time() const override;
  std::optional<store::Lease> lease_host(uint32_t blob) override;
  /// Nothing to do on an emulated device, which computes before it lets go.
  Status launched() override { return link_->launched(); }
  /// kUnavailable: the device fell off, and the worker has to end.
  Status check() const;
  /// For the log: how copies read host memory; empty on an emulated device.
  std::string describe() const { return arena_ ? arena_->describe() : std::string(); }
  /// Copies that have ended since the last call, for the timeline.
  void take_copied(std::vector<Copied>& out);

  // What the engine asks for.

  const store::Manifest& manifest() const override { return host_.manifest(); }
  std::optional<store::Lease> try_pin(uint32_t blob, store::UseWeight weight = {}) override;
  Status fetch(std::span<const uint32_t> blobs, store::WantedBy why) override;
  Result<store::Lease> next_arrival(std::chrono::milliseconds timeout) override;
  std::optional<uint32_t> failed_blob() const override { return failed_blob_; }
  void cancel_fetches() override;
  /// Of the device: a miss is an expert that no slot held, late or not.
  Counters counters() const override;
  /// Of the host's bytes, which a slot's are a copy of.
  uint32_t finds(uint32_t blob) const override { return host_.finds(blob); }

 private:
  static constexpr tier::Key kDense = UINT32_MAX;
  struct Expert {
    uint32_t blob = 0;
    bool needed = false;        ///< routed() named it, unpin() has not come yet
    bool host_asked = false;    ///< the host's source has been asked to fetch it
    uint32_t finds = 0;         ///< of the host's bytes, when they were last leased for a copy
    PlanId host_prefetched;     ///< the last plan for which it was asked to prefetch it
    store::Lease host;          ///< of host memory, until its copy has ended
    Status failure;             ///< why it cannot be had, until the engine has been told
  };

  DeviceExperts(store::BlobSource& host, const Clock& clock, SlotMemory slots, const tier::TierOptions& tier_options,
                std::unique_ptr<policy::CachePolicy> policy, std::vector<tier::Key> key_of,
                std::vector<Expert> experts);
  Status make_link(const DeviceExpertsOptions& options);
  void unpin(uint32_t blob) override;
  // With the link's lock held:
  std::optional<store::Lease> lease_slot(tier::Key key);
  std::optional<Result<store::Lease>> next_ready();
  void let_ended_go();
  Status find_sources();
  bool link_awake() const;
  void take_source(tier::Key key, store::Lease lease);
  void drop_sources_nobody_needs();
  Status take_host_arrival();

  store::BlobSource& host_;
  const Clock& clock_;
  const tier::TierOptions tier_options_;
  const SlotMemory slots_;
  const std::vector<tier::Key> key_of_;  ///< blob -> key; kDense
  std::vector<Expert> experts_;          ///< by key
  std::vector<tier::Key> with_source_;   ///< keys that lease host memory
  std::vector<tier::Key> wanted_;        ///< what fetch() asked for and has not arrived
  std::vector<tier::Key> found_;         ///< scratch
  std::vector<tier::Found> how_found_;   ///< scratch
  std::vector<Copied> ended_, copied_;
  std::optional<uint32_t> failed_blob_;
  PlanId plan_;
  uint32_t host_fetches_ = 0;            ///< outstanding
  RecentUses recent_;
  bool foreseen_ = false;                ///< forecasts are being made; under the link's lock
  tier::DeviceTier tier_;
  tier::FiguresSince told_;              ///< by take_figures()
  std::unique_ptr<ArenaRegistration> arena_;  ///< of a CUDA device
  std::unique_ptr<ExpertLink> link_;     ///< last: its thread uses slots, tier, and what is leased of the host
};

}  // namespace moestro::device
