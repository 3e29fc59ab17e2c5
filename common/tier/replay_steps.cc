// From a trace to the steps of a device.

#include <algorithm>
#include <utility>

#include "common/tier/replay.h"

namespace moestro::tier {
namespace {

struct Running {
  size_t request = 0, next = 0;
  bool began = false;
};

void add_tokens(ReplayStep& step, const RoutedRequest& request, Running& running, size_t count) {
  const RoutedToken& first = request.tokens[running.next];
  step.sequences.push_back({running.request + 1, first.decode, static_cast<int32_t>(count)});
  step.first.push_back(static_cast<uint32_t>(step.tokens.size()));
  if (!std::exchange(running.began, true)) step.began.push_back(step.sequences.size() - 1);
  for (size_t i = 0; i < count; ++i) step.tokens.push_back(request.tokens[running.next++]);
  if (running.next == request.tokens.size()) step.ended.push_back(step.sequences.size() - 1);
}

size_t prompt_left(const RoutedRequest& request, size_t from) {
  size_t count = 0;
  while (from + count < request.tokens.size() && !request.tokens[from + count].decode) ++count;
  return count;
}

}  // namespace

std::vector<ReplayStep> plan_steps(const Routes& routes, std::span<const size_t> requests, int32_t batch,
                                   int32_t chunk) {
  std::vector<ReplayStep> steps;
  std::vector<Running> running;
  size_t waiting = 0;
  while (waiting < requests.size() || !running.empty()) {
    while (running.size() < static_cast<size_t>(std::max(1, batch)) && waiting < requests.size()) {
      Running joined{requests[waiting++]};
      const RoutedRequest& request = routes.requests[joined.request];
      while (const size_t left = prompt_left(request, joined.next)) {
        ReplayStep step;
        step.scan = left > 1;
        add_tokens(step, request, joined, std::min(left, static_cast<size_t>(std::max(1, chunk))));
        steps.push_back(std::move(step));
      }
      if (joined.next < request.tokens.size()) running.push_back(joined);
    }
    if (running.empty()) continue;
    ReplayStep step;
    for (Running& r : running) add_tokens(step, routes.requests[r.request], r, 1);
    steps.push_back(std::move(step));
    std::erase_if(running, [&](const Running& r) { return r.next >= routes.requests[r.request].tokens.size(); });
  }
  return steps;
}

void uses_of(const Routes& routes, const ReplayStep& step, int32_t layer, std::vector<StepUse>& out,
             const MixedOptions* mixed) {
  out.clear();
  std::vector<Want> wants(static_cast<size_t>(routes.top_k), Want::kFull);
  for (const RoutedToken& token : step.tokens) {
    if (mixed != nullptr) wants_of_token(routes.weights_of(token, layer), *mixed, wants);
    const auto chosen = routes.chosen(token, layer);
    for (size_t rank = 0; rank < chosen.size(); ++rank) out.push_back({chosen[rank], 1, wants[rank]});
  }
  std::ranges::sort(out, {}, &StepUse::expert);
  size_t kept = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    if (kept > 0 && out[kept - 1].expert == out[i].expert) {
      ++out[kept - 1].tokens;
      out[kept - 1].want = std::max(out[kept - 1].want, out[i].want);
    } else {
      out[kept++] = out[i];
    }
  }
  out.resize(kept);
}

}  // namespace moestro::tier
