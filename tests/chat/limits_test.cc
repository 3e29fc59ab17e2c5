// What a template may not do: each way to hang, to eat memory or to overflow the stack ends in an error.
#include <gmock/gmock.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <stop_token>

#include "orchestrator/chat/chat_template.h"

namespace moestro {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

Status error_of(const std::string& source, const Json& extra = Json::object()) {
  auto parsed = ChatTemplate::parse(source);
  if (!parsed.is_ok()) return parsed.status();
  const auto text = parsed->render(Json::array(), extra);
  return text.status();
}

std::string repeated(const std::string& text, size_t times) {
  std::string out;
  for (size_t i = 0; i < times; ++i) out += text;
  return out;
}

TEST(ChatLimits, ARenderingThatNobodyWantsEnds) {
  const auto parsed = ChatTemplate::parse("{% for i in range(99999) %}{{ 'a' * 9999 }}{% endfor %}");
  ASSERT_TRUE(parsed.is_ok()) << parsed.status().message();
  const auto rendered = [&](const std::stop_token& stop) {
    return parsed->render(Json::array(), Json::object(), std::chrono::system_clock::now(), stop).status().code();
  };
  std::stop_source stop;
  EXPECT_EQ(rendered(stop.get_token()), Code::kExhausted) << "it is stopped by its limit, if by nothing else";
  stop.request_stop();
  EXPECT_EQ(rendered(stop.get_token()), Code::kCancelled);
}

TEST(ChatLimits, HostileTemplatesEnd) {
  const std::string grow = "{% set ns = namespace(x=['a']) %}{% for i in range(1000) %}";
  const std::string sources[] = {
      "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
      "{{ 'x' * 10000000000 }}",
      "{{ [0] * 10000000000 }}",
      "{% set ns = namespace(x='ab') %}{% for i in range(100) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
      grow + "{% set ns.x = [ns.x] %}{% endfor %}",
      grow + "{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
      grow + "{% set ns.x = ns.x + ns.x %}{% endfor %}",
      "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
      "{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}",
      repeated("{% if true %}", 5000),
      "{{ " + repeated("(", 50000) + "1" + repeated(")", 50000) + " }}",
      "{{ " + repeated("[", 50000) + repeated("]", 50000) + " }}",
      "{{ " + repeated("not ", 50000) + "1 }}",
      "{{ " + repeated("-", 50000) + "1 }}",
      "{{ 1" + repeated(" + 1", 50000) + " }}",
      "{{ x" + repeated(".y", 50000) + " }}",
      "{{ x" + repeated("|trim", 50000) + " }}",
      "{% set " + repeated("(", 50000) + "x" + repeated(")", 50000) + " = 1 %}",
      "{% for i in range(90000) %}{{ 'a' * 100000 }}{% endfor %}",
      "{{ ('a' * 1000000).replace('', 'b' * 1000000) }}",
      "{{ ('\n' * 1000000)|indent('x' * 1000000, blank=true) }}",
      "{{ 'x'.center(10000000000) }}",
      "{{ range(90000)|map('tojson', indent=4)|map('center', 90000)|list }}",
      "{{ ('{0}' * 1000000).format('x' * 1000000) }}",
      "{{ ('%s' * 1000000) % ((['x' * 1000] * 1000000)|join,) }}",
      "{{ ('[' * 200 ~ ']' * 200)|from_json }}",
  };
  for (const std::string& source : sources) {
    SCOPED_TRACE(source.substr(0, 100));
    const Status status = error_of(source);
    EXPECT_EQ(status.code(), Code::kExhausted) << status.message();
  }
}

TEST(ChatLimits, ASourceBeyondOneMebibyteIsRefused) {
  EXPECT_THAT(error_of(std::string((1 << 20) + 1, 'x')).message(), HasSubstr("longer than 1 MiB"));
}

TEST(ChatLimits, DeepJsonIsRefused) {
  Json deep = 1;
  for (int i = 0; i < 1000; ++i) deep = Json::array({std::move(deep)});
  EXPECT_EQ(error_of("{{ deep }}", {{"deep", std::move(deep)}}).code(), Code::kExhausted);
}

TEST(ChatLimits, LongConversationsAreNotRefused) {
  Json messages = Json::array();
  for (int i = 0; i < 2000; ++i)
    messages.push_back({{"role", i % 2 ? "assistant" : "user"}, {"content", std::string(2000, 'x')}});
  const auto parsed = ChatTemplate::parse(
      "{% for m in messages %}{% if m.content is string and '</think>' in m.content %}{{ "
      "m.content.split('</think>')[-1] }}"
      "{% else %}{{ '<|' + m['role'] + '|>' + m['content'] | trim + messages[loop.index0 - 1].role }}{% "
      "endif %}{% endfor %}");
  ASSERT_TRUE(parsed.is_ok());
  const auto text = parsed->render(messages, Json::object());
  ASSERT_TRUE(text.is_ok()) << text.status().message();
  EXPECT_GT(text->size(), 4'000'000u);
}

TEST(ChatErrors, SayWhatAndWhere) {
  struct Case {
    const char* source;
    Code code;
    const char* says;
  };
  const Case cases[] = {
      {"a\nb {% include 'x' %}", Code::kUnsupported, "line 2: the tag 'include'"},
      {"\n\n{{ x|nosuch }}", Code::kUnsupported, "line 3: the filter 'nosuch'"},
      {"{{ x is nosuch }}", Code::kUnsupported, "the test 'nosuch'"},
      {"{{ x is defined is defined }}", Code::kInvalidArgument, "tests cannot be chained"},
      {"{{ range(*[1], 2) }}", Code::kInvalidArgument, "a positional argument follows"},
      {"{{ range(*5) }}", Code::kInvalidArgument, "'int' object is not iterable"},
      {"{{ range(**[]) }}", Code::kInvalidArgument, "must be a mapping"},
      {"{{ dict(a=1, **{'a': 2}) }}", Code::kInvalidArgument, "multiple values"},
      {"{% if x %}{{ x|nosuch }}{% endif %}{{ 1|nosuch }}", Code::kUnsupported, "the filter 'nosuch'"},
      {"{% if y %}{% endif %}{% if not y %}{{ y|nosuch }}{% endif %}", Code::kUnsupported, "the filter 'nosuch'"},
      {"{% for x in y recursive %}{% endfor %}", Code::kUnsupported, "recursive"},
      {"{{ 'a'.encode() }}", Code::kUnsupported, "the string method 'encode'"},
      {"{{ '{:>99999999}'.format(1) }}", Code::kUnsupported, "a width beyond 10000"},
      {"{{ '%99999999d' % 1 }}", Code::kUnsupported, "a width beyond 10000"},
      {"{{ '{0.real}'.format(1) }}", Code::kUnsupported, "an attribute in a string format"},
      {"{{ [1]|select }}", Code::kUnsupported, "printing a generator"},
      {"{% set n = namespace() %}{{ n }}", Code::kUnsupported, "printing a Namespace"},
      {"{{ 'x'|from_json }}", Code::kInvalidArgument, "not JSON"},
      {"{% set g = [1, 2]|select %}{% for x in g %}{% break %}{% endfor %}{{ g|list }}", Code::kUnsupported,
       "left from with 'break'"},
      {"{% set n = namespace(_x=1) %}", Code::kInvalidArgument, "cannot begin with '_'"},
      {"{% if x %}", Code::kInvalidArgument, "expected {% endif %}, found the end of the template"},
      {"{% endif %}", Code::kUnsupported, "'endif'"},
      {"{{ 'abc }}", Code::kInvalidArgument, "a string has no end"},
      {"{# abc", Code::kInvalidArgument, "a comment has no end"},
      {"{{ 1 + }}", Code::kInvalidArgument, "expected an expression, found '}}'"},
      {"\n{{ x.y }}", Code::kInvalidArgument, "line 2: 'x' is undefined"},
      {"{{ 'a' + 1 }}", Code::kInvalidArgument, "unsupported operand type(s) for +: 'str' and 'int'"},
      {"{{ [].append(1) }}", Code::kInvalidArgument, "'append' of 'list' object is unsafe"},
      {"{{ 9223372036854775807 + 1 }}", Code::kInvalidArgument, "beyond 64 bits"},
      {"{{ (-9223372036854775807 - 1) // -1 }}", Code::kInvalidArgument, "beyond 64 bits"},
      {"{{ 1 // 0 }}", Code::kInvalidArgument, "by zero"},
      {"{{ 1 / 0 }}", Code::kInvalidArgument, "by zero"},
      {"{% set n = namespace() %}{% set n.x = n %}", Code::kUnsupported, "a namespace that holds a namespace"},
      {"{{ raise_exception('only this') }}", Code::kInvalidArgument, "only this"},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.source);
    const Status status = error_of(one.source);
    EXPECT_EQ(status.code(), one.code);
    EXPECT_THAT(status.message(), HasSubstr(one.says));
  }
}

TEST(ChatTemplate, PlainJsonWorksToo) {
  const auto parsed = ChatTemplate::parse("{{ messages[0].content }}{{ bos_token }}");
  const nlohmann::json messages = {{{"role", "user"}, {"content", "hi"}}},
                       extra = {{"bos_token", "<s>"}, {"messages", 1}};
  EXPECT_EQ(*parsed->render(messages, extra), "hi<s>");
}

TEST(ChatTemplate, BrokenUtf8BecomesReplacementCharacters) {
  const auto parsed = ChatTemplate::parse("{{ messages|length }}{{ x }}");
  EXPECT_EQ(*parsed->render(Json::array(), Json{{"x", "a\xFF"}}), "0a\uFFFD");
}

}  // namespace
}  // namespace moestro
