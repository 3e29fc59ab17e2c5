#pragma once
// A table of configuration keys bound to the fields they fill. Reading a file, taking a flag and printing the
// reference page all walk this table, so that they cannot disagree.

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/status.h"

namespace moestro::config {

/// A size in bytes; its own type, so that it is written and read with units.
struct Bytes {
  uint64_t value = 0;
  friend bool operator==(const Bytes&, const Bytes&) = default;
};

/// Where a key's value goes. An empty optional is written `auto`: the program that uses the value decides.
using Field = std::variant<bool*, int64_t*, std::optional<int64_t>*, std::optional<double>*,
                           std::optional<Bytes>*, std::chrono::milliseconds*, std::string*>;

struct Row {
  std::string key;     ///< "store.dram": section and name as in YAML
  std::string flag{};  ///< of `moestro up`, "--dram"; empty: only in files
  Field field;
  int64_t min = 0, max = INT64_MAX;    ///< of numbers, sizes (bytes) and durations (ms), both included; a number with a
                                       ///< fraction is above min
  std::vector<std::string> choices{};  ///< of texts; empty: any text
  bool list = false;  ///< a text of values with commas between: the flag may come several times, a file may have a list
  std::string help{};                  ///< sentences for the reference page and --help, without a full stop at the end
  std::string value{};                 ///< of a text: what the flag takes, "FILE"
  std::string theme{};                 ///< the flag's heading in --help; empty: its section's
  bool everyday = false;               ///< the flag is in --help; others are in --help-all only
  std::string default_text{};          ///< how the field stood when the row was added

  /// A switch, which takes no value: it turns the key on, or off if its name begins with --no-.
  bool is_flag() const { return std::holds_alternative<bool*>(field); }
  std::string type_text() const;   ///< "size, at least 16MiB, or auto"
  std::string value_text() const;  ///< what its flag takes: "SIZE", "FILE"; empty: nothing
};

/// The rows, bound to one object that outlives this.
class Schema {
 public:
  struct Section {
    std::string name, help;
    std::string theme;  ///< of its keys' flags
  };

  void section(std::string name, std::string help, std::string theme = {});
  /// The field keeps its present value as the default, the row its section's theme if it has none. Section and key must
  /// be new: a bug otherwise.
  void add(Row row);

  const std::vector<Row>& rows() const { return rows_; }
  const std::vector<Section>& sections() const { return sections_; }
  const Row* find(std::string_view key) const;
  bool has_section(std::string_view name) const;

  /// Reads `text` into the key's field. Errors begin with `where` ("one-box.yaml line 4", "--dram") and name the key.
  Status set(std::string_view key, std::string_view text, std::string_view where);
  /// The value a key has now, as it would be written.
  std::string get(std::string_view key) const;
  /// "unknown key 'store.drm'; did you mean 'store.dram'?"
  Status unknown_key(std::string_view key, std::string_view where) const;

 private:
  std::vector<Section> sections_;
  std::vector<Row> rows_;
};

/// How a field's value is written.
std::string field_text(const Field& field);

/// The reference page in Markdown: every section a table of its keys.
std::string reference_markdown(const Schema& schema);

}  // namespace moestro::config
