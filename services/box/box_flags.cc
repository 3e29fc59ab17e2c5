#include "services/box/box_flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>

#include "common/check.h"
#include "common/config/yaml_file.h"

namespace moestro::box {

BoxFlags::BoxFlags(CLI::App& app, std::initializer_list<std::string_view> keys) {
  app.add_option("-c,--config", file_, "YAML file of the box; flags outrank it (keys: moestro config --reference)");
  config::BoxConfig defaults;
  const config::Schema schema = config::box_schema(defaults);
  for (const std::string_view key : keys) {
    const config::Row* row = schema.find(key);
    MOESTRO_CHECK(row != nullptr && !row->flag.empty(), "a key with a flag");
    add(app, *row);
  }
}

BoxFlags::BoxFlags(CLI::App& app) : BoxFlags(app, {}) {
  config::BoxConfig defaults;
  const config::Schema schema = config::box_schema(defaults);
  for (const config::Row& row : schema.rows())
    if (!row.flag.empty()) add(app, row);
}

void BoxFlags::add(CLI::App& app, const config::Row& row) {
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
    if (given) MOESTRO_RETURN_IF_ERROR(schema.set(key, schema.find(key)->flag.starts_with("--no-") ? "false" : "true", schema.find(key)->flag));
  for (const auto& [key, given] : texts_) {
    if (given.empty()) continue;
    const std::string& flag = schema.find(key)->flag;
    if (given.size() > 1)
      return unsupported(flag + " is given " + std::to_string(given.size()) + " times; " +
                         (flag == "--model" ? "this version serves one model" : "give it once"));
    MOESTRO_RETURN_IF_ERROR(schema.set(key, given.front(), flag));
  }
  return Status::ok();
}

Status BoxFlags::read(config::BoxConfig& box) const {
  MOESTRO_RETURN_IF_ERROR(read_file(box));
  return read_flags(box);
}

std::optional<int> parse_program_line(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::Success& success) {  // --help
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    std::string why = error.what();
    std::replace(why.begin(), why.end(), '\n', ' ');
    std::cerr << app.get_name() << ": " << why << "; see --help\n";
    return 2;
  }
}

}  // namespace moestro::box
