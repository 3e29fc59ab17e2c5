#include <utility>

#include "common/config/schema.h"
#include "common/config/units.h"

namespace moestro::config {
namespace {

std::string range_text(const Row& row, std::string (*write)(int64_t)) {
  std::string text;
  if (row.min > 0 && row.max < INT64_MAX) return ", " + write(row.min) + " to " + write(row.max);
  if (row.min > 0) text = ", at least " + write(row.min);
  if (row.max < INT64_MAX) text = ", at most " + write(row.max);
  return text;
}

struct TypeText {
  const Row& row;
  std::string operator()(const bool*) const { return "true or false"; }
  std::string operator()(const int64_t*) const {
    return "whole number" + range_text(row, [](int64_t v) { return std::to_string(v); });
  }
  std::string operator()(const std::optional<int64_t>*) const {
    return (*this)(static_cast<const int64_t*>(nullptr)) + ", or auto";
  }
  std::string operator()(const std::optional<double>*) const {
    return "number above " + std::to_string(row.min) + ", at most " + std::to_string(row.max) + ", or auto";
  }
  std::string operator()(const std::optional<Bytes>*) const {
    return "size" + range_text(row, [](int64_t v) { return format_size(static_cast<uint64_t>(v)); }) +
           ", or auto";
  }
  std::string operator()(const std::chrono::milliseconds*) const {
    return "duration" +
           range_text(row, [](int64_t v) { return format_duration(std::chrono::milliseconds(v)); });
  }
  std::string operator()(const std::string*) const {
    std::string text;
    for (const std::string& choice : row.choices) {
      if (choice.empty()) continue;
      if (!text.empty()) text += ", ";
      text += choice;
    }
    if (text.empty()) return "text";
    return row.choices.size() == 1 ? "only " + text : "one of " + text;
  }
};

struct ValueText {
  const Row& row;
  std::string operator()(const bool*) const { return ""; }
  std::string operator()(const int64_t*) const { return "N"; }
  std::string operator()(const std::optional<int64_t>*) const { return "N"; }
  std::string operator()(const std::optional<double>*) const { return "X"; }
  std::string operator()(const std::optional<Bytes>*) const { return "SIZE"; }
  std::string operator()(const std::chrono::milliseconds*) const { return "TIME"; }
  std::string operator()(const std::string*) const { return row.value.empty() ? "TEXT" : row.value; }
};

/// A link to each section, in lines of at most 120 columns.
std::string contents_of(const Schema& schema) {
  std::string contents, line;
  for (const Schema::Section& section : schema.sections()) {
    const std::string link = "[" + section.name + "](#" + section.name + ")";
    if (!line.empty() && line.size() + link.size() > 114) contents += std::exchange(line, "") + " ·\n";
    line += (line.empty() ? "" : " · ") + link;
  }
  return contents + line;
}

}  // namespace

std::string Row::type_text() const {
  return std::visit(TypeText{*this}, field);
}

std::string Row::value_text() const {
  return std::visit(ValueText{*this}, field);
}

std::string reference_markdown(const Schema& schema) {
  std::string page =
      "# Configuration reference\n\n"
      "Printed by `moestro config --reference`; change the table in `common/config/box_config.cc`, not this page.\n"
      "\n"
      "A YAML file holds sections of keys (`moestro up -c FILE.yaml`). Flags on the command line override the file. An "
      "unknown\n"
      "key, a wrong unit or a value out of range is an error at start, which names the key and the line. Sizes: "
      "`512MiB`,\n"
      "`4GiB`, `4G` (powers of 1024), `4GB` (powers of 1000). Durations: `250ms`, `30s`, `5min`, `2h`. `auto`: the "
      "program\n"
      "decides and says what it took. Relative paths start at the directory that `moestro` is started in.\n";
  page += "\n" + contents_of(schema) + "\n";
  for (const Schema::Section& section : schema.sections()) {
    page += "\n## " + section.name + "\n\n" + section.help + "\n\n";
    page += "| key | flag of `up` | value | default | meaning |\n| --- | --- | --- | --- | --- |\n";
    for (const Row& row : schema.rows()) {
      if (row.key.substr(0, row.key.find('.')) != section.name) continue;
      const std::string flag = row.flag.empty() ? "" : "`" + row.flag + "`";
      const std::string value = row.default_text.empty() ? "" : "`" + row.default_text + "`";
      page += "| `" + row.key + "` | " + flag + " | " + row.type_text() + " | " + value + " | " + row.help +
              " |\n";
    }
  }
  return page;
}

}  // namespace moestro::config
