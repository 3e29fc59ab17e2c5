#include "common/planner/placement.h"

#include <algorithm>

#include "common/config/units.h"
#include "common/tier/dense_window.h"

namespace moestro::planner {
namespace {

using config::readable_size;
using Device = Memories::Device;

uint64_t sum(const std::vector<Part>& parts) {
  uint64_t bytes = 0;
  for (const Part& part : parts) bytes += part.bytes;
  return bytes;
}

std::string parts_text(const std::vector<Part>& parts) {
  std::string text;
  for (const Part& part : parts)
    if (part.bytes > 0) text += (text.empty() ? "" : ", ") + part.what + " " + readable_size(part.bytes);
  return text;
}

/// As a person would type it: whole MiB, rounded up.
std::string at_least(uint64_t bytes) {
  constexpr uint64_t kMiB = 1 << 20;
  return config::format_size((bytes + kMiB - 1) / kMiB * kMiB);
}

std::string experts_text(int64_t held, int64_t all) {
  return std::to_string(held) + " of " + std::to_string(all) + " experts";
}

Status too_small(const std::string& memory, std::vector<Part> fixed, uint64_t expert_bytes, uint64_t capacity,
                 const std::string& remedy) {
  fixed.push_back({"one expert", expert_bytes});
  return exhausted("does not fit: " + memory + " of " + readable_size(capacity) + " is too small; the least is " +
                   at_least(sum(fixed)) + " (" + parts_text(fixed) + "); " + remedy);
}

constexpr const char* kSmaller = "take fewer sequences or tokens, --kv-dtype int8, or weights of fewer bits";

std::string remedy_of_device(const Needs& n, const Memories& m) {
  if (!m.device_has_kv()) return "give the device more (vram=SIZE)";
  const bool could = m.device == Device::kWhole && !m.counts_dense && !n.dense_layer_bytes.empty();
  return std::string(kSmaller) + (could ? ", or let dense weights take turns (dense=counted in --device)" : "");
}

/// Fills a tier with experts after its fixed parts. Returns how many.
int64_t fill(Tier& tier, uint64_t room, uint64_t each, int64_t all) {
  const uint64_t left = room - std::min(room, tier.used_bytes());
  const int64_t held = each == 0 ? all : static_cast<int64_t>(std::min(left / each, static_cast<uint64_t>(all)));
  tier.parts.push_back({experts_text(held, all), static_cast<uint64_t>(held) * each});
  return held;
}

/// In the memory that they are computed from, where they may take turns.
tier::DenseNeeds dense_needs(const Needs& n, uint64_t expert_bytes, bool in_turn) {
  tier::DenseNeeds dense;
  if (in_turn) dense.layers = n.dense_layer_bytes;
  dense.fixed_bytes = n.dense_bytes;
  for (const uint64_t layer : dense.layers) dense.fixed_bytes -= layer;
  dense.expert_bytes_max = expert_bytes, dense.experts_bytes = expert_bytes * static_cast<uint64_t>(n.experts);
  dense.experts_at_once = n.experts_at_once;
  return dense;
}

/// The part of the dense weights in at most `bytes`, which they share with experts.
Result<Part> dense_part(const Needs& n, const tier::DenseNeeds& dense, uint64_t bytes, Placement& placement) {
  MOESTRO_ASSIGN_OR_RETURN(const tier::DenseWindow window, tier::plan_dense_window(dense, bytes));
  if (window.streamed_layers == 0) return Part{"dense weights", n.dense_bytes};
  placement.streamed_bytes = window.streamed_bytes, placement.streamed_layers = window.streamed_layers;
  uint64_t all = 0;
  for (const uint64_t layer : dense.layers) all += layer;
  placement.dense_share = 1 - static_cast<double>(window.streamed_bytes) / static_cast<double>(all);
  const size_t layers = dense.layers.size();
  return Part{"dense weights (" + std::to_string(layers - window.streamed_layers) + " of " + std::to_string(layers) +
                  " layers stay, each step reads " + readable_size(window.streamed_bytes) + " of the others)",
              n.dense_bytes - window.streamed_bytes + window.places * window.place_bytes};
}

bool takes_turns(const Needs& n, const Memories& m) {
  return m.counts_dense && m.device != Device::kHost && !n.device_dense_bytes;
}

/// Behind the other parts of a worker's device, if they count there.
Status add_dense(const Needs& n, const Memories& m, Tier& tier, Placement& placement) {
  if (!takes_turns(n, m)) return Status::ok();
  tier::DenseNeeds dense = dense_needs(n, n.slot_bytes, true);
  dense.staying_share = m.dense_share, dense.on_device = true;
  const uint64_t others = tier.used_bytes(), least = tier::dense_bytes_min(dense);
  if (others + least > m.device_bytes) {
    tier.parts.push_back({dense.layers.empty() ? "dense weights" : "dense weights, in turn", least - n.slot_bytes});
    return too_small("device memory", tier.parts, n.slot_bytes, m.device_bytes, remedy_of_device(n, m));
  }
  MOESTRO_ASSIGN_OR_RETURN(Part part, dense_part(n, dense, m.device_bytes - others, placement));
  placement.streamed_by_link = placement.streamed_layers > 0;
  tier.parts.push_back(std::move(part));
  return Status::ok();
}

Result<Tier> device_tier(const Needs& n, const Memories& m, Placement& placement) {
  Tier tier{"device memory", m.device_bytes, {}};
  if (m.device == Device::kWhole && !takes_turns(n, m))
    tier.parts = {{n.device_dense_bytes ? "dense weights, and room for what is streamed" : "dense weights",
                   n.device_dense_bytes.value_or(n.dense_bytes)},
                  {"KV cache", n.kv_bytes},
                  {"workspace", n.workspace_bytes}};
  else if (m.device == Device::kWhole)
    tier.parts = {{"KV cache", n.kv_bytes}, {"workspace", n.workspace_bytes}};
  else if (m.device_has_kv())
    tier.parts = {{"KV cache", n.kv_bytes}};
  if (m.device == Device::kWhole && n.state_bytes > 0) tier.parts.push_back({"states of sequences", n.state_bytes});
  MOESTRO_RETURN_IF_ERROR(add_dense(n, m, tier, placement));
  if (tier.used_bytes() + n.slot_bytes > m.device_bytes)
    return too_small("device memory", tier.parts, n.slot_bytes, m.device_bytes,
                     remedy_of_device(n, m));
  placement.device_experts = fill(tier, m.device_bytes, n.slot_bytes, n.experts);
  return tier;
}

Result<Tier> host_tier(const Needs& n, const Memories& m, Placement& placement) {
  Tier tier{"host memory", m.host_bytes, {{"programs", n.process_bytes}}};
  const uint64_t kv_bytes = m.device_has_kv() ? n.host_kv_bytes : n.kv_bytes;
  if (kv_bytes > 0) tier.parts.push_back({"KV cache", kv_bytes});
  if (m.device != Device::kWhole) {
    if (n.state_bytes > 0) tier.parts.push_back({"states of sequences", n.state_bytes});
    tier.parts.push_back({"workspace", n.workspace_bytes});
  }
  if (m.device == Device::kExpertsOnly) tier.parts.push_back({"the emulated device", m.device_bytes});
  const uint64_t others = tier.used_bytes();
  const tier::DenseNeeds dense = dense_needs(n, n.expert_bytes, m.device == Device::kHost);
  const uint64_t arena_min = tier::dense_bytes_min(dense);
  const bool in_turn = arena_min < n.dense_bytes + n.expert_bytes;
  tier.parts.push_back({in_turn ? "dense weights, in turn" : "dense weights", arena_min - n.expert_bytes});
  if (m.arena_bytes && *m.arena_bytes < arena_min)
    return too_small("--dram", {tier.parts.back()}, n.expert_bytes, *m.arena_bytes,
                     "raise it, or take weights of fewer bits");
  if (others + std::max(arena_min, m.arena_bytes.value_or(0)) > m.host_bytes) {
    if (others + arena_min > m.host_bytes)
      return too_small("host memory", tier.parts, n.expert_bytes, m.host_bytes, kSmaller);
    return exhausted("does not fit: --dram " + config::format_size(*m.arena_bytes) + " and " + readable_size(others) +
                     " for KV cache, workspace and programs are more than the " + readable_size(m.host_bytes) +
                     " of host memory; at most --dram " +
                     config::format_size((m.host_bytes - others) >> 20 << 20) + " fits");
  }
  const uint64_t room = m.arena_bytes ? others + *m.arena_bytes : m.host_bytes;
  MOESTRO_ASSIGN_OR_RETURN(tier.parts.back(), dense_part(n, dense, room - others, placement));
  placement.host_experts = fill(tier, room, n.expert_bytes, n.experts);
  placement.arena_bytes = tier.used_bytes() - others;
  return tier;
}

}  // namespace

uint64_t Tier::used_bytes() const { return sum(parts); }

Result<Placement> place(const Needs& n, const Memories& m) {
  Placement placement;
  placement.experts = n.experts;
  if (m.device != Device::kHost) {
    MOESTRO_ASSIGN_OR_RETURN(Tier device, device_tier(n, m, placement));
    placement.tiers.push_back(std::move(device));
  }
  MOESTRO_ASSIGN_OR_RETURN(Tier host, host_tier(n, m, placement));
  placement.tiers.push_back(std::move(host));
  const uint64_t all_bytes = n.expert_bytes * static_cast<uint64_t>(n.experts);
  placement.tiers.push_back(
      {"drive", 0, {{"dense weights", n.dense_bytes}, {experts_text(n.experts, n.experts), all_bytes}}});
  return placement;
}

}  // namespace moestro::planner
