#include "store/pack/checkpoint.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <set>

#include "common/formats/blocks.h"
#include "common/may_read.h"
#include "common/model/expert_storage.h"
#include "common/model/strict_json.h"
#include "store/pack/finite.h"
#include "store/pack/quantisation_file.h"
#include "store/pack/quantised_dialects.h"
#include "store/pack/tied_head.h"
#include "store/pack/weight_files.h"

namespace moestro::store {
namespace {

using model::in_quotes;
namespace fs = std::filesystem;

constexpr uint64_t kConfigBytesMax = 16 << 20;

// "model.layers.0.mlp.experts.gate_up_proj": all experts of a layer in one tensor.
bool is_fused_experts(const std::string& name) {
  constexpr std::string_view kExperts = ".experts.";
  const size_t at = name.find(kExperts);
  if (at == std::string::npos) return false;
  std::string_view rest = std::string_view(name).substr(at + kExperts.size());
  if (rest.starts_with("expert_")) rest.remove_prefix(7);  // Switch Transformers, NLLB-MoE: "experts.expert_0."
  return !rest.empty() && !std::isdigit(static_cast<unsigned char>(rest.front()));
}

// A layer after the last, which predicts further tokens: "model.layers.46.eh_proj.weight" of a model of 46 layers.
bool is_of_mtp_layer(std::string_view name, const model::ModelSpec& spec) {
  constexpr std::string_view kLayers = "model.layers.";
  if (spec.mtp_layers > 0 && name.starts_with("model.mtp_")) return true;  // Ernie's lie beside the layers
  if (!name.starts_with(kLayers)) return false;
  name.remove_prefix(kLayers.size());
  int64_t layer = 0;
  const auto read = std::from_chars(name.data(), name.data() + name.size(), layer);
  const auto layers = static_cast<int64_t>(spec.layers.size());
  return read.ec == std::errc() && read.ptr != name.data() + name.size() && *read.ptr == '.' && layer >= layers &&
         layer < layers + spec.mtp_layers;
}

/// Values of each format.
using Census = std::map<DType, uint64_t>;

Checkpoint::OwnDType narrowest(const Census& census) {
  const auto most =
      std::max_element(census.begin(), census.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  if (census.size() == 1) return {most->first, false};
  return {DType::kF32, most->first != DType::kF32};  // neither 16-bit format holds the other's values
}

/// Calls visit(name, shape, whether it is a bias) for the tensors of all experts' matrices and biases; a tensor that
/// holds several of them comes several times.
template <class Visit>
Status for_expert_tensors(const model::ModelDescription& model, const Visit& visit) {
  using model::ExpertPart;
  for (const model::ExpertTensors& t : model.experts) {
    if (!t.gate.empty()) MOESTRO_RETURN_IF_ERROR(visit(t.gate, view_of(model, t, ExpertPart::kGate).shape, false));
    MOESTRO_RETURN_IF_ERROR(visit(t.up, view_of(model, t, ExpertPart::kUp).shape, false));
    MOESTRO_RETURN_IF_ERROR(visit(t.down, view_of(model, t, ExpertPart::kDown).shape, false));
    if (t.up_bias.empty()) continue;
    if (!t.gate_bias.empty())
      MOESTRO_RETURN_IF_ERROR(visit(t.gate_bias, bias_view_of(model, t, ExpertPart::kGate).shape, true));
    MOESTRO_RETURN_IF_ERROR(visit(t.up_bias, bias_view_of(model, t, ExpertPart::kUp).shape, true));
    MOESTRO_RETURN_IF_ERROR(visit(t.down_bias, bias_view_of(model, t, ExpertPart::kDown).shape, true));
  }
  return Status::ok();
}

}  // namespace

void Checkpoint::stamp(const File& file, const std::string& name) {
  const File::Version& v = file.opened();
  std::string text = name + '\0' + std::to_string(v.size);
  for (const File::Version::Time& time : {v.written, v.inode})
    text += '\0' + std::to_string(time.seconds) + '.' + std::to_string(time.nanoseconds);
  fingerprint_ = XXH3_64bits_withSeed(text.data(), text.size(), fingerprint_);
}

Status Checkpoint::open_file(const std::string& name) {
  MOESTRO_ASSIGN_OR_RETURN(File file, File::open_for_reading(directory_ / name));
  MOESTRO_ASSIGN_OR_RETURN(std::vector<SourceTensor> tensors, read_safetensors_header(file));
  stamp(file, name);
  for (SourceTensor& tensor : tensors) {
    tensor.file = static_cast<uint32_t>(files_.size());
    const std::string tensor_name = tensor.name;
    if (!tensors_.emplace(tensor_name, std::move(tensor)).second)
      return invalid_argument(file.path() + ": tensor " + in_quotes(tensor_name) + " is also in another file");
  }
  files_.push_back(std::move(file));
  return Status::ok();
}

Status Checkpoint::open_files(const std::string& config_json) {
  MOESTRO_ASSIGN_OR_RETURN(const WeightFiles found, find_weight_files(directory_, config_json));
  std::map<std::string, uint32_t> numbers;
  for (const std::string& name : found.names) {
    numbers[name] = static_cast<uint32_t>(files_.size());
    MOESTRO_RETURN_IF_ERROR(open_file(name));
  }
  for (const auto& [tensor, file] : found.weights) {
    const auto it = tensors_.find(tensor);
    if (it == tensors_.end() || it->second.file != numbers[file])
      return invalid_argument((directory_ / found.index).string() + ": tensor " + in_quotes(tensor) + " is not in " +
                              file);
  }
  const std::string& first = found.index.empty() ? found.names.front() : found.index;
  if (!first.starts_with("model.safetensors")) remarks_.push_back("the weights are those of " + first);
  return Status::ok();
}

Status Checkpoint::check_tensor(const std::string& name, const std::vector<int64_t>& shape) const {
  const std::string label = directory_.string() + ": tensor " + in_quotes(name);
  const auto it = tensors_.find(name);
  if (it == tensors_.end()) return invalid_argument(label + " is missing");
  const SourceTensor& tensor = it->second;
  if (tensor.shape != shape)
    return invalid_argument(label + " has shape " + shape_text(tensor.shape) + "; by config.json it is " +
                            shape_text(shape));
  if (!tensor.dtype && made_files_)
    return unsupported(label + " is " + tensor.format + ", which nothing computes with yet (" + usable_gguf_types() +
                       " are); quantise the model to one of those with llama-quantize, or take another file of it");
  if (!tensor.dtype) return unsupported(label + " is " + tensor.format + "; weights are read from F32, BF16 and F16");
  if (is_blocks(*tensor.dtype) && shape.size() < 2)
    return unsupported(label + " is a vector of " + tensor.format + "; vectors are read from F32, BF16 and F16");
  return Status::ok();
}

// Columns that are ordered by activation make f32 of a matrix (GPTQ), and chance may leave those of one expert in
// order. Then the same matrices of all experts of its layer become f32, too.
void Checkpoint::widen_with_their_layer() {
  using model::ExpertTensors;
  constexpr std::array kParts = {&ExpertTensors::gate, &ExpertTensors::up, &ExpertTensors::down};
  std::set<std::pair<int64_t, size_t>> widened;  // layers and parts
  const auto for_matrices = [&](const auto& use) {
    for (const ExpertTensors& t : model_.experts)
      for (size_t part = 0; part < kParts.size(); ++part) {
        const auto found = tensors_.find(t.*kParts[part]);
        if (found != tensors_.end() && found->second.matrix) use(std::pair(t.layer.value, part), found->second);
      }
  };
  for_matrices([&](const auto& at, const SourceTensor& t) {
    if (t.matrix->is_widened()) widened.insert(at);
  });
  for_matrices([&](const auto& at, SourceTensor& t) {
    if (!widened.contains(at) || t.dtype == DType::kF32) return;
    t.matrix = widened_matrix(t.name, t.matrix);
    t.dtype = DType::kF32, t.format = dtype_name(DType::kF32);
    t.bytes = static_cast<uint64_t>(t.matrix->rows() * row_bytes(DType::kF32, t.matrix->cols()));
  });
}

// All experts of a layer have one length, and their matrices one format each.
Status Checkpoint::note_formats(const model::ExpertTensors& t) {
  const ExpertFormats formats{*tensors_.at(t.gate.empty() ? t.up : t.gate).dtype, *tensors_.at(t.up).dtype,
                              *tensors_.at(t.down).dtype};
  const size_t layer = t.moe_layer.value;
  if (expert_formats_.size() == layer) expert_formats_.push_back(formats);
  if (expert_formats_[layer] == formats) return Status::ok();
  return unsupported(directory_.string() + ": the experts of layer " + std::to_string(t.layer.value) +
                     " differ in format; those of one layer must have the same; take another file of the model, or "
                     "pack the unquantised one with --experts");
}

// Matrices of several tensors become one tensor each, and vectors stay what they are.
Status Checkpoint::assemble(const std::string& name, const std::vector<int64_t>& shape) {
  if (shape.size() < 2) return Status::ok();
  return assemble_matrix(model_.spec.quantisation, name, shape, files_reader(), tensors_)
      .with_context(directory_.string());
}

// GPTQ's tools save a bias of zeros where a layer has none.
bool Checkpoint::is_bias_of_zeros(const SourceTensor& tensor) const {
  constexpr uint64_t kBytesMax = 1 << 24;
  if (model_.spec.quantisation.method != model::Quantisation::Method::kGptq || !tensor.name.ends_with(".bias") ||
      !tensor.dtype || tensor.bytes > kBytesMax)
    return false;
  std::vector<std::byte> bytes(tensor.bytes);
  return read(tensor, 0, bytes).is_ok() && std::ranges::all_of(bytes, [](std::byte b) { return b == std::byte{0}; });
}

const char* Checkpoint::left_out_as(std::string_view name) const {
  for (const model::ModelSpec::LeftOut& part : model_.spec.left_out)
    if (name.starts_with(part.prefix)) return part.what;
  return nullptr;
}

std::vector<std::string> Checkpoint::left_out() const {
  std::vector<std::string> parts;
  for (const auto& [name, tensor] : tensors_)
    if (const char* part = left_out_as(name); part != nullptr && std::ranges::find(parts, part) == parts.end())
      parts.emplace_back(part);
  return parts;
}

// A tensor that nobody asked for means that config.json does not describe this checkpoint, so results would be wrong.
Status Checkpoint::check_unused(const std::map<std::string, bool>& used) const {
  for (const auto& [name, tensor] : tensors_) {
    if (used.contains(name) || name.ends_with(".rotary_emb.inv_freq")) continue;
    if (name == model_.head_name && model_.spec.tied_embeddings) continue;
    if (std::ranges::find(model_.spec.embedding_copies, name) != model_.spec.embedding_copies.end()) continue;
    if (is_of_mtp_layer(name, model_.spec) || left_out_as(name) != nullptr) continue;
    if (is_native() && is_scale_of_activations(name)) continue;
    if (is_bias_of_zeros(tensor)) continue;
    return unsupported(directory_.string() + ": tensor " + in_quotes(name) + " is no part of " +
                       model_.spec.architecture + " as its config.json describes it");
  }
  return Status::ok();
}

Status Checkpoint::check_tensors() {
  if (model_.storage.perhaps_apart && !tensors_.contains(model_.experts.front().down))
    model::take_experts_apart(model_);
  for (const auto& [name, tensor] : tensors_)
    if (!model_.storage.stacked && is_fused_experts(name) && left_out_as(name) == nullptr)
      return unsupported(directory_.string() + ": " + in_quotes(name) +
                         " holds all experts of a layer in one tensor; fused experts are not supported: save the "
                         "checkpoint with one tensor per expert");
  std::map<std::string, bool> used;
  Census dense, experts;
  const auto need = [&](Census* census, const std::string& name, const std::vector<int64_t>& shape) {
    if (!used[name]) MOESTRO_RETURN_IF_ERROR(assemble(name, shape));
    MOESTRO_RETURN_IF_ERROR(check_tensor(name, shape));
    used[name] = true;
    const SourceTensor& tensor = tensors_.at(name);
    if (census != nullptr)
      (*census)[*tensor.dtype] += tensor.bytes / static_cast<uint64_t>(block_shape(*tensor.dtype).bytes);
    return Status::ok();
  };
  for (const model::DenseTensor& t : model_.dense) {
    MOESTRO_RETURN_IF_ERROR(need(t.exact ? nullptr : &dense, t.source_name, t.source_shape()));
    if (!t.values_name.empty()) MOESTRO_RETURN_IF_ERROR(need(&dense, t.values_name, t.values_shape()));
  }
  MOESTRO_RETURN_IF_ERROR(for_expert_tensors(
      model_, [&](const std::string& name, const std::vector<int64_t>& shape, bool bias) -> Status {
        if (used.contains(name)) return Status::ok();  // it holds more than one matrix
        return need(bias ? nullptr : &experts, name, shape);
      }));
  const auto is_assembled = [](const auto& t) { return t.second.matrix != nullptr; };
  is_native_ = made_files_ || std::ranges::any_of(tensors_, is_assembled);
  widen_with_their_layer();
  if (is_native())
    for (const model::ExpertTensors& t : model_.experts) MOESTRO_RETURN_IF_ERROR(note_formats(t));
  else
    expert_formats_.assign(static_cast<size_t>(model_.spec.moe_layers()), DType::kBF16);
  own_dense_dtype_ = narrowest(dense);
  own_expert_dtype_ = narrowest(experts);
  MOESTRO_RETURN_IF_ERROR(check_unused(used));
  MOESTRO_RETURN_IF_ERROR(check_embedding_copies());
  return check_head();
}

// A model whose head is its embedding may carry the head all the same. transformers uses it if it differs; so it must
// not.
Status Checkpoint::check_head() const {
  if (!model_.spec.tied_embeddings || !tensors_.contains(model_.head_name)) return Status::ok();
  MOESTRO_RETURN_IF_ERROR(check_tensor(model_.head_name, {model_.spec.vocab, model_.spec.hidden}));
  for (const model::DenseTensor& t : model_.dense) {
    if (t.name != "embed.weight") continue;
    if (!is_blocks(*tensor(t.source_name).dtype))
      return check_equal_tensors(
          *this, model_.head_name, t.source_name, "config.json ties the embeddings (tie_word_embeddings)",
          "set tie_word_embeddings to false to have the head that the checkpoint holds, or remove that tensor");
    return unsupported(directory_.string() + ": the embedding is quantised and tied (tie_word_embeddings), but there " +
                       "is " + in_quotes(model_.head_name) + " too; remove that tensor");
  }
  return Status::ok();
}

// Packs have one embedding for encoder and decoder.
Status Checkpoint::check_embedding_copies() const {
  for (const std::string& name : model_.spec.embedding_copies) {
    if (!tensors_.contains(name)) continue;
    MOESTRO_RETURN_IF_ERROR(check_tensor(name, {model_.spec.vocab, model_.spec.hidden}));
    MOESTRO_RETURN_IF_ERROR(check_equal_tensors(
        *this, name, model_.dense.front().source_name, "encoder and decoder share the embedding",
        "stacks with embeddings of their own are not supported; remove that tensor if the shared one is meant"));
  }
  return Status::ok();
}

Status Checkpoint::describe(const std::string& config_json, const std::string& where) {
  auto described = model::describe_model(config_json, generation_config_json_);
  if (!described) return described.status().with_context(where);
  model_ = std::move(*described);
  const std::string texts = config_json + '\0' + generation_config_json_;
  fingerprint_ = XXH3_64bits(texts.data(), texts.size());
  return Status::ok();
}

Result<Checkpoint> Checkpoint::random(std::string config_json, std::string generation_config_json, uint64_t seed) {
  Checkpoint c;
  c.name_ = "random";
  c.config_json_ = std::move(config_json);
  c.generation_config_json_ = std::move(generation_config_json);
  MOESTRO_RETURN_IF_ERROR(c.describe(c.config_json_, "random weights"));
  const auto add = [&](const std::string& name, const std::vector<int64_t>& shape) {
    uint64_t bytes = static_cast<uint64_t>(dtype_bytes(DType::kBF16));
    for (const int64_t n : shape) bytes *= static_cast<uint64_t>(n);
    c.tensors_.emplace(name, SourceTensor{name, "BF16", DType::kBF16, shape, 0, bytes, 0});
  };
  for (const model::DenseTensor& t : c.model_.dense) add(t.source_name, t.source_shape());
  c.expert_formats_.assign(static_cast<size_t>(c.model_.spec.moe_layers()), DType::kBF16);
  MOESTRO_RETURN_IF_ERROR(
      for_expert_tensors(c.model_, [&](const std::string& name, const std::vector<int64_t>& shape, bool) {
        add(name, shape);
        return Status::ok();
      }));
  c.fingerprint_ = XXH3_64bits_withSeed(&seed, sizeof seed, c.fingerprint_);
  c.random_ = std::make_shared<const RandomWeights>(c.model_, seed);
  return c;
}

Result<Checkpoint> Checkpoint::open(const fs::path& source) {
  MOESTRO_ASSIGN_OR_RETURN(const fs::path gguf, find_gguf(source));
  return gguf.empty() ? open_directory(source) : open_gguf(gguf);
}

Result<Checkpoint> Checkpoint::open_directory(const fs::path& dir) {
  MOESTRO_RETURN_IF_ERROR(check_may_read(dir / "config.json", dir));
  std::error_code ignored;
  if (!fs::is_directory(dir, ignored)) return not_found(dir.string() + ": no such directory");
  Checkpoint c;
  c.directory_ = dir;
  c.name_ = fs::weakly_canonical(dir).filename().string();
  MOESTRO_ASSIGN_OR_RETURN(c.config_json_, read_text_file(dir / "config.json", kConfigBytesMax));
  MOESTRO_ASSIGN_OR_RETURN(auto generation, read_text_file_if_any(dir / "generation_config.json", kConfigBytesMax));
  c.generation_config_json_ = generation.value_or("");
  MOESTRO_ASSIGN_OR_RETURN(const QuantisationFile file, read_quantisation_file(dir, c.config_json_));
  const std::string& described = file.name.empty() ? c.config_json_ : file.config_json;
  std::string where = dir.string();
  if (!file.name.empty()) {
    where += " (with " + file.name + " as quantization_config)";
    c.remarks_.push_back("config.json says nothing of quantisation; what " + file.name + " says is used");
  }
  MOESTRO_RETURN_IF_ERROR(c.describe(described, where));
  MOESTRO_RETURN_IF_ERROR(c.open_files(described));
  MOESTRO_RETURN_IF_ERROR(c.check_tensors());
  return c;
}

Result<Checkpoint::Change> Checkpoint::change() const {
  Change most;
  for (const File& file : files_) {
    MOESTRO_ASSIGN_OR_RETURN(const File::Since since, file.since_opened());
    if (since > most.since) most = {since, file.path()};
  }
  return most;
}

Status Checkpoint::read(const SourceTensor& tensor, uint64_t first, std::span<std::byte> out) const {
  MOESTRO_CHECK(first <= tensor.bytes && out.size() <= tensor.bytes - first, "a read within the tensor");
  if (random_) {
    random_->fill(tensor.name, first / sizeof(uint16_t),
                  {reinterpret_cast<uint16_t*>(out.data()), out.size() / sizeof(uint16_t)});
    return Status::ok();
  }
  if (!tensor.matrix) {
    MOESTRO_RETURN_IF_ERROR(files_[tensor.file].read_at(tensor.offset + first, out));
  } else {
    MOESTRO_RETURN_IF_ERROR(tensor.matrix->read_bytes(files_reader(), first, out).with_context(directory_.string()));
  }
  return check_finite(tensor, first / static_cast<uint64_t>(block_shape(*tensor.dtype).bytes), out);
}

Status Checkpoint::read_range(const SourceTensor& tensor, const MatrixRange& range, std::span<std::byte> out) const {
  MOESTRO_RETURN_IF_ERROR(
      tensor.matrix->read_range(files_reader(), range, out.data()).with_context(directory_.string()));
  const int64_t columns = block_shape(*tensor.dtype).columns, stride = tensor.matrix->cols() / columns;
  const int64_t first = range.first_row * stride + range.first_col / columns;
  return check_finite(tensor, static_cast<uint64_t>(first), out, static_cast<uint64_t>(range.cols / columns),
                      static_cast<uint64_t>(stride));
}

ReadTensor Checkpoint::files_reader() const {
  return [this](const SourceTensor& t, uint64_t at, std::span<std::byte> to) {
    return files_[t.file].read_at(t.offset + at, to);
  };
}

Status Checkpoint::check_finite(const SourceTensor& tensor, uint64_t first, std::span<const std::byte> bytes,
                                uint64_t run, uint64_t stride) const {
  const DType dtype = *tensor.dtype;
  const BlockShape shape = block_shape(dtype);
  const auto bad = is_blocks(dtype) ? formats::find_block_not_finite(dtype, 0, bytes) : find_not_finite(dtype, bytes);
  if (!bad) return Status::ok();
  const uint64_t index = first + *bad / run * stride + *bad % run;
  return invalid_argument(directory_.string() + ": tensor " + in_quotes(tensor.name) +
                          " is infinite or not a number at " + (shape.columns > 1 ? "block " : "value ") +
                          std::to_string(index) + "; the checkpoint is damaged or was never good");
}

}  // namespace moestro::store
