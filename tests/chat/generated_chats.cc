#include "tests/chat/generated_chats.h"

#include <initializer_list>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "common/check.h"
#include "orchestrator/chat/chat_template.h"
#include "orchestrator/chat/error.h"
#include "orchestrator/chat/interpreter.h"
#include "orchestrator/chat/json_values.h"
#include "orchestrator/chat/text.h"

namespace moestro::test {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kUnits = 100'000;
constexpr size_t kSourceMax = 4096;

const char* const kAtoms[] = {"x",          "s",    "l",    "d",       "m",   "n",      "messages",
                              "tools",      "none", "true", "nothing", "'a'", "'<%s>'", "'{}'",
                              "'\xC3\xA9'", "''",   "0",    "1",       "-1",  "2.5",    "9223372036854775807",
                              "[]",         "{}",   "()",   "loop",    "g"};
const char* const kFilters[] = {"trim",       "upper",       "title",     "capitalize", "tojson",  "default", "replace",
                                "indent",     "int",         "float",     "abs",        "round",   "string",  "safe",
                                "e",          "forceescape", "wordcount", "center",     "format",  "length",  "first",
                                "last",       "join",        "list",      "items",      "map",     "select",  "reject",
                                "selectattr", "rejectattr",  "sort",      "dictsort",   "reverse", "unique",  "sum",
                                "min",        "max",         "from_json"};
const char* const kMembers[] = {"role",    "content", "strip", "split",    "rsplit",    "splitlines", "startswith",
                                "replace", "find",    "count", "join",     "partition", "rjust",      "zfill",
                                "format",  "items",   "keys",  "values",   "get",       "index",      "copy",
                                "pop",     "x",       "first", "previtem", "cycle"};
const char* const kTests[] = {"defined",  "none",    "string",   "mapping",        "iterable",
                              "sequence", "number",  "odd",      "divisibleby(2)", "eq(1)",
                              "in([1])",  "escaped", "callable", "lower",          "sameas(none)"};
const char* const kOperators[] = {"+",  "-",  "*", "/",  "//", "%",      "**",  "~",
                                  "==", "!=", "<", ">=", "in", "not in", "and", "or"};
// What variables hold; each changes something for one filter or method at least.
const char* const kTexts[] = {
    "a",     "",    " \t\r\n", "<b>&\"'",       "\xC3\xA9", "\xEF\xAC\x81x", "\xCE\x91\xCE\xA3",
    "-12",   "1e9", "[1, {}]", "{\"a\": null}", "%s %d %%", "{} {0} {x}",    "<think>x</think>",
    "a-b.c", "0x1F"};
const char* const kRoles[] = {"user", "assistant", "system", "tool", ""};
const char* const kVariables[] = {"s", "l", "d", "n", "messages", "tools", "x"};

/// The bytes of an input, one after the other; zeros when they have run out.
class Bytes {
 public:
  Bytes(const uint8_t* data, size_t size) : data_(data), size_(size) {}

  size_t next(size_t bound) { return used_ == size_ ? 0 : data_[used_++] % bound; }
  template <size_t n>
  std::string one_of(const char* const (&table)[n]) {
    return table[next(n)];
  }
  size_t used() const { return used_; }

 private:
  const uint8_t* data_;
  size_t size_, used_ = 0;
};

/// In braces, the parts are written from the first to the last by every compiler.
std::string joined(std::initializer_list<std::string> parts) {
  std::string out;
  for (const std::string& part : parts) out += part;
  return out;
}

class TemplateWriter {
 public:
  explicit TemplateWriter(Bytes& bytes) : bytes_(bytes) {}

  std::string body(int depth) {
    std::string out;
    for (size_t n = 1 + bytes_.next(3); n > 0 && out.size() < kSourceMax; --n) out += statement(depth);
    return out;
  }

 private:
  /// In the order that the syntax asks for, each kind but the first once.
  std::string arguments(int depth) {
    static const char* const kPrefixes[] = {"", "attribute=", "width=", "*", "**"};
    std::string out = "(";
    for (size_t n = bytes_.next(4), kind = 0; n > 0 && kind < std::size(kPrefixes); --n) {
      if (bytes_.next(2) == 1) kind += bytes_.next(std::size(kPrefixes) - kind);
      out += joined({out == "(" ? "" : ", ", kPrefixes[kind]});
      out += bytes_.next(3) == 0 ? joined({"'", bytes_.one_of(kFilters), "'"}) : expression(depth - 1);
      kind += kind > 0;
    }
    return out + ")";
  }

  std::string expression(int depth) {
    if (depth <= 0) return bytes_.one_of(kAtoms);
    const int inner = depth - 1;
    switch (bytes_.next(12)) {
      case 0:
        return joined({expression(inner), "|", bytes_.one_of(kFilters)});
      case 1:
        return joined({expression(inner), "|", bytes_.one_of(kFilters), arguments(inner)});
      case 2:
        return joined({"(", expression(inner), ").", bytes_.one_of(kMembers), arguments(inner)});
      case 3:
        return joined({"(", expression(inner), ").", bytes_.one_of(kMembers)});
      case 4:
        return joined({"(", expression(inner), ")[", expression(inner), "]"});
      case 5:
        return joined({"(", expression(inner), ")[", expression(inner), ":", expression(inner), "]"});
      case 6:
        return joined({"(", expression(inner), " ", bytes_.one_of(kOperators), " ", expression(inner), ")"});
      case 7:
        return joined({"(", expression(inner), " is ", bytes_.one_of(kTests), ")"});
      case 8:
        return joined({"(", expression(inner), " if ", expression(inner), " else ", expression(inner), ")"});
      case 9:
        return joined({"[", expression(inner), ", ", expression(inner), "]"});
      case 10:
        return joined({"{", expression(inner), ": ", expression(inner), "}"});
      default:
        return bytes_.one_of(kAtoms);
    }
  }

  std::string statement(int depth) {
    if (depth <= 0) return joined({"{{ ", expression(4), " }}"});
    const int inner = depth - 1;
    switch (bytes_.next(10)) {
      case 0:
        return joined({"{% if ", expression(3), " %}", body(inner), "{% else %}", body(inner), "{% endif %}"});
      case 1:
        return joined({"{% for x in ", expression(3), " %}", body(inner), "{% else %}", body(inner), "{% endfor %}"});
      case 2:
        return joined(
            {"{% for x in range(9) %}{% if ", expression(2), " %}{% break %}{% endif %}", body(inner), "{% endfor %}"});
      case 3:
        return joined({"{% set x = ", expression(4), " %}"});
      case 4:
        return joined({"{% set g = ", expression(3), "|select %}"});
      case 5:
        return joined({"{% set s %}", body(inner), "{% endset %}"});
      case 6:
        return joined(
            {"{% macro m(a, b=1) %}", body(inner), "{{ a }}{{ varargs }}{% endmacro %}{{ m", arguments(3), " }}"});
      case 7:
        return joined(
            {"{% set n = namespace(x=1) %}{% for y in l %}{% set n.x = ", expression(3), " %}{% endfor %}{{ n.x }}"});
      case 8:
        return joined({"{% filter ", bytes_.one_of(kFilters), " %}", body(inner), "{% endfilter %}"});
      default:
        return joined({"{{ ", expression(4), " }}"});
    }
  }

  Bytes& bytes_;
};

class VariableWriter {
 public:
  explicit VariableWriter(Bytes& bytes) : bytes_(bytes) {}

  Json variables() {
    Json all = usual_variables();
    for (const std::string name : kVariables) {
      switch (bytes_.next(5)) {
        case 0:
          break;
        case 1:
          all.erase(name);
          break;
        case 2:
          all[name] = messages();
          break;
        default:
          all[name] = value(3);
      }
    }
    return all;
  }

 private:
  std::string text() {
    switch (bytes_.next(4)) {
      case 0: {  // any bytes, so UTF-8 that is broken, too
        std::string out(bytes_.next(8), '\0');
        for (char& c : out) c = static_cast<char>(bytes_.next(256));
        return out;
      }
      case 1: {
        const std::string part = bytes_.one_of(kTexts);
        std::string out;
        for (size_t n = bytes_.next(64); n > 0; --n) out += part;
        return out;
      }
      default:
        return bytes_.one_of(kTexts);
    }
  }

  Json number() {
    static const Json kNumbers[] = {0, 1, -1, 7, INT64_MAX, INT64_MIN, UINT64_MAX, 0.0, -0.0, 2.5, 1e22, 1e-5, 1e308};
    return kNumbers[bytes_.next(std::size(kNumbers))];
  }

  Json value(int depth) {
    switch (bytes_.next(depth > 0 ? 8 : 5)) {
      case 0:
        return nullptr;
      case 1:
        return bytes_.next(2) == 1;
      case 2:
        return number();
      case 3:
      case 4:
        return text();
      case 5:
      case 6: {
        Json list = Json::array();
        for (size_t n = bytes_.next(4); n > 0; --n) list.push_back(value(depth - 1));
        return list;
      }
      default: {
        Json dict = Json::object();
        for (size_t n = bytes_.next(4); n > 0; --n) {
          const std::string key = bytes_.next(4) == 0 ? text() : bytes_.one_of(kMembers);
          dict[key] = value(depth - 1);
        }
        return dict;
      }
    }
  }

  Json messages() {
    Json list = Json::array();
    for (size_t n = 1 + bytes_.next(4); n > 0; --n) {
      Json message = {{"role", bytes_.one_of(kRoles)}};
      if (const size_t kind = bytes_.next(4); kind > 0) message["content"] = kind == 1 ? value(2) : Json(text());
      if (bytes_.next(4) == 0) message["tool_calls"] = value(3);
      list.push_back(std::move(message));
    }
    return list;
  }

  Bytes& bytes_;
};

Rendering outcome(const jinja::Template& parsed, const Json& variables) {
  try {
    std::vector<std::pair<std::string, jinja::Value>> globals;
    for (const auto& [name, value] : variables.items()) globals.emplace_back(name, jinja::from_json(value));
    jinja::Interpreter interpreter(std::move(globals), {}, kUnits);
    return {Rendering::Kind::kText, interpreter.render(parsed)};
  } catch (const jinja::TemplateError& error) {
    return {Rendering::Kind::kError, error.message};
  }
}

}  // namespace

Json usual_variables() {
  return Json::parse(
      R"({"s": "He said: <b>&</b> é\n", "l": [3, 1, "b", null, [2]], 
    "d": {"role": "x", "k": {"z": 1}, "": 2.5}, "n": -7,
    "messages": [{"role": "user", "content": "hi"},
                 {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f"}}]}]})");
}

GeneratedChat generated_chat(const uint8_t* data, size_t size) {
  const std::vector<uint8_t> from_end(std::reverse_iterator(data + size),
                                      std::reverse_iterator(data + size - size / 2));
  Bytes last(from_end.data(), from_end.size());
  Json variables = VariableWriter(last).variables();
  Bytes first(data, size - last.used());
  return {TemplateWriter(first).body(3), std::move(variables)};
}

Rendering render_twice(std::string_view source, const Json& variables) {
  jinja::Template parsed;
  try {
    parsed = jinja::parse_template(jinja::sanitize_utf8(source));
  } catch (const jinja::TemplateError& error) {
    return {Rendering::Kind::kNotParsed, error.message};
  }
  Rendering made = outcome(parsed, variables);
  const Rendering again = outcome(parsed, variables);
  MOESTRO_CHECK(made.text == again.text && made.kind == again.kind, "a template is rendered the same each time");
  MOESTRO_CHECK(made.kind != Rendering::Kind::kText || made.text.size() <= 16 * kUnits,
                "the limit bounds what is written");
  return made;
}

}  // namespace moestro::test
