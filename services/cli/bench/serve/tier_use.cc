#include "services/cli/bench/serve/tier_use.h"

#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "services/cli/common/json_text.h"
#include "services/cli/common/output.h"

namespace moestro::cli {
namespace {

using nlohmann::json;
using Json = nlohmann::ordered_json;
using std::chrono::milliseconds;

constexpr milliseconds kWithin{2000};
/// The orchestrator asks the store once a second (store_watch).
constexpr milliseconds kStoreIsKnownAfter{1200};

const json* object_in(const json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_object() ? &*found : nullptr;
}

TierUse::Experts experts_of(const json& tier) { return {count_or(tier, "hits"), count_or(tier, "misses")}; }

uint64_t more(uint64_t before, uint64_t after) { return after > before ? after - before : 0; }

TierUse::Experts more(const TierUse::Experts& before, const TierUse::Experts& after) {
  return {more(before.hits, after.hits), more(before.misses, after.misses)};
}

Json part(double of, double whole) { return whole > 0 ? Json(of / whole) : Json(); }

Json experts_json(const TierUse::Experts& e) {
  return {{"hits", e.hits},
          {"misses", e.misses},
          {"hit_rate", part(static_cast<double>(e.hits), static_cast<double>(e.hits + e.misses))}};
}

std::string bytes(uint64_t n) { return readable_count(static_cast<double>(n)) + "B"; }

std::string experts_text(const char* where, const TierUse::Experts& e) {
  const auto uses = static_cast<double>(e.hits + e.misses);
  return uses > 0 ? printed("%-24s %9.1f%% of %s uses\n", where, 100 * static_cast<double>(e.hits) / uses,
                            readable_count(uses).c_str())
                  : "";
}

std::optional<TierUse> look(HttpClient& client) {
  const auto reply = client.get("/v1/moestro/status");
  return reply.is_ok() && reply->status == 200 ? read_tier_use(reply->body) : std::nullopt;
}

}  // namespace

std::optional<TierUse> read_tier_use(std::string_view status) {
  const auto parsed = parse_json(status);
  if (!parsed.is_ok() || !parsed->is_object()) return std::nullopt;
  const json *steps = object_in(*parsed, "steps"), *tiers = object_in(*parsed, "tiers");
  const json* memory = tiers != nullptr ? object_in(*tiers, "dram") : nullptr;
  if (steps == nullptr || memory == nullptr) return std::nullopt;
  TierUse use{.memory = experts_of(*memory)};
  if (const json* device = object_in(*tiers, "device")) {
    use.device = experts_of(*device);
    use.link_bytes = count_or(*device, "moved_bytes");
  }
  if (const json* drives = object_in(*tiers, "nvme")) use.drive_bytes = count_or(*drives, "read_bytes");
  use.step_s = number_or(*steps, "seconds", 0);
  use.stall_s = number_or(*steps, "stall_seconds", 0);
  use.uptime_s = number_or(*parsed, "uptime_s", 0);
  return use;
}

std::optional<TierUse> ask_tier_use(const Server& server) {
  HttpClient client(server.url, {.connect = kWithin, .silence = kWithin}, server.access);
  const auto use = look(client);
  if (!use || !use->drive_bytes) return use;
  std::this_thread::sleep_for(kStoreIsKnownAfter);
  return look(client);
}

std::optional<TierUse> added(const std::optional<TierUse>& before, const std::optional<TierUse>& after) {
  if (!before || !after || after->uptime_s < before->uptime_s) return std::nullopt;
  TierUse use{.memory = more(before->memory, after->memory)};
  if (after->device) use.device = more(before->device.value_or(TierUse::Experts{}), *after->device);
  use.link_bytes = more(before->link_bytes, after->link_bytes);
  // Fewer than before: another store.
  if (before->drive_bytes && after->drive_bytes && *after->drive_bytes >= *before->drive_bytes)
    use.drive_bytes = *after->drive_bytes - *before->drive_bytes;
  use.step_s = after->step_s - before->step_s;
  use.stall_s = after->stall_s - before->stall_s;
  use.uptime_s = after->uptime_s - before->uptime_s;
  return use;
}

Json tier_use_json(const TierUse& use) {
  Json tiers = {{"device", nullptr}, {"dram", experts_json(use.memory)}, {"nvme", nullptr}};
  if (use.device) {
    tiers["device"] = experts_json(*use.device);
    tiers["device"]["moved_bytes"] = use.link_bytes;
  }
  if (use.drive_bytes) tiers["nvme"] = {{"read_bytes", *use.drive_bytes}};
  tiers["step_seconds"] = use.step_s;
  tiers["stall_seconds"] = use.stall_s;
  tiers["stall_share"] = part(use.stall_s, use.step_s);
  return tiers;
}

std::string tier_use_text(const TierUse& use) {
  std::string text;
  if (use.device) {
    text += experts_text("experts on the device", *use.device);
    text += printed("%-24s %10s\n", "copied over the link", bytes(use.link_bytes).c_str());
  }
  text += experts_text("experts in memory", use.memory);
  if (use.drive_bytes) text += printed("%-24s %10s\n", "read from the drive", bytes(*use.drive_bytes).c_str());
  if (use.step_s > 0)
    text += printed("%-24s %9.1f%% of the workers' steps\n", "stalled for experts", 100 * use.stall_s / use.step_s);
  return text;
}

}  // namespace moestro::cli
