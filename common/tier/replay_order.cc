#include "common/tier/replay_order.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <random>
#include <utility>

#include "common/activation/prompt_experts.h"

namespace moestro::tier {
namespace {

using activation::ExpertShares;

class Joining {
 public:
  Joining(const Routes& routes, const OverlapOrder& order) : routes_(routes), order_(order) {
    past_.begin({routes.layers, routes.experts, routes.top_k});
  }

  void learn(size_t request) {
    activation::ActivationMatrix answer(routes_.layers, routes_.experts);
    for (const RoutedToken& token : routes_.requests[request].tokens)
      for (int32_t layer = 0; token.decode && layer < routes_.layers; ++layer)
        for (const uint16_t expert : routes_.chosen(token, layer))
          answer.add(MoeLayerId{static_cast<uint32_t>(layer)}, ExpertId{expert}, 1);
    past_.add(prompt_of(request), answer);
  }

  std::vector<size_t> run(std::span<const size_t> requests) {
    const auto batch = static_cast<size_t>(std::max(1, order_.batch));
    std::vector<size_t> joined;
    while (joined.size() < requests.size()) {
      while (came_ < requests.size() && waiting_.size() < order_.waiting)
        waiting_.push_back({requests[came_++], order_.passes});
      if (running_.size() < batch) joined.push_back(join());
      else decode();
    }
    return joined;
  }

 private:
  struct Waiting {
    size_t request = 0, passes_left = 0;
  };
  struct Running {
    size_t request = 0, left = 0;  ///< tokens
    std::shared_ptr<const ExpertShares> likely;
  };

  activation::PromptTokens prompt_of(size_t request) const {
    std::vector<TokenId> prompt;
    for (const RoutedToken& token : routes_.requests[request].tokens)
      if (!token.decode) prompt.push_back(token.token);
    return activation::prompt_tokens(prompt);
  }

  size_t join() {
    activation::ExpertUnion batch;
    for (const Running& r : running_)
      if (r.likely) batch.add(*r.likely);
    std::vector<std::shared_ptr<const ExpertShares>> likely;
    std::vector<activation::OverlapCandidate> candidates;
    for (const Waiting& w : waiting_) {
      likely.push_back(past_.likely(prompt_of(w.request)));
      candidates.push_back({likely.back().get(), w.passes_left});
    }
    const size_t next = activation::next_by_overlap(batch, candidates);
    for (size_t i = 0; i < next; ++i) --waiting_[i].passes_left;
    const size_t request = waiting_[next].request;
    const auto& tokens = routes_.requests[request].tokens;
    const auto left = static_cast<size_t>(std::ranges::count_if(tokens, &RoutedToken::decode));
    if (left == 0) learn(request);
    else running_.push_back({request, left, likely[next]});
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(next));
    return request;
  }

  /// Until the first of those that run ends.
  void decode() {
    const size_t steps = std::ranges::min_element(running_, {}, &Running::left)->left;
    for (Running& r : running_) {
      r.left -= steps;
      if (r.left == 0) learn(r.request);
    }
    std::erase_if(running_, [](const Running& r) { return r.left == 0; });
  }

  const Routes& routes_;
  const OverlapOrder order_;
  activation::PromptExperts past_{std::numeric_limits<size_t>::max()};
  std::vector<Waiting> waiting_;
  std::vector<Running> running_;
  size_t came_ = 0;
};

}  // namespace

std::vector<size_t> mixed(std::vector<size_t> requests) {
  std::mt19937_64 random(1);  // its numbers are the same everywhere; a standard shuffle is not
  for (size_t left = requests.size(); left > 1; --left) std::swap(requests[left - 1], requests[random() % left]);
  return requests;
}

Result<std::vector<size_t>> join_by_overlap(const Routes& routes, std::span<const size_t> learned,
                                            std::span<const size_t> requests, const OverlapOrder& order) {
  for (const RoutedRequest& request : routes.requests)
    for (const RoutedToken& token : request.tokens)
      if (!token.decode && token.token < 0)
        return invalid_argument("request " + std::to_string(request.id) +
                                " has no tokens of its prompt (\"x\"), which foresee its experts");
  Joining joining(routes, order);
  for (const size_t request : learned) joining.learn(request);
  return joining.run(requests);
}

}  // namespace moestro::tier
