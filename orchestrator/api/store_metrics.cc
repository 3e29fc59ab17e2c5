#include "orchestrator/api/store_metrics.h"

#include <nlohmann/json.hpp>

#include "orchestrator/api/metric_text.h"

namespace moestro::orchestrator {
namespace {

struct Metric {
  const char* name;
  const char* help;
  bool counter;
  uint64_t StoreFigures::*value;
};

/// The name in /metrics is moestro_store_NAME, and _total for a counter; in the status it is NAME.
constexpr Metric kMetrics[] = {
    {"arena_bytes", "Memory for weights.", false, &StoreFigures::arena_bytes},
    {"used_bytes", "Of it, placed.", false, &StoreFigures::used_bytes},
    {"resident_bytes", "Of it, whole and verified.", false, &StoreFigures::resident_bytes},
    {"workers", "Workers attached to the store.", false, &StoreFigures::workers},
    {"pins", "Blobs that workers have pinned.", false, &StoreFigures::pins},
    {"fetches", "Blobs that workers asked for and waited for: misses of the DRAM tier.", true, &StoreFigures::fetches},
    {"loads", "Reads of a blob that were begun.", true, &StoreFigures::loads},
    {"evictions", "Experts that gave way.", true, &StoreFigures::evictions},
    {"read_bytes", "Bytes read from the drives.", true, &StoreFigures::bytes_read},
    {"read_retries", "Reads that went wrong and were tried again.", true, &StoreFigures::retries},
    {"bad_blobs", "Blobs given up, those that have been repaired since included.", true, &StoreFigures::bad_blobs},
    {"unreadable_blobs", "Blobs that cannot be read now: requests that need them fail.", false,
     &StoreFigures::unreadable},
    {"prefetched", "Reads ahead that were begun.", true, &StoreFigures::prefetches},
    {"prefetched_used", "Of them, used after they were there.", true, &StoreFigures::prefetches_used},
    {"prefetched_late", "Of them, wanted while they were being read.", true, &StoreFigures::prefetches_late},
    {"prefetched_wasted", "Of them, evicted unused.", true, &StoreFigures::prefetches_wasted},
    {"prefetched_wasted_bytes", "Bytes read ahead for nothing: evicted unused, or of reads that were cancelled.", true,
     &StoreFigures::prefetch_wasted_bytes},
    {"foreseen_below_floor", "Absent experts that were foreseen and not likely enough to be read ahead.", true,
     &StoreFigures::foreseen_below_floor},
    {"foreseen_over_budget", "Those that the drive would not have brought in time.", true,
     &StoreFigures::foreseen_over_budget},
    {"foreseen_early", "Those that could wait, and so left their room to what was in it.", true,
     &StoreFigures::foreseen_early},
    {"foreseen_guarded", "Those for which everything in memory was used sooner, or pinned.", true,
     &StoreFigures::foreseen_guarded},
    {"adopted", "Blobs taken over from a store that was killed.", true, &StoreFigures::adopted},
    {"unchecked", "Of them, those not compared with their checksums yet.", false, &StoreFigures::unchecked},
    {"damaged", "Of them, those that had changed and were read again.", true, &StoreFigures::damaged},
    {"scrub_mismatches", "Blobs that changed in memory while the store served.", true, &StoreFigures::scrub_mismatches},
    {"warm_start_bytes", "What was in memory when the store was last shut down, and is read again.", false,
     &StoreFigures::warm_bytes},
    {"warm_start_there_bytes", "Of it, there.", false, &StoreFigures::warm_bytes_there},
    {"warm_start_left_out", "Blobs of it that found no room.", false, &StoreFigures::warm_left_out},
};

void add_drives(MetricText& text, const StoreFigures& s) {
  const auto each = [&s, &text](auto value) {
    for (const auto& d : s.drives) text.sample(static_cast<double>(value(d)), {{"drive", d.path}});
  };
  text.counter("moestro_drive_read_bytes_total", "Bytes read from a drive.");
  each([](const auto& d) { return d.bytes_read; });
  text.counter("moestro_drive_read_retries_total", "Its reads that went wrong and were tried again.");
  each([](const auto& d) { return d.retries; });
  text.gauge("moestro_drive_speed_bytes_per_second",
             "What it read when it was measured at the store's start; 0: not measured.");
  each([](const auto& d) { return d.bytes_per_s; });
  text.gauge("moestro_drive_utilisation_ratio",
             "Bytes read in the last second or so, by that speed. 1: as fast as it can; 0 also where the speed was not "
             "measured.");
  each([](const auto& d) { return d.utilisation(); });
}

void add_models(MetricText& text, const StoreFigures& s) {
  text.gauge("moestro_model_experts", "Experts that a model has, each once, whatever its copies.");
  for (const auto& m : s.models) text.sample(static_cast<double>(m.experts), {{"model", m.name}});
}

void add_queues(MetricText& text, const StoreFigures& s) {
  text.gauge("moestro_store_read_queue", "Blobs that wait to be read, or are being read, by the reason.");
  for (const auto& q : s.queues)
    text.sample(static_cast<double>(q.waiting), {{"class", q.of}, {"state", "waiting"}})
        .sample(static_cast<double>(q.reading), {{"class", q.of}, {"state", "reading"}});
}

}  // namespace

std::string store_metrics_text(const std::optional<StoreFigures>& store) {
  MetricText text;
  text.gauge("moestro_store_up", "Whether the store answers.").sample(store.has_value() ? 1 : 0);
  if (!store) return text.text();
  for (const Metric& m : kMetrics) {
    const std::string name = "moestro_store_" + std::string(m.name);
    (m.counter ? text.counter(name + "_total", m.help) : text.gauge(name, m.help))
        .sample(static_cast<double>(*store.*m.value));
  }
  text.gauge("moestro_store_warm_start_running", "Whether it is still being read.").sample(store->warm_running ? 1 : 0);
  add_drives(text, *store);
  add_models(text, *store);
  add_queues(text, *store);
  return text.text();
}

nlohmann::json store_status(const std::optional<StoreFigures>& store) {
  if (!store) return nullptr;
  using nlohmann::json;
  json status{{"warm_start_running", store->warm_running}, {"policy", store->policy}, {"reader", store->reader}};
  for (const Metric& m : kMetrics) status[m.name] = *store.*m.value;
  status["memory_changed_s"] = store->memory_changed_s < 0 ? json() : json(store->memory_changed_s);
  json& models = status["models"] = json::array();
  for (const auto& m : store->models)
    models.push_back({{"name", m.name},
                      {"pack_bytes", m.pack_bytes},
                      {"used_bytes", m.used_bytes},
                      {"experts", m.experts},
                      {"resident_experts", m.resident_experts},
                      {"layers", m.layers},
                      {"streamed_layers", m.streamed_layers},
                      {"streamed_bytes", m.streamed_bytes}});
  json& drives = status["drives"] = json::array();
  for (const auto& d : store->drives)
    drives.push_back({{"path", d.path},
                      {"read_bytes", d.bytes_read},
                      {"retries", d.retries},
                      {"bytes_per_s_at_start", d.bytes_per_s},
                      {"utilisation", d.bytes_per_s > 0 ? json(d.utilisation()) : json()}});
  json& queues = status["queues"] = json::object();
  for (const auto& q : store->queues) queues[q.of] = {{"waiting", q.waiting}, {"reading", q.reading}};
  return status;
}

}  // namespace moestro::orchestrator
