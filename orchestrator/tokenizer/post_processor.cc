#include "orchestrator/tokenizer/post_processor.h"

#include <nlohmann/json.hpp>

namespace moestro::tok {
namespace {

constexpr std::string_view kPostProcessorWords = "the post-processor";
constexpr size_t kIdsMax = 1024;

// The ids of one special token of a template.
Result<std::vector<TokenId>> ids_of_special(const Json& part, const std::string& name) {
  const Json* table = member(part, "special_tokens");
  const Json* entry = table == nullptr ? nullptr : member(*table, name.c_str());
  const Json* ids = entry == nullptr ? nullptr : member(*entry, "ids");
  if (ids == nullptr || !ids->is_array() || ids->size() > kIdsMax) {
    return invalid_argument("special token '" + name.substr(0, 60) + "' has no list of ids");
  }
  std::vector<TokenId> out;
  for (const Json& id : *ids) {
    if (!id.is_number_integer() || id < 0 || id > INT32_MAX) {
      return invalid_argument("special token '" + name.substr(0, 60) + "' has an id that is not a token's");
    }
    out.push_back(id.get<TokenId>());
  }
  return out;
}

// "sep": ["</s>", 2]
Result<TokenId> id_of_named(const Json& part, const char* key) {
  const Json* pair = member(part, key);
  if (pair == nullptr || !pair->is_array() || pair->size() != 2 || !(*pair)[1].is_number_integer() || (*pair)[1] < 0 ||
      (*pair)[1] > INT32_MAX) {
    return invalid_argument("'" + std::string(key) + "' must be a token and its id");
  }
  return (*pair)[1].get<TokenId>();
}

// Of files without "type".
std::string_view kind_of_old_post_processor(const Json& part) {
  if (member(part, "sep") && member(part, "cls")) return "BertProcessing";
  return member(part, "single") && member(part, "special_tokens") ? "TemplateProcessing" : "";
}

}  // namespace

Result<PostProcessor> PostProcessor::parse(const Json* part) {
  PostProcessor processor;
  if (part != nullptr) {
    if (Status status = processor.add(*part, 0); !status.is_ok()) return status;
  }
  return processor;
}

Status PostProcessor::add(const Json& part, int depth) {
  if (depth > kPartDepthMax) return invalid_argument("the post-processor nests too deeply");
  MOESTRO_ASSIGN_OR_RETURN(const std::string kind,
                           read_kind(part, kPostProcessorWords, kind_of_old_post_processor(part)));
  Status status;
  if (kind == "Sequence") {
    const auto list = read_array(part, "processors");
    if (!list.is_ok()) return list.status().with_context(kPostProcessorWords);
    for (const Json& child : **list) MOESTRO_RETURN_IF_ERROR(add(child, depth + 1));
  } else if (kind == "TemplateProcessing") {
    status = add_template(part);
  } else if (kind == "RobertaProcessing" || kind == "BertProcessing") {
    status = add_pair(part);
  } else if (kind != "ByteLevel") {  // ByteLevel only trims offsets, which are not kept here
    return unknown_kind(kPostProcessorWords, kind);
  }
  if (before.size() + after.size() > kIdsMax) status = invalid_argument("adds more than 1024 ids");
  return status.with_context(std::string(kPostProcessorWords) + " " + kind);
}

Status PostProcessor::add_template(const Json& part) {
  MOESTRO_ASSIGN_OR_RETURN(const Json* single, read_array(part, "single"));
  std::vector<TokenId> left, right;
  bool seen_text = false;
  for (const Json& item : *single) {
    if (const Json* special = member(item, "SpecialToken")) {
      MOESTRO_ASSIGN_OR_RETURN(const std::string name, read_string(*special, "id"));
      MOESTRO_ASSIGN_OR_RETURN(const std::vector<TokenId> ids, ids_of_special(part, name));
      auto& side = seen_text ? right : left;
      side.insert(side.end(), ids.begin(), ids.end());
      if (side.size() > kIdsMax) return invalid_argument("adds more than 1024 ids");
    } else if (const Json* sequence = member(item, "Sequence")) {
      MOESTRO_ASSIGN_OR_RETURN(const std::string name, read_string(*sequence, "id"));
      if (name != "A" || seen_text) return unsupported("a template for one text must hold the sequence A once");
      seen_text = true;
    } else {
      return invalid_argument("'single' must hold SpecialToken and Sequence entries");
    }
  }
  if (!seen_text) return unsupported("a template for one text must hold the sequence A once");
  before.insert(before.begin(), left.begin(), left.end());
  after.insert(after.end(), right.begin(), right.end());
  return Status::ok();
}

Status PostProcessor::add_pair(const Json& part) {
  MOESTRO_ASSIGN_OR_RETURN(const TokenId cls, id_of_named(part, "cls"));
  MOESTRO_ASSIGN_OR_RETURN(const TokenId sep, id_of_named(part, "sep"));
  before.insert(before.begin(), cls);
  after.push_back(sep);
  return Status::ok();
}

}  // namespace moestro::tok
