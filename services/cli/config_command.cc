#include "services/cli/config_command.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "common/config/box_config.h"
#include "common/config/yaml_file.h"
#include "services/cli/output.h"

namespace moestro::cli {
namespace {

/// As YAML that reads back to the same values.
void print_values(const config::Schema& schema) {
  for (const config::Schema::Section& section : schema.sections()) {
    std::printf("%s:\n", section.name.c_str());
    for (const config::Row& row : schema.rows()) {
      const size_t dot = row.key.find('.');
      if (row.key.substr(0, dot) != section.name) continue;
      std::string value;
      for (const char c : schema.get(row.key)) value += c == '\'' ? std::string("''") : std::string(1, c);
      const bool text = std::holds_alternative<std::string*>(row.field);
      std::printf(text ? "  %s: '%s'\n" : "  %s: %s\n", row.key.substr(dot + 1).c_str(), value.c_str());
    }
  }
}

}  // namespace

void add_config_command(CLI::App& app, CommandResult& result) {
  struct Options {
    bool reference = false;
    std::string file;
  };
  CLI::App* command = app.add_subcommand(
      "config", "Print the configuration's reference page, or check a file and show every value");
  auto options = std::make_shared<Options>();
  command->add_flag("--reference", options->reference, "print docs/reference/config.md");
  command->add_option("-c,--config", options->file, "YAML file to check and show");
  command->callback([options, &result] {
    config::BoxConfig box;
    config::Schema schema = config::box_schema(box);
    if (options->reference) {
      std::fputs(config::reference_markdown(schema).c_str(), stdout);
      return;
    }
    if (!options->file.empty()) {
      const Status status = config::load_yaml_file(options->file, schema);
      if (!status.is_ok()) return fail(result, status);
    }
    print_values(schema);
  });
}

}  // namespace moestro::cli
