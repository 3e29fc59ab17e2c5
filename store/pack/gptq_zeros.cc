#include <algorithm>

#include "common/model/strict_json.h"
#include "store/pack/matrix_numbers.h"

namespace moestro::store {

// AutoGPTQ and GPTQModel give every zero point of a symmetric matrix the middle of the range, whatever its numbers are.
Status check_symmetric(const SourceTensor& zeros, const Bytes& words, GptqForm form) {
  constexpr uint32_t kMiddles = 0x88888888u, kMiddlesLess1 = 0x77777777u;
  if (!form.symmetric) return Status::ok();
  const bool v2 = form.zeros == GptqZeros::kAsTheyAre;
  const uint32_t wanted = v2 ? kMiddles : kMiddlesLess1, of_the_other = v2 ? kMiddlesLess1 : kMiddles;
  for (int64_t i = 0; i < std::ssize(words) / static_cast<int64_t>(sizeof wanted); ++i) {
    const auto word = number_at<uint32_t>(words, i);
    if (word == wanted) continue;
    const std::string label = "tensor " + model::in_quotes(zeros.name);
    if (word == of_the_other)
      return invalid_argument(label + " holds zero points of " + (v2 ? "7, as gptq" : "8, as gptq_v2") +
                              " stores those of a model with sym true, but quantization_config says " +
                              (v2 ? "gptq_v2" : "gptq") + "; set its checkpoint_format to '" +
                              (v2 ? "gptq" : "gptq_v2") + "'");
    return invalid_argument(label + " holds zero points that differ, but quantization_config says sym true; if the "
                            "model was quantised with zero points, set sym to false, else the tensor is damaged");
  }
  return Status::ok();
}

}  // namespace moestro::store
