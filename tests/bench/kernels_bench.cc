// How close the kernels come to what the machine can do: weights streamed from DRAM beside a plain read loop
// over the same memory, measured in turns in one run, and products with many tokens in GFLOP/s.
//
//   moestro_kernels_bench [THREADS [ISA [MODE [PART [HIDDEN FFN]]]]]      ISA: scalar, avx2, avx512, ...; MODE:
//   fast, deterministic; PART: latents, for the rows of latent attention alone, or blocks, for those of GGUF's formats,
//   or one format of weights: bf16, q4_k, ..., for its experts of HIDDEN x FFN

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/bf16_in_12.h"
#include "common/float16.h"
#include "kernels/aligned_vector.h"
#include "kernels/limits/limits.h"
#include "kernels/ops.h"

namespace moestro::kernels {
namespace {

constexpr int64_t kHidden = 1024, kFfn = 3584;
constexpr int64_t kWeightBytes = int64_t{704} << 20;  // far beyond any last-level cache share
constexpr int64_t kTokensMax = 512, kWidthMax = 4096;  ///< of the activations, tokens x width
constexpr int64_t kExpertTokensMax = 128, kHiddenMax = kTokensMax * kWidthMax / kExpertTokensMax;
constexpr int kRounds = 5;

double seconds(const std::function<void()>& f) {
  const auto begin = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

class Bench {
 public:
  Bench(int threads, Isa isa, bool deterministic)
      : ops_(make_cpu_ops({.threads = threads, .deterministic = deterministic, .isa = isa})) {
    std::printf("threads %d, isa %s, %s; filling %lld MiB\n", ops_->options().threads,
                std::string(isa_name(ops_->options().isa)).c_str(), deterministic ? "deterministic" : "fast",
                static_cast<long long>(kWeightBytes >> 20));
    limits_ = filled();
    data_ = limits_->data();
    // So small that gates are where the sigmoid is a normal number: others take a hundred times as long.
    x_.resize(kTokensMax * kWidthMax);
    for (size_t i = 0; i < x_.size(); ++i) x_[i] = 0x1p-10f * (static_cast<float>(i % 17) * 0.1f - 0.8f);
    y_.resize(kTokensMax * 32000);
  }

  void decode(const char* name, DType dtype) {
    const ExpertLayout layout(kHidden, kFfn, dtype);
    const RoutedRow row{0, 0};
    streamed(name, data_of(layout), layout.bytes(), [&](const char* w) {
      ops_->expert_ffn(layout, reinterpret_cast<const std::byte*>(w), x_.data(), {&row, 1}, 1, y_.data());
    });
  }
  void matvec(const char* name, DType dtype, int64_t rows, int64_t cols) {
    streamed(name, data_, rows * cols * dtype_bytes(dtype), [&](const char* w) {
      ops_->matmul(x_.data(), 1, {w, dtype, rows, cols}, nullptr, y_.data());
    });
  }
  /// One token through an expert that stays in a core's L2: what a decode step would do if memory were not the limit.
  void decode_in_cache(DType dtype) {
    constexpr int64_t kCacheBytes = 640 * 1024;
    int64_t ffn = 64;
    while (ExpertLayout(kHidden, ffn + 64, dtype).bytes() <= kCacheBytes) ffn += 64;
    const ExpertLayout layout(kHidden, ffn, dtype);
    const RoutedRow row{0, 0};
    const auto* weights = reinterpret_cast<const std::byte*>(data_of(layout));
    const double s = repeated([&] { ops_->expert_ffn(layout, weights, x_.data(), {&row, 1}, 1, y_.data()); });
    std::printf("expert_ffn 1 token %-5s in cache (%3lld KiB) %6.1f GB/s\n", std::string(dtype_name(dtype)).c_str(),
                static_cast<long long>(layout.bytes() / 1024), 1e-9 * static_cast<double>(layout.bytes()) / s);
  }
  /// One token times rows that stay in a core's L2: the limit where memory is faster. From the difference of two sizes,
  /// so that rounding the token does not count; of each the least of many short turns, since other programs only add.
  void matvec_in_cache(DType dtype) {
    constexpr int64_t kCols = 4096, kFew = 32, kMany = 128, kSpan = 256;
    constexpr int kTurns = 200, kCalls = 8;
    const char* const weights = data_of(dtype);
    const auto of = [&](int64_t rows) {
      return seconds([&] {
               for (int i = 0; i < kCalls; ++i)
                 ops_->matmul(x_.data(), 1, {weights, dtype, rows, kCols}, nullptr, y_.data());
             }) / kCalls;
    };
    double few = of(kFew), many = of(kMany);
    for (int turn = 0; turn < kTurns; ++turn) few = std::min(few, of(kFew)), many = std::min(many, of(kMany));
    const double s = many - few, bytes = (kMany - kFew) * static_cast<double>(row_bytes(dtype, kCols));
    std::printf("matvec in cache %-10s %6.1f ns a span of %lld columns %6.1f GB/s\n",
                std::string(dtype_name(dtype)).c_str(), 1e9 * s / ((kMany - kFew) * kCols / kSpan),
                static_cast<long long>(kSpan), 1e-9 * bytes / s);
  }
  void product(DType dtype, int64_t n, int64_t rows, int64_t cols) {
    const char* const weights = data_of(dtype);
    const double s = repeated([&] { ops_->matmul(x_.data(), n, {weights, dtype, rows, cols}, nullptr, y_.data()); });
    std::printf("matmul     %-5s n %4lld  %5lld x %-5lld %8.1f GFLOP/s\n",
                std::string(dtype_name(dtype)).c_str(), static_cast<long long>(n),
                static_cast<long long>(rows), static_cast<long long>(cols),
                2e-9 * static_cast<double>(n * rows * cols) / s);
  }
  /// One expert after the other, as a step has them: their weights come from memory.
  void expert(DType dtype, int64_t n, int64_t hidden = kHidden, int64_t ffn = kFfn) {
    const ExpertLayout layout(hidden, ffn, dtype);
    std::vector<RoutedRow> rows;
    for (int32_t t = 0; t < n; ++t) rows.push_back({t, 0});
    const int64_t experts = kWeightBytes / layout.bytes();
    const char* const first = data_of(layout);
    int64_t next = 0;
    const double s = repeated([&] {
      const char* weights = first + next++ % experts * layout.bytes();
      ops_->expert_ffn(layout, reinterpret_cast<const std::byte*>(weights), x_.data(), rows, 1, y_.data());
    });
    std::printf("expert_ffn %-5s n %4lld               %8.1f GFLOP/s\n",
                std::string(dtype_name(dtype)).c_str(), static_cast<long long>(n),
                6e-9 * static_cast<double>(n * hidden * ffn) / s);
  }
  void attention(DType dtype, int64_t tokens, int64_t past) {
    const AttentionShape shape{16, 4, 64, 0, 0.125f};
    std::vector<uint32_t> blocks;
    for (uint32_t i = 0; i < ceil_div(past + tokens, kKvBlockTokens); ++i) blocks.push_back(i);
    const AttentionSequence sequence{0, tokens, past, blocks};
    const KvView cache{const_cast<char*>(data_), dtype, static_cast<int64_t>(blocks.size())};
    const double s = repeated([&] { ops_->attention(shape, {&sequence, 1}, x_.data(), nullptr, cache, y_.data()); });
    const double pairs =
        static_cast<double>(tokens) * (static_cast<double>(past) + static_cast<double>(tokens + 1) / 2);
    std::printf("attention  %-5s n %4lld after %5lld     %8.1f GFLOP/s %8.1f us\n",
                std::string(dtype_name(dtype)).c_str(), static_cast<long long>(tokens),
                static_cast<long long>(past), 4e-9 * pairs * 1024 / s, s * 1e6);
  }
  /// One token of a sequence after another over its own 4096 positions, so that the KV cache comes from memory.
  void decode_attention(DType dtype, int64_t heads, int64_t kv_heads, int64_t head_dim) {
    constexpr int64_t kPositions = 4096;
    const AttentionShape shape{heads, kv_heads, head_dim, 0, 0.125f};
    std::vector<uint32_t> blocks;
    for (uint32_t i = 0; i < kPositions / kKvBlockTokens; ++i) blocks.push_back(i);
    const AttentionSequence sequence{0, 1, kPositions - 1, blocks};
    const std::string name = "attention n 1 at 4096 " + std::string(dtype_name(dtype)) + " " + std::to_string(heads) +
                             "/" + std::to_string(kv_heads) + " x " + std::to_string(head_dim);
    const int64_t bytes = static_cast<int64_t>(blocks.size()) * kv_block_bytes(shape, dtype);
    streamed(name.c_str(), data_, bytes, [&](const char* cache) {
      ops_->attention(shape, {&sequence, 1}, x_.data(), nullptr,
                      {const_cast<char*>(cache), dtype, static_cast<int64_t>(blocks.size())}, y_.data());
    });
  }
  /// Latent attention of DeepSeek-V2-Lite's shape (16 heads) or V3's (128): one token of each of 32 sequences, over
  /// 2,048 positions of their own, beside reading the latents once. Bytes are those of whole blocks, which the spans
  /// read: each once for all heads.
  void decode_latents(DType dtype, int64_t heads) {
    constexpr int64_t kSequences = 32, kPositions = 2048;
    const LatentShape shape = latent_shape(heads, LatentShape::Form::kAbsorbed);
    std::vector<uint32_t> blocks;
    for (uint32_t i = 0; i < kSequences * kPositions / kKvBlockTokens; ++i) blocks.push_back(i);
    std::vector<AttentionSequence> sequences;
    for (int64_t s = 0; s < kSequences; ++s)
      sequences.push_back({s, 1, kPositions - 1,
                           std::span(blocks).subspan(static_cast<size_t>(s * kPositions / kKvBlockTokens),
                                                     static_cast<size_t>(kPositions / kKvBlockTokens))});
    const auto bytes = static_cast<int64_t>(blocks.size()) * latent_block_bytes(shape, dtype);
    const Weight kv_b{data_, DType::kBF16, heads * shape.expanded_dim(), shape.kv_rank};
    const std::string name = "latents 32 x 2048 " + std::string(dtype_name(dtype)) + " " + std::to_string(heads) +
                             " heads";
    streamed(name.c_str(), data_, bytes, [&](const char* cache) {
      ops_->latent_attention(shape, sequences, x_.data(), x_.data(), x_.data(), kv_b,
                             {const_cast<char*>(cache), dtype, static_cast<int64_t>(blocks.size())}, y_.data());
    });
  }
  /// A prompt's chunk in both forms: where they cross is what CpuOps chooses by.
  void prompt_latents(int64_t tokens, int64_t past, int64_t heads) {
    double times[2];
    for (const auto form : {LatentShape::Form::kAbsorbed, LatentShape::Form::kExpanded}) {
      const LatentShape shape = latent_shape(heads, form);
      std::vector<uint32_t> blocks;
      for (uint32_t i = 0; i < ceil_div(past + tokens, kKvBlockTokens); ++i) blocks.push_back(i);
      const AttentionSequence sequence{0, tokens, past, blocks};
      const Weight kv_b{data_, DType::kBF16, heads * shape.expanded_dim(), shape.kv_rank};
      const KvView cache{const_cast<char*>(data_), DType::kBF16, static_cast<int64_t>(blocks.size())};
      times[form == LatentShape::Form::kExpanded] = repeated([&] {
        ops_->latent_attention(shape, {&sequence, 1}, x_.data(), x_.data(), x_.data(), kv_b, cache, y_.data());
      });
    }
    std::printf("latents bf16 %3lld heads n %4lld after %5lld   absorbed %9.1f us   expanded %9.1f us\n",
                static_cast<long long>(heads), static_cast<long long>(tokens), static_cast<long long>(past),
                times[0] * 1e6, times[1] * 1e6);
  }
  static LatentShape latent_shape(int64_t heads, LatentShape::Form form) {
    return {.heads = heads, .kv_rank = 512, .nope_dim = 128, .rope_dim = 64, .value_dim = 128, .scale = 0.07f,
            .interleaved = true, .form = form};
  }
  void peak() {
    for (const cpu::PeakLoop& loop : limits_->loops()) {
      std::vector<double> rates;
      for (int round = 0; round < kRounds; ++round) rates.push_back(limits_->peak(loop).rate());
      std::printf("multiply-adds in registers, %-4s %-18s %d threads  %8.1f GFLOP/s\n", loop.name, loop.instruction,
                  ops_->options().threads, 1e-9 * median(rates));
    }
  }
  /// What streaming gives at best: `moestro bench engine` holds decoding against the same.
  void stream(DType dtype) {
    std::vector<double> read, run;
    for (int round = 0; round < kRounds; ++round) {
      read.push_back(limits_->read(kWeightBytes).rate());
      run.push_back(limits_->matvec(dtype, kWeightBytes).rate());
    }
    std::printf("streamed matvec %-10s         %6.1f GB/s   read loop %6.1f GB/s\n",
                std::string(dtype_name(dtype)).c_str(), 1e-9 * median(run), 1e-9 * median(read));
  }
  void small() {
    const double norm =
        repeated([&] { ops_->rms_norm(x_.data(), 1, kHidden, x_.data() + 4096, 1e-5f, y_.data()); });
    const double tiny = repeated([&] {
      ops_->matmul(x_.data(), 1, {data_, DType::kBF16, 192, 192}, nullptr, y_.data());
    });
    std::printf("rms_norm of one row of 1024 %.2f us; matmul 192 x 192 bf16 %.2f us\n", norm * 1e6,
                tiny * 1e6);
    const double layer_norm = repeated(
        [&] { ops_->layer_norm(x_.data(), 1, kHidden, x_.data() + 4096, x_.data() + 8192, 1e-5f, y_.data()); });
    const double squares = repeated([&] { ops_->sum_squares(x_.data(), 1, kHidden, y_.data()); });
    std::printf("layer_norm of one row of 1024 %.2f us; sum_squares (the check for NaN and infinity) %.2f us\n",
                layer_norm * 1e6, squares * 1e6);
  }
  void router(const char* name, const RouterSpec& spec, int64_t n) {
    std::vector<int32_t> ids(static_cast<size_t>(n * spec.top_k));
    const double s = repeated([&] { ops_->router_top_k(x_.data(), n, spec, ids.data(), y_.data()); });
    std::printf("%-40s n %4lld    %8.2f us\n", name, static_cast<long long>(n), s * 1e6);
  }
  void routers() {
    const RouterSpec softmax{.experts = 128, .top_k = 8, .normalise = true};
    RouterSpec sigmoid = softmax;
    sigmoid.scores = RouterSpec::Scores::kSigmoid;
    const RouterSpec grouped{.experts = 256,
                             .top_k = 8,
                             .scores = RouterSpec::Scores::kSigmoid,
                             .normalise = true,
                             .scale = 2.5f,
                             .bias = x_.data() + 400000,
                             .groups = 8,
                             .groups_kept = 4};
    for (const int64_t n : {1, 512}) {
      router("router softmax, 8 of 128", softmax, n);
      router("router sigmoid, 8 of 128", sigmoid, n);
      router("router sigmoid, 8 of 256, 4 of 8 groups", grouped, n);
    }
  }

 private:
  std::unique_ptr<limits::Limits> filled() {
    auto limits = limits::Limits::create(*ops_, kWeightBytes);
    if (!limits.is_ok()) std::exit((std::fprintf(stderr, "%s\n", limits.status().message().c_str()), 1));
    return std::move(*limits);
  }
  /// Noise whose scales are small normal numbers. MXFP4's are exponents alone, which noise would make 2^-83 to 2^127,
  /// and products subnormal: it has a memory of its own.
  const char* data_of(DType dtype) {
    if (dtype != DType::kMXFP4) return data_;
    return own(of_mxfp4_, [](std::byte* data) {
      for (int64_t at = 0; at < kWeightBytes; at += block_shape(DType::kMXFP4).bytes) data[at] = std::byte{118};
    });
  }
  /// Experts, one after the other. Those of bf16 in 12 bits have normal exponents and no exceptions.
  const char* data_of(const ExpertLayout& layout) {
    if (layout.dtype() != DType::kBF16In12) return data_of(layout.dtype());
    return own(of_12_bits_, [&](std::byte* data) {
      for (std::byte* blob = data; blob + layout.bytes() <= data + kWeightBytes; blob += layout.bytes())
        for (int64_t i = 0; i < layout.tiles(); ++i) {
          const ExpertTile tile = layout.tile(i);
          for (const int64_t at : {tile.gate_scales, tile.up_scales, tile.down_scales}) {
            std::byte* const part = blob + tile.offset + at;
            for (int64_t code = 0; code < bf16_in_12::kCodes; ++code) part[code] = static_cast<std::byte>(100 + code);
            std::memset(part + bf16_in_12::kCodes, 0, sizeof(uint32_t));
          }
        }
    });
  }
  template <class Write>
  const char* own(std::unique_ptr<limits::Limits>& memory, const Write& write) {
    if (!memory) {
      memory = filled();
      write(reinterpret_cast<std::byte*>(const_cast<char*>(memory->data())));
    }
    return memory->data();
  }
  /// Runs f over consecutive stretches of the weights, in turns with the read loop.
  void streamed(const char* name, const char* data, int64_t bytes, const std::function<void(const char*)>& f) {
    const int64_t count = kWeightBytes / bytes, total = count * bytes;
    std::vector<double> read, run, ratio;
    for (int round = 0; round < kRounds; ++round) {
      const double r = static_cast<double>(total) / limits_->read(total).rate();
      const double s = seconds([&] {
        for (int64_t i = 0; i < count; ++i) f(data + i * bytes);
      });
      read.push_back(1e-9 * static_cast<double>(total) / r);
      run.push_back(1e-9 * static_cast<double>(total) / s);
      ratio.push_back(r / s);
    }
    std::printf("%-38s %6.1f GB/s   read loop %6.1f GB/s   %5.1f %%   %8.1f us\n", name, median(run), median(read),
                100 * median(ratio), 1e-3 * static_cast<double>(bytes) / median(run));
  }
  double repeated(const std::function<void()>& f) {
    f();
    const int64_t runs = std::clamp<int64_t>(static_cast<int64_t>(0.03 / (seconds(f) + 1e-9)), 1, 20000);
    std::vector<double> times;
    for (int round = 0; round < kRounds; ++round)
      times.push_back(seconds([&] {
                        for (int64_t i = 0; i < runs; ++i) f();
                      }) /
                      static_cast<double>(runs));
    return median(times);
  }

  std::unique_ptr<Ops> ops_;
  std::unique_ptr<limits::Limits> limits_, of_mxfp4_, of_12_bits_;
  const char* data_ = nullptr;
  AlignedVector<float> x_, y_;
};

std::vector<DType> block_formats() {
  std::vector<DType> all;
  for (size_t i = 0; i < kBlockFormats; ++i) all.push_back(block_format(i));
  return all;
}

void latents(Bench& b) {
  for (const int64_t heads : {16, 128})
    for (const DType d : {DType::kF32, DType::kBF16, DType::kF16, DType::kInt8}) b.decode_latents(d, heads);
  for (const int64_t past : {0, 512, 4096})
    for (const int64_t n : {16, 32, 64, 128, 256, 512}) b.prompt_latents(n, past, 16);
}

void blocks(Bench& b) {
  b.stream(DType::kBF16);
  for (const DType d : block_formats()) b.stream(d);
  for (const DType d : block_formats()) b.matvec_in_cache(d);
  for (const int64_t n : {2, 4, 8, 12, 64, 128}) {
    b.expert(DType::kInt8, n);
    for (const DType d : block_formats()) b.expert(d, n);
  }
}

void one_format(Bench& b, DType d, int64_t hidden, int64_t ffn) {
  b.peak();
  b.stream(DType::kBF16);
  b.stream(d);
  if (is_blocks(d)) b.matvec_in_cache(d);
  const std::initializer_list<int64_t> tokens{1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, kExpertTokensMax};
  for (const int64_t n : tokens) b.expert(d, n, hidden, ffn);
}

std::optional<DType> format_named(std::string_view name) {
  std::vector<DType> formats = block_formats();
  formats.insert(formats.end(), {DType::kF32, DType::kBF16, DType::kF16, DType::kBF16In12, DType::kInt8, DType::kInt4});
  for (const DType d : formats)
    if (dtype_name(d) == name) return d;
  return std::nullopt;
}

/// Why PART cannot be measured, or not with this shape; empty: it can.
std::string refusal(const std::string& part, bool has_shape, int64_t hidden, int64_t ffn) {
  const std::optional<DType> format = format_named(part);
  if (!format && part != "latents" && part != "blocks")
    return "no part '" + part + "': latents, blocks, or a format of weights";
  if (!format && has_shape) return part + " has shapes of its own: HIDDEN and FFN go with a format of weights";
  if (!format || !has_shape) return {};
  if (hidden <= 0 || ffn <= 0) return "HIDDEN and FFN are two whole numbers above 0";
  if (hidden > kHiddenMax) return "HIDDEN is at most " + std::to_string(kHiddenMax);
  if (const int64_t columns = block_shape(*format).columns; hidden % columns != 0 || ffn % columns != 0)
    return "HIDDEN and FFN of " + part + " are multiples of " + std::to_string(columns);
  if (ffn > kWeightBytes || ExpertLayout(hidden, ffn, *format).bytes() > kWeightBytes)
    return "an expert of HIDDEN x FFN is larger than the " + std::to_string(kWeightBytes >> 20) +
           " MiB that are measured";
  return {};
}

int run(int argc, char** argv) {
  const std::string part = argc > 4 ? argv[4] : "";
  const int64_t hidden = argc > 5 ? std::atoi(argv[5]) : kHidden, ffn = argc > 6 ? std::atoi(argv[6]) : kFfn;
  const std::string why = argc == 6 || argc > 7 ? "HIDDEN and FFN are two whole numbers above 0"
                          : argc > 4            ? refusal(part, argc > 5, hidden, ffn)
                                                : "";
  if (!why.empty()) {
    std::fprintf(stderr, "kernels_bench: %s\n", why.c_str());
    return 2;
  }
  Isa isa = best_isa();
  for (const Isa one : kIsas)
    if (argc > 2 && has_isa(one) && isa_name(one) == argv[2]) isa = one;
  Bench b(argc > 1 ? std::atoi(argv[1]) : 0, isa, argc > 3 && std::string_view(argv[3]) == "deterministic");
  if (part == "blocks") return blocks(b), 0;
  if (part == "latents") return latents(b), 0;
  if (const auto format = format_named(part)) return one_format(b, *format, hidden, ffn), 0;
  b.peak();
  for (const DType d : {DType::kBF16, DType::kBF16In12, DType::kInt8, DType::kInt4}) b.stream(d);
  for (const DType d : block_formats()) b.stream(d);
  b.matvec("matmul n 1 bf16 3584 x 1024", DType::kBF16, 3584, 1024);
  b.matvec("matmul n 1 bf16 1024 x 1024", DType::kBF16, 1024, 1024);
  b.matvec("matmul n 1 bf16 1024 x 3584", DType::kBF16, 1024, 3584);
  b.matvec("matmul n 1 bf16 32000 x 1024", DType::kBF16, 32000, 1024);
  b.matvec("matmul n 1 f32 1024 x 1024", DType::kF32, 1024, 1024);
  b.decode("expert_ffn 1 token bf16", DType::kBF16);
  b.decode("expert_ffn 1 token f16", DType::kF16);
  b.decode("expert_ffn 1 token f32", DType::kF32);
  b.decode("expert_ffn 1 token int8", DType::kInt8);
  b.decode("expert_ffn 1 token int4", DType::kInt4);
  for (const DType d : {DType::kBF16, DType::kInt8, DType::kInt4}) b.decode_in_cache(d);
  for (const int64_t n : {4, 8, 16, 64, 512}) b.product(DType::kBF16, n, 4096, 4096);
  b.product(DType::kF32, 512, 4096, 4096);
  for (const int64_t n : {2, 8, 32, 128, 512}) b.expert(DType::kBF16, n);
  for (const DType d : {DType::kInt8, DType::kInt4})
    for (const int64_t n : {2, 8, 16, 32, 128}) b.expert(d, n);
  const DType kv_dtypes[] = {DType::kF32, DType::kBF16, DType::kF16, DType::kInt8};
  for (const int64_t heads : {8, 32})
    for (const DType d : kv_dtypes) b.decode_attention(d, heads, 8, 128);
  for (const DType d : kv_dtypes) {
    b.attention(d, 512, 0);
    b.attention(d, 1, 512);
    b.attention(d, 1, 8192);
  }
  latents(b);
  b.small();
  b.routers();
  return 0;
}

}  // namespace
}  // namespace moestro::kernels

int main(int argc, char** argv) {
  return moestro::kernels::run(argc, argv);
}
