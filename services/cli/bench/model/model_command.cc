#include "services/cli/bench/model/model_command.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "services/cli/bench/model/model_shape.h"
#include "services/cli/common/json_text.h"
#include "services/cli/pack/progress.h"
#include "services/command_line/command_line.h"
#include "store/pack/packer.h"

namespace moestro::cli {
namespace {

struct Arguments {
  std::string shape, pack, name, experts = "bf16", dense = "bf16";
  ModelShape own;  ///< dimensions of the command line; 0: the named shape's
  uint64_t seed = 1;
  unsigned jobs = std::clamp(std::thread::hardware_concurrency(), 1u, 256u);
  bool json = false;

  Arguments() { own.vocab = own.context = 0; }
};

struct Dimension {
  const char* flag;
  int64_t ModelShape::* member;
  int64_t least, most;
  const char* help;
};
constexpr Dimension kDimensions[] = {
    {"--layers", &ModelShape::layers, 1, 1024, "Layers; of an encoder-decoder model, of each stack"},
    {"--hidden", &ModelShape::hidden, 1, 65536, "Width of the model"},
    {"--heads", &ModelShape::heads, 1, 1024, "Attention heads"},
    {"--kv-heads", &ModelShape::kv_heads, 1, 1024, "Heads of keys and values"},
    {"--head-dim", &ModelShape::head_dim, 2, 1024, "Width of a head"},
    {"--ffn", &ModelShape::ffn, 1, 262144, "Inner width of an expert"},
    {"--experts-per-layer", &ModelShape::experts, 1, 1024, "Experts per layer"},
    {"--top-k", &ModelShape::top_k, 1, 64, "Experts per token"},
    {"--vocab", &ModelShape::vocab, kByteVocab, 1 << 20, "Tokens of the vocabulary"},
    {"--context", &ModelShape::context, 16, 1 << 24, "Longest sequence, in tokens"},
};

ModelShape shape_of(const Arguments& a) {
  ModelShape shape = *model_shape(a.shape);
  for (const Dimension& d : kDimensions)
    if (a.own.*d.member != 0) shape.*d.member = a.own.*d.member;
  if (fixed_top_k(shape.family) == 0) return shape;
  // Of two stacks: what others follow from, unless they were given too (check_two_stacks).
  if (a.own.kv_heads == 0) shape.kv_heads = shape.heads;
  if (a.own.head_dim == 0 && shape.family == ModelShape::Family::kNllb) shape.head_dim = shape.hidden / shape.heads;
  return shape;
}

/// Before the plan of a model is made, which takes memory for each of its blobs: whether its experts could lie there.
/// An unfinished pack has its room already.
Status check_room(const std::filesystem::path& pack, uint64_t bytes) {
  std::error_code error;
  std::filesystem::path at = std::filesystem::absolute(pack).lexically_normal();
  if (std::filesystem::exists(at, error)) return Status::ok();
  while (!std::filesystem::exists(at, error) && at.has_relative_path()) at = at.parent_path();
  const std::filesystem::space_info room = std::filesystem::space(at, error);
  if (error || room.available >= bytes) return Status::ok();
  return exhausted(pack.string() + ": the experts alone take " + human_bytes(bytes) + ", and " +
                   human_bytes(room.available) + " are free: " + std::to_string(bytes - room.available) +
                   " bytes are missing; choose another directory or a smaller model");
}

/// Models of two stacks have no number for these: what differs would be made otherwise than it was asked for.
Status check_two_stacks(const Arguments& a, const ModelShape& s) {
  if (s.kv_heads != s.heads)
    return invalid_argument("--kv-heads " + std::to_string(s.kv_heads) + ": " + a.shape + " has as many as --heads, " +
                            std::to_string(s.heads));
  if (s.family == ModelShape::Family::kNllb && s.heads * s.head_dim != s.hidden)
    return invalid_argument("--head-dim " + std::to_string(s.head_dim) + ": --heads times it is --hidden in " +
                            a.shape);
  if (s.family == ModelShape::Family::kSwitch && a.own.context != 0)
    return invalid_argument("--context: " + a.shape + " has no longest sequence; leave it out");
  return Status::ok();
}

Status run(const Arguments& a) {
  const ModelShape shape = shape_of(a);
  if (fixed_top_k(shape.family) != 0) MOESTRO_RETURN_IF_ERROR(check_two_stacks(a, shape));
  if (shape.top_k > shape.experts)
    return invalid_argument("--top-k " + std::to_string(shape.top_k) + " is more than the " +
                            std::to_string(shape.experts) + " experts of a layer");
  if (const int64_t fixed = fixed_top_k(shape.family); fixed != 0 && shape.top_k != fixed)
    return invalid_argument("--top-k " + std::to_string(shape.top_k) + ": tokens of " + a.shape + " have " +
                            std::to_string(fixed) + (fixed == 1 ? " expert" : " experts") + "; leave it out");
  store::PackOptions options;
  MOESTRO_ASSIGN_OR_RETURN(const DType experts, parse_dtype(a.experts));
  MOESTRO_ASSIGN_OR_RETURN(options.dense, parse_dtype(a.dense));
  options.experts = {experts};
  options.jobs = a.jobs;
  options.model_name = a.name.empty() ? a.shape : a.name;
  store::RandomModel model{config_json(shape), generation_config_json(), {}, a.seed};
  model.files = {{"config.json", model.config_json},
                 {"generation_config.json", model.generation_config_json},
                 {"tokenizer.json", byte_tokenizer_json(shape.vocab)},
                 {"tokenizer_config.json", tokenizer_config_json(shape)}};
  note(shape_text(shape) + "; seed " + std::to_string(a.seed));
  MOESTRO_RETURN_IF_ERROR(check_room(a.pack, expert_bytes(shape, experts)));
  const auto begin = std::chrono::steady_clock::now();
  ByteProgress progress("making weights");
  bool size_said = false;
  const auto update = [&](uint64_t done, uint64_t total) {
    if (!std::exchange(size_said, true)) note(human_bytes(total) + " of weights will be in " + a.pack);
    progress.update(done, total);
  };
  const auto summary =
      store::pack_random(model, a.pack, options, {update, [](const std::string& line) { note(line); }});
  progress.finish();
  if (!summary) return summary.status();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (a.json) {
    const nlohmann::ordered_json report = {{"pack", a.pack},
                                           {"bytes", summary->bytes},
                                           {"resumed_bytes", summary->resumed_bytes},
                                           {"blobs", summary->blobs},
                                           {"seconds", seconds}};
    std::printf("%s\n", json_text(report).c_str());
  } else {
    std::printf("made %s in %u blobs in %.1f s: %s\n", human_bytes(summary->bytes).c_str(), summary->blobs, seconds,
                a.pack.c_str());
  }
  return Status::ok();
}

}  // namespace

void add_model_bench(command_line::App& bench, CommandResult& result) {
  command_line::App* model = bench.add_subcommand(
      "model", "Make a pack of random weights in the shape of a model, for benchmarks. Needs no checkpoint");
  auto a = std::make_shared<Arguments>();
  model->add_option("--shape", a->shape, "Model whose dimensions to take. The options below change single ones")
      ->required()
      ->check(command_line::IsMember(model_shape_names()));
  model->add_option("-o,--output", a->pack, "Directory of the pack. After an interruption, the same command continues")
      ->required()
      ->option_text("PACK");
  for (const Dimension& d : kDimensions)
    model->add_option(d.flag, a->own.*d.member, d.help)->check(command_line::Range(d.least, d.most))->option_text("N");
  const command_line::Check precisions = command_line::IsMember({"bf16", "bf16-12bit", "f16", "f32", "int8", "int4"});
  model->add_option("--experts", a->experts, "Precision of the experts")->check(precisions)->capture_default_str();
  model
      ->add_option("--dense", a->dense,
                   "Precision of all other weights. bf16-12bit, int8 and int4 apply to attention and the head")
      ->check(precisions)
      ->capture_default_str();
  model->add_option("--name", a->name, "Name of the model. Default: the shape's")->option_text("NAME");
  model->add_option("--seed", a->seed, "The same seed makes the same bytes")->capture_default_str()->option_text("S");
  model->add_option("--jobs", a->jobs, "Threads")
      ->check(command_line::Range(1, 256))
      ->capture_default_str()
      ->option_text("N");
  model->add_flag("--json", a->json, "Print the result as JSON");
  model->callback([a, &result] {
    if (const Status status = run(*a); !status.is_ok()) fail(result, status);
  });
}

}  // namespace moestro::cli
