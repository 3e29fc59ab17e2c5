#include "common/model/strict_json.h"
#include "store/pack/matrix_numbers.h"

namespace moestro::store {

// AutoGPTQ and GPTQModel give every zero point of a symmetric matrix the middle of the range, whatever its numbers are.
// GPTQModel has written files that say version 1 and hold what version 2 stores, for example
// Qwen/Qwen3.5-27B-GPTQ-Int4 (vllm-project/vllm#38966).
Status check_middle(const SourceTensor& zeros, const Bytes& words, GptqZeros form) {
  constexpr uint32_t kVersion1 = 0x77777777u, kVersion2 = 0x88888888u;
  if (form != GptqZeros::kMiddle) return Status::ok();
  for (int64_t i = 0; i < std::ssize(words) / static_cast<int64_t>(sizeof kVersion1); ++i)
    if (const auto word = number_at<uint32_t>(words, i); word != kVersion1 && word != kVersion2)
      return invalid_argument("tensor " + model::in_quotes(zeros.name) +
                              " holds zero points that differ, but quantization_config says sym true; if the model was "
                              "quantised with zero points, set sym to false, else the tensor is damaged");
  return Status::ok();
}

}  // namespace moestro::store
