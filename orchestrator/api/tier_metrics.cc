#include "orchestrator/api/tier_metrics.h"

#include "common/units.h"
#include "orchestrator/api/metric_text.h"

namespace moestro::orchestrator {
namespace {

double of(uint64_t n) { return static_cast<double>(n); }

/// Samples of one family for the tiers that count it, in the order of the tiers.
class Tiers {
 public:
  Tiers(MetricText& text, const std::string& model, const ControlSnapshot& control,
        const std::optional<StoreFigures>& store)
      : text_(text),
        control_(control),
        store_(store),
        device_{{"model", model}, {"tier", "device"}},
        of_model_{{"model", model}, {"tier", "dram"}} {}

  /// Workers count it in both tiers.
  void by_workers(const std::string& name, const std::string& help, uint64_t DeviceUse::*device, uint64_t dram) {
    text_.counter(name, help);
    if (has_device()) text_.sample(of(control_.device.use.*device), device_);
    text_.sample(of(dram), of_model_);
  }
  /// Workers count it on their devices, the store counts it in memory.
  void counter(const std::string& name, const std::string& help, uint64_t device, uint64_t StoreFigures::*dram) {
    text_.counter(name, help);
    if (has_device()) text_.sample(of(device), device_);
    if (store_) text_.sample(of(*store_.*dram), dram_);
  }
  /// `nvme`: of the drives.
  void gauge(const std::string& name, const std::string& help, uint64_t device, uint64_t StoreFigures::*dram,
             const uint64_t* nvme = nullptr) {
    text_.gauge(name, help);
    if (has_device()) text_.sample(of(device), device_);
    if (store_) text_.sample(of(*store_.*dram), dram_);
    if (store_ && nvme != nullptr) text_.sample(of(*nvme), nvme_);
  }
  bool has_device() const { return !control_.device_layers.empty(); }
  const MetricText::Labels& on_device() const { return device_; }
  const MetricText::Labels& in_dram() const { return dram_; }
  const MetricText::Labels& on_nvme() const { return nvme_; }

 private:
  MetricText& text_;
  const ControlSnapshot& control_;
  const std::optional<StoreFigures>& store_;
  const MetricText::Labels device_, of_model_, dram_{{"tier", "dram"}},
      nvme_{{"tier", "nvme"}};  ///< the store counts over all its models
};

void add_tiers(MetricText& text, const std::string& model, const ControlSnapshot& c,
               const std::optional<StoreFigures>& store, const DeviceRoom& room) {
  Tiers tiers(text, model, c, store);
  const DeviceUse& d = c.device.use;
  using S = StoreFigures;
  tiers.by_workers("moestro_tier_hits_total", "Experts that were in a tier when a layer wanted them.", &DeviceUse::hits,
                   c.dram_hits);
  tiers.by_workers("moestro_tier_misses_total", "Experts that were not, and had to be fetched.", &DeviceUse::misses,
                   c.dram_misses);
  tiers.counter("moestro_tier_late_total",
                "Experts, and in memory other blobs, that were wanted while they were still being loaded into a tier.",
                d.late, &S::joined);
  tiers.counter("moestro_tier_prefetched_total",
                "Of memory, reads ahead that were begun; of devices, experts that were brought ahead.", d.prefetched,
                &S::prefetches);
  tiers.counter("moestro_tier_prefetched_used_total", "Of them, used after they were there.", d.prefetched_used,
                &S::prefetches_used);
  tiers.counter("moestro_tier_prefetched_wasted_total", "Of them, evicted unused.", d.prefetched_wasted,
                &S::prefetches_wasted);
  tiers.counter("moestro_tier_prefetched_wasted_bytes_total",
                "Bytes that were brought ahead for nothing: evicted unused, or cancelled on their way.",
                c.device.wasted_bytes, &S::prefetch_wasted_bytes);
  tiers.counter("moestro_tier_evictions_total", "Experts that gave way in a tier.", d.evictions, &S::evictions);
  const uint64_t packs = store ? pack_bytes(*store) : 0;
  tiers.gauge("moestro_tier_capacity_bytes", "Bytes that a tier has room for.", room.capacity_bytes, &S::arena_bytes);
  tiers.gauge("moestro_tier_used_bytes", "Of them, in use; of the nvme tier, all packs.", room.used_bytes,
              &S::used_bytes, &packs);
  tiers.gauge("moestro_tier_resident_bytes", "Bytes of weights that are in a tier whole.", room.used_bytes,
              &S::resident_bytes, &packs);
  if (store) {
    text.counter("moestro_tier_prefetched_dropped_total",
                 "Reads ahead that were cancelled: no longer foreseen, or a demand needed their room.")
        .sample(of(store->prefetches_dropped), tiers.in_dram());
    text.counter("moestro_tier_read_bytes_total", "Bytes read from a tier.")
        .sample(of(store->bytes_read), tiers.on_nvme());
  }
  text.gauge("moestro_tier_experts",
             "Experts of a model that are in a tier, in any precision; one on several devices counts on each.");
  if (tiers.has_device()) text.sample(of(room.resident), tiers.on_device());
  if (!store) return;
  for (const auto& m : store->models) text.sample(of(m.resident_experts), {{"model", m.name}, {"tier", "dram"}});
  text.gauge("moestro_tier_model_bytes",
             "Bytes of a tier that a model uses; what several have in common counts for each in part.");
  for (const auto& m : store->models) text.sample(of(m.used_bytes), {{"model", m.name}, {"tier", "dram"}});
}

void add_recent(MetricText& text, const std::string& model, const RecentUses& r) {
  if (r.uses == 0) return;
  const auto rate = [&](uint64_t hits, const char* policy) {
    text.sample(of(hits) / of(r.uses), {{"model", model}, {"tier", "device"}, {"policy", policy}});
  };
  text.gauge("moestro_tier_recent_hit_ratio",
             "Of the last uses of the devices' slots, the part that were hits: realised, as it was; lru and belady "
             "(who knows the future), on demand with as many slots.");
  rate(r.hits, "realised"), rate(r.lru_hits, "lru"), rate(r.belady_hits, "belady");
  text.gauge("moestro_tier_recent_uses", "How many uses that is of.")
      .sample(of(r.uses), {{"model", model}, {"tier", "device"}});
}

void add_devices(MetricText& text, const std::string& model, const ControlSnapshot& c) {
  const MetricText::Labels labels{{"model", model}};
  text.counter("moestro_device_link_bytes_total", "Bytes that links have carried to devices.")
      .sample(of(c.device.moved_bytes), labels);
  text.counter("moestro_device_staged_bytes_total",
               "Of them, bytes that a thread copied first: the driver did not register the store's memory.")
      .sample(of(c.device.staged_bytes), labels);
  text.counter("moestro_device_link_busy_seconds_total", "Time in which they carried, added up over the devices.")
      .sample(seconds_of(c.device.link_busy_us), labels);
  text.counter("moestro_device_step_seconds_total", "Time that workers with such a device spent on plans.")
      .sample(seconds_of(c.device.step_us), labels);
  text.counter("moestro_device_stall_seconds_total", "Of it, time in which the device waited for experts.")
      .sample(seconds_of(c.device.stall_us), labels);
  text.counter(
          "moestro_device_host_experts_total",
          "Experts that were missing on a device and that its worker's CPU computed instead of waiting for the link.")
      .sample(of(c.device.work.host_experts), labels);
  text.counter("moestro_device_host_rows_total", "Choices (token, expert) that were computed so.")
      .sample(of(c.device.work.host_rows), labels);
  text.counter("moestro_device_rewinds_total",
               "Layers that were queued on a device before their routes were known, and had to be queued again.")
      .sample(of(c.device.work.rewinds), labels);
  text.counter("moestro_device_kv_in_bytes_total",
               "KV cache that crossed the link to devices, where its home is host memory.")
      .sample(of(c.device.work.kv_in_bytes), labels);
  text.counter("moestro_device_kv_out_bytes_total", "KV cache that crossed it back to host memory.")
      .sample(of(c.device.work.kv_out_bytes), labels);
  const auto each = [&](auto value) {
    for (const auto& w : c.workers)
      if (w.has_device()) text.sample(value(w), {{"model", model}, {"worker", w.name}});
  };
  text.counter("moestro_worker_device_hits_total",
               "Experts that were on a worker's device when a layer wanted them, since it registered.");
  each([](const auto& w) { return of(w.device_totals.use.hits); });
  text.counter("moestro_worker_device_misses_total", "Experts that were not.");
  each([](const auto& w) { return of(w.device_totals.use.misses); });
  text.counter("moestro_worker_device_link_busy_seconds_total",
               "Time in which its link carried. Its rate is the link's utilisation.");
  each([](const auto& w) { return seconds_of(w.device_totals.link_busy_us); });
  text.counter("moestro_worker_device_host_experts_total", "Experts that a worker's CPU computed for its device.");
  each([](const auto& w) { return of(w.device_totals.work.host_experts); });
  text.counter("moestro_worker_device_rewinds_total", "Layers that had to be queued again on it.");
  each([](const auto& w) { return of(w.device_totals.work.rewinds); });
  text.gauge("moestro_worker_device_slots", "Experts that its device has room for.");
  each([](const auto& w) { return of(w.device_slots); });
  for (const LayerFigure& figure : kByLayer) {
    text.counter("moestro_device_layer_" + std::string(figure.name) + "_total", figure.help);
    for (size_t i = 0; i < c.device_layers.size(); ++i)
      text.sample(of(c.device_layers[i].*figure.value), {{"model", model}, {"layer", std::to_string(i)}});
  }
}

/// Of workers with low copies.
void add_copies(MetricText& text, const std::string& model, const ControlSnapshot& c) {
  if (c.device_copies.empty() && c.dram_copies.empty()) return;
  text.counter("moestro_tier_choices_total",
               "Choices of an expert by a token on workers with low copies, by the copy that served: full, low, or "
               "none (skipped).");
  const auto add = [&](const char* tier, const std::vector<CopyCounts>& layers) {
    for (size_t i = 0; i < layers.size(); ++i) {
      const auto sample = [&](const char* copy, uint64_t n) {
        text.sample(of(n), {{"model", model}, {"tier", tier}, {"layer", std::to_string(i)}, {"copy", copy}});
      };
      const CopyCounts& l = layers[i];
      sample("full", l.choices - l.low - l.skipped), sample("low", l.low), sample("skipped", l.skipped);
    }
  };
  add("device", c.device_copies);
  add("dram", c.dram_copies);
}

}  // namespace

DeviceRoom room_of(const ControlSnapshot& c) {
  DeviceRoom room;
  for (const auto& w : c.workers) {
    if (!w.has_device()) continue;
    ++room.workers;
    room.slots += w.device_slots, room.resident += w.device_resident;
    room.capacity_bytes += w.device_slots * w.device_slot_bytes,
        room.used_bytes += w.device_resident * w.device_slot_bytes;
    room.recent += w.recent;
  }
  return room;
}

uint64_t pack_bytes(const StoreFigures& store) {
  uint64_t sum = 0;
  for (const auto& m : store.models) sum += m.pack_bytes;
  return sum;
}

std::string tier_metrics_text(const std::string& model, const ControlSnapshot& control,
                              const std::optional<StoreFigures>& store) {
  MetricText text;
  const DeviceRoom room = room_of(control);
  add_tiers(text, model, control, store, room);
  add_copies(text, model, control);
  if (!control.device_layers.empty()) {
    add_recent(text, model, room.recent);
    add_devices(text, model, control);
  }
  return text.text();
}

}  // namespace moestro::orchestrator
