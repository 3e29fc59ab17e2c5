#include "services/worker/device/device_experts.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/config/units.h"
#include "common/policy/make_policy.h"
#include "services/worker/device/cuda_link.h"
#include "services/worker/device/expert_blobs.h"

namespace moestro::device {
namespace {

/// Experts that fit: kInvalidArgument if none does.
Result<int32_t> slots_that_fit(const DeviceExpertsOptions& options, const ExpertBlobs& blobs,
                               const std::string& model) {
  const uint64_t room = options.cuda ? options.cuda->bytes : options.device.vram_bytes;
  const uint64_t each = options.cuda ? CudaSlots::slot_bytes(blobs.bytes) : blobs.bytes;
  if (room >= each) return static_cast<int32_t>(std::min<uint64_t>(room / each, blobs.blob_of.size()));
  if (options.cuda)
    return invalid_argument("the " + config::readable_size(room) + " of cuda:" + std::to_string(options.cuda->index) +
                            " that are left for experts hold none of '" + model + "', one has " +
                            config::readable_size(each) +
                            ": give the device more (vram=SIZE), or take a smaller KV cache");
  return invalid_argument("vram=" + config::format_size(room) + " holds no expert of '" + model + "', one has " +
                          config::readable_size(blobs.bytes) +
                          ": give the device at least vram=" + config::format_size(blobs.bytes));
}

tier::TierOptions full_copies_of(tier::TierOptions options) {
  options.low_slots = 0, options.low_bytes = 0;
  return options;
}

Status share_slots(const DeviceExpertsOptions& options, const ExpertBlobs& low, tier::TierOptions& tier) {
  const uint64_t room = options.device.vram_bytes;
  if (tier::share_room(tier, room, options.mixed->share, low.bytes)) return Status::ok();
  return invalid_argument("vram=" + config::format_size(room) +
                          " has no room for a full expert in addition to the low copies of --mixed; one has " +
                          config::readable_size(tier.expert_bytes) +
                          ": give the device more, or low copies a smaller share");
}

tier::TierOptions tier_options_of(const DeviceExpertsOptions& options, const ExpertBlobs& blobs, int32_t slots) {
  tier::TierOptions tier{.layers = blobs.layers,
                         .experts = blobs.experts,
                         .slots = slots,
                         .expert_bytes = blobs.bytes,
                         .prefetch = options.prefetch};
  if (options.cuda) {  // what its link carries in a second is measured
    tier.chunk_bytes = options.cuda->chunk(tier.expert_bytes);
    tier.chunks_given = CudaLink::kUnderWay;
    // A model that fits is soon there as a whole, so that its layers can be queued ahead of the host.
    tier.fill = options.prefetch && static_cast<size_t>(slots) == blobs.blob_of.size();
  } else {
    tier.link_bytes_per_s = static_cast<double>(options.device.link_bytes_per_s);
    tier.link_latency = options.device.latency;
  }
  return tier;
}

}  // namespace

Result<std::unique_ptr<DeviceExperts>> DeviceExperts::create(store::BlobSource& host,
                                                             const DeviceExpertsOptions& options, const Clock& clock) {
  const store::Manifest& manifest = host.manifest();
  MOESTRO_ASSIGN_OR_RETURN(const ExpertBlobs blobs, ExpertBlobs::of(manifest, options.precision));
  MOESTRO_ASSIGN_OR_RETURN(const int32_t slots, slots_that_fit(options, blobs, manifest.model_name));
  tier::TierOptions tier = tier_options_of(options, blobs, slots);
  std::vector<uint32_t> blob_of = blobs.blob_of;
  if (options.mixed) {
    const auto found = ExpertBlobs::of(manifest, options.mixed->low);
    if (!found.is_ok()) return found.status().with_context("--mixed");
    const ExpertBlobs& low = *found;
    MOESTRO_RETURN_IF_ERROR(share_slots(options, low, tier));
    blob_of.insert(blob_of.end(), low.blob_of.begin(), low.blob_of.end());
  }
  MOESTRO_ASSIGN_OR_RETURN(auto policy,
                           policy::make_device_policy(options.cache, {blobs.layers, blobs.experts, tier.slots}));
  std::unique_ptr<policy::CachePolicy> low_policy;
  if (tier.low_slots > 0) {
    MOESTRO_ASSIGN_OR_RETURN(low_policy,
                             policy::make_device_policy(options.cache, {blobs.layers, blobs.experts, tier.low_slots}));
  }
  std::vector<tier::Key> key_of(manifest.blobs.size(), kDense);
  std::vector<Expert> experts(tier.keys());
  for (tier::Key key = 0; key < experts.size(); ++key) {
    experts[key].blob = blob_of[key];
    key_of[experts[key].blob] = key;
  }
  if (options.cuda)
    if (const MoestroCudaResult used = options.cuda->functions->use_device(static_cast<int32_t>(options.cuda->index));
        used != 0)
      return unavailable(words_of(*options.cuda, "use_device", used));
  MOESTRO_ASSIGN_OR_RETURN(SlotMemory memory,
                           options.cuda ? SlotMemory::on_device(*options.cuda, slots, blobs.bytes)
                                        : SlotMemory::create(tier.slots, blobs.bytes, tier.low_slots, tier.low_bytes));
  std::unique_ptr<DeviceExperts> made(new DeviceExperts(host, clock, std::move(memory), tier, std::move(policy),
                                                        std::move(low_policy), std::move(key_of), std::move(experts)));
  MOESTRO_RETURN_IF_ERROR(made->make_link(options));
  MOESTRO_RETURN_IF_ERROR(made->make_dense(options));
  return made;
}

DeviceExperts::DeviceExperts(store::BlobSource& host, const Clock& clock, SlotMemory slots,
                             const tier::TierOptions& tier_options, std::unique_ptr<policy::CachePolicy> policy,
                             std::unique_ptr<policy::CachePolicy> low_policy, std::vector<tier::Key> key_of,
                             std::vector<Expert> experts)
    : host_(host),
      clock_(clock),
      tier_options_(tier_options),
      slots_(std::move(slots)),
      key_of_(std::move(key_of)),
      experts_(std::move(experts)),
      recent_(full_copies_of(tier_options), clock),
      tier_(tier_options, std::move(policy), std::move(low_policy)) {}

Status DeviceExperts::make_link(const DeviceExpertsOptions& options) {
  const auto keys = static_cast<uint32_t>(experts_.size());
  if (!options.cuda) {
    const LinkOptions link{.bytes_per_s = options.device.link_bytes_per_s,
                           .latency = options.device.latency,
                           .poison_slots = options.poison_slots,
                           .kv = options.kv,
                           .dense = options.dense.has_value()};
    link_ = options.make_link ? options.make_link(tier_, slots_, link, keys)
                              : std::make_unique<EmulatedLink>(tier_, slots_, link, clock_, keys);
    return Status::ok();
  }
  arena_ = std::make_unique<ArenaRegistration>(*options.cuda, host_.memory(), host_.memory_is_writable());
  MOESTRO_RETURN_IF_ERROR(host_.forbid_writes());
  CudaLink::Options link{
      .keys = keys, .slots = static_cast<uint32_t>(slots()), .poison_slots = options.poison_slots, .kv = options.kv};
  if (options.dense)
    for (const uint32_t blob : options.dense->blobs)
      link.layer_bytes = std::max(link.layer_bytes, host_.manifest().blobs[blob].length);
  MOESTRO_ASSIGN_OR_RETURN(link_, CudaLink::create(tier_, slots_, *arena_, *options.cuda, link, clock_));
  return Status::ok();
}

Status DeviceExperts::make_dense(const DeviceExpertsOptions& options) {
  if (!options.dense) return Status::ok();
  DenseLink* const link = link_->dense();
  if (link == nullptr) return unsupported("dense weights that take turns on a device whose link does not carry them");
  MOESTRO_ASSIGN_OR_RETURN(
      auto made, DeviceDense::create(host_, *options.dense, *link, options.cuda, options.poison_slots));
  dense_.emplace(std::move(made));
  return Status::ok();
}

DeviceExperts::~DeviceExperts() = default;

// --- the step ---

/// Where all experts fit, kernels that read their slots are queued before anybody knows which ones a step uses: need()
/// would come too late. A copy that is under way or in use is looked at later.
void DeviceExperts::look_for_wrong() {
  const uint64_t finds = host_.finds_of_all();
  if (!fits_all() || finds == finds_seen_) return;
  bool later = false;
  for (tier::Key key = 0; key < experts_.size(); ++key) {
    const Expert& e = experts_[key];
    if (host_.finds(e.blob) == e.finds) continue;
    tier_.spoiled(clock_.now(), key);
    later |= e.host || tier_.in_use(key);
  }
  if (!later) finds_seen_ = finds;
}

uint64_t DeviceExperts::begin_step(PlanId plan, bool scan) {
  recent_.begin_step(scan);
  const std::lock_guard lock(link_->mutex());
  look_for_wrong();
  plan_ = plan;
  tier_.begin_step(clock_.now(), scan);
  return tier_.counters().moved_bytes;
}

void DeviceExperts::resume_step(PlanId plan, bool scan, int32_t layer) {
  recent_.begin_step(scan);
  const std::lock_guard lock(link_->mutex());
  plan_ = plan;
  look_for_wrong();
  tier_.begin_step(clock_.now(), scan, layer);
}

void DeviceExperts::sequence_began(int32_t running) {
  const std::lock_guard lock(link_->mutex());
  tier_.sequence_began(running);
}

void DeviceExperts::need(const store::LayerNeeds& needs) {
  needed_.clear();
  for (const store::Need& n : needs.experts) needed_.push_back({key_of_[n.blob], n.weight, n.want, n.skipped});
  how_found_.resize(needed_.size());
  bool wake = false;
  {
    const std::lock_guard lock(link_->mutex());
    let_ended_go();  // what is wanted again needs a source again
    if (dense_) dense_->take_ended();
    for (const auto& w : needed_) {
      experts_[tier_options_.full_of(w.key)].served_low = tier_options_.copy_of(w.key) == Copy::kLow;
      if (w.skipped) continue;
      Expert& e = experts_[w.key];
      // Where all fit, look_for_wrong() has, and kernels that read its slot may be queued by now: unpin() looks again.
      if (!fits_all() && host_.finds(e.blob) != e.finds) tier_.spoiled(clock_.now(), w.key);
      e.needed = true, e.from_drive = e.host_asked;
    }
    tier_.hold_demands(lends_);
    tier_.routed(clock_.now(), static_cast<int32_t>(needs.moe_layer.value), needed_, how_found_, needs.complete);
    (void)find_sources();  // a source that refuses says so again to who waits, in next_arrival()
    wake = link_awake();
  }
  if (wake) link_->wake();
  count_recent();
  all_there_ = all_there_ && std::ranges::all_of(how_found_, [](tier::Found f) { return f == tier::Found::kHit; });
}

/// LRU and the oracle have one kind of copies, so the uses of full ones are compared.
void DeviceExperts::count_recent() {
  if (needed_.empty()) return;
  if (tier_options_.low_slots == 0) return recent_.routed(needed_, how_found_);
  needed_full_.clear(), found_full_.clear();
  for (size_t i = 0; i < needed_.size(); ++i) {
    if (needed_[i].skipped || tier_options_.copy_of(needed_[i].key) == Copy::kLow) continue;
    needed_full_.push_back(needed_[i]), found_full_.push_back(how_found_[i]);
  }
  if (!needed_full_.empty()) recent_.routed(needed_full_, found_full_);
}

void DeviceExperts::serve(std::span<store::Serving> experts) {
  choices_.clear();
  for (const store::Serving& e : experts) choices_.push_back({.full = key_of_[e.full], .want = e.want});
  {
    const std::lock_guard lock(link_->mutex());
    tier_.choose(choices_);
  }
  for (size_t i = 0; i < experts.size(); ++i) {
    const auto key = tier_options_.serving(choices_[i].full, choices_[i].way);
    experts[i].blob = key ? std::optional(experts_[*key].blob) : std::nullopt;
  }
}

bool DeviceExperts::forecast(int32_t layer, const prediction::Forecast& forecast) {
  {
    const std::lock_guard lock(link_->mutex());
    let_ended_go();
    foreseen_ = true;
    tier_.foresee(clock_.now(), layer, forecast);
    (void)find_sources();
  }
  link_->wake();
  return true;
}

/// While forecasts are made the link's thread looks at every turn of the step: one that sleeps until there is work
/// wakes so late that stalls become 1.2 to 1.4 times replay's (tests/device/live_agreement_test). Where nothing is
/// foreseen there is next to nothing to carry, and it may sleep.
bool DeviceExperts::link_awake() const { return foreseen_ || tier_.link_wanted(); }

void DeviceExperts::unforeseen() {
  const std::lock_guard lock(link_->mutex());
  foreseen_ = false;
  tier_.unforeseen();
}

Status DeviceExperts::check() const {
  const std::lock_guard lock(link_->mutex());
  return link_->failure();
}

tier::TierCounters DeviceExperts::tier_counters() const {
  const std::lock_guard lock(link_->mutex());
  return tier_.counters();
}

void DeviceExperts::take_figures(tier::TierFigures& out) {
  {
    const std::lock_guard lock(link_->mutex());
    told_.take(tier_, out);
    const uint64_t staged_bytes = link_->staged_bytes();  // once: the link goes on meanwhile
    out.staged_bytes = staged_bytes - std::exchange(told_staged_bytes_, staged_bytes);
  }
  out.recent = recent_.take();
}

void DeviceExperts::take_copied(std::vector<Copied>& out) {
  {
    const std::lock_guard lock(link_->mutex());
    let_ended_go();
    if (dense_) link_->dense()->take_carried(copied_);
  }
  out.insert(out.end(), copied_.begin(), copied_.end());
  copied_.clear();
}

DeviceExperts::Late DeviceExperts::why_late(tier::Key key) const {
  const std::lock_guard lock(link_->mutex());
  return {tier_.late_cause(served(key)), experts_[served(key)].from_drive};
}

uint32_t DeviceExperts::copies(tier::Key key) {
  const std::lock_guard lock(link_->mutex());
  let_ended_go();
  return experts_[served(key)].copies;
}

// --- the engine's side ---

std::optional<store::Lease> DeviceExperts::lease_slot(tier::Key key) {
  const auto slot = tier_.slot_of(key);
  if (!slot) return std::nullopt;
  tier_.leased(key);
  return store::Lease(this, experts_[key].blob, slots_.slot(*slot), slots_.slot_bytes(*slot), experts_[key].finds);
}

void DeviceExperts::addresses(MoeLayerId layer, std::span<uint64_t> out) {
  const std::lock_guard lock(link_->mutex());
  tier_.hold(static_cast<int32_t>(layer.value));
  const tier::Key first = layer.value * static_cast<uint32_t>(tier_options_.experts);
  for (uint32_t e = 0; e < out.size(); ++e) {
    const auto slot = tier_.slot_of(first + e);
    out[e] = slot ? reinterpret_cast<uint64_t>(slots_.slot(*slot)) : 0;
  }
}

void DeviceExperts::mark_held(std::span<uint8_t> out) const {
  const std::lock_guard lock(link_->mutex());
  for (tier::Key key = 0; key < out.size(); ++key) out[key] = tier_.slot_of(key).has_value();
}

bool DeviceExperts::holds_all() const {
  if (!fits_all()) return false;  // what is there may go
  const std::lock_guard lock(link_->mutex());
  return tier_.resident() == layers() * experts();
}

std::optional<store::Lease> DeviceExperts::try_pin(uint32_t blob, store::UseWeight weight) {
  const tier::Key key = key_of_[blob];
  if (key == kDense) return pin_dense(blob, weight);
  const std::lock_guard lock(link_->mutex());
  MOESTRO_CHECK(experts_[key].needed, "an expert of a device is asked for after it was needed");
  if (!link_->failure().is_ok()) return std::nullopt;  // fetch() says why
  return lease_slot(key);
}

void DeviceExperts::unpin(uint32_t blob) {
  const tier::Key key = key_of_[blob];
  if (key == kDense) return unpin_dense(blob);
  bool wake = false;
  {
    const std::lock_guard lock(link_->mutex());
    if (experts_[key].lent) return take_back(key);
    experts_[key].needed = false;
    if (const auto slot = tier_.slot_of(key)) link_->released(*slot);
    tier_.released(clock_.now(), key);
    if (host_.finds(blob) != experts_[key].finds) tier_.spoiled(clock_.now(), key);
    wake = link_awake();  // its slot may be what a copy waits for
  }
  if (wake) link_->wake();
}

Status DeviceExperts::fetch(std::span<const uint32_t> blobs, store::WantedBy why) {
  const bool dense = !blobs.empty() && key_of_[blobs.front()] == kDense;
  if (dense) return host_.fetch(blobs, why);  // at the start, before the first step
  MOESTRO_RETURN_IF_ERROR(check());
  for (const uint32_t blob : blobs) wanted_.push_back(key_of_[blob]);
  return Status::ok();
}

std::optional<Result<store::Lease>> DeviceExperts::next_ready() {
  for (size_t i = 0; i < wanted_.size(); ++i) {
    const tier::Key key = wanted_[i];
    Expert& e = experts_[key];
    auto lease = lease_slot(key);
    if (!lease && e.failure.is_ok()) continue;
    wanted_.erase(wanted_.begin() + static_cast<std::ptrdiff_t>(i));
    if (lease) return Result<store::Lease>(std::move(*lease));
    failed_blob_ = e.blob;
    e.needed = false;
    tier_.released(clock_.now(), key);
    return Result<store::Lease>(std::exchange(e.failure, Status::ok()));
  }
  return std::nullopt;
}

Result<store::Lease> DeviceExperts::next_arrival(std::chrono::milliseconds timeout) {
  failed_blob_.reset();
  if (wanted_.empty()) return host_.next_arrival(timeout);  // dense weights
  const Nanos until = clock_.now() + timeout;
  std::unique_lock lock(link_->mutex());
  tier_.hold_demands(false);
  uint64_t seen = link_->ends();
  while (true) {
    // Not kUnavailable, which asks to be asked again.
    if (const Status& failure = link_->failure(); !failure.is_ok()) return io_error(failure.message());
    let_ended_go();
    if (auto ready = next_ready()) return std::move(*ready);
    if (link_->kv_has_ended()) return unavailable("KV has moved, and what waits for it comes first");
    const size_t sources = with_source_.size();
    if (host_fetches_ > 0 || (dense_ && dense_->awaits_host())) MOESTRO_RETURN_IF_ERROR(take_host_arrival());
    // A source that takes no fetch any more: not its kUnavailable either.
    if (const Status asked = find_sources(); !asked.is_ok()) return io_error(asked.message());
    const Nanos now = clock_.now();
    const bool waits = now < until;
    // Whoever only looks wakes the link for what it has found, not each time.
    if (waits || with_source_.size() > sources) link_->wake();
    if (!waits) return unavailable("no expert was copied in time");
    link_->wait_for_end(lock, seen, std::min(until, now + (host_fetches_ > 0 ? kHostLook : kLongWait)));
  }
}

void DeviceExperts::cancel_fetches() {
  (void)link_->launched();  // what the step had queued may read any slot
  std::unique_lock lock(link_->mutex());
  if (dense_) dense_->reset(lock);
  wanted_.clear();
  all_there_ = true;
  host_.cancel_fetches();
  host_fetches_ = 0;
  for (tier::Slot slot = 0; slot < static_cast<tier::Slot>(tier_options_.all_slots()); ++slot) link_->released(slot);
  for (Expert& e : experts_) e.needed = e.host_asked = false, e.failure = Status::ok();
  tier_.abandon(clock_.now());
}

store::BlobSource::Counters DeviceExperts::counters() const {
  const tier::TierCounters t = tier_counters();
  return {.hits = t.hits, .misses = t.misses + t.late, .late = t.late, .fetched_bytes = t.moved_bytes,
          .streamed_bytes = dense_ ? dense_->bytes() : 0};
}

}  // namespace moestro::device
