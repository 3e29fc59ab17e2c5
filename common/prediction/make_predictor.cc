#include "common/prediction/make_predictor.h"

#include <algorithm>

#include "common/prediction/correlation.h"
#include "common/prediction/eamc_predictor.h"
#include "common/prediction/echo.h"
#include "common/prediction/mixed_predictor.h"
#include "common/prediction/request_predictors.h"
#include "common/prediction/signature.h"
#include "common/prediction/simple_predictors.h"

namespace moestro::prediction {
namespace {

using Sources = std::vector<std::unique_ptr<RowPredictor>>;

constexpr int32_t kMixtureReach = 4;  ///< layers ahead of correlation in a mixture
constexpr std::string_view kAuto = "request+recent+correlation+signature+signature-3+echo+eamc+gate";

Status check(const PredictorOptions& options) {
  const PredictorShape& s = options.shape;
  if (s.layers < 1 || s.experts < 1 || s.experts > UINT16_MAX || s.top_k < 1 || s.top_k > s.experts || s.top_k > 255)
    return invalid_argument("no predictor for " + std::to_string(s.layers) + " layers of " + std::to_string(s.experts) +
                            " experts, " + std::to_string(s.top_k) + " a token");
  if (options.gate_lookahead < 1)
    return invalid_argument("gate look-ahead " + std::to_string(options.gate_lookahead) + ": at least one layer");
  return Status::ok();
}

Status no_such(std::string_view name) {
  std::string all;
  for (const std::string& n : predictor_names()) all += (all.empty() ? "" : ", ") + n;
  return invalid_argument("no predictor is called '" + std::string(name) + "': there are " + all +
                          ", and several of them joined by +");
}

Result<std::unique_ptr<RowPredictor>> make_source(std::string_view name, const PredictorOptions& o, bool alone) {
  const PredictorShape& shape = o.shape;
  std::unique_ptr<RowPredictor> made;
  if (name == "none") made = std::make_unique<NoPredictor>(shape);
  else if (name == "next-layer-all") made = std::make_unique<NextLayerPredictor>(shape);
  else if (name == "popularity") made = std::make_unique<PopularityPredictor>(shape);
  else if (name == "request") made = std::make_unique<RequestPredictor>(shape, o.history);
  else if (name == "recent") made = std::make_unique<RecentPredictor>(shape);
  else if (name == "signature") made = std::make_unique<SignaturePredictor>(shape, 2);
  else if (name == "signature-3") made = std::make_unique<SignaturePredictor>(shape, 3);
  else if (name == "echo") made = std::make_unique<EchoPredictor>(shape);
  else if (name == "gate") made = std::make_unique<GatePredictor>(shape, std::min(o.gate_lookahead, shape.layers));
  else if (name == "eamc" && o.history != nullptr)
    made = std::make_unique<EamcPredictor>(shape, *o.history, EamcOptions{});
  else if (name == "eamc") made = std::make_unique<NoPredictor>(shape);
  else if (name == "correlation" || name == "correlation-2") {
    const int32_t back = name == "correlation" ? 0 : 1;
    if (back >= shape.layers) return std::unique_ptr<RowPredictor>(std::make_unique<NoPredictor>(shape));
    MOESTRO_ASSIGN_OR_RETURN(
        auto table, CorrelationPredictor::create(
                        shape, {o.correlation_path, std::min((alone ? 1 : kMixtureReach) + back, shape.layers), back}));
    made = std::move(table);
  } else {
    return no_such(name);
  }
  return made;
}

}  // namespace

const std::vector<std::string>& predictor_names() {
  static const std::vector<std::string> names{
      "auto",          "none",      "next-layer-all", "popularity", "request", "recent", "correlation",
      "correlation-2", "signature", "signature-3",    "echo",       "gate",    "eamc"};
  return names;
}

Result<std::unique_ptr<Predictor>> make_predictor(std::string_view name, const PredictorOptions& options) {
  MOESTRO_RETURN_IF_ERROR(check(options));
  const std::string_view parts = name == "auto" ? kAuto : name;
  if (parts.find('+') == std::string_view::npos) {
    MOESTRO_ASSIGN_OR_RETURN(auto single, make_source(parts, options, true));
    return std::unique_ptr<Predictor>(std::move(single));
  }
  Sources sources;
  for (size_t at = 0; at <= parts.size();) {
    const size_t end = std::min(parts.find('+', at), parts.size());
    MOESTRO_ASSIGN_OR_RETURN(auto source, make_source(parts.substr(at, end - at), options, false));
    sources.push_back(std::move(source));
    at = end + 1;
  }
  if (sources.size() > MixedPredictor::kSourcesMax)
    return invalid_argument("predictor '" + std::string(name) + "': at most " +
                            std::to_string(MixedPredictor::kSourcesMax) + " can be joined");
  return std::unique_ptr<Predictor>(
      std::make_unique<MixedPredictor>(options.shape, std::string(name), std::move(sources), options.history));
}

}  // namespace moestro::prediction
