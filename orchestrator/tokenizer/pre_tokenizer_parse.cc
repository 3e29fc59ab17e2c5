#include <nlohmann/json.hpp>

#include "orchestrator/tokenizer/pre_tokenizer.h"
#include "orchestrator/tokenizer/unicode.h"

namespace moestro::tok {
namespace {

constexpr std::string_view kPreTokenizerWords = "the pre-tokenizer";
constexpr size_t kPreTokenizerStepsMax = 64;
constexpr std::string_view kGpt2Words = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// \w+|[^\w\s]+ in the regex dialect of Whitespace, whose \w is not the other regexes'.
void find_words(std::string_view text, std::vector<Match>& matches) {
  enum Kind { kSpace, kWord, kOther };
  Kind last = kSpace;
  for (size_t i = 0; i < text.size();) {
    const CodePoint c = code_point_at(text, i);
    const Kind kind = is_word(c.value) ? kWord : is_space(c.value) ? kSpace : kOther;
    if (kind != kSpace && kind == last)
      matches.back().end = i + c.bytes;
    else if (kind != kSpace)
      matches.push_back({i, i + c.bytes});
    last = kind;
    i += c.bytes;
  }
}

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
  MOESTRO_ASSIGN_OR_RETURN(const std::string kind, read_kind(part, kPreTokenizerWords));
  const std::string context = std::string(kPreTokenizerWords) + " " + kind;
  if (kind == "Sequence") {
    const auto list = read_array(part, "pretokenizers");
    if (!list.is_ok()) return list.status().with_context(context);
    for (const Json& child : **list) MOESTRO_RETURN_IF_ERROR(add(child, depth + 1));
    return Status::ok();
  }
  if (kind == "BertPreTokenizer") {  // two in a row
    MOESTRO_RETURN_IF_ERROR(add_step(Step(at_class(is_space, Behavior::kRemoved))));
    return add_step(Step(at_class(is_punctuation, Behavior::kIsolated)));
  }
  auto step = parse_step(part, kind);
  if (!step.is_ok()) {
    return step.status().code() == Code::kUnsupported ? step.status() : step.status().with_context(context);
  }
  return add_step(std::move(step).value());
}

Status PreTokenizer::add_step(Step step) {
  if (steps_.size() >= kPreTokenizerStepsMax) return invalid_argument("the pre-tokenizer has more than 64 steps");
  steps_.push_back(std::move(step));
  return Status::ok();
}

PreTokenizer::Split PreTokenizer::at_class(bool (*in_class)(char32_t), Behavior behavior) {
  Split split;
  split.in_class = in_class;
  split.behavior = behavior;
  return split;
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
    return Step(at_class(is_numeric, individual ? Behavior::kIsolated : Behavior::kContiguous));
  }
  if (kind == "Punctuation") {
    MOESTRO_ASSIGN_OR_RETURN(const Behavior behavior, parse_behavior(part, Behavior::kIsolated));
    return Step(at_class(is_punctuation, behavior));
  }
  if (kind == "WhitespaceSplit") return Step(at_class(is_space, Behavior::kRemoved));
  if (kind == "Whitespace") {
    split.find = find_words;
    split.behavior = Behavior::kRemoved;
    split.invert = true;
    return Step(std::move(split));
  }
  if (kind == "UnicodeScripts") return Step(UnicodeScripts{});
  if (kind == "FixedLength") {
    if (member(part, "length") == nullptr) return Step(FixedLength{5});
    MOESTRO_ASSIGN_OR_RETURN(const int64_t length, read_int(part, "length", 1, INT32_MAX));
    return Step(FixedLength{static_cast<size_t>(length)});
  }
  if (kind == "CharDelimiterSplit") {
    MOESTRO_ASSIGN_OR_RETURN(split.literal, read_char(part, "delimiter"));
    split.behavior = Behavior::kRemoved;
    return Step(std::move(split));
  }
  return unknown_kind(kPreTokenizerWords, kind);
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
    if (split.literal.empty()) return unsupported("the pre-tokenizer Split at the empty string is not supported");
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
