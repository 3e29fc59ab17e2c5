#include "services/cli/plan/measure_rates.h"

#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <numeric>

#include "common/model/mixer.h"
#include "kernels/limits/memory.h"
#include "kernels/ops.h"
#include "services/worker/engine/layer_math.h"
#include "services/worker/engine/sampler.h"
#include "services/worker/engine/visible_positions.h"
#include "store/reader/pack_files.h"
#include "store/reader/probe.h"

namespace moestro::cli {
namespace {

using kernels::limits::StreamedMemory;
using planner::ProductCurve;

constexpr int64_t kRows[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512};
constexpr int64_t kStreamMax = int64_t{1} << 30;
constexpr double kSecondsEach = 0.04;   ///< of one point, at least, and three runs
constexpr double kOperationsMax = 4e9;  ///< of one run: a narrower expert stands for a wide one
constexpr int64_t kDecodes = 16, kShortContext = 64, kLongContext = 1024, kPromptTokens = 512;

/// The median time of a run.
double time_of(const std::function<void()>& run) {
  std::vector<double> times;
  run();
  for (double total = 0; times.size() < 3 || total < kSecondsEach; total += times.back()) {
    const auto begin = std::chrono::steady_clock::now();
    run();
    times.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  std::ranges::nth_element(times, times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2));
  return times[times.size() / 2];
}

class RateMeasurement {
 public:
  RateMeasurement(const PlannedModel& model, kernels::Ops& ops, const StreamedMemory& memory)
      : model_(model), spec_(model.description.spec), ops_(ops), memory_(memory) {}

  ProductCurve matrices(DType dtype, int64_t matrix_rows) {
    const int64_t cols = round_up(spec_.hidden, block_shape(dtype).columns);  // rows are whole blocks
    std::vector<ProductCurve::Point> points;
    for (const int64_t n : kRows) {
      room(n * cols, n * matrix_rows);
      int64_t used = 0;
      const auto each = matrix_rows * (row_bytes(dtype, cols) + parameter_bytes(dtype, cols));
      const double seconds = time_of([&] {
        const kernels::Weight w = memory_.weight(advance(each), each, dtype, cols, used);
        ops_.matmul(x_.data(), n, w, nullptr, y_.data());
      });
      points.push_back({static_cast<double>(n), seconds / static_cast<double>(matrix_rows * cols)});
    }
    return ProductCurve(std::move(points));
  }

  ProductCurve experts() {
    const model::ExpertSpec& e = spec_.moe().expert;
    const DType dtype = model_.sizes.precisions.experts;
    // Its blobs hold tables of exponents that a stretch of memory does not have; products alone are like it.
    if (dtype == DType::kBF16In12) return matrices(dtype, std::min(e.ffn, narrow(e, 1)));
    std::vector<ProductCurve::Point> points;
    for (const int64_t n : kRows) {
      const int64_t ffn = narrow(e, n);
      const ExpertLayout layout(e.hidden, ffn, dtype, e.bias, e.is_gated());
      std::vector<kernels::RoutedRow> rows(static_cast<size_t>(n));
      for (int64_t i = 0; i < n; ++i) rows[static_cast<size_t>(i)] = {static_cast<int32_t>(i), 0};
      room(n * e.hidden, n * e.hidden);
      const double seconds = time_of([&] {
        const auto* blob = reinterpret_cast<const std::byte*>(memory_.data()) + advance(layout.bytes());
        ops_.expert_ffn(layout, blob, x_.data(), rows, 1, y_.data(), engine::gated_unit(e));
      });
      points.push_back({static_cast<double>(n), seconds / static_cast<double>(e.matrices * e.hidden * ffn)});
    }
    return ProductCurve(std::move(points));
  }

  /// Of a decoding step, by two lengths: each position more, and what is left for each sequence. Of a prompt:
  /// operations.
  void attention(planner::Rates& rates) {
    const model::MixerSize mixer = model::mixer_size(spec_, attention_layer());
    const double brief = attend(kDecodes, 1, kShortContext), longer = attend(kDecodes, 1, kLongContext),
                 prompt = attend(1, kPromptTokens, kPromptTokens);
    const double bytes_each = static_cast<double>(kDecodes) *
                              model_.sizes.layers[attention_layer().index.value].kv_bytes_per_token;
    // Noise may make the short one take as long as the long one; then all of the time is that of the positions.
    const double position = longer > brief ? (longer - brief) / static_cast<double>(kLongContext - kShortContext)
                                           : longer / static_cast<double>(kLongContext);
    rates.kv_bytes_per_s = bytes_each / position;
    rates.attention_sequence_s = std::max(0.0, brief - position * static_cast<double>(kShortContext)) / kDecodes;
    const double pairs = 0.5 * static_cast<double>(kPromptTokens * (kPromptTokens + 1));
    rates.attention_operations_per_s = pairs * static_cast<double>(mixer.pair_operations) / prompt;
  }

  void around_products(planner::Rates& rates) {
    constexpr int64_t kMany = 256;
    room(kMany * spec_.hidden, kMany * spec_.hidden);
    const std::vector<float> weight(static_cast<size_t>(spec_.hidden), 1.0f);
    const auto norm = [&](int64_t n) {
      return time_of([&] { ops_.rms_norm(x_.data(), n, spec_.hidden, weight.data(), 1e-5f, y_.data()); });
    };
    const double one = norm(1), many = norm(kMany);
    rates.call_s = one;
    room(spec_.vocab, 0);
    engine::Sampler sampler(ops_);
    const std::span<const float> logits(x_.data(), static_cast<size_t>(spec_.vocab));
    TokenId chosen = 0;
    const double sample = time_of([&] {
      if (engine::Sampler::all_finite(logits)) chosen += sampler.sample(logits, Sampling{}, 0);
    });
    asm volatile("" : : "r"(chosen));
    rates.logit_s = sample / static_cast<double>(spec_.vocab);
    rates.float_s = std::max(0.0, many - one) / static_cast<double>((kMany - 1) * spec_.hidden);
  }

 private:
  /// The first that keeps entries of positions: layers with a state cost the same at each, which other rates say, and
  /// an encoder's keep nothing.
  const model::LayerSpec& attention_layer() const {
    const auto found = std::ranges::find_if(
        spec_.layers, [](const auto& layer) { return layer.kv.kind != model::KvSpec::Kind::kNone; });
    return found == spec_.layers.end() ? spec_.layers.front() : *found;
  }
  /// The widest ffn whose run is not too long: whole groups of quantised weights, and whole blocks.
  int64_t narrow(const model::ExpertSpec& e, int64_t n) const {
    const double each = 2.0 * static_cast<double>(n * e.matrices * e.hidden * kQuantGroup);
    const auto groups = static_cast<int64_t>(std::max(1.0, kOperationsMax / each));
    const int64_t widest = std::min(e.ffn, groups * kQuantGroup),
                  block = block_shape(model_.sizes.precisions.experts).columns;
    return std::max(block, widest / block * block);
  }
  /// Start of the next `bytes` of the memory.
  int64_t advance(int64_t bytes) {
    if (cursor_ + bytes > memory_.bytes()) cursor_ = 0;
    const int64_t first = cursor_;
    cursor_ += round_up(bytes, kDiskAlign);
    return first;
  }
  void room(int64_t x, int64_t y) {
    const auto before = static_cast<int64_t>(x_.size());
    if (before < x) x_.resize(static_cast<size_t>(x));
    for (int64_t i = before; i < x; ++i) x_[static_cast<size_t>(i)] = static_cast<float>(i % 17) * 0.1f - 0.8f;
    if (static_cast<int64_t>(y_.size()) < y) y_.resize(static_cast<size_t>(y));
  }

  /// Seconds of the attention of `sequences`, each with `tokens` queries at the end of `context` positions.
  double attend(int64_t sequences, int64_t tokens, int64_t context) {
    const model::LayerSpec& layer = attention_layer();
    const DType kv = model_.sizes.precisions.kv;
    const int64_t each = ceil_div(context, kernels::kKvBlockTokens);
    std::vector<std::byte> cache(static_cast<size_t>(sequences * each * model::kv_block_bytes(layer.kv, kv)) + 64);
    void* data = cache.data();
    size_t space = cache.size();
    std::align(64, cache.size() - 64, data, space);
    std::vector<uint32_t> blocks(static_cast<size_t>(sequences * each));
    std::iota(blocks.begin(), blocks.end(), 0u);
    std::vector<kernels::AttentionSequence> all;
    for (int64_t s = 0; s < sequences; ++s)
      all.push_back({.first_token = s * tokens,
                     .tokens = tokens,
                     .first_position = context - tokens,
                     .blocks = std::span(blocks).subspan(static_cast<size_t>(s * each), static_cast<size_t>(each))});
    const kernels::KvView view{data, kv, sequences * each};
    if (layer.latent) return attend_latents(engine::latent_shape(*layer.latent), all, sequences * tokens, view);
    const model::AttentionSpec& a = layer.attention;
    const kernels::AttentionShape shape{.heads = a.heads, .kv_heads = a.kv_heads, .head_dim = a.head_dim,
                                        .scale = static_cast<float>(a.scale)};
    const int64_t floats = sequences * tokens * a.heads * a.head_dim;
    room(floats, floats);
    return time_of([&] { ops_.attention(shape, all, x_.data(), nullptr, view, y_.data()); });
  }

  double attend_latents(const kernels::LatentShape& shape, std::span<const kernels::AttentionSequence> all,
                        int64_t tokens, const kernels::KvView& view) {
    room(tokens * shape.heads * shape.query_dim(), tokens * shape.heads * shape.value_dim);
    const int64_t rows = shape.heads * shape.expanded_dim();
    const std::vector<uint16_t> weights(static_cast<size_t>(rows * shape.kv_rank));
    const kernels::Weight kv_b{weights.data(), DType::kBF16, rows, shape.kv_rank};
    return time_of(
        [&] { ops_.latent_attention(shape, all, x_.data(), x_.data(), x_.data(), kv_b, view, y_.data()); });
  }

  const PlannedModel& model_;
  const model::ModelSpec& spec_;
  kernels::Ops& ops_;
  const StreamedMemory& memory_;
  int64_t cursor_ = 0;
  std::vector<float> x_, y_;
};

}  // namespace

Result<planner::Rates> measure_rates(const PlannedModel& model, int threads, const MeasureProgress& progress) {
  const model::ModelSpec& spec = model.description.spec;
  const auto weights = static_cast<int64_t>(model.sizes.dense_bytes + model.sizes.experts_bytes());
  // One expert and one matrix at the least.
  const model::ExpertSpec& e = spec.moe().expert;
  const ExpertLayout expert(e.hidden, e.ffn, model.sizes.precisions.experts, e.bias, e.is_gated());
  const int64_t least = std::max(expert.bytes(), 4 * spec.hidden * spec.hidden);
  const auto ops = kernels::make_cpu_ops({.threads = threads, .isa = kernels::best_isa()});
  kernels::cpu::ThreadPool pool(ops->options().threads);
  progress(0, 6, "filling memory to stream from");
  MOESTRO_ASSIGN_OR_RETURN(
      const auto memory,
      StreamedMemory::create(std::max(std::min(weights, kStreamMax), 2 * least), pool));
  RateMeasurement measurement(model, *ops, *memory);
  planner::Rates rates;
  progress(1, 6, "products of attention");
  rates.dense = measurement.matrices(model.sizes.precisions.dense, spec.hidden);
  progress(2, 6, "experts");
  rates.experts = measurement.experts();
  progress(3, 6, "routers");
  rates.router = measurement.matrices(DType::kF32, spec.moe().experts);
  progress(4, 6, "attention");
  measurement.attention(rates);
  progress(5, 6, "norms and sampling");
  measurement.around_products(rates);
  return rates;
}

Result<double> measure_drive(const PlanOptions& o, const PlannedModel& model) {
  if (!model.manifest) {
    MOESTRO_ASSIGN_OR_RETURN(const uint64_t speed, store::directory_speed("."));
    return static_cast<double>(speed);
  }
  store::PackFiles files;
  MOESTRO_ASSIGN_OR_RETURN([[maybe_unused]] const uint32_t first, files.add(o.pack, *model.manifest));
  MOESTRO_ASSIGN_OR_RETURN(const store::ProbeMemory memory, store::ProbeMemory::create(store::kProbeMemory));
  const store::ReaderFiles to_read{.fds = files.fds()};
  auto reader = store::make_uring_reader(to_read, store::kProbeDepthMax);
  if (!reader) reader = store::make_pread_reader(to_read, store::kProbeDepthMax);
  if (!reader) return reader.status();
  std::vector<store::ProbeFile> probes;
  for (size_t i = 0; i < to_read.fds.size(); ++i) {
    struct stat info {};
    if (::fstat(to_read.fds[i], &info) == 0)
      probes.push_back({static_cast<uint32_t>(i), static_cast<uint64_t>(info.st_size)});
  }
  const auto result = store::probe_reads(**reader, probes, memory.bytes(), 0, 0);
  if (!result.is_ok()) return result.status().with_context("the drive of " + o.pack);
  return static_cast<double>(result->bytes_per_s);
}

}  // namespace moestro::cli
