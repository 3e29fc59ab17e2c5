#pragma once
// Checkpoints made up for tests: a tiny config.json and safetensors files with reproducible values.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "common/dtype.h"

namespace moestro::testing {

/// A directory of its own under the system's temporary one, gone with this object.
class TemporaryDirectory {
 public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  std::filesystem::path path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

struct CheckpointOptions {
  std::string architecture = "Qwen2MoeForCausalLM";
  DType dtype = DType::kBF16;
  std::map<std::string, DType> other_dtypes = {};  ///< of single tensors
  int shards = 1;                             ///< more than one: with an index
  bool tied = false;                                     ///< embeddings, by config.json
  std::map<std::string, std::vector<int64_t>> extra = {};  ///< tensors that the model does not need, with their shapes
  std::string config = "{}";                               ///< keys to set in config.json, as JSON
  int64_t hidden = 72, ffn = 100, experts = 3, layers = 2, vocab = 40;
  float shift = 0.0f;  ///< added to each value, a small pseudo-random number
  /// Last word on a tensor's value at an index.
  std::function<float(const std::string& tensor, int64_t index)> value = nullptr;
};

/// The value of a tensor at an index before it is shifted and rounded to the checkpoint's format.
float synthetic_value(const std::string& tensor, int64_t index);

/// A byte of a tensor of MXFP4: numbers, or exponents of factors around 2^-4.
uint8_t synthetic_byte(const std::string& tensor, int64_t index);

/// The config.json of such a checkpoint.
std::string synthetic_config(const CheckpointOptions& options);

/// Writes config.json, generation_config.json, tokenizer files and the weights into `dir`.
void write_checkpoint(const std::filesystem::path& dir, const CheckpointOptions& options);

/// A safetensors file of this header text (its length prefixed) and data.
void write_safetensors(const std::filesystem::path& path, const std::string& header, const std::string& data);

void write_text(const std::filesystem::path& path, const std::string& text);
std::string read_text(const std::filesystem::path& path);

/// Names of all files in a directory, and size and hash of each, so that a difference prints in a few lines.
std::map<std::string, std::string> read_directory(const std::filesystem::path& dir);

}  // namespace moestro::testing
