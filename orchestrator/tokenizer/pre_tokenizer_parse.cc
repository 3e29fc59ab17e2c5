#include <nlohmann/json.hpp>

#include "orchestrator/tokenizer/pre_tokenizer.h"
#include "orchestrator/tokenizer/unicode.h"

namespace moestro::tok {
namespace {

constexpr std::string_view kWhere = "the pre-tokenizer";
constexpr size_t kStepsMax = 64;
constexpr std::string_view kGpt2Words =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

}  // namespace

Result<PreTokenizer> PreTokenizer::parse(const Json* part) {
  PreTokenizer pre_tokenizer;
  MOESTRO_ASSIGN_OR_RETURN(Regex words, Regex::compile(kGpt2Words));
  pre_tokenizer.words_.regex.push_back(std::move(words));
  if (part != nullptr) {
    if (Status status = pre_tokenizer.add(*part, 0); !status.is_ok()) return status;
  }
  return pre_tokenizer;
}

Status PreTokenizer::add(const Json& part, int depth) {
  if (depth > kPartDepthMax) return invalid_argument("the pre-tokenizer nests too deeply");
  MOESTRO_ASSIGN_OR_RETURN(const std::string kind, read_kind(part, kWhere));
  const std::string context = std::string(kWhere) + " " + kind;
  if (kind == "Sequence") {
    const auto list = read_array(part, "pretokenizers");
    if (!list.is_ok()) return list.status().with_context(context);
    for (const Json& child : **list) MOESTRO_RETURN_IF_ERROR(add(child, depth + 1));
    return Status::ok();
  }
  if (steps_.size() >= kStepsMax) return invalid_argument("the pre-tokenizer has more than 64 steps");
  auto step = parse_step(part, kind);
  if (!step.is_ok()) {
    return step.status().code() == Code::kUnsupported ? step.status() : step.status().with_context(context);
  }
  steps_.push_back(std::move(step).value());
  return Status::ok();
}

Result<PreTokenizer::Step> PreTokenizer::parse_step(const Json& part, const std::string& kind) {
  Split split;
  if (kind == "ByteLevel") {
    MOESTRO_ASSIGN_OR_RETURN(const bool prefix, read_bool(part, "add_prefix_space", true));
    MOESTRO_ASSIGN_OR_RETURN(const bool use_regex, read_bool(part, "use_regex", true));
    return Step(ByteLevel{prefix, use_regex});
  }
  if (kind == "Metaspace") return parse_metaspace(part);
  if (kind == "Split") return parse_split(part);
  if (kind == "Digits") {
    MOESTRO_ASSIGN_OR_RETURN(const bool individual, read_bool(part, "individual_digits", false));
    split.in_class = is_numeric;
    split.behavior = individual ? Behavior::kIsolated : Behavior::kContiguous;
    return Step(std::move(split));
  }
  if (kind == "Punctuation") {
    split.in_class = is_punctuation;
    MOESTRO_ASSIGN_OR_RETURN(split.behavior, parse_behavior(part, Behavior::kIsolated));
    return Step(std::move(split));
  }
  if (kind == "WhitespaceSplit") {
    split.in_class = is_space;
    split.behavior = Behavior::kRemoved;
    return Step(std::move(split));
  }
  if (kind == "Whitespace") {
    MOESTRO_ASSIGN_OR_RETURN(Regex words,
                             Regex::compile(R"([\w\x{200C}\x{200D}]+|[^\w\s\x{200C}\x{200D}]+)"));
    split.regex.push_back(std::move(words));
    split.behavior = Behavior::kRemoved;
    split.invert = true;
    return Step(std::move(split));
  }
  if (kind == "CharDelimiterSplit") {
    MOESTRO_ASSIGN_OR_RETURN(split.literal, read_char(part, "delimiter"));
    split.behavior = Behavior::kRemoved;
    return Step(std::move(split));
  }
  return unknown_kind(kWhere, kind);
}

Result<PreTokenizer::Behavior> PreTokenizer::parse_behavior(const Json& part, Behavior fallback) {
  if (member(part, "behavior") == nullptr) return fallback;
  MOESTRO_ASSIGN_OR_RETURN(const std::string name, read_string(part, "behavior"));
  if (name == "Removed") return Behavior::kRemoved;
  if (name == "Isolated") return Behavior::kIsolated;
  if (name == "MergedWithPrevious") return Behavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return Behavior::kMergedWithNext;
  if (name == "Contiguous") return Behavior::kContiguous;
  return unknown_kind("the behavior of a pre-tokenizer", name);
}

Result<PreTokenizer::Step> PreTokenizer::parse_split(const Json& part) {
  Split split;
  MOESTRO_ASSIGN_OR_RETURN(split.behavior, parse_behavior(part, Behavior::kIsolated));
  MOESTRO_ASSIGN_OR_RETURN(split.invert, read_bool(part, "invert", false));
  const Json* pattern = member(part, "pattern");
  if (pattern == nullptr || !pattern->is_object()) return invalid_argument("'pattern' must be an object");
  if (member(*pattern, "String") != nullptr) {
    MOESTRO_ASSIGN_OR_RETURN(split.literal, read_string(*pattern, "String"));
    if (split.literal.empty())
      return unsupported("the pre-tokenizer Split at the empty string is not supported");
    return Step(std::move(split));
  }
  MOESTRO_ASSIGN_OR_RETURN(const std::string source, read_string(*pattern, "Regex"));
  MOESTRO_ASSIGN_OR_RETURN(Regex regex, Regex::compile(source));
  split.regex.push_back(std::move(regex));
  return Step(std::move(split));
}

Result<PreTokenizer::Step> PreTokenizer::parse_metaspace(const Json& part) {
  Metaspace metaspace{};
  MOESTRO_ASSIGN_OR_RETURN(metaspace.replacement, read_char(part, "replacement"));
  MOESTRO_ASSIGN_OR_RETURN(metaspace.split, read_bool(part, "split", true));
  MOESTRO_ASSIGN_OR_RETURN(const bool prefix, read_bool(part, "add_prefix_space", true));
  MOESTRO_ASSIGN_OR_RETURN(const std::string scheme,
                           read_string_or(part, "prepend_scheme", prefix ? "always" : "never"));
  if (scheme == "always")
    metaspace.scheme = Scheme::kAlways;
  else if (scheme == "first")
    metaspace.scheme = Scheme::kFirst;
  else if (scheme == "never")
    metaspace.scheme = Scheme::kNever;
  else
    return unknown_kind("the prepend_scheme of Metaspace", scheme);
  return Step(std::move(metaspace));
}

}  // namespace moestro::tok
