#include "orchestrator/api/tokenizer_config.h"

#include <charconv>
#include <nlohmann/json.hpp>

#include "common/model/strict_json.h"

namespace moestro::orchestrator {

using nlohmann::json;

namespace {

/// A token: a string, or an object with "content".
std::string content_of(const json& token) {
  if (token.is_string()) return token.get<std::string>();
  if (token.is_object() && token.contains("content") && token["content"].is_string())
    return token["content"].get<std::string>();
  return "";
}

std::string token_named(const json& config, const char* name) {
  const auto it = config.find(name);
  return it == config.end() ? "" : content_of(*it);
}

bool flag(const json& token, const char* name, bool fallback) {
  const auto it = token.find(name);
  return it != token.end() && it->is_boolean() ? it->get<bool>() : fallback;
}

Tokenizer::Flags flags_of(const json& token) {
  const bool special = flag(token, "special", false);
  return {.special = special,
          .single_word = flag(token, "single_word", false),
          .strip_left = flag(token, "lstrip", false),
          .strip_right = flag(token, "rstrip", false),
          .normalized = flag(token, "normalized", !special)};
}

/// Of one that is named as special; its flags hold if it is no added token yet.
Tokenizer::Said special(const json& token) {
  Tokenizer::Flags flags = token.is_object() ? flags_of(token) : Tokenizer::Flags();
  flags.special = true;
  return {content_of(token), flags, false};
}

Result<json> object_in(const ModelFiles& files, const std::string& name) {
  MOESTRO_ASSIGN_OR_RETURN(const auto text, files.read(name));
  return text ? model::parse_json_object(*text, files.label(name)) : json::object();
}

}  // namespace

Result<TokenizerConfig> TokenizerConfig::of_files(const ModelFiles& files) {
  TokenizerConfig c;
  MOESTRO_ASSIGN_OR_RETURN(json config, object_in(files, kTokenizerConfig));
  if (!config.contains("added_tokens_decoder")) {  // where older versions of transformers wrote special tokens
    MOESTRO_ASSIGN_OR_RETURN(const json map, object_in(files, "special_tokens_map.json"));
    config.update(map);
  }
  if (flag(config, "split_special_tokens", false))
    return unsupported(files.label(kTokenizerConfig) +
                       ": 'split_special_tokens' is not supported: special tokens that a text spells out are read as "
                       "such; set it to false if that is meant");
  if (const Status s = c.read_added_tokens(config); !s.is_ok()) return s.with_context(files.label(kTokenizerConfig));
  c.read_special_tokens(config);

  MOESTRO_ASSIGN_OR_RETURN(c.chat_template, files.read("chat_template.jinja"));
  MOESTRO_ASSIGN_OR_RETURN(c.tool_template, files.read("additional_chat_templates/tool_use.jinja"));
  if (!c.tool_template) {  // a pack has no folders
    MOESTRO_ASSIGN_OR_RETURN(c.tool_template, files.read("tool_use.jinja"));
  }
  if (!c.chat_template && !c.tool_template) c.read_templates(config.value("chat_template", json()));
  if (!c.chat_template && !c.tool_template) {  // where processors of multimodal models have it
    MOESTRO_ASSIGN_OR_RETURN(const json processor, object_in(files, "chat_template.json"));
    c.read_templates(processor.value("chat_template", json()));
  }
  return c;
}

void TokenizerConfig::read_special_tokens(const json& config) {
  bos_token = token_named(config, "bos_token");
  eos_token = token_named(config, "eos_token");
  pad_token = token_named(config, "pad_token");
  unk_token = token_named(config, "unk_token");
  for (const auto& [key, value] : config.items())
    if (key.ends_with("_token") && !content_of(value).empty()) said.push_back(special(value));
  for (const char* key : {"extra_special_tokens", "additional_special_tokens"}) {  // lists, or objects of names
    const auto list = config.find(key);
    if (list == config.end() || !list->is_structured()) continue;
    for (const json& token : *list)
      if (!content_of(token).empty()) said.push_back(special(token));
    if (!list->empty()) return;  // the older name counts where the newer one says nothing
  }
}

Status TokenizerConfig::read_added_tokens(const json& config) {
  const auto decoder = config.find("added_tokens_decoder");
  if (decoder == config.end() || decoder->is_null()) return Status::ok();
  if (!decoder->is_object()) return invalid_argument("'added_tokens_decoder' must be an object");
  for (const auto& [key, entry] : decoder->items()) {
    TokenId id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size() || id < 0)
      return invalid_argument("'added_tokens_decoder': " + model::in_quotes(key) + " is no token id");
    const std::string content = content_of(entry);
    if (content.empty()) return invalid_argument("'added_tokens_decoder': the token " + key + " has no content");
    ids_.emplace_back(id, content);
    if (entry.is_object()) said.push_back({content, flags_of(entry), true});
  }
  return Status::ok();
}

/// A template, a list of named ones, or an object of them.
void TokenizerConfig::read_templates(const json& templates) {
  const auto text = [](const json& t) { return t.is_string() ? std::optional(t.get<std::string>()) : std::nullopt; };
  const auto named = [&](const json& name, const json& t) {
    if (name == "default") chat_template = text(t);
    if (name == "tool_use") tool_template = text(t);
  };
  chat_template = text(templates);
  if (templates.is_object())
    for (const auto& [name, t] : templates.items()) named(name, t);
  if (!templates.is_array()) return;
  for (const json& one : templates)
    if (one.is_object()) named(one.value("name", json()), one.value("template", json()));
}

Status TokenizerConfig::check(const Tokenizer& tokenizer) const {
  for (const auto& [id, content] : ids_)
    if (tokenizer.token(id) != content)
      return invalid_argument("'added_tokens_decoder' gives id " + std::to_string(id) + " to " +
                              model::in_quotes(content) +
                              "; tokenizer.json does not: save the tokenizer again with transformers");
  return Status::ok();
}

}  // namespace moestro::orchestrator
