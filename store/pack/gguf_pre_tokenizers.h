#pragma once
// How text is cut into words before byte-level BPE, by the names that GGUF files have for it (tokenizer.ggml.pre).

#include <string_view>

#include "common/status.h"

namespace moestro::store {

struct PreTokenizer {
  const char* name;
  const char* regex;           ///< of Hugging Face's tokenizer.json; null: GPT-2's
  bool composed = false;       ///< text is brought into Unicode's form NFC first
  bool ignore_merges = false;  ///< a word that is a token stays one, whatever merges say
  bool add_bos = false;        ///< if the file does not say
  const char* before[2] = {};  ///< text is cut by these first, one after another; null: by fewer
};

/// kUnsupported names `name`, and those that are known.
Result<const PreTokenizer*> find_pre_tokenizer(std::string_view name);

}  // namespace moestro::store
