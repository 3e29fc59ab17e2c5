// What predictors are worth, and what a match costs.
//
//   moestro_prediction_bench routes [BATCH] FILE...    predictors on traces: they learn from two of three requests,
//                                                      and the third is judged
//   moestro_prediction_bench ablation [BATCH] FILE...  the same for eamc, with parts of it off or changed
//   moestro_prediction_bench match                     one match per layer, compared with reading its bytes at the
//                                                      speed of this core

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "common/activation/eamc_matcher.h"
#include "common/check.h"
#include "common/prediction/eamc_predictor.h"
#include "common/prediction/make_predictor.h"
#include "common/tier/replay.h"
#include "tests/activation/random_requests.h"
#include "tests/prediction/observed_predictor.h"

namespace moestro {
namespace {

using activation::EamcShape;

double seconds(const std::function<void()>& f) {
  const auto begin = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double median(std::vector<double> v) {
  std::ranges::sort(v);
  return v[v.size() / 2];
}

/// Bytes a second of summing up `bytes` of memory again and again: as near to the core as the collection's columns are.
double read_rate(size_t bytes) {
  std::vector<uint64_t> data(bytes / 8, 1);
  uint64_t sum = 0;
  const int rounds = static_cast<int>(std::max<size_t>(4, (size_t{256} << 20) / bytes));
  std::vector<double> times;
  for (int i = 0; i < 5; ++i)
    times.push_back(seconds([&] {
      for (int r = 0; r < rounds; ++r) sum += std::accumulate(data.begin(), data.end(), uint64_t{0});
    }));
  if (sum == 0) std::printf(" ");
  return static_cast<double>(bytes) * rounds / median(times);
}

void match(const EamcShape& shape, int32_t entries, size_t sequences, double aim_us) {
  activation::RandomRequests requests(shape, 8, 1);
  activation::Eamc eamc(shape, entries);
  std::vector<activation::ActivationMatrix> some;
  for (int32_t i = 0; i < 24; ++i) some.push_back(requests.matrix(i % 8, 24));
  for (int32_t i = 0; i < entries; ++i) {
    std::vector<uint8_t> cells = activation::normalised(some[static_cast<size_t>(i) % some.size()], shape.top_k);
    for (size_t c = static_cast<size_t>(i) % 7; c < cells.size(); c += 7)
      cells[c] = static_cast<uint8_t>(cells[c] + i % 11);
    (void)eamc.set(i, cells).is_ok();
  }
  std::vector<activation::EamcMatcher> matchers(sequences, activation::EamcMatcher(eamc.view(), 24));
  std::vector<double> times;
  size_t found = 0;
  for (int token = 0; token < 30; ++token) {
    for (auto& m : matchers) m.begin_iteration();
    for (int32_t layer = 0; layer < shape.layers; ++layer) {
      std::vector<std::vector<activation::ActivationCount>> rows;
      for (size_t s = 0; s < sequences; ++s) rows.push_back(requests.token(static_cast<int32_t>(s) % 8, layer));
      const double took = seconds([&] {
        for (size_t s = 0; s < sequences; ++s) {
          matchers[s].add_row(layer, rows[s], 1);
          found += matchers[s].best(16).size();
        }
      });
      if (token >= 5) times.push_back(took);
    }
    for (auto& m : matchers) m.end_iteration();
  }
  // Columns of u8, and for every entry its sum (read, added to, written, read), the request's and the norm: 4 bytes
  // each.
  const size_t columns = std::min(sequences * static_cast<size_t>(shape.top_k), static_cast<size_t>(shape.experts));
  const double bytes = static_cast<double>(entries) * (static_cast<double>(sequences) * (shape.top_k + 5 * 4) + 4);
  const double rate = read_rate(std::max<size_t>(64 << 10, static_cast<size_t>(entries) * (columns + 12 * sequences)));
  std::printf(
      "%6d entries of %2d x %3d, %2zu sequences: %7.1f us a layer (p50), aim %5.0f; its bytes at %4.1f GB/s: %6.1f "
      "us%s\n",
      entries, shape.layers, shape.experts, sequences, median(times) * 1e6, aim_us, rate * 1e-9, bytes / rate * 1e6,
      found == 0 ? "!" : "");
}

/// Drives a predictor through the steps of some requests; what they used enters the history as they end.
void walk(const tier::Routes& routes, std::span<const size_t> requests, int32_t batch, prediction::Predictor& predictor,
          activation::ActivationHistory* history) {
  const EamcShape shape{routes.layers, routes.experts, routes.top_k};
  prediction::Forecast forecast(routes.layers, routes.experts);
  std::vector<std::pair<uint64_t, activation::RequestCounts>> running;
  for (const tier::ReplayStep& step : tier::plan_steps(routes, requests, batch, 512)) {
    predictor.begin_iteration(step.sequences);
    predictor.forecast(-1, forecast);
    for (const size_t s : step.began)
      running.emplace_back(step.sequences[s].sequence, activation::RequestCounts(shape));
    for (int32_t layer = 0; layer < routes.layers; ++layer) {
      std::vector<std::vector<activation::ActivationCount>> counts(step.sequences.size());
      std::vector<prediction::SequenceRoutes> said;
      for (size_t s = 0; s < step.sequences.size(); ++s) {
        tier::ReplayStep alone;
        const auto first = step.tokens.begin() + step.first[s];
        alone.tokens.assign(first, first + step.sequences[s].tokens);
        std::vector<tier::StepUse> uses;
        tier::uses_of(routes, alone, layer, uses);
        for (const tier::StepUse& u : uses)
          counts[s].push_back({MoeLayerId(static_cast<uint32_t>(layer)), ExpertId(u.expert), u.tokens});
        auto& own = std::ranges::find(running, step.sequences[s].sequence,
                                      &std::pair<uint64_t, activation::RequestCounts>::first)
                        ->second;
        (step.sequences[s].decode ? own.answer : own.prompt).add(counts[s]);
        said.push_back({step.sequences[s].sequence, counts[s]});
      }
      predictor.routed(layer, said);
      predictor.forecast(layer, forecast);
    }
    predictor.end_iteration();
    for (const size_t s : step.ended) {
      const uint64_t id = step.sequences[s].sequence;
      const auto own = std::ranges::find(running, id, &std::pair<uint64_t, activation::RequestCounts>::first);
      if (history != nullptr) history->add(own->second);
      predictor.end_sequence(id);
      running.erase(own);
    }
  }
}

/// Learns from some requests, then says how well the others were foreseen.
struct Judge {
  const tier::Routes& all;
  const std::vector<size_t>&learned, &judged;
  int32_t batch;

  prediction::PredictorShape shape() const { return {all.layers, all.experts, all.top_k}; }
  using Make = std::function<std::unique_ptr<prediction::Predictor>(const activation::ActivationHistory&)>;
  void operator()(const std::string& name, const Make& make, bool learning = false) const {
    activation::ActivationHistory history({all.layers, all.experts, all.top_k}, 512);
    prediction::ObservedPredictor observed(shape(), make(history));
    walk(all, learned, batch, observed, &history);
    observed.reset_scores();
    observed.set_learning(learning);
    const double took = seconds([&] { walk(all, judged, batch, observed, learning ? &history : nullptr); });
    const auto layers = tier::plan_steps(all, judged, batch, 512).size() * static_cast<size_t>(all.layers);
    print(name, observed.total(), took / static_cast<double>(layers) * 1e6);
  }
  void print(const std::string& name, const prediction::PredictionScore& score, double us) const {
    std::printf("%-40s %9.3f %7.3f %6.1f %11.3f %8.4f %8.1f\n", name.c_str(), score.precision(), score.recall(),
                score.mean_lead_layers(), score.calibration_error(), score.log_loss(), us);
  }
  std::unique_ptr<prediction::Predictor> make(const std::string& name,
                                              const activation::ActivationHistory& history) const {
    auto made = prediction::make_predictor(name, {.shape = shape(), .history = &history.view()});
    MOESTRO_CHECK(made.is_ok(), made.status().message());
    return std::move(*made);
  }
  void named(const std::string& name) const {
    (*this)(name, [&](const activation::ActivationHistory& history) { return make(name, history); });
  }
};

/// The match by the iteration alone, as in MoE-Infinity; how much the request's earlier tokens weigh; how many entries,
/// and how they are weighed.
void ablate(const Judge& judge) {
  const auto eamc = [&](const char* name, int32_t matches, float sharpness, float request_tokens) {
    judge(name, [&](const activation::ActivationHistory& history) {
      return std::make_unique<prediction::EamcPredictor>(judge.shape(), history.view(),
                                                         prediction::EamcOptions{matches, sharpness, request_tokens});
    });
  };
  eamc("eamc", 16, 24, 1);
  eamc("  by the iteration alone", 16, 24, 0);
  eamc("  by the iteration alone, 1 entry", 1, 24, 0);
  eamc("  by the iteration alone, 16 alike", 16, 0, 0);
  eamc("  earlier tokens weigh as 4", 16, 24, 4);
  eamc("  earlier tokens weigh as 100", 16, 24, 100);
  eamc("  1 entry", 1, 24, 1);
  eamc("  4 entries alike", 4, 0, 1);
  eamc("  16 entries alike", 16, 0, 1);
  eamc("  32 entries alike", 32, 0, 1);
  judge.named("auto");
  judge.named("request+recent+correlation+signature+signature-3+eamc");
  judge.named("request+recent+correlation+signature+signature-3");
}

/// The first request after a restart: each judged request by a predictor that knows nothing but the checkpoint.
void restart(const Judge& judge, const std::string& name) {
  for (const bool checkpoint : {false, true}) {
    activation::ActivationHistory history({judge.all.layers, judge.all.experts, judge.all.top_k}, 512);
    if (checkpoint) walk(judge.all, judge.learned, judge.batch, *judge.make(name, history), &history);
    prediction::PredictionScore sum;
    for (const size_t request : judge.judged) {
      prediction::ObservedPredictor observed(judge.shape(), judge.make(name, history));
      walk(judge.all, std::span(&request, 1), 1, observed, nullptr);
      sum.add(observed.total());
    }
    judge.print(name + (checkpoint ? ", started anew with the checkpoint" : ", started anew"), sum, 0);
  }
}

int routes(int32_t batch, std::span<char*> files, const std::string& mode) {
  tier::Routes all;
  for (char* file : files) {
    auto read = tier::read_routes(file);
    const Status status =
        read.is_ok() ? (all.layers == 0 ? (all = std::move(*read), Status::ok()) : tier::append_routes(all, *read))
                     : read.status();
    if (!status.is_ok()) return std::fprintf(stderr, "%s\n", status.message().c_str()), 1;
  }
  std::vector<size_t> learned, judged;
  for (size_t i = 0; i < all.requests.size(); ++i) (i % 3 == 2 ? judged : learned).push_back(i);
  // Domains in turns, as files are one domain each.
  const size_t turn = std::max<size_t>(1, learned.size() / std::max<size_t>(1, files.size()));
  std::ranges::stable_sort(learned, {}, [&](size_t i) {
    return static_cast<size_t>(std::ranges::find(learned, i) - learned.begin()) % turn;
  });
  const Judge judge{all, learned, judged, batch};
  std::printf("%zu requests learned from, %zu judged, batch %d: threshold 0.5, decode\n", learned.size(), judged.size(),
              batch);
  std::printf("%-40s %9s %7s %6s %11s %8s %8s\n", "predictor", "precision", "recall", "lead", "calibration", "log loss",
              "us/layer");
  if (mode == "ablation") return ablate(judge), 0;
  for (const char* name :
       {"popularity", "request", "recent", "correlation", "signature", "signature-3", "echo", "eamc", "eamc+recent",
        "request+recent", "request+recent+correlation", "request+recent+correlation+signature",
        "request+recent+correlation+signature+signature-3+eamc", "auto"})
    judge.named(name);
  judge(
      "auto, learning on", [&](const activation::ActivationHistory& history) { return judge.make("auto", history); },
      true);
  restart(judge, "eamc");
  restart(judge, "auto");
  return 0;
}

}  // namespace
}  // namespace moestro

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "match") {
    moestro::match({32, 8, 2}, 1000, 1, 15);
    moestro::match({32, 8, 2}, 10000, 1, 150);
    moestro::match({48, 128, 8}, 1000, 16, 100);
    return 0;
  }
  int first = 2, batch = 1;
  if (argc > 2 && std::from_chars(argv[2], argv[2] + std::strlen(argv[2]), batch).ec == std::errc{}) ++first;
  if ((mode == "routes" || mode == "ablation") && first < argc)
    return moestro::routes(std::max(1, batch), std::span(argv + first, static_cast<size_t>(argc - first)), mode);
  std::fprintf(stderr, "moestro_prediction_bench match | routes [BATCH] FILE... | ablation [BATCH] FILE...\n");
  return 2;
}
