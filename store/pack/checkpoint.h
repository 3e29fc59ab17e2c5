#pragma once
// A Hugging Face checkpoint directory: config.json and one or many safetensors files, opened and checked against the model.

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "common/model/model_spec.h"
#include "store/pack/file.h"
#include "store/pack/safetensors.h"

namespace moestro::store {

class Checkpoint {
 public:
  /// Opens model.safetensors, or what model.safetensors.index.json lists. Everything that can be wrong with a directory shows here.
  static Result<Checkpoint> open(const std::filesystem::path& dir);

  const model::ModelDescription& model() const { return model_; }
  const std::string& config_json() const { return config_json_; }
  const std::string& generation_config_json() const { return generation_config_json_; }
  const std::filesystem::path& directory() const { return directory_; }

  /// Tensors that the model needs are there after open().
  const SourceTensor& tensor(const std::string& name) const { return tensors_.at(name); }
  /// The bytes [first, first + out.size()) of a tensor. Any thread.
  Status read(const SourceTensor& tensor, uint64_t first, std::span<std::byte> out) const;

  DType own_dtype() const { return own_dtype_; }  ///< of all weights; bf16 if they are mixed
  uint64_t fingerprint() const { return fingerprint_; }  ///< changes when config, names, sizes or times of the files do

 private:
  Status open_files();
  Status open_file(const std::string& name);
  Status check_tensors();
  Status check_tensor(const std::string& name, const std::vector<int64_t>& shape);
  Status check_unused(const std::map<std::string, bool>& used) const;

  std::filesystem::path directory_;
  std::string config_json_, generation_config_json_;
  model::ModelDescription model_;
  std::vector<File> files_;
  std::map<std::string, SourceTensor> tensors_;
  DType own_dtype_ = DType::kBF16;
  uint64_t fingerprint_ = 0;
};

}  // namespace moestro::store
