#pragma once
// A program's command line over the box's YAML file.

#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/config/box_config.h"
#include "common/status.h"
#include "services/command_line/command_line.h"

namespace moestro::box {

/// A key of the table. `help`: what its flag means in this command, and its default, where that is not what the table
/// says; empty: as in the table.
struct FlagOfKey {
  FlagOfKey(const char* of, const char* own_help = "") : key(of), help(own_help) {}
  std::string_view key, help;
};

/// `-c FILE` and the flags of some of the table's keys. Holds the values of the command line; must live until they are
/// read.
class BoxFlags {
 public:
  /// Adds `-c` and the flag of each key to `app`. A key must have a flag: a bug otherwise.
  BoxFlags(command_line::App& app, std::initializer_list<FlagOfKey> keys);
  /// Adds `-c` and all flags.
  explicit BoxFlags(command_line::App& app);
  BoxFlags(const BoxFlags&) = delete;
  BoxFlags& operator=(const BoxFlags&) = delete;

  /// The values of the file, if there is `-c`, and the flags over them. A flag given twice is refused, but for those
  /// that take a list.
  Status read(config::BoxConfig& box) const;

 private:
  Status read_file(config::BoxConfig& box) const;
  Status read_flags(config::BoxConfig& box) const;
  /// `-c`, then the rows under their themes.
  void add_all(command_line::App& app, std::vector<config::Row> rows);
  void add(command_line::App& app, const config::Row& row);

  std::string file_;
  std::map<std::string, std::vector<std::string>> texts_;  ///< key -> what its flag was given
  std::map<std::string, bool> switches_;
};

}  // namespace moestro::box
