#pragma once
// A Hugging Face checkpoint directory: config.json and one or many safetensors files, opened and checked against the
// model. Or a model as GGUF, or a checkpoint without files, whose random weights are made when they are read.

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/expert_layout.h"
#include "common/model/model_spec.h"
#include "store/pack/copied_files.h"
#include "store/pack/file.h"
#include "store/pack/gguf_model.h"
#include "store/pack/quantised_matrix.h"
#include "store/pack/random_weights.h"
#include "store/pack/safetensors.h"

namespace moestro::store {

class GgufTensors;

class Checkpoint {
 public:
  /// Opens a GGUF file, with all its parts, or a directory that holds one (find_gguf); else the safetensors files of a
  /// directory (weight_files.h). All errors of the source are found here.
  static Result<Checkpoint> open(const std::filesystem::path& source);

  /// The checkpoint that this config.json describes, with random weights in bf16; nothing of it is on disk.
  static Result<Checkpoint> random(std::string config_json, std::string generation_config_json, uint64_t seed);

  const model::ModelDescription& model() const { return model_; }
  const std::string& config_json() const { return config_json_; }
  const std::string& generation_config_json() const { return generation_config_json_; }
  const std::filesystem::path& directory() const { return directory_; }  ///< or the GGUF file
  const std::string& name() const { return name_; }  ///< of the directory or the file
  /// The small files of a pack, if they are not those of the directory: made from a GGUF file's metadata.
  const std::optional<std::vector<TextFile>>& made_files() const { return made_files_; }

  /// After open(), all tensors that the model needs exist.
  const SourceTensor& tensor(const std::string& name) const { return tensors_.at(name); }
  /// The bytes [first, first + out.size()) of a tensor, whole values. An infinite value or NaN is an error: it is never
  /// intended, and would make every result that uses it meaningless. Any thread.
  Status read(const SourceTensor& tensor, uint64_t first, std::span<std::byte> out) const;

  /// The same of a tensor with a matrix: whole blocks of some of its rows.
  Status read_range(const SourceTensor& tensor, const MatrixRange& range, std::span<std::byte> out) const;

  /// The narrowest format that holds all weights of a kind exactly, and whether it is wider than the format of most of
  /// them.
  struct OwnDType {
    DType dtype = DType::kBF16;
    bool widened = false;
  };
  OwnDType own_dense_dtype() const { return own_dense_dtype_; }
  OwnDType own_expert_dtype() const { return own_expert_dtype_; }
  /// Whether a pack keeps every matrix as the source has it, and no format is right for all of them.
  bool is_native() const { return is_native_; }
  /// Those of the experts, by MoE layer.
  const std::vector<ExpertFormats>& expert_formats() const { return expert_formats_; }
  /// Parts of the checkpoint that packs do not have (ModelSpec::left_out).
  std::vector<std::string> left_out() const;
  /// What the source does not say, and what was taken for it.
  const std::vector<std::string>& remarks() const { return remarks_; }
  /// The file of weights to which most has happened since they were opened.
  struct Change {
    File::Since since = File::Since::kNothing;
    std::string file;
  };
  Result<Change> change() const;
  uint64_t fingerprint() const { return fingerprint_; }  ///< changes when config, names, sizes or times of the files do

 private:
  static Result<Checkpoint> open_directory(const std::filesystem::path& dir);
  static Result<Checkpoint> open_gguf(const std::filesystem::path& file);
  Status add_gguf_tensors(const GgufModel& gguf);
  Status add_gguf_dense(const std::string& arch, GgufTensors& tensors, model::DenseTensor& t);
  Status add_gguf_expert(GgufTensors& tensors, model::ExpertTensors& t);
  void stamp(const File& file, const std::string& name);
  /// `config_json`: that of the directory, with quantization_config if a file of its own says it.
  Status describe(const std::string& config_json, const std::string& where);
  Status open_files(const std::string& config_json);
  Status open_file(const std::string& name);
  Status check_tensors();
  Status check_head() const;
  Status check_embedding_copies() const;
  void widen_with_their_layer();
  Status note_formats(const model::ExpertTensors& expert);
  Status check_tensor(const std::string& name, const std::vector<int64_t>& shape) const;
  ReadTensor files_reader() const;
  /// `bytes` begin at number or block `first`, and are `run` of every `stride`.
  Status check_finite(const SourceTensor& tensor, uint64_t first, std::span<const std::byte> bytes, uint64_t run = 1,
                      uint64_t stride = 1) const;
  Status assemble(const std::string& name, const std::vector<int64_t>& shape);
  bool is_bias_of_zeros(const SourceTensor& tensor) const;
  const char* left_out_as(std::string_view name) const;  ///< null: not left out
  Status check_unused(const std::map<std::string, bool>& used) const;

  std::filesystem::path directory_;  ///< or file; for errors
  std::string name_;
  std::optional<std::vector<TextFile>> made_files_;
  bool is_native_ = false;
  std::vector<ExpertFormats> expert_formats_;
  std::string config_json_, generation_config_json_;
  std::vector<std::string> remarks_;
  model::ModelDescription model_;
  std::vector<File> files_;
  std::shared_ptr<const RandomWeights> random_;  ///< null: the weights are in files_
  std::map<std::string, SourceTensor> tensors_;
  OwnDType own_dense_dtype_, own_expert_dtype_;
  uint64_t fingerprint_ = 0;
};

}  // namespace moestro::store
