#include "orchestrator/api/served_model.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "common/model/model_spec.h"

namespace moestro::orchestrator {

using nlohmann::json;

namespace {

Result<std::string> read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  if (!in || !(text << in.rdbuf())) return not_found("cannot read " + path.string());
  return text.str();
}

/// A special token in tokenizer_config.json: a string, or an object with "content".
std::string token_text(const json& config, const char* name) {
  const auto it = config.find(name);
  if (it == config.end()) return "";
  if (it->is_string()) return it->get<std::string>();
  if (it->is_object() && it->contains("content") && (*it)["content"].is_string()) return (*it)["content"].get<std::string>();
  return "";
}

Status read_chat(const std::filesystem::path& pack, ServedModel& m) {
  m.chat_template_missing = "the model has no chat template (tokenizer_config.json); use /v1/completions";
  const auto text = read_file(pack / "tokenizer_config.json");
  if (!text.is_ok()) return Status::ok();
  const json config = json::parse(*text, nullptr, false);
  if (!config.is_object()) return invalid_argument((pack / "tokenizer_config.json").string() + " is not a JSON object");
  m.bos_token = token_text(config, "bos_token");
  m.eos_token = token_text(config, "eos_token");
  const auto source = config.find("chat_template");
  if (source == config.end() || !source->is_string()) return Status::ok();
  auto parsed = ChatTemplate::parse(source->get<std::string>());
  if (parsed.is_ok())
    m.chat_template = std::move(*parsed);
  else  // completions still work: say why chat does not when somebody asks for it
    m.chat_template_missing = "the model's chat template cannot be used: " + parsed.status().message();
  return Status::ok();
}

}  // namespace

Result<ServedModel> ServedModel::load(const std::string& name, const std::filesystem::path& pack) {
  MOESTRO_ASSIGN_OR_RETURN(const std::string config, read_file(pack / "config.json"));
  const auto generation = read_file(pack / "generation_config.json");
  MOESTRO_ASSIGN_OR_RETURN(const auto description, model::describe_model(config, generation.is_ok() ? *generation : std::string()));
  MOESTRO_ASSIGN_OR_RETURN(auto tokenizer, Tokenizer::load(pack));
  const auto created = std::filesystem::last_write_time(pack / "config.json");
  const auto age = std::filesystem::file_time_type::clock::now() - created;
  ServedModel m{name, std::move(tokenizer), std::nullopt, "", "", "", description.spec.eos_ids, description.spec.vocab,
                description.spec.max_position, 0};
  m.created_unix_s = std::chrono::duration_cast<std::chrono::seconds>(
                         (std::chrono::system_clock::now() - std::chrono::duration_cast<std::chrono::seconds>(age)).time_since_epoch())
                         .count();
  MOESTRO_RETURN_IF_ERROR(read_chat(pack, m));
  return m;
}

}  // namespace moestro::orchestrator
