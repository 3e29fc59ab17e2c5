#include "orchestrator/api/served_model.h"

#include <cerrno>
#include <charconv>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "common/may_read.h"
#include "common/model/model_spec.h"
#include "common/model/strict_json.h"
#include "orchestrator/forms/find_tool_form.h"

namespace moestro::orchestrator {

using nlohmann::json;

namespace {

/// Nothing if there is no such file.
Result<std::optional<std::string>> read_file_if_any(const std::filesystem::path& path) {
  MOESTRO_RETURN_IF_ERROR(check_may_read(path, path.parent_path()));
  std::error_code error;
  if (!std::filesystem::exists(path, error) && !error) return std::optional<std::string>();
  std::ifstream in(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  if (!in.is_open() || in.bad()) return io_error("cannot read " + path.string(), errno);
  return std::optional(std::move(text));
}

/// A special token in tokenizer_config.json: a string, or an object with "content".
std::string special_token(const json& config, const char* name) {
  const auto it = config.find(name);
  if (it == config.end()) return "";
  if (it->is_string()) return it->get<std::string>();
  if (it->is_object() && it->contains("content") && (*it)["content"].is_string())
    return (*it)["content"].get<std::string>();
  return "";
}

/// Tokens that only this file knows would be cut into pieces, silently.
Status check_added_tokens(const json& config, const Tokenizer& tokenizer) {
  const auto decoder = config.find("added_tokens_decoder");
  if (decoder == config.end() || decoder->is_null()) return Status::ok();
  if (!decoder->is_object()) return invalid_argument("'added_tokens_decoder' must be an object");
  for (const auto& [key, entry] : decoder->items()) {
    TokenId id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size() || id < 0)
      return invalid_argument("'added_tokens_decoder': " + model::in_quotes(key) + " is no token id");
    const std::string content = special_token(*decoder, key.c_str());
    if (content.empty()) return invalid_argument("'added_tokens_decoder': the token " + key + " has no content");
    if (tokenizer.token(id) != content)
      return invalid_argument("'added_tokens_decoder' gives id " + key + " to " + model::in_quotes(content) +
                              "; tokenizer.json does not: save the tokenizer again with transformers");
  }
  return Status::ok();
}

/// The template in tokenizer_config.json: a string, or the one named "default" of a list.
std::optional<std::string> template_of(const json& config) {
  const auto found = config.find("chat_template");
  if (found == config.end()) return std::nullopt;
  if (found->is_string()) return found->get<std::string>();
  if (!found->is_array()) return std::nullopt;
  for (const json& one : *found) {
    if (!one.is_object() || one.value("name", json()) != "default") continue;
    if (const auto text = one.find("template"); text != one.end() && text->is_string()) return text->get<std::string>();
  }
  return std::nullopt;
}

/// An unusable template only costs chat: completions still work, and who asks for chat is told why.
void set_template(const std::optional<std::string>& source, ServedModel& m) {
  if (!source) {
    m.chat_template_missing =
        "the model has no chat template (chat_template.jinja, tokenizer_config.json or chat_template.json); use "
        "/v1/completions";
    return;
  }
  auto parsed = ChatTemplate::parse(*source);
  if (parsed.is_ok()) {
    m.chat_template = std::move(*parsed);
    m.set_styles(*source);
  } else {
    m.chat_template_error = parsed.status().message();
    m.chat_template_missing = "the model's chat template cannot be used: " + m.chat_template_error;
  }
}

Result<Tokenizer> read_tokenizer(const ModelFiles& files) {
  constexpr char kName[] = "tokenizer.json";
  MOESTRO_ASSIGN_OR_RETURN(const auto text, files.read(kName));
  if (!text) return io_error("cannot open " + files.label(kName), ENOENT);
  auto tokenizer = Tokenizer::from_json(*text);
  if (!tokenizer) return tokenizer.status().with_context(files.label(kName));
  return tokenizer;
}

Status read_tokenizer_config(const ModelFiles& files, ServedModel& m) {
  std::optional<std::string> source;
  const std::string name = "tokenizer_config.json";
  MOESTRO_ASSIGN_OR_RETURN(const auto text, files.read(name));
  if (text) {
    MOESTRO_ASSIGN_OR_RETURN(const json config, model::parse_json_object(*text, files.label(name)));
    m.bos_token = special_token(config, "bos_token");
    m.eos_token = special_token(config, "eos_token");
    m.pad_token = special_token(config, "pad_token");
    m.unk_token = special_token(config, "unk_token");
    if (const Status s = check_added_tokens(config, m.tokenizer); !s.is_ok()) return s.with_context(files.label(name));
    source = template_of(config);
  }
  MOESTRO_ASSIGN_OR_RETURN(const auto file, files.read("chat_template.jinja"));
  if (file) source = file;  // as transformers prefers it
  if (!source) {  // where processors of multimodal models have it
    const std::string processors = "chat_template.json";
    MOESTRO_ASSIGN_OR_RETURN(const auto its, files.read(processors));
    if (its) {
      MOESTRO_ASSIGN_OR_RETURN(const json of_processor, model::parse_json_object(*its, files.label(processors)));
      source = template_of(of_processor);
    }
  }
  set_template(source, m);
  return Status::ok();
}

/// As transformers has it: where nothing is said, a target begins as a text does.
Result<TargetBegin> target_begin(const model::ModelSpec& spec, const ModelFiles& files) {
  const auto start = spec.decoder_start_id ? spec.decoder_start_id : spec.bos_id;
  if (!start)
    return invalid_argument(files.label("config.json") +
                            ": decoder_start_token_id is missing, and targets have to begin with something");
  return TargetBegin{*start, spec.forced_bos_id};
}

}  // namespace

void ServedModel::set_styles(const std::string& source) {
  auto form = find_tool_form(source, [&](std::string_view token) { return tokenizer.id_of(token).has_value(); });
  tool_form = form.is_ok() ? std::move(*form) : nullptr;
  tool_form_missing = form.is_ok() ? "" : form.status().message();
  reasoning_style = reasoning_style_of(source);
  knows_effort = source.find("reasoning_effort") != std::string::npos;
  knows_thinking = source.find("enable_thinking") != std::string::npos;
}

Result<ServedModel> ServedModel::of_files(const std::string& name, const ModelFiles& files) {
  MOESTRO_ASSIGN_OR_RETURN(const auto config, files.read("config.json"));
  if (!config) return not_found("cannot read " + files.label("config.json"));
  MOESTRO_ASSIGN_OR_RETURN(const auto generation, files.read("generation_config.json"));
  MOESTRO_ASSIGN_OR_RETURN(const auto description, model::describe_model(*config, generation.value_or("")));
  MOESTRO_ASSIGN_OR_RETURN(auto tokenizer, read_tokenizer(files));
  ServedModel m{name, std::move(tokenizer), std::nullopt, "", "", "", description.spec.eos_ids, description.spec.vocab,
                description.spec.max_position, 0};
  m.hidden = description.spec.hidden;
  if (description.spec.is_encoder_decoder()) {
    MOESTRO_ASSIGN_OR_RETURN(m.target, target_begin(description.spec, files));
  }
  if (m.tokenizer.vocab_size() > m.vocab) {
    const auto last = static_cast<TokenId>(m.tokenizer.vocab_size() - 1);
    return invalid_argument(files.label("tokenizer.json") + ": the token " + model::in_quotes(m.tokenizer.token(last)) +
                            " has id " + std::to_string(last) + ", but config.json has a vocab_size of " +
                            std::to_string(m.vocab) + ": they are not of one model");
  }
  MOESTRO_RETURN_IF_ERROR(read_tokenizer_config(files, m));
  return m;
}

Result<ServedModel> ServedModel::load(const std::string& name, const std::filesystem::path& pack) {
  const auto read = [&](const std::string& file) { return read_file_if_any(pack / file); };
  const auto label = [&](const std::string& file) { return (pack / file).string(); };
  MOESTRO_ASSIGN_OR_RETURN(ServedModel m, of_files(name, {read, label}));
  const auto created = std::filesystem::last_write_time(pack / "config.json");
  const auto age = std::filesystem::file_time_type::clock::now() - created;
  m.created_unix_s =
      std::chrono::duration_cast<std::chrono::seconds>(
          (std::chrono::system_clock::now() - std::chrono::duration_cast<std::chrono::seconds>(age)).time_since_epoch())
          .count();
  return m;
}

}  // namespace moestro::orchestrator
