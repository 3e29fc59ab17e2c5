#include "store/pack/gguf_pre_tokenizers.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "common/model/strict_json.h"

namespace moestro::store {
namespace {

#define MOESTRO_CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define MOESTRO_REST R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"

// Digits one by one.
constexpr char kQwen2[] = MOESTRO_CONTRACTIONS R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|)" MOESTRO_REST;
// Qwen3.5: marks belong to words.
constexpr char kQwen35[] = MOESTRO_CONTRACTIONS
    R"(|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// Digits in threes: OpenAI's cl100k.
constexpr char kLlama3[] = MOESTRO_CONTRACTIONS R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)" MOESTRO_REST;
// Words begin with a capital letter: OpenAI's o200k.
#define MOESTRO_UPPER R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])"
#define MOESTRO_LOWER R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])"
#define MOESTRO_SLASHED R"( ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"
constexpr char kO200k[] =
    R"([^\r\n\p{L}\p{N}]?)" MOESTRO_UPPER "*" MOESTRO_LOWER "+" MOESTRO_CONTRACTIONS "?|"
    R"([^\r\n\p{L}\p{N}]?)" MOESTRO_UPPER "+" MOESTRO_LOWER "*" MOESTRO_CONTRACTIONS "?|"
    R"(\p{N}{1,3}|)" MOESTRO_SLASHED;
// The same without contractions, and digits one by one.
constexpr char kTekken[] =
    R"([^\r\n\p{L}\p{N}]?)" MOESTRO_UPPER "*" MOESTRO_LOWER "+|"
    R"([^\r\n\p{L}\p{N}]?)" MOESTRO_UPPER "+" MOESTRO_LOWER "*|"
    R"(\p{N}|)" MOESTRO_SLASHED;

// Kimi's: Chinese alone, and the words of o200k without it. (tiktoken says [...&&[^\p{Han}]].)
#define MOESTRO_NOT_HAN(letters) R"((?:(?!\p{Han}))" letters ")"
constexpr char kKimi[] = R"(\p{Han}+|[^\r\n\p{L}\p{N}]?)"
    MOESTRO_NOT_HAN(MOESTRO_UPPER) "*" MOESTRO_NOT_HAN(MOESTRO_LOWER) "+" MOESTRO_CONTRACTIONS "?|"
    R"([^\r\n\p{L}\p{N}]?)"
    MOESTRO_NOT_HAN(MOESTRO_UPPER) "+" MOESTRO_NOT_HAN(MOESTRO_LOWER) "*" MOESTRO_CONTRACTIONS "?|"
    R"(\p{N}{1,3}|)" MOESTRO_REST;

// DeepSeek's, of V3, R1 and V3.1: numbers, then Chinese and Japanese, then the rest.
constexpr char kDeepSeek[] =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|)"
    R"( ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr char kNumbers[] = R"(\p{N}{1,3})", kNumber[] = R"(\p{N})", kHanAndKana[] = "[一-龥぀-ゟ゠-ヿ]+";

constexpr PreTokenizer kPreTokenizers[] = {
    {"gpt-2", nullptr},
    {"olmo", nullptr, true},
    {"qwen2", kQwen2, true},
    {"qwen35", kQwen35, true},
    {"deepseek-r1-qwen", kQwen2, true},
    {"llama-bpe", kLlama3, false, true, true},
    {"dbrx", kLlama3},
    {"glm4", kLlama3},
    {"chatglm-bpe", kLlama3},
    {"gpt-4o", kO200k},
    {"llama4", kO200k, false, true},
    {"minimax-m2", kO200k},
    {"tekken", kTekken, false, true, true},
    {"kimi-k2", kKimi, false, true},
    {"refact", nullptr, false, false, false, {kNumber}},
    {"deepseek-v3", kDeepSeek, false, false, true, {kNumbers, kHanAndKana}},
};

}  // namespace

Result<const PreTokenizer*> find_pre_tokenizer(std::string_view name) {
  const auto name_of = [](const PreTokenizer& p) { return std::string_view(p.name); };
  const auto* found = std::ranges::find(kPreTokenizers, name, name_of);
  if (found != std::end(kPreTokenizers)) return found;
  std::string known;
  for (const PreTokenizer& p : kPreTokenizers) known += (known.empty() ? "" : ", ") + std::string(p.name);
  return unsupported("the pre-tokenizer " + model::in_quotes(name) + " (tokenizer.ggml.pre) is not supported (" +
                     known + " are)");
}

}  // namespace moestro::store
