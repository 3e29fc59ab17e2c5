#pragma once
// Host memory of a replay: a store with one worker. The store's machine decides what is read and evicted. The worker's
// side does what a client does (store/client/store_client): it pins what is there, and asks for the rest as far as its
// share allows.

#include <deque>
#include <memory>
#include <vector>

#include "common/policy/cache_policy.h"
#include "common/status.h"
#include "common/tier/replay_host.h"
#include "store/blob_source.h"
#include "store/machine/store_machine.h"
#include "store/replay/virtual_drive.h"
#include "store/replay/virtual_memory.h"

namespace moestro::store {

struct VirtualStoreOptions {
  uint32_t experts = 0;       ///< of the model: keys are 0 to experts - 1
  uint32_t experts_held = 0;  ///< that memory has room for
  uint64_t expert_bytes = 0;
  uint64_t chunk_bytes = uint64_t{1} << 20;  ///< of a read: then a more urgent one may overtake it
  DriveSpeed drive{};
  uint64_t loading_bytes_max = 0;  ///< as StoreMachine::Options; 0: as a store chooses it
  float ahead_floor = tier::kPrefetchFloor, ahead_waste_max = 0;  ///< as StoreMachine::Options
};

class VirtualStore final : public tier::ReplayHost {
 public:
  static Result<std::unique_ptr<VirtualStore>> create(const VirtualStoreOptions& options,
                                                      std::unique_ptr<policy::CachePolicy> policy);

  bool fits_all() const override { return options_.experts_held >= options_.experts; }
  bool holds(tier::Key key) const override { return memory_.state(key) == Residency::kResident; }
  tier::Found try_pin(tier::Key key, float weight) override;
  void fetch(std::span<const tier::Key> keys, uint64_t step, int32_t layer) override;
  std::optional<tier::Key> take_arrival() override;
  void unpin(tier::Key key) override;
  void foresee(std::span<const tier::ForeseenKey> experts, bool scan, bool leads) override;
  std::optional<Nanos> next_event() override;
  void advance(Nanos now) override;
  tier::HostCounters counters() override;

  const StoreMachine& machine() const { return *machine_; }

 private:
  struct Expert {
    UseWeight weight;         ///< of the use that is pinned, or asked for
    bool asked = false;       ///< it is to arrive
    bool pinned = false;
    uint64_t generation = 0;  ///< of the copy that was used last
  };
  struct Waiting {
    tier::Key key = 0;
    ReadQueue::Why why;
  };
  explicit VirtualStore(const VirtualStoreOptions& options)
      : options_(options),
        memory_(options.experts),
        drive_(options.drive, options.expert_bytes, options.chunk_bytes),
        experts_(options.experts) {}
  bool fits_share() const;
  void pin(tier::Key key);
  void ask_for_waiting();
  void perform(Actions actions);
  Actions ended(const VirtualDrive::Ended& read);

  const VirtualStoreOptions options_;
  VirtualMemory memory_;
  VirtualDrive drive_;
  std::unique_ptr<StoreMachine> machine_;
  Nanos now_{0}, looked_around_{0};
  std::vector<Expert> experts_;     ///< [key]
  std::deque<Waiting> waiting_;     ///< fetched, and not asked for yet: they do not fit the share
  std::deque<tier::Key> arrived_;
  uint64_t pinned_ = 0;             ///< experts
  bool outlook_stands_ = false;
  std::vector<ForeseenEntry> foreseen_;
  tier::HostCounters counters_;     ///< the worker's side, reads, and bytes of reads that were given up
};

}  // namespace moestro::store
