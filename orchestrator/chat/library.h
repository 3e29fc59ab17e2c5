#pragma once
// The filters, tests, methods and functions that a template can use.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "orchestrator/chat/value.h"

namespace moestro::jinja {

using Filter = Value (*)(Interpreter&, const Value&, Arguments&);
using Test = bool (*)(Interpreter&, const Value&, Arguments&);

/// nullptr if there is none of that name.
Filter find_filter(std::string_view name);
Filter find_list_filter(std::string_view name);  // the part of find_filter that works on sequences
Test find_test(std::string_view name);
/// The method, bound to `self`; undefined if there is none. Fails for methods that would change `self`.
Value find_method(const Value& self, std::string_view name);
/// range, namespace, ...; nullopt if there is none.
std::optional<Value> find_function(std::string_view name);

/// The arguments by their names, in order; the first `required` must be there. Fails on one too many, or
/// unknown.
std::vector<std::optional<Value>> bind(std::string_view what, const Arguments& arguments,
                                       std::initializer_list<std::string_view> names, size_t required = 0);
const std::string& text_argument(std::string_view what, const Value& value);
int64_t int_argument(std::string_view what, const Value& value);

/// json.dumps(value, ensure_ascii=False, ...). indent < 0: on one line.
std::string to_json(const Value& value, int indent, const std::string& item_separator,
                    const std::string& key_separator, bool sort_keys);

// operators.cc
Value binary_operation(Interpreter& interpreter, std::string_view op, const Value& a, const Value& b);
Value unary_operation(std::string_view op, const Value& a);
bool comparison(Interpreter& interpreter, std::string_view op, const Value& a, const Value& b);
Value slice(Interpreter& interpreter, const Value& of, const Value& start, const Value& stop,
            const Value& step);

}  // namespace moestro::jinja
