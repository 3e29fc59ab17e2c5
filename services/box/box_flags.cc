#include "services/box/box_flags.h"

#include <algorithm>

#include "common/check.h"
#include "common/config/yaml_file.h"
#include "services/command_line/command_line.h"

namespace moestro::box {
namespace {

/// Without the empty one, which stands for no choice.
std::vector<std::string> named(std::vector<std::string> choices) {
  std::erase(choices, "");
  return choices;
}

}  // namespace

BoxFlags::BoxFlags(command_line::App& app, std::initializer_list<FlagOfKey> keys) {
  config::BoxConfig defaults;
  const config::Schema schema = config::box_schema(defaults);
  std::vector<config::Row> rows;
  for (const auto& [key, help] : keys) {
    const config::Row* row = schema.find(key);
    MOESTRO_CHECK(row != nullptr && !row->flag.empty(), "a key with a flag");
    rows.push_back(*row);
    if (!help.empty()) rows.back().help = help, rows.back().default_text = "";
  }
  add_all(app, std::move(rows));
}

BoxFlags::BoxFlags(command_line::App& app) {
  config::BoxConfig defaults;
  std::vector<config::Row> rows = config::box_schema(defaults).rows();
  std::erase_if(rows, [](const config::Row& row) { return row.flag.empty(); });
  add_all(app, std::move(rows));
}

void BoxFlags::add_all(command_line::App& app, std::vector<config::Row> rows) {
  app.add_option("-c,--config", file_,
                 "YAML file with the configuration. Flags override it. Its keys: moestro config --reference")
      ->type_name("FILE")
      ->group("Configuration file");
  const auto place_of = [](const config::Row& row) { return std::ranges::find(config::box_themes(), row.theme); };
  std::ranges::stable_sort(rows, {}, place_of);
  for (const config::Row& row : rows) add(app, row);
}

void BoxFlags::add(command_line::App& app, const config::Row& row) {
  command_line::Option* option = nullptr;
  if (row.is_flag()) {
    option = app.add_flag(row.flag, switches_[row.key], row.help);
  } else {
    option = app.add_option(row.flag, texts_[row.key], row.help)->expected(1)->take_all()->type_name(row.value_text());
    if (!row.choices.empty()) option->choices(named(row.choices));
    if (row.default_text != "default") option->default_str(row.default_text);  // then the help says what that is
  }
  option->group(row.theme)->advanced(!row.everyday);
}

Status BoxFlags::read_file(config::BoxConfig& box) const {
  if (file_.empty()) return Status::ok();
  config::Schema schema = config::box_schema(box);
  return config::load_yaml_file(file_, schema);
}

Status BoxFlags::read_flags(config::BoxConfig& box) const {
  config::Schema schema = config::box_schema(box);
  for (const auto& [key, given] : switches_)
    if (given)
      MOESTRO_RETURN_IF_ERROR(
          schema.set(key, schema.find(key)->flag.starts_with("--no-") ? "false" : "true", schema.find(key)->flag));
  for (const auto& [key, given] : texts_) {
    if (given.empty()) continue;
    const config::Row& row = *schema.find(key);
    const std::string& flag = row.flag;
    if (given.size() > 1 && !row.list)
      return unsupported(flag + " is given " + std::to_string(given.size()) + " times; " +
                         (flag == "--model" ? "this version serves one model" : "give it once"));
    std::string text = given.front();
    for (size_t i = 1; i < given.size(); ++i) text += "," + given[i];
    MOESTRO_RETURN_IF_ERROR(schema.set(key, text, flag));
  }
  return Status::ok();
}

Status BoxFlags::read(config::BoxConfig& box) const {
  MOESTRO_RETURN_IF_ERROR(read_file(box));
  return read_flags(box);
}

}  // namespace moestro::box
