// A model as GGUF, opened as a checkpoint: its tensors under the names that the model has in Hugging Face's files.

#include "common/model/strict_json.h"
#include "store/pack/checkpoint.h"
#include "store/pack/gguf_config.h"
#include "store/pack/gguf_tokenizer.h"

namespace moestro::store {
namespace {

using model::in_quotes;
namespace fs = std::filesystem;

/// The tensors of a file, by name, and which of them have been asked for.
class Tensors {
 public:
  explicit Tensors(const GgufModel& gguf) {
    for (size_t i = 0; i < gguf.header.tensors.size(); ++i) {
      const GgufTensor& t = gguf.header.tensors[i];
      all_.emplace(t.name, Entry{&t, gguf.file_of[i]});
    }
  }

  /// The tensor as one of the checkpoint; nothing if it is not there.
  std::optional<SourceTensor> take(const std::string& name) {
    const auto found = all_.find(name);
    if (found == all_.end()) return std::nullopt;
    found->second.used = true;
    const GgufTensor& t = *found->second.tensor;
    const std::string format = std::string(t.type->name) + " (type " + std::to_string(t.type->number) + ")";
    return SourceTensor{name, format, t.type->dtype, t.shape, t.offset, t.bytes, found->second.file};
  }
  /// The first that is part of no layer below `layers` and was not taken, but for what is harmless.
  std::optional<std::string> unused(int64_t layers, int64_t mtp_layers) const {
    for (const auto& [name, entry] : all_) {
      if (entry.used) continue;
      bool of_mtp = false;
      for (int64_t i = layers; i < layers + mtp_layers; ++i)
        of_mtp = of_mtp || name.starts_with("blk." + std::to_string(i) + ".");
      if (!of_mtp) return name;
    }
    return std::nullopt;
  }

 private:
  struct Entry {
    const GgufTensor* tensor;
    uint32_t file;
    bool used = false;
  };
  std::map<std::string, Entry> all_;
};

/// Expert `index` of a tensor of all experts of a layer: [experts, rows, columns].
std::optional<SourceTensor> cut(SourceTensor stacked, uint32_t index) {
  if (stacked.shape.size() != 3 || index >= stacked.shape[0]) return std::nullopt;
  stacked.bytes /= static_cast<uint64_t>(stacked.shape[0]);
  stacked.offset += index * stacked.bytes;
  stacked.shape.erase(stacked.shape.begin());
  return stacked;
}

}  // namespace

Status Checkpoint::add_gguf_tensors(const GgufModel& gguf) {
  Tensors tensors(gguf);
  const model::ModelSpec& spec = model_.spec;
  const bool interleaved = has_interleaved_heads(gguf.header.metadata);
  for (model::DenseTensor& t : model_.dense) {
    std::string name = gguf_tensor_name(t.name);
    auto found = tensors.take(name);
    if (!found && t.name.ends_with("post_attention_norm.weight")) {  // of GLM, which has other norms than llama
      name = "blk." + t.name.substr(t.name.find('.') + 1);
      found = tensors.take(name);
    }
    if (!found) return invalid_argument(directory_.string() + ": tensor " + in_quotes(name) + " is missing");
    // A gate of one row is a vector here.
    if (found->shape.size() == 1 && t.shape.size() == 2 && t.shape[0] == 1)
      found->shape.insert(found->shape.begin(), 1);
    if (interleaved && (t.name.ends_with("attn.q.weight") || t.name.ends_with("attn.k.weight")))
      t.head_rows = spec.layers.front().attention.head_dim;
    tensors_.emplace(t.source_name, std::move(*found));
  }
  for (const model::ExpertTensors& t : model_.experts) {
    const auto add = [&](const std::string& source, model::ExpertPart matrix) -> Status {
      const std::string name = gguf_experts_name(t.layer, matrix);
      auto found = tensors.take(name);
      if (found && (found->shape.size() != 3 || found->shape[0] != spec.moe().experts))
        return invalid_argument(directory_.string() + ": tensor " + in_quotes(name) + " does not hold " +
                                std::to_string(spec.moe().experts) + " experts, as expert_count says");
      if (found) found = cut(std::move(*found), t.expert.value);
      else found = tensors.take(gguf_expert_name(t.layer, matrix, t.expert));
      if (!found) return invalid_argument(directory_.string() + ": tensor " + in_quotes(name) + " is missing");
      tensors_.emplace(source, std::move(*found));
      return Status::ok();
    };
    MOESTRO_RETURN_IF_ERROR(add(t.gate, model::ExpertPart::kGate));
    MOESTRO_RETURN_IF_ERROR(add(t.up, model::ExpertPart::kUp));
    MOESTRO_RETURN_IF_ERROR(add(t.down, model::ExpertPart::kDown));
  }
  if (const auto unused = tensors.unused(std::ssize(spec.layers), spec.mtp_layers))
    return unsupported(directory_.string() + ": tensor " + in_quotes(*unused) + " is no part of " + spec.architecture +
                       " as the metadata describe it");
  return Status::ok();
}

Result<Checkpoint> Checkpoint::open_gguf(const fs::path& file) {
  MOESTRO_ASSIGN_OR_RETURN(GgufModel gguf, GgufModel::open(file));
  Checkpoint c;
  c.directory_ = file;
  c.name_ = gguf.name;
  auto config = gguf_config_json(gguf.header);
  if (!config) return config.status().with_context(file.string());
  c.config_json_ = std::move(*config);
  auto tokenizer = gguf_tokenizer_files(gguf.header.metadata);
  if (!tokenizer) return tokenizer.status().with_context(file.string());
  c.made_files_ = std::move(*tokenizer);
  c.made_files_->push_back({"config.json", c.config_json_});
  MOESTRO_RETURN_IF_ERROR(c.describe(file.string()));
  MOESTRO_ASSIGN_OR_RETURN(const auto* tokens, gguf.header.metadata.texts("tokenizer.ggml.tokens"));
  if (tokens != nullptr && std::ssize(*tokens) != c.model_.spec.vocab)
    return invalid_argument(file.string() + ": has " + std::to_string(tokens->size()) +
                            " tokens, but rows of the embedding for " + std::to_string(c.model_.spec.vocab));
  MOESTRO_RETURN_IF_ERROR(c.add_gguf_tensors(gguf));
  c.files_ = std::move(gguf.files);
  for (const File& part : c.files_) c.stamp(part, fs::path(part.path()).filename().string());
  MOESTRO_RETURN_IF_ERROR(c.check_tensors());
  return c;
}

}  // namespace moestro::store
