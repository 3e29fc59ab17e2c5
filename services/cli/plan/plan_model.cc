#include "services/cli/plan/plan_model.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "common/formats/encode.h"
#include "services/box/pack_sizes.h"
#include "services/cli/bench/model/model_shape.h"
#include "store/pack/requantise.h"

namespace moestro::cli {
namespace {

namespace fs = std::filesystem;

constexpr uintmax_t kConfigBytesMax = 4 << 20;

Result<DType> precision(const char* flag, const std::string& text, DType otherwise) {
  if (text.empty()) return otherwise;
  auto parsed = parse_dtype(text);
  if (!parsed.is_ok()) return parsed.status().with_context(flag);
  return parsed;
}

/// What `moestro pack` converts to. Default: bf16.
Result<DType> precision_of_shape(const char* flag, const std::string& text, bool of_experts) {
  auto parsed = precision(flag, text, DType::kBF16);
  if (!parsed.is_ok()) return parsed;
  const bool made_by_packing =
      is_blocks(*parsed) ? formats::can_encode(*parsed) || (of_experts && is_made_of_others(*parsed))
                         : *parsed != DType::kMixed;
  if (made_by_packing) return parsed;
  return invalid_argument(std::string(flag) + " " + text + " with --shape: nothing is converted to it; there are bf16, "
                          "bf16-12bit, f16, f32, int8, int4, " + (of_experts ? "int2, " : "") +
                          formats::encodable_formats() +
                          "; packs of quantised models in their own formats are planned with --model");
}

/// `moestro pack` refuses rows that are not whole blocks.
Status check_width(const char* flag, DType d, int64_t cols) {
  const int64_t columns = block_shape(d).columns;
  if (cols % columns == 0) return Status::ok();
  return unsupported(std::string(flag) + " " + std::string(dtype_name(d)) + ": this model has rows of " +
                     std::to_string(cols) + " numbers, and a block is " + std::to_string(columns));
}

Status check_widths(const model::ModelDescription& model, DType experts, DType dense) {
  if (model.spec.moe_layers() > 0)
    for (const int64_t cols : {model.spec.moe().expert.hidden, model.spec.moe().expert.ffn})
      MOESTRO_RETURN_IF_ERROR(check_width("--experts", experts, cols));
  for (const model::DenseTensor& t : model.dense)
    if (store::is_matrix_of_a_product(t) && !t.exact)
      MOESTRO_RETURN_IF_ERROR(check_width("--dense", dense, t.shape.back()));
  return Status::ok();
}

Result<std::string> read_config(const fs::path& path) {
  std::error_code error;
  const uintmax_t bytes = fs::file_size(path, error);
  if (error) return not_found("--shape: cannot read " + path.string() + ": " + error.message());
  if (bytes > kConfigBytesMax) return invalid_argument("--shape: " + path.string() + " is too large for a config.json");
  std::ifstream in(path, std::ios::binary);
  std::string text(bytes, '\0');
  in.read(text.data(), static_cast<std::streamsize>(bytes));
  if (!in) return io_error("--shape: cannot read " + path.string());
  return text;
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

Result<PlannedModel> read_shape(const PlanOptions& o, DType kv) {
  PlannedModel model;
  std::error_code error;
  if (const auto named = model_shape(o.shape)) {
    model.name = o.shape;
    model.config_json = cli::config_json(*named);
  } else if (fs::exists(o.shape, error)) {
    const fs::path path = fs::is_directory(o.shape, error) ? fs::path(o.shape) / "config.json" : fs::path(o.shape);
    model.name = path.string();
    MOESTRO_ASSIGN_OR_RETURN(model.config_json, read_config(path));
  } else {
    return not_found("--shape " + o.shape + " is neither a file nor one of " + joined(model_shape_names()));
  }
  auto description = model::describe_model(model.config_json, "");
  if (!description.is_ok()) return description.status().with_context("--shape " + o.shape);
  model.description = std::move(*description);
  MOESTRO_ASSIGN_OR_RETURN(const DType experts, precision_of_shape("--experts", o.experts, true));
  MOESTRO_ASSIGN_OR_RETURN(const DType dense, precision_of_shape("--dense", o.dense, false));
  MOESTRO_RETURN_IF_ERROR(check_widths(model.description, experts, dense));
  MOESTRO_ASSIGN_OR_RETURN(model.sizes, planner::model_sizes(model.description, {experts, dense, kv}));
  model.experts = experts;
  return model;
}

Result<DType> experts_of(const store::Manifest& manifest, const std::string& asked) {
  const std::vector<DType>& held = manifest.expert_precisions;
  if (held.empty()) return unsupported("this model has no experts");
  MOESTRO_ASSIGN_OR_RETURN(const DType experts, precision("--experts", asked, held.front()));
  if (std::ranges::find(held, experts) != held.end()) return experts;
  std::vector<std::string> names;
  for (const DType d : held) names.emplace_back(dtype_name(d));
  return invalid_argument("--experts " + asked + ": this pack has " + joined(names));
}

Result<PlannedModel> read_pack(const PlanOptions& o, DType kv) {
  PlannedModel model;
  MOESTRO_ASSIGN_OR_RETURN(model.manifest, store::open_pack(o.pack));
  const store::Manifest& manifest = *model.manifest;
  model.name = manifest.model_name, model.config_json = manifest.config_json;
  if (!o.dense.empty()) return invalid_argument("--dense goes with --shape; a pack has its own dense weights");
  auto description = model::describe_model(manifest.config_json, manifest.generation_config_json);
  if (!description.is_ok()) return description.status().with_context(o.pack);
  model.description = std::move(*description);
  MOESTRO_ASSIGN_OR_RETURN(const DType experts, experts_of(manifest, o.experts));
  model.experts = experts;
  MOESTRO_ASSIGN_OR_RETURN(model.sizes, box::pack_sizes(manifest, model.description, experts, kv));
  return model;
}

/// Of an encoder-decoder model: source and target each have a context of their own.
Status check_source(const PlanOptions& o, const planner::ModelSizes& sizes) {
  const std::string context = " is more than the model's context of " + std::to_string(sizes.max_position) + " tokens";
  if (o.mixed != "off") return unsupported("--mixed with an encoder-decoder model; leave it out");
  if (o.foreseen)
    return unsupported("--foreseen with an encoder-decoder model, of which nothing is predicted; leave it out");
  if (o.prompt > sizes.max_position) return invalid_argument("--prompt " + std::to_string(o.prompt) + context);
  if (1 + o.generate > sizes.max_position)
    return invalid_argument("--generate " + std::to_string(o.generate) + " behind a start token" + context);
  if (o.prompt <= o.step_tokens) return Status::ok();
  return invalid_argument("--prompt " + std::to_string(o.prompt) + ": the source of an encoder-decoder model is read "
                          "in one step, which has " + std::to_string(o.step_tokens) + " tokens (--step-tokens)");
}

}  // namespace

Result<PlannedModel> read_planned_model(const PlanOptions& o) {
  MOESTRO_ASSIGN_OR_RETURN(const DType kv, precision("--kv-dtype", o.kv_dtype, DType::kF32));
  if (o.pack.empty() == o.shape.empty())
    return invalid_argument("give either --model PACK, or --shape with a config.json or the name of a shape");
  MOESTRO_ASSIGN_OR_RETURN(PlannedModel model, o.pack.empty() ? read_shape(o, kv) : read_pack(o, kv));
  if (model.sizes.has_encoder()) {
    MOESTRO_RETURN_IF_ERROR(check_source(o, model.sizes));
    return model;
  }
  const int64_t length = o.prompt + o.generate;
  if (length > model.sizes.max_position)
    return invalid_argument("--prompt " + std::to_string(o.prompt) + " + --generate " + std::to_string(o.generate) +
                            " = " + std::to_string(length) + " is more than the model's context of " +
                            std::to_string(model.sizes.max_position) + " tokens");
  return model;
}

planner::Workload workload_of(const PlanOptions& o, const PlannedModel& model) {
  return {.prompt = o.prompt, .generate = o.generate, .sequences = o.sequences, .step_tokens = o.step_tokens,
          .steps_grow = o.steps_grow, .sources = model.sizes.has_encoder()};
}

}  // namespace moestro::cli
