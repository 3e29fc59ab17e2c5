// fuzz-deps: moestro_activation
// A checkpoint of the activation history; where the first byte is odd, also entries of any content, written and read
// back.

#include <vector>

#include "common/activation/history.h"
#include "common/check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr moestro::activation::EamcShape kShape{2, 4, 1};
  if (size == 0) return 0;
  const auto* bytes = reinterpret_cast<const std::byte*>(data);
  moestro::activation::ActivationHistory history(kShape, 3);
  const moestro::Status status = moestro::activation::read_checkpoint({bytes + 1, size - 1}, 7, history);
  MOESTRO_CHECK(status.is_ok() || (history.prompts.size() == 0 && history.answers.size() == 0),
                "what is refused leaves nothing behind");
  if (data[0] % 2 == 0) return 0;
  // Entries as they come: what was taken in is written and read back the same.
  for (size_t at = 1; at + 8 <= size; at += 8)
    (void)history.answers.set(static_cast<int32_t>((at / 8) % 5), {data + at, 8}).is_ok();
  moestro::activation::ActivationHistory again(kShape, 3);
  MOESTRO_CHECK(
      moestro::activation::read_checkpoint(moestro::activation::write_checkpoint(history, 7), 7, again).is_ok(),
      "its own checkpoint");
  MOESTRO_CHECK(again.answers.size() == history.answers.size(), "all of it");
  return 0;
}
