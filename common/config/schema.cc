#include "common/config/schema.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "common/config/units.h"
#include "common/nearest_name.h"

namespace moestro::config {
namespace {

std::string join_choices(const Row& row) {
  std::string text;
  for (const std::string& choice : row.choices) {
    if (choice.empty()) continue;
    if (!text.empty()) text += ", ";
    text += choice;
  }
  return text;
}

Result<int64_t> parse_integer(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::result_out_of_range)
    return invalid_argument("'" + std::string(text) + "' is too large");
  if (error != std::errc{} || end != text.data() + text.size())
    return invalid_argument("'" + std::string(text) + "' is not a whole number");
  return value;
}

template <typename Write>
Status check_range(const Row& row, int64_t value, std::string_view text, Write write) {
  if (value < row.min)
    return invalid_argument("'" + std::string(text) + "' is below the smallest allowed, " + write(row.min));
  if (value > row.max)
    return invalid_argument("'" + std::string(text) + "' is above the largest allowed, " + write(row.max));
  return Status::ok();
}

std::string write_integer(int64_t value) {
  return std::to_string(value);
}
std::string write_size(int64_t value) {
  return format_size(static_cast<uint64_t>(value));
}
std::string write_duration(int64_t value) {
  return format_duration(std::chrono::milliseconds(value));
}

struct Reader {
  const Row& row;
  std::string_view text;

  Status operator()(bool* field) const {
    if (text != "true" && text != "false")
      return invalid_argument("'" + std::string(text) + "' is neither true nor false");
    *field = text == "true";
    return Status::ok();
  }
  Status operator()(int64_t* field) const {
    MOESTRO_ASSIGN_OR_RETURN(const int64_t value, parse_integer(text));
    MOESTRO_RETURN_IF_ERROR(check_range(row, value, text, write_integer));
    *field = value;
    return Status::ok();
  }
  Status operator()(std::optional<int64_t>* field) const {
    if (text == "auto") return field->reset(), Status::ok();
    int64_t value = 0;
    MOESTRO_RETURN_IF_ERROR((*this)(&value));
    *field = value;
    return Status::ok();
  }
  Status operator()(std::optional<double>* field) const {
    if (text == "auto") return field->reset(), Status::ok();
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(value))
      return invalid_argument("'" + std::string(text) + "' is not a number");
    if (!(value > static_cast<double>(row.min) && value <= static_cast<double>(row.max)))
      return invalid_argument("'" + std::string(text) + "' is not above " + std::to_string(row.min) + " and at most " +
                              std::to_string(row.max));
    *field = value;
    return Status::ok();
  }
  Status operator()(std::optional<Bytes>* field) const {
    if (text == "auto") return field->reset(), Status::ok();
    MOESTRO_ASSIGN_OR_RETURN(const uint64_t value, parse_size(text));
    MOESTRO_RETURN_IF_ERROR(check_range(row, static_cast<int64_t>(value), text, write_size));
    *field = Bytes{value};
    return Status::ok();
  }
  Status operator()(std::chrono::milliseconds* field) const {
    MOESTRO_ASSIGN_OR_RETURN(const std::chrono::milliseconds value, parse_duration(text));
    MOESTRO_RETURN_IF_ERROR(check_range(row, value.count(), text, write_duration));
    *field = value;
    return Status::ok();
  }
  Status operator()(std::string* field) const {
    if (!row.choices.empty() && std::find(row.choices.begin(), row.choices.end(), text) == row.choices.end())
      return invalid_argument("'" + std::string(text) + "' is not " +
                              (row.choices.size() == 1 ? "in this version; only '" + row.choices[0] + "' is"
                                                       : "one of: " + join_choices(row)));
    if (text.find('\0') != std::string_view::npos || text.find('\n') != std::string_view::npos)
      return invalid_argument("a value holds a line break or a zero byte");
    *field = text;
    return Status::ok();
  }
};

struct Writer {
  std::string operator()(const bool* field) const { return *field ? "true" : "false"; }
  std::string operator()(const int64_t* field) const { return std::to_string(*field); }
  std::string operator()(const std::optional<int64_t>* field) const {
    return *field ? std::to_string(**field) : "auto";
  }
  std::string operator()(const std::optional<double>* field) const {
    if (!*field) return "auto";
    char text[64];
    return std::string(text, std::to_chars(text, text + sizeof text, **field).ptr);
  }
  std::string operator()(const std::optional<Bytes>* field) const {
    return *field ? format_size((*field)->value) : "auto";
  }
  std::string operator()(const std::chrono::milliseconds* field) const { return format_duration(*field); }
  std::string operator()(const std::string* field) const { return *field; }
};

}  // namespace

std::string field_text(const Field& field) {
  return std::visit(Writer{}, field);
}

void Schema::section(std::string name, std::string help, std::string theme) {
  MOESTRO_CHECK(!has_section(name), "a section twice");
  sections_.push_back({std::move(name), std::move(help), std::move(theme)});
}

void Schema::add(Row row) {
  MOESTRO_CHECK(find(row.key) == nullptr, "a key twice");
  const std::string name = row.key.substr(0, row.key.find('.'));
  const auto section = std::ranges::find(sections_, name, &Section::name);
  MOESTRO_CHECK(section != sections_.end(), "a key without its section");
  if (row.theme.empty()) row.theme = section->theme;
  row.default_text = field_text(row.field);
  rows_.push_back(std::move(row));
}

const Row* Schema::find(std::string_view key) const {
  const auto it = std::find_if(rows_.begin(), rows_.end(), [&](const Row& row) { return row.key == key; });
  return it == rows_.end() ? nullptr : &*it;
}

bool Schema::has_section(std::string_view name) const {
  return std::any_of(sections_.begin(), sections_.end(),
                     [&](const Section& section) { return section.name == name; });
}

Status Schema::set(std::string_view key, std::string_view text, std::string_view where) {
  const Row* row = find(key);
  if (row == nullptr) return unknown_key(key, where);
  const std::string context = row->flag == where ? std::string(where) : std::string(where) + ": " + row->key;
  const Status status = std::visit(Reader{*row, text}, row->field);
  return status.is_ok() ? status : status.with_context(context);
}

std::string Schema::get(std::string_view key) const {
  const Row* row = find(key);
  return row == nullptr ? std::string() : field_text(row->field);
}

Status Schema::unknown_key(std::string_view key, std::string_view where) const {
  std::vector<std::string> keys;
  for (const Row& row : rows_) keys.push_back(row.key);
  const auto nearest = nearest_name(key, keys);
  std::string message = std::string(where) + ": unknown key '" + std::string(key.substr(0, 64)) + "'";
  message += nearest ? "; did you mean '" + *nearest + "'?" : "; `moestro config --reference` lists all keys";
  return invalid_argument(std::move(message));
}

}  // namespace moestro::config
