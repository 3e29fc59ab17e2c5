#pragma once
// The files of a tokenizer from a GGUF file's metadata, in the form of Hugging Face tokenizers.

#include <vector>

#include "store/pack/copied_files.h"
#include "store/pack/gguf_header.h"

namespace moestro::store {

/// tokenizer.json, tokenizer_config.json and, if the file has one, chat_template.jinja. Byte-level BPE ("gpt2") and the
/// BPE of SentencePiece ("llama"). kUnsupported names another kind, or a pre-tokenizer that is not known.
Result<std::vector<TextFile>> gguf_tokenizer_files(const GgufMetadata& metadata);

}  // namespace moestro::store
