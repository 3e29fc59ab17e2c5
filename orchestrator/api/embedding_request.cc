#include "orchestrator/api/embedding_request.h"

#include <algorithm>

#include "orchestrator/api/field_reader.h"

namespace moestro::orchestrator {

namespace {

/// The choice among two words that the field makes: true if it is the second one. Not given: the first one.
bool is_second(FieldReader& f, const std::string& name, const char* first, const char* second) {
  const auto word = f.string(name);
  if (word && *word != first && *word != second)
    f.fail(bad_request("'" + name + "' must be '" + first + "' or '" + second + "'", name));
  return word == second;
}

bool is_empty(const PromptInput& input) {
  const auto* text = std::get_if<std::string>(&input);
  return text != nullptr && text->empty();
}

}  // namespace

std::variant<EmbeddingRequest, ApiError> read_embedding(const RequestJson& body, bool lenient) {
  EmbeddingRequest r;
  FieldReader f(body, lenient ? &r.ignored : nullptr);
  r.inputs = read_prompts(f, "input");
  if (std::ranges::any_of(r.inputs, is_empty)) f.fail(bad_request("'input' has an empty text", "input"));
  r.model = f.string("model");
  r.base64 = is_second(f, "encoding_format", "float", "base64");
  r.dimensions = f.integer("dimensions", 1, INT32_MAX);
  r.pooling = is_second(f, "pooling", "last", "mean") ? Pooling::kMean : Pooling::kLast;
  r.normalize = f.boolean("normalize").value_or(true);
  r.cache_salt = f.string("cache_salt").value_or("");
  f.ignore("user");
  f.settle_unknown();
  if (f.error()) return *f.error();
  return r;
}

const char* pooling_name(Pooling pooling) {
  return pooling == Pooling::kMean ? "mean" : "last";
}

}  // namespace moestro::orchestrator
