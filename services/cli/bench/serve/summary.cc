#include "services/cli/bench/serve/summary.h"

#include <algorithm>
#include <numeric>

#include "common/config/units.h"

namespace moestro::cli {
namespace {

using Ending = RequestRecord::Ending;

double at_share(const std::vector<double>& sorted, double share) {
  const double at = share * static_cast<double>(sorted.size() - 1);
  const auto low = static_cast<size_t>(at);
  const size_t high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] + (at - static_cast<double>(low)) * (sorted[high] - sorted[low]);
}

/// Tokens that came within [begin, end).
double tokens_within(const RequestRecord& r, double begin, double end) {
  if (r.got_tokens == 0 || r.first_s == 0) return 0;
  const double each = static_cast<double>(r.got_tokens) / static_cast<double>(r.gaps_s.size() + 1);
  double at = r.first_s, tokens = at >= begin && at < end ? each : 0;
  for (const float gap : r.gaps_s) {
    at += gap;
    if (at >= begin && at < end) tokens += each;
  }
  return tokens;
}

double steady_rate(const LoadRun& run) {
  double end = 0;
  for (const RequestRecord& r : run.requests) end = std::max(end, r.sent_s);
  const double begin = end / 5;
  if (end - begin < 1) return 0;
  double tokens = 0;
  for (const RequestRecord& r : run.requests) tokens += tokens_within(r, begin, end);
  return tokens / (end - begin);
}

void count(const RequestRecord& r, LoadSummary& s) {
  if (r.ending != Ending::kUnsent) ++s.sent;
  switch (r.ending) {
    case Ending::kUnsent: ++s.unsent; break;
    case Ending::kUnderWay: ++s.unfinished; break;
    case Ending::kFailed: ++s.failed; break;
    case Ending::kRefused:
      ++s.refused;
      if (!r.retry_after) ++s.refused_without_retry_after;
      break;
    case Ending::kDone:
      ++s.done;
      s.prompt_tokens += r.prompt_tokens, s.output_tokens += r.got_tokens;
      if (r.got_tokens != r.output_tokens) ++s.other_length;
      break;
  }
}

}  // namespace

Distribution distribution(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  Distribution d{.count = values.size(),
                 .p50 = at_share(values, 0.5),
                 .p90 = at_share(values, 0.9),
                 .p99 = at_share(values, 0.99),
                 .max = values.back()};
  d.mean = std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
  return d;
}

bool GoodputBounds::kept(const RequestRecord& r) const {
  return (!ttft_s || r.ttft_s() <= *ttft_s) && (!tpot_s || r.tpot_s() <= *tpot_s) && (!e2e_s || r.e2e_s() <= *e2e_s);
}

Result<GoodputBounds> parse_goodput(std::string_view text) {
  GoodputBounds bounds;
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), part.size() + 1));
    const size_t colon = part.find(':');
    const std::string_view name = part.substr(0, colon);
    std::optional<double>* bound = name == "ttft"                    ? &bounds.ttft_s
                                   : name == "tpot"                  ? &bounds.tpot_s
                                   : name == "e2e" || name == "e2el" ? &bounds.e2e_s
                                                                     : nullptr;
    if (bound == nullptr || colon == std::string_view::npos)
      return invalid_argument("'" + std::string(part) + "' is no bound; write ttft:500ms, tpot:50ms or e2e:2s");
    MOESTRO_ASSIGN_OR_RETURN(const auto duration, config::parse_duration(part.substr(colon + 1)));
    *bound = static_cast<double>(duration.count()) * 1e-3;
  }
  return bounds;
}

LoadSummary summarise(const LoadRun& run, const GoodputBounds& bounds) {
  LoadSummary s{.seconds = run.seconds};
  std::vector<double> ttft, tpot, itl, e2e, behind;
  int64_t good = 0;
  double due_last = 0;
  for (const RequestRecord& r : run.requests) {
    count(r, s);
    due_last = std::max(due_last, r.due_s);
    if (r.ending != Ending::kUnsent) behind.push_back(r.sent_s - r.due_s);
    if (r.ending != Ending::kDone) continue;
    good += bounds.kept(r);
    ttft.push_back(r.ttft_s()), e2e.push_back(r.e2e_s());
    if (r.got_tokens > 1) tpot.push_back(r.tpot_s());
    itl.insert(itl.end(), r.gaps_s.begin(), r.gaps_s.end());
  }
  if (due_last > 0) s.offered_rate = static_cast<double>(run.requests.size() - 1) / due_last;
  if (run.seconds > 0) {
    s.requests_per_s = static_cast<double>(s.done) / run.seconds;
    s.prompt_tokens_per_s = static_cast<double>(s.prompt_tokens) / run.seconds;
    s.output_tokens_per_s = static_cast<double>(s.output_tokens) / run.seconds;
    s.good_per_s = static_cast<double>(good) / run.seconds;
  }
  s.steady_tokens_per_s = steady_rate(run);
  if (s.sent > 0) s.good_share = static_cast<double>(good) / static_cast<double>(s.sent);
  s.ttft_s = distribution(std::move(ttft)), s.tpot_s = distribution(std::move(tpot)),
  s.itl_s = distribution(std::move(itl));
  s.e2e_s = distribution(std::move(e2e)), s.behind_s = distribution(std::move(behind));
  return s;
}

}  // namespace moestro::cli
