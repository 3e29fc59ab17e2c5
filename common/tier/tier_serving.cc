// Which copies serve the experts of a layer: the times that its plan (serving_plan.h) is made of.

#include <algorithm>

#include "common/tier/tier_impl.h"

namespace moestro::tier {

/// While the link's rate is unknown copies are compared by their bytes, and not with the CPU.
Nanos DeviceTier::Impl::copy_time(uint64_t bytes) const {
  if (bytes == 0) return Nanos{0};
  return pace.bytes_per_s() > 0 ? pace.time_of(bytes) : Nanos(static_cast<int64_t>(bytes));
}

/// What the link has been given cannot be called back, and what other layers wait for comes first.
Nanos DeviceTier::Impl::link_queue(std::span<const Choice> choices) const {
  const auto is_of_others = [&](Key key) {
    const Key full = options.full_of(key);
    return std::ranges::find(choices, full, &Choice::full) == choices.end();
  };
  uint64_t bytes = 0;
  for (const Chunk& chunk : on_link) bytes += is_of_others(chunk.key) ? chunk.bytes : 0;
  for (const Key key : demands) bytes += is_of_others(key) ? ungiven(key) : 0;
  return copy_time(bytes);
}

void DeviceTier::choose(std::span<Choice> choices) {
  Impl& t = *impl_;
  t.not_there.clear(), t.missing_experts.clear();
  LayerLoad load{.expert = t.pace.expert(), .link = t.link_queue(choices)};
  for (Choice& choice : choices) {
    choice.way = Way::kFull;
    if (slot_of(choice.full)) {
      load.present += load.expert;
      continue;
    }
    MissingExpert missing{.full = t.copy_time(t.missing(choice.full))};
    if (t.pace.bytes_per_s() > 0) missing.cpu = choice.cpu;
    if (t.options.low_slots > 0) {
      missing.want = choice.want;
      missing.low = t.copy_time(t.missing(t.options.low_of(choice.full)));
    }
    t.not_there.push_back(&choice), t.missing_experts.push_back(missing);
  }
  const auto ways = t.plan.choose(t.missing_experts, load);
  for (size_t i = 0; i < ways.size(); ++i) t.not_there[i]->way = ways[i];
}

}  // namespace moestro::tier
