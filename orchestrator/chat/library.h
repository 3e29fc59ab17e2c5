#pragma once
// The filters, tests, methods and functions that a template can use.

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "orchestrator/chat/value.h"

namespace moestro::jinja {

using Filter = Value (*)(Interpreter&, const Value&, Arguments&);
using Test = bool (*)(Interpreter&, const Value&, Arguments&);

/// One row of a table of filters, tests or functions; the tables are short.
template <typename Function>
struct Named {
  std::string_view name;
  Function function;
};
/// nullptr if there is none of that name.
template <typename Function, size_t n>
Function find_named(const Named<Function> (&table)[n], std::string_view name) {
  for (const auto& row : table) {
    if (row.name == name) return row.function;
  }
  return nullptr;
}

/// nullptr if there is none of that name.
Filter find_filter(std::string_view name);
Filter find_list_filter(std::string_view name);  // the part of find_filter that works on sequences
Filter find_text_filter(std::string_view name);  // ... and the one that works on text
Test find_test(std::string_view name);

using Method = Named<Value (*)(Interpreter&, const Value& self, Arguments&)>;
/// The method, bound to `self`: nullopt if there is none; undefined for one that would change `self`.
std::optional<Value> find_method(const Value& self, std::string_view name);
std::optional<Value> find_text_method(const Value& self, std::string_view name);  // the part of it for strings
std::optional<Value> bound_method(std::span<const Method> methods, const Value& self, std::string_view name);
/// range, namespace, ...; nullopt if there is none.
std::optional<Value> find_function(std::string_view name);

/// Fails for what a namespace cannot hold: another namespace (it could then refer to itself), and names that
/// transformers refuses.
void check_namespace_item(const std::string& name, const Value& value);

/// Binds the arguments to their names, in order; the first `required` must be given. Fails for too many or unknown
/// arguments.
std::vector<std::optional<Value>> bind(std::string_view what, const Arguments& arguments,
                                       std::initializer_list<std::string_view> names, size_t required = 0);
const std::string& text_argument(std::string_view what, const Value& value);
int64_t int_argument(std::string_view what, const Value& value);

/// The style of json.dumps: the separators between items and between keys and values, and the indentation if it has
/// lines.
struct JsonStyle {
  std::optional<std::string> indent;
  std::string item_separator = ", ", key_separator = ": ";
  bool sort_keys = false, ensure_ascii = false;
};
std::string to_json(const Value& value, const JsonStyle& style);

/// str(value), which is itself where it is a string.
Value soft_text(Interpreter& interpreter, const Value& value);
/// markupsafe.escape: a markup is returned unchanged.
Value escaped(Interpreter& interpreter, const Value& value);

// format.cc
/// pattern % values
Value format_percent(Interpreter& interpreter, const Value& pattern, const Value& values);
/// pattern.format(...)
Value format_braces(Interpreter& interpreter, const Value& pattern, Arguments& arguments);

// operators.cc
Value binary_operation(Interpreter& interpreter, std::string_view op, const Value& a, const Value& b);
Value unary_operation(std::string_view op, const Value& a);
bool comparison(Interpreter& interpreter, std::string_view op, const Value& a, const Value& b);
Value slice(Interpreter& interpreter, const Value& of, const Value& start, const Value& stop, const Value& step);

}  // namespace moestro::jinja
