#include "orchestrator/api/store_metrics.h"

#include <nlohmann/json.hpp>

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
    {"bad_blobs", "Blobs that could not be read.", true, &StoreFigures::bad_blobs},
    {"prefetched", "Blobs that workers asked for ahead of their use.", true, &StoreFigures::prefetches},
    {"prefetched_used", "Of them, used after they were there.", true, &StoreFigures::prefetches_used},
    {"prefetched_late", "Of them, wanted while they were being read.", true, &StoreFigures::prefetches_late},
    {"prefetched_wasted", "Of them, evicted unused.", true, &StoreFigures::prefetches_wasted},
    {"prefetched_wasted_bytes", "Their bytes.", true, &StoreFigures::prefetch_wasted_bytes},
    {"adopted", "Blobs taken over from a store that was killed.", true, &StoreFigures::adopted},
    {"unchecked", "Of them, those not compared with their checksums yet.", false, &StoreFigures::unchecked},
    {"damaged", "Of them, those that had changed and were read again.", true, &StoreFigures::damaged},
    {"scrub_mismatches", "Blobs that changed in memory while the store served.", true, &StoreFigures::scrub_mismatches},
    {"warm_start_bytes", "What was in memory when the store was last shut down, and is read again.", false, &StoreFigures::warm_bytes},
    {"warm_start_there_bytes", "Of it, there.", false, &StoreFigures::warm_bytes_there},
    {"warm_start_left_out", "Blobs of it that found no room.", false, &StoreFigures::warm_left_out},
};

void add(std::string& text, const std::string& name, const char* help, bool counter, uint64_t value) {
  text += "# HELP " + name + " " + help + "\n# TYPE " + name + (counter ? " counter\n" : " gauge\n") + name + " " + std::to_string(value) + "\n";
}

}  // namespace

std::string store_metrics_text(const std::optional<StoreFigures>& store) {
  std::string text;
  add(text, "moestro_store_up", "Whether the store answers.", false, store.has_value());
  if (!store) return text;
  for (const Metric& m : kMetrics) add(text, "moestro_store_" + std::string(m.name) + (m.counter ? "_total" : ""), m.help, m.counter, *store.*m.value);
  add(text, "moestro_store_warm_start_running", "Whether it is still being read.", false, store->warm_running);
  return text;
}

nlohmann::json store_status(const std::optional<StoreFigures>& store) {
  if (!store) return nullptr;
  nlohmann::json status{{"warm_start_running", store->warm_running}};
  for (const Metric& m : kMetrics) status[m.name] = *store.*m.value;
  return status;
}

}  // namespace moestro::orchestrator
