// fuzz-deps: moestro_tokenizer
// A tokenizer.json, and then a text: the input is "JSON \0 text". What loads must encode any text or say why
// not, and the streamed text must equal the decoded one.

#include <cstdint>
#include <string_view>

#include "common/check.h"
#include "orchestrator/tokenizer/tokenizer.h"

namespace {

void check_text(const moestro::Tokenizer& tokenizer, std::string_view text) {
  const auto ids = tokenizer.encode(text, true);
  if (!ids.is_ok()) return;
  moestro::StreamDecoder decoder(tokenizer, false);
  std::string streamed;
  for (const auto id : *ids) {
    MOESTRO_CHECK(id >= 0 && id < tokenizer.vocab_size(), "every id is in the vocabulary");
    streamed += decoder.push(id);
    static_cast<void>(tokenizer.token_text(id));
  }
  streamed += decoder.finish();
  MOESTRO_CHECK(streamed == tokenizer.decode(*ids, false), "a stream gives what decode gives");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t cut = input.find('\0');
  const auto tokenizer = moestro::Tokenizer::from_json(input.substr(0, cut));
  if (!tokenizer.is_ok()) return 0;
  check_text(*tokenizer,
             "hello  World, it's 1234\n\u00e9\u4f60\U0001F600 <s></s>aaaaaaaaaaaaaaaaaaaaaaaaaaaa");
  if (cut != std::string_view::npos) check_text(*tokenizer, input.substr(cut + 1).substr(0, 1000));
  return 0;
}
