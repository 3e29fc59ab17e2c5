// fuzz-deps: moestro_pack nlohmann_json::nlohmann_json
// fuzz-seconds: 30
// Quantised matrices of checkpoints: seven bytes say how they are quantised and how large the matrix is, then comes
// JSON, {"NAME": {"dtype": "I32", "shape": [8, 4]}}. What is let in reads only what its tensors have, and reads the
// same bytes as a whole and in parts.

#include <algorithm>
#include <cstring>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/check.h"
#include "common/dtype.h"
#include "store/pack/quantised_matrix.h"

namespace {

using namespace moestro;
using store::SourceTensor;

constexpr uint64_t kBytesMax = 1 << 22;

uint64_t value_bytes(const std::string& format) {
  if (format == "I64") return 8;
  if (format == "F32" || format == "I32") return 4;
  return format == "F16" || format == "BF16" ? 2 : 1;
}

store::SourceTensors tensors_of(const nlohmann::json& listed) {
  store::SourceTensors tensors;
  for (const auto& [name, of] : listed.items()) {
    if (!of.is_object() || !of.contains("dtype") || !of["dtype"].is_string() || !of.contains("shape") ||
        !of["shape"].is_array())
      continue;
    SourceTensor tensor{name, of["dtype"].get<std::string>(), {}, {}};
    uint64_t bytes = value_bytes(tensor.format);
    for (const auto& length : of["shape"]) {
      if (!length.is_number_unsigned() || length.get<uint64_t>() > kBytesMax) bytes = kBytesMax + 1;
      if (bytes > kBytesMax) break;
      tensor.shape.push_back(length.get<int64_t>());
      bytes *= length.get<uint64_t>();
    }
    if (bytes > kBytesMax) continue;
    tensor.bytes = bytes;
    tensors.emplace(name, std::move(tensor));
  }
  return tensors;
}

/// Numbers that depend on the place, and are the same each time.
Status read_tensor(const SourceTensor& tensor, uint64_t first, std::span<std::byte> out) {
  MOESTRO_CHECK(first <= tensor.bytes && out.size() <= tensor.bytes - first, "bytes that the tensor has");
  for (size_t i = 0; i < out.size(); ++i) {
    const uint64_t at = first + i + tensor.name.size() * 131;
    if (tensor.name.ends_with("g_idx")) {  // groups 0, 1, 0, 1, ...: most matrices have as many
      out[i] = static_cast<std::byte>((first + i) % 8 == 4);
      continue;
    }
    out[i] = static_cast<std::byte>(at * 167 + at / 251);
  }
  return Status::ok();
}

model::Quantisation quantisation_of(const uint8_t* data) {
  using Method = model::Quantisation::Method;
  constexpr int64_t kLengths[] = {0, 1, 16, 32, 64, 96, 128, 256};
  return {.method = static_cast<Method>(data[0] % 7),
          .block_rows = kLengths[data[1] % 8],
          .block_cols = kLengths[data[2] % 8],
          .group = kLengths[data[3] % 8],
          .symmetric = (data[4] & 1) != 0,
          .gptq_zeros = static_cast<model::Quantisation::GptqZeros>((data[4] >> 4) % 4),
          .needs_order = (data[4] & 4) != 0};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr size_t kSettings = 7;
  if (size < kSettings) return 0;
  const auto listed = nlohmann::json::parse(data + kSettings, data + size, nullptr, false);
  if (!listed.is_object()) return 0;
  store::SourceTensors tensors = tensors_of(listed);
  const int64_t rows = 4 * (1 + data[5] % 64), cols = 16 * (1 + data[6] % 64);
  const bool stacked = (data[4] & 8) != 0;
  const std::string name = stacked ? "m" : "m.weight";
  const std::vector<int64_t> shape = stacked ? std::vector<int64_t>{2, rows, cols} : std::vector<int64_t>{rows, cols};
  if (!store::assemble_matrix(quantisation_of(data), name, shape, read_tensor, tensors)) return 0;
  const auto found = tensors.find(name);
  if (found == tensors.end() || found->second.matrix == nullptr) return 0;
  const store::QuantisedMatrix& matrix = *found->second.matrix;
  std::vector<std::byte> whole(found->second.bytes), parts(whole.size());
  MOESTRO_CHECK(matrix.rows() * row_bytes(matrix.dtype(), matrix.cols()) == std::ssize(whole), "the bytes of its rows");
  const Status read_whole = matrix.read_bytes(read_tensor, 0, whole);
  const auto block = static_cast<size_t>(block_shape(matrix.dtype()).bytes);
  Status read_parts;
  for (size_t at = 0; at < parts.size() && read_parts.is_ok(); at += 3 * block)
    read_parts =
        matrix.read_bytes(read_tensor, at, std::span(parts).subspan(at, std::min(3 * block, parts.size() - at)));
  MOESTRO_CHECK(read_whole.is_ok() == read_parts.is_ok(), "refused as a whole and in parts");
  MOESTRO_CHECK(!read_whole.is_ok() || whole == parts, "the same bytes");
  return 0;
}
