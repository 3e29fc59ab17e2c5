// fuzz-deps: moestro_chat nlohmann_json::nlohmann_json
// Chat templates. An input that starts with "{" is a template as it stands, then after a NUL
// the variables as JSON; else its bytes choose the parts of a template that nearly always parses. Each is rendered
// under a small limit, twice: both give the same text or the same error, and no more text than the limit allows.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/check.h"
#include "orchestrator/chat/chat_template.h"
#include "orchestrator/chat/error.h"
#include "orchestrator/chat/interpreter.h"
#include "orchestrator/chat/json_values.h"
#include "orchestrator/chat/text.h"

namespace jinja = moestro::jinja;
using Json = nlohmann::ordered_json;

namespace {

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

/// A template written by the bytes of an input; zeros when they have run out.
class Writer {
 public:
  Writer(const uint8_t* data, size_t size) : data_(data), end_(data + size) {}

  std::string body(int depth) {
    std::string out;
    for (size_t n = 1 + next(3); n > 0 && out.size() < kSourceMax; --n) out += statement(depth);
    return out;
  }

 private:
  size_t next(size_t bound) { return data_ == end_ ? 0 : *data_++ % bound; }
  template <size_t n>
  std::string one_of(const char* const (&table)[n]) {
    return table[next(n)];
  }

  std::string arguments(int depth) {
    std::string out = "(";
    for (size_t n = next(4), i = 0; i < n; ++i) {
      static const char* const kPrefixes[] = {"", "", "", "attribute=", "width=", "*", "**"};
      out += (i > 0 ? ", " : "") + one_of(kPrefixes) +
             (next(3) == 0 ? "'" + one_of(kFilters) + "'" : expression(depth - 1));
    }
    return out + ")";
  }

  std::string expression(int depth) {
    if (depth <= 0) return one_of(kAtoms);
    const int inner = depth - 1;
    switch (next(12)) {
      case 0:
        return expression(inner) + "|" + one_of(kFilters);
      case 1:
        return expression(inner) + "|" + one_of(kFilters) + arguments(inner);
      case 2:
        return "(" + expression(inner) + ")." + one_of(kMembers) + arguments(inner);
      case 3:
        return "(" + expression(inner) + ")." + one_of(kMembers);
      case 4:
        return "(" + expression(inner) + ")[" + expression(inner) + "]";
      case 5:
        return "(" + expression(inner) + ")[" + expression(inner) + ":" + expression(inner) + "]";
      case 6:
        return "(" + expression(inner) + " " + one_of(kOperators) + " " + expression(inner) + ")";
      case 7:
        return "(" + expression(inner) + " is " + one_of(kTests) + ")";
      case 8:
        return "(" + expression(inner) + " if " + expression(inner) + " else " + expression(inner) + ")";
      case 9:
        return "[" + expression(inner) + ", " + expression(inner) + "]";
      case 10:
        return "{" + expression(inner) + ": " + expression(inner) + "}";
      default:
        return one_of(kAtoms);
    }
  }

  std::string statement(int depth) {
    if (depth <= 0) return "{{ " + expression(4) + " }}";
    const int inner = depth - 1;
    switch (next(10)) {
      case 0:
        return "{% if " + expression(3) + " %}" + body(inner) + "{% else %}" + body(inner) + "{% endif %}";
      case 1:
        return "{% for x in " + expression(3) + " %}" + body(inner) + "{% else %}" + body(inner) + "{% endfor %}";
      case 2:
        return "{% for x in range(9) %}{% if " + expression(2) + " %}{% break %}{% endif %}" + body(inner) +
               "{% endfor %}";
      case 3:
        return "{% set x = " + expression(4) + " %}";
      case 4:
        return "{% set g = " + expression(3) + "|select %}";
      case 5:
        return "{% set s %}" + body(inner) + "{% endset %}";
      case 6:
        return "{% macro m(a, b=1) %}" + body(inner) + "{{ a }}{{ varargs }}{% endmacro %}{{ m" + arguments(3) + " }}";
      case 7:
        return "{% set n = namespace(x=1) %}{% for y in l %}{% set n.x = " + expression(3) + " %}{% endfor %}{{ n.x }}";
      case 8:
        return "{% filter " + one_of(kFilters) + " %}" + body(inner) + "{% endfilter %}";
      default:
        return "{{ " + expression(4) + " }}";
    }
  }

  const uint8_t* data_;
  const uint8_t* end_;
};

Json usual_context() {
  return Json::parse(
      R"({"s": "He said: <b>&</b> é\n", "l": [3, 1, "b", null, [2]], 
    "d": {"role": "x", "k": {"z": 1}, "": 2.5}, "n": -7,
    "messages": [{"role": "user", "content": "hi"},
                 {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f"}}]}]})");
}

/// The text, or the error in words.
std::string outcome(const jinja::Template& parsed, const Json& context, bool* is_text) {
  try {
    std::vector<std::pair<std::string, jinja::Value>> globals;
    for (auto it = context.begin(); it != context.end(); ++it)
      globals.emplace_back(it.key(), jinja::from_json(it.value()));
    jinja::Interpreter interpreter(std::move(globals), {}, kUnits);
    *is_text = true;
    return interpreter.render(parsed);
  } catch (const jinja::TemplateError& error) {
    *is_text = false;
    return error.message;
  }
}

void render(std::string_view source, const Json& context) {
  jinja::Template parsed;
  try {
    parsed = jinja::parse_template(jinja::sanitize_utf8(source));
  } catch (const jinja::TemplateError&) {
    return;
  }
  bool is_text = false, again_is_text = false;
  const std::string text = outcome(parsed, context, &is_text), again = outcome(parsed, context, &again_is_text);
  MOESTRO_CHECK(text == again && is_text == again_is_text, "a template is rendered the same each time");
  MOESTRO_CHECK(!is_text || text.size() <= 16 * kUnits, "the limit bounds what is written");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > 0 && data[0] == '{') {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    const size_t nul = std::min(text.find('\0'), text.size());
    Json context = Json::parse(text.substr(std::min(nul + 1, text.size())), nullptr, false);
    render(text.substr(0, nul), context.is_object() ? context : usual_context());
  } else {
    render(Writer(data, size).body(3), usual_context());
  }
  return 0;
}
