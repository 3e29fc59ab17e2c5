#include "services/cli/config_command.h"

#include <cstdio>
#include <memory>

#include "common/config/box_config.h"
#include "common/config/yaml_file.h"
#include "services/cli/common/output.h"
#include "services/command_line/command_line.h"

namespace moestro::cli {
void add_config_command(command_line::App& app, CommandResult& result) {
  struct Options {
    bool reference = false;
    std::string file;
  };
  command_line::App* command =
      app.add_subcommand("config", "Check a configuration file and print every value, or print the reference page");
  auto options = std::make_shared<Options>();
  command->add_flag("--reference", options->reference, "Print the reference of all keys: docs/reference/config.md");
  command->add_option("-c,--config", options->file, "YAML file to check and print. Default: the defaults")
      ->type_name("FILE");
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
    std::fputs(config::to_yaml(schema).c_str(), stdout);
  });
}

}  // namespace moestro::cli
