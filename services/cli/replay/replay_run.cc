#include "services/cli/replay/replay_run.h"

#include <algorithm>

#include "common/activation/history.h"
#include "common/policy/make_policy.h"
#include "common/policy/weighted_policy.h"
#include "common/prediction/make_predictor.h"
#include "store/replay/virtual_store.h"

namespace moestro::cli {
namespace {

constexpr int32_t kHistory = 1000;    ///< matrices that a history of past requests holds
constexpr int kWeightSteps = 4;       ///< of the weights that are tried: quarters
constexpr size_t kCalibrated = 8;     ///< requests that weights are tried on, at most

activation::RequestCounts counts_of(const tier::Routes& routes, const tier::RoutedRequest& request,
                                    const activation::EamcShape& shape) {
  activation::RequestCounts counts(shape);
  for (const tier::RoutedToken& token : request.tokens)
    for (int32_t layer = 0; layer < routes.layers; ++layer)
      for (const uint16_t expert : routes.chosen(token, layer))
        (token.decode ? counts.answer : counts.prompt)
            .add(MoeLayerId{static_cast<uint32_t>(layer)}, ExpertId{expert}, 1);
  return counts;
}

}  // namespace

ReplaySplit split_requests(size_t requests, double share) {
  ReplaySplit split;
  double due = 0;
  for (size_t i = 0; i < requests; ++i) {
    due += share;
    const bool learned = due >= 1 - 1e-9;
    if (learned) due -= 1;
    (learned ? split.learned : split.judged).push_back(i);
  }
  return split;
}

std::vector<Nanos> first_token_times(const ReplaySplit& split, const tier::ReplayReport& report) {
  const std::vector<size_t>& came = split.came.empty() ? split.judged : split.came;
  const size_t waiting = split.waiting == 0 ? came.size() : split.waiting;
  std::vector<Nanos> times;
  for (size_t i = 0; i < report.first_token_at.size(); ++i) {
    const auto place = static_cast<size_t>(std::ranges::find(came, split.judged[i]) - came.begin());
    times.push_back(report.first_token_at[i] - (place < waiting ? Nanos{0} : report.began_at[place - waiting]));
  }
  return times;
}

policy::WeightedOptions calibrated_weights(const tier::Routes& routes, const ReplaySplit& split,
                                           const tier::ReplaySetup& setup) {
  std::vector<size_t> requests = split.learned.empty() ? split.judged : split.learned;
  requests.resize(std::min(requests.size(), kCalibrated));
  tier::ReplaySetup on_demand = setup;
  on_demand.prefetch = false;
  on_demand.times = {}, on_demand.chunk_bytes = setup.expert_bytes;
  return policy::calibrate_weights(
      {routes.layers, routes.experts}, kWeightSteps, [&](const policy::WeightedOptions& weights) {
        const auto made = [&] { return std::make_unique<policy::WeightedPolicy>(weights); };
        auto low = setup.low_slots > 0 ? made() : nullptr;
        return tier::replay(routes, requests, on_demand, made(), {}, nullptr, std::move(low)).penalty;
      });
}

namespace {

struct Policies {
  std::unique_ptr<policy::CachePolicy> full, low;  ///< low: null if there are no low copies
};

Result<Policies> policies_of(const tier::Routes& routes, const ReplaySplit& split, const ReplayCase& what) {
  Policies made;
  const bool has_low = what.setup.low_slots > 0;
  if (what.cache == "weighted") {
    const policy::WeightedOptions weights = calibrated_weights(routes, split, what.setup);
    made.full = std::make_unique<policy::WeightedPolicy>(weights);
    if (has_low) made.low = std::make_unique<policy::WeightedPolicy>(weights);
    return made;
  }
  MOESTRO_ASSIGN_OR_RETURN(made.full, policy::make_device_policy(
                                          what.cache, {routes.layers, routes.experts, what.setup.slots}));
  if (!has_low) return made;
  MOESTRO_ASSIGN_OR_RETURN(made.low, policy::make_device_policy(
                                         what.cache, {routes.layers, routes.experts, what.setup.low_slots}));
  return made;
}

Result<std::unique_ptr<prediction::Predictor>> predictor_of(const tier::Routes& routes, const std::string& name,
                                                            const activation::HistoryView& history) {
  prediction::PredictorOptions options{{routes.layers, routes.experts, routes.top_k}};
  options.history = &history;
  options.gate_lookahead = std::min(options.gate_lookahead, routes.layers);
  return prediction::make_predictor(name, options);
}

void add(tier::ReplayReport& sum, const tier::ReplayReport& r) {
  sum.steps += r.steps, sum.tokens += r.tokens, sum.uses += r.uses, sum.hits += r.hits, sum.late += r.late,
      sum.choices += r.choices, sum.low += r.low, sum.skipped += r.skipped, sum.on_cpu += r.on_cpu,
      sum.penalty += r.penalty, sum.time += r.time, sum.stall += r.stall, sum.drive_stall += r.drive_stall;
  sum.host += r.host, sum.prompt_host += r.prompt_host;
  sum.moved_bytes += r.moved_bytes, sum.wasted_bytes += r.wasted_bytes;
  sum.prompt_steps += r.prompt_steps, sum.prompt_tokens += r.prompt_tokens, sum.prompt_time += r.prompt_time,
      sum.prompt_stall += r.prompt_stall;
  sum.prompt_moved_bytes += r.prompt_moved_bytes, sum.prompt_uses += r.prompt_uses;
  sum.layer_uses.resize(r.layer_uses.size()), sum.layer_hits.resize(r.layer_hits.size());
  for (size_t l = 0; l < r.layer_uses.size(); ++l)
    sum.layer_uses[l] += r.layer_uses[l], sum.layer_hits[l] += r.layer_hits[l];
  sum.request_hit_rate.insert(sum.request_hit_rate.end(), r.request_hit_rate.begin(), r.request_hit_rate.end());
}

/// The host memory of one run: empty.
Result<std::unique_ptr<store::VirtualStore>> make_host(const tier::Routes& routes, const HostCase& host,
                                                       const tier::ReplaySetup& setup) {
  store::VirtualStoreOptions options;
  options.experts = static_cast<uint32_t>(routes.layers) * static_cast<uint32_t>(routes.experts);
  options.experts_held = static_cast<uint32_t>(host.experts);
  options.expert_bytes = setup.expert_bytes, options.chunk_bytes = setup.chunk_bytes;
  options.drive = {host.drive_bytes_per_s, host.drive_latency};
  options.ahead_floor = setup.how.floor, options.ahead_waste_max = setup.how.waste_max;
  MOESTRO_ASSIGN_OR_RETURN(auto policy, policy::make_policy(host.cache, options.experts));
  return store::VirtualStore::create(options, std::move(policy));
}

Result<tier::ReplayReport> replay_case(const tier::Routes& routes, const ReplaySplit& split,
                                       std::span<const size_t> requests, const ReplayCase& what,
                                       const tier::Foresight& foresight) {
  std::unique_ptr<store::VirtualStore> host;
  if (what.host) {
    MOESTRO_ASSIGN_OR_RETURN(host, make_host(routes, *what.host, what.setup));
  }
  if (what.cpu) return tier::replay_on_cpu(routes, requests, what.setup, foresight, *host);
  MOESTRO_ASSIGN_OR_RETURN(auto policies, policies_of(routes, split, what));
  return tier::replay(routes, requests, what.setup, std::move(policies.full), foresight, host.get(),
                      std::move(policies.low));
}

/// Each judged request as the first after a restart. Two things last: the weights, which are a setting, and the
/// history, which is a file.
Result<tier::ReplayReport> run_restarts(const tier::Routes& routes, const ReplaySplit& split, const ReplayCase& what) {
  const activation::EamcShape shape{routes.layers, routes.experts, routes.top_k};
  activation::ActivationHistory history(shape, kHistory);
  if (what.start == ReplayCase::Start::kCheckpoint)
    for (const size_t request : split.learned) history.add(counts_of(routes, routes.requests[request], shape));
  tier::ReplayReport sum;
  for (const size_t request : split.judged) {
    std::unique_ptr<prediction::Predictor> predictor;
    if (what.predict != "none") {
      MOESTRO_ASSIGN_OR_RETURN(predictor, predictor_of(routes, what.predict, history.view()));
    }
    MOESTRO_ASSIGN_OR_RETURN(const auto one,
                             replay_case(routes, split, std::span(&request, 1), what, {predictor.get(), {}}));
    add(sum, one);
  }
  return sum;
}

}  // namespace

Result<tier::ReplayReport> run_case(const tier::Routes& routes, const ReplaySplit& split, const ReplayCase& what) {
  if (what.cache == "belady") return tier::replay_belady(routes, split.judged, what.setup);
  if (what.start != ReplayCase::Start::kOnce && what.predict != "perfect") return run_restarts(routes, split, what);
  tier::Foresight foresight;
  std::unique_ptr<prediction::Predictor> predictor;
  const activation::EamcShape shape{routes.layers, routes.experts, routes.top_k};
  activation::ActivationHistory history(shape, kHistory);
  if (what.predict == "perfect") {
    predictor = tier::make_perfect_predictor(routes, split.judged, what.setup);
    foresight.predictor = predictor.get();
  } else if (what.predict != "none") {
    MOESTRO_ASSIGN_OR_RETURN(predictor, predictor_of(routes, what.predict, history.view()));
    foresight.predictor = predictor.get();
    foresight.ended = [&](size_t request) { history.add(counts_of(routes, routes.requests[request], shape)); };
    tier::train(routes, split.learned, foresight);
  }
  return replay_case(routes, split, split.judged, what, foresight);
}

}  // namespace moestro::cli
