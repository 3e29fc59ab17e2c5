#include "services/cli/bench/serve/arrivals.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "services/worker/engine/philox.h"

namespace moestro::cli {
namespace {

// What a draw is for is its first coordinate: streams of numbers that do not touch.
enum Stream : uint32_t { kGap, kPromptLength, kOutputLength };
constexpr uint64_t kOfTokens = 0x746f6b656e73, kOfBlocks = 0x626c6f636b73;  ///< seeds beside the load's own

int32_t draw(const LengthRange& range, uint64_t seed, Stream stream, uint32_t index) {
  const double u = engine::uniform_at(seed, stream, index);
  return static_cast<int32_t>(range.min + static_cast<int64_t>(u * static_cast<double>(range.max - range.min + 1)));
}

int64_t cut_to_source(std::vector<Arrival>& arrivals, int64_t source, int64_t context) {
  constexpr int64_t kTargetBegin = 2;  // a token to start with, and one that some models are made to say first
  const int64_t target = std::max<int64_t>(1, context - kTargetBegin);
  int64_t cut = 0;
  for (Arrival& a : arrivals) {
    if (a.prompt_tokens <= source && a.output_tokens <= target) continue;
    ++cut;
    a.prompt_tokens = static_cast<int32_t>(std::min<int64_t>(a.prompt_tokens, source));
    a.output_tokens = static_cast<int32_t>(std::min<int64_t>(a.output_tokens, target));
  }
  return cut;
}

}  // namespace

std::vector<Arrival> poisson_arrivals(const PoissonOptions& o) {
  std::vector<Arrival> arrivals;
  arrivals.reserve(static_cast<size_t>(o.count));
  double due = 0;
  for (uint32_t i = 0; i < static_cast<uint32_t>(o.count); ++i) {
    if (i > 0 && std::isfinite(o.rate)) due -= std::log1p(-engine::uniform_at(o.seed, kGap, i)) / o.rate;
    arrivals.push_back({.due_s = due,
                        .prompt_tokens = draw(o.prompt, o.seed, kPromptLength, i),
                        .output_tokens = draw(o.output, o.seed, kOutputLength, i)});
  }
  return arrivals;
}

int64_t cut_to(const LengthLimits& limits, std::vector<Arrival>& arrivals) {
  const int64_t context = limits.context;
  if (context == 0) return 0;
  if (limits.source > 0) return cut_to_source(arrivals, limits.source, context);
  int64_t cut = 0;
  for (Arrival& a : arrivals) {
    if (int64_t{a.prompt_tokens} + a.output_tokens <= context) continue;
    ++cut;
    a.output_tokens = static_cast<int32_t>(std::min<int64_t>(a.output_tokens, std::max<int64_t>(1, context / 2)));
    a.prompt_tokens =
        static_cast<int32_t>(std::clamp<int64_t>(a.prompt_tokens, 1, std::max<int64_t>(1, context - a.output_tokens)));
  }
  return cut;
}

std::string prompt_ids(const Arrival& a, uint32_t index, int64_t vocab, uint64_t seed) {
  std::string text;
  text.reserve(static_cast<size_t>(a.prompt_tokens) * 6);
  char digits[24];
  for (int32_t p = 0; p < a.prompt_tokens; ++p) {
    const auto block = static_cast<size_t>(p / a.block_tokens);
    const bool shared = block < a.blocks.size();
    const double u =
        shared ? engine::uniform_at(seed ^ kOfBlocks, a.blocks[block], static_cast<uint32_t>(p % a.block_tokens))
               : engine::uniform_at(seed ^ kOfTokens, index, static_cast<uint32_t>(p));
    const auto end =
        std::to_chars(digits, digits + sizeof digits, static_cast<int64_t>(u * static_cast<double>(vocab))).ptr;
    if (p > 0) text += ',';
    text.append(digits, end);
  }
  return text;
}

}  // namespace moestro::cli
