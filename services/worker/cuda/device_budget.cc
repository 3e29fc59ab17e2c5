#include "services/worker/cuda/device_budget.h"

#include <algorithm>
#include <cstdio>
#include <limits>

#include "common/check.h"
#include "common/config/units.h"

namespace moestro::cuda {
namespace {

using config::readable_size;

constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();
constexpr uint64_t kMarginMin = 128ull << 20, kMarginMax = 1ull << 30;

uint64_t plus(uint64_t a, uint64_t b) { return a > kMax - b ? kMax : a + b; }
uint64_t times(uint64_t a, uint64_t b) { return b != 0 && a > kMax / b ? kMax : a * b; }
uint64_t less(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

/// Up to whole MiB, as a person would type it.
std::string as_vram(uint64_t bytes) {
  constexpr uint64_t kMiB = 1 << 20;
  return "vram=" + config::format_size(bytes / kMiB * kMiB + (bytes % kMiB != 0 ? kMiB : 0));
}

/// Besides dense weights and experts.
uint64_t fixed_bytes(const DeviceNeeds& needs) { return plus(needs.kv_bytes, needs.workspace_bytes); }

/// Of the memory that dense weights and experts share.
tier::DenseNeeds dense_needs(const DeviceNeeds& needs, double share) {
  tier::DenseNeeds dense{.layers = needs.dense_layers, .fixed_bytes = needs.dense_bytes};
  for (const uint64_t layer : needs.dense_layers) dense.fixed_bytes -= layer;
  dense.expert_bytes_max = needs.expert_bytes, dense.experts_bytes = times(needs.experts, needs.expert_bytes);
  dense.experts_at_once = needs.experts_at_once;
  dense.staying_share = share, dense.on_device = true;
  return dense;
}

bool in_turn(const DeviceNeeds& needs, const DeviceMemory& memory) {
  return memory.dense_in_turn && !needs.dense_layers.empty();
}

/// The least that dense weights take.
uint64_t dense_min(const DeviceNeeds& needs, const DeviceMemory& memory) {
  if (!in_turn(needs, memory)) return needs.dense_bytes;
  return tier::dense_bytes_min(dense_needs(needs, memory.dense_share)) - needs.expert_bytes;
}

/// "dense weights 3.00 GiB, KV cache 1.00 GiB, workspace 200 MiB and 2 experts 10.0 MiB"
std::string parts_text(const DeviceNeeds& needs, const DeviceMemory& memory, uint64_t slots) {
  return (in_turn(needs, memory) ? "dense weights, whose layers then take turns, " : "dense weights ") +
         readable_size(dense_min(needs, memory)) + ", KV cache " + readable_size(needs.kv_bytes) + ", workspace " +
         readable_size(needs.workspace_bytes) + " and " +
         (slots == 1 ? "one expert " : std::to_string(slots) + " experts ") +
         readable_size(times(slots, needs.expert_bytes));
}

/// What gives the most, first.
std::string what_to_lower(const DeviceNeeds& needs, const DeviceMemory& memory) {
  struct Way {
    uint64_t bytes;
    std::string what;
  };
  std::vector<Way> ways = {{needs.kv_bytes, "fewer --kv-tokens (or --kv-dtype int8)"},
                           {needs.workspace_bytes, "a smaller --step-tokens"},
                           {needs.dense_bytes, "a pack with --dense int8"}};
  std::ranges::stable_sort(ways, [](const Way& a, const Way& b) { return a.bytes > b.bytes; });
  std::string text;
  for (const Way& way : ways)
    if (way.bytes > 0) text += (text.empty() ? "" : ", or ") + way.what;
  DeviceMemory turns = memory;
  turns.dense_in_turn = true;
  if (!memory.dense_in_turn && dense_min(needs, turns) < needs.dense_bytes)
    text += ", or dense=counted in --device, so that layers' dense weights take turns there";
  return text.empty() ? "a pack with --experts int8" : text;
}

uint64_t least_bytes(const DeviceNeeds& needs, uint64_t slots_min, const DeviceMemory& memory) {
  return plus(plus(fixed_bytes(needs), dense_min(needs, memory)), times(slots_min, needs.expert_bytes));
}

Status does_not_fit(const DeviceNeeds& needs, uint64_t slots_min, const DeviceMemory& memory, uint64_t free) {
  const uint64_t least = least_bytes(needs, slots_min, memory),
                 margin = driver_margin(memory.total_bytes);
  const std::string of_card = readable_size(memory.free_bytes) + " of the " + memory.name + "'s " +
                              readable_size(memory.total_bytes) + " are free, " + readable_size(margin) +
                              " of it left to the driver";
  const std::string needed =
      readable_size(least) + " of device memory are the least for this model: " + parts_text(needs, memory, slots_min);
  if (memory.vram_bytes != 0 && memory.vram_bytes < least && least <= free)
    return invalid_argument(
        as_vram(least) + " is the least for this model, vram=" + config::format_size(memory.vram_bytes) +
        " is given: " + parts_text(needs, memory, slots_min) + "; raise it, or take " + what_to_lower(needs, memory));
  if (least > less(memory.total_bytes, margin))
    return invalid_argument(needed + "; " + of_card + "; take " + what_to_lower(needs, memory) + ", or a larger card");
  return unavailable(needed + "; " + of_card +
                     "; CUDA itself and other processes have the rest (nvidia-smi names them): end those, or take " +
                     what_to_lower(needs, memory));
}

}  // namespace

uint64_t driver_margin(uint64_t total_bytes) { return std::clamp(total_bytes / 100, kMarginMin, kMarginMax); }

Result<DeviceBudget> share_out(const DeviceNeeds& needs, const DeviceMemory& memory) {
  MOESTRO_CHECK(needs.experts == 0 || needs.expert_bytes > 0, "an expert has a size");
  const uint64_t free = less(memory.free_bytes, driver_margin(memory.total_bytes));
  const uint64_t room = memory.vram_bytes == 0 ? free : std::min(memory.vram_bytes, free);
  const uint64_t slots_min = std::min(needs.slots_min, needs.experts), fixed = fixed_bytes(needs);
  if (least_bytes(needs, slots_min, memory) > room) return does_not_fit(needs, slots_min, memory, free);
  DeviceBudget budget;
  budget.room_bytes = room;
  uint64_t dense = needs.dense_bytes;
  std::string dense_name = "dense weights";
  if (in_turn(needs, memory)) {
    const uint64_t other_slots = times(slots_min - std::min<uint64_t>(slots_min, 1), needs.expert_bytes);
    MOESTRO_ASSIGN_OR_RETURN(budget.dense, tier::plan_dense_window(dense_needs(needs, memory.dense_share),
                                                                   room - fixed - other_slots));
    dense = needs.dense_bytes - budget.dense.streamed_bytes + budget.dense.places * budget.dense.place_bytes;
    if (budget.dense.streams())
      dense_name += " of " + std::to_string(needs.dense_layers.size() - budget.dense.streamed_layers) + "/" +
                    std::to_string(needs.dense_layers.size()) + " layers";
  }
  const uint64_t left = room - fixed - dense;
  if (needs.experts > 0) budget.slots = std::min(needs.experts, left / needs.expert_bytes);
  budget.all_resident = budget.slots == needs.experts;
  const uint64_t slots_bytes = budget.slots * needs.expert_bytes;
  const auto line = [&](std::string what, uint64_t bytes) {
    budget.lines.push_back(
        {std::move(what), bytes, room == 0 ? 0 : static_cast<double>(bytes) / static_cast<double>(room)});
  };
  line(dense_name, dense);
  line("KV cache", needs.kv_bytes);
  line("workspace", needs.workspace_bytes);
  line(std::to_string(budget.slots) + " of " + std::to_string(needs.experts) + " experts", slots_bytes);
  line("left", left - slots_bytes);
  return budget;
}

std::vector<std::string> DeviceBudget::table() const {
  std::vector<std::string> table;
  for (const BudgetLine& line : lines) {
    char row[128];
    std::snprintf(row, sizeof row, "%-28s %10s %5.1f %%", line.what.c_str(), readable_size(line.bytes).c_str(),
                  100 * line.share);
    table.emplace_back(row);
  }
  return table;
}

}  // namespace moestro::cuda
