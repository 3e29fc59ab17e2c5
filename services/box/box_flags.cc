#include "services/box/box_flags.h"

#include "common/check.h"
#include "common/config/yaml_file.h"
#include "services/command_line/command_line.h"

namespace moestro::box {

BoxFlags::BoxFlags(command_line::App& app, std::initializer_list<std::string_view> keys) {
  app.add_option("-c,--config", file_, "YAML file of the box; flags outrank it (keys: moestro config --reference)");
  config::BoxConfig defaults;
  const config::Schema schema = config::box_schema(defaults);
  for (const std::string_view key : keys) {
    const config::Row* row = schema.find(key);
    MOESTRO_CHECK(row != nullptr && !row->flag.empty(), "a key with a flag");
    add(app, *row);
  }
}

BoxFlags::BoxFlags(command_line::App& app) : BoxFlags(app, {}) {
  config::BoxConfig defaults;
  const config::Schema schema = config::box_schema(defaults);
  for (const config::Row& row : schema.rows())
    if (!row.flag.empty()) add(app, row);
}

void BoxFlags::add(command_line::App& app, const config::Row& row) {
  if (row.is_flag()) {
    app.add_flag(row.flag, switches_[row.key], row.help);
    return;
  }
  const std::string preset = row.default_text.empty() ? "" : " [" + row.default_text + "]";
  app.add_option(row.flag, texts_[row.key], row.help + preset)->expected(1)->take_all()->type_name("");
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
