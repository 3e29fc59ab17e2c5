// The global functions of templates.
#include <array>
#include <ctime>

#include "orchestrator/chat/error.h"
#include "orchestrator/chat/interpreter.h"
#include "orchestrator/chat/library.h"

namespace moestro::jinja {

void check_namespace_item(const std::string& name, const Value& value) {
  if (name.starts_with('_')) fail("an attribute of a namespace cannot begin with '_': '" + name + "'");
  if (value.shape().holds_mutable)
    fail_unsupported("a namespace that holds a namespace, a loop or a function is not supported");
}

namespace {

constexpr int64_t kRangeMax = 100'000;  // the sandbox's own limit

Value function_range(Interpreter& interpreter, Arguments& arguments) {
  if (!arguments.named.empty()) fail("'range' takes no named arguments");
  if (arguments.positional.empty() || arguments.positional.size() > 3) fail("'range' takes 1 to 3 arguments");
  std::array<int64_t, 3> bounds{0, 0, 1};
  const size_t n = arguments.positional.size();
  for (size_t i = 0; i < n; ++i) bounds[n == 1 ? 1 : i] = int_argument("range", arguments.positional[i]);
  const auto [start, stop, step] = bounds;
  if (step == 0) fail("range() arg 3 must not be zero");
  std::vector<Value> items;
  for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
    if (static_cast<int64_t>(items.size()) >= kRangeMax)
      fail("Range too big. The sandbox blocks ranges larger than MAX_RANGE (100000).");
    items.push_back(Value::integer(i));
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  interpreter.charge(items.size());
  return Value::list(std::move(items), List::Kind::kRange);
}

Value function_namespace(Interpreter&, Arguments& arguments) {
  auto ns = std::make_shared<Namespace>();
  for (const Value& source : arguments.positional) {
    if (!source.is_dict()) fail("'namespace' needs a mapping or named arguments");
    for (const auto& [key, value] : source.as_dict().items)
      ns->items.emplace_back(text_argument("namespace", key), value);
  }
  for (auto& [name, value] : arguments.named) ns->items.emplace_back(name, value);
  for (const auto& [name, value] : ns->items) check_namespace_item(name, value);
  return Value::name_space(std::move(ns));
}

// dict(mapping), dict(pairs), dict(name=value, ...)
Value function_dict(Interpreter& interpreter, Arguments& arguments) {
  std::vector<std::pair<Value, Value>> items;
  if (arguments.positional.size() > 1) fail("'dict' takes at most 1 argument");
  if (!arguments.positional.empty() && arguments.positional[0].is_dict()) {
    items = arguments.positional[0].as_dict().items;
  } else if (!arguments.positional.empty()) {
    if (arguments.positional[0].is_undefined()) fail(arguments.positional[0].why_undefined());
    for (const Value& pair : iterate(arguments.positional[0])) {
      const Items both = iterate(pair);
      if (both.size() != 2) fail("'dict' needs pairs");
      check_hashable(both[0]);
      interpreter.charge(1 + items.size());
      set_item(items, both[0], both[1]);
    }
  }
  for (const auto& [name, value] : arguments.named) set_item(items, Value::string(name), value);
  return Value::dict(std::move(items));
}

Value function_raise(Interpreter& interpreter, Arguments& arguments) {
  const auto args = bind("raise_exception", arguments, {"message"}, 1);
  interpreter.charge(args[0]->shape().weight);
  throw TemplateError{Code::kInvalidArgument, to_text(*args[0]), 0, true};
}

Value function_strftime(Interpreter& interpreter, Arguments& arguments) {
  const auto args = bind("strftime_now", arguments, {"format"}, 1);
  const std::string& format = text_argument("strftime_now", *args[0]);
  if (format.empty()) return Value::string("");
  if (format.size() > 256) fail("the format of strftime_now is longer than 256 bytes");
  const std::time_t seconds = std::chrono::system_clock::to_time_t(interpreter.now());
  std::tm local{};
  localtime_r(&seconds, &local);
  std::array<char, 8192> text{};
  const size_t n = std::strftime(text.data(), text.size(), format.c_str(), &local);
  return Value::string(std::string(text.data(), n));
}

using Function = Value (*)(Interpreter&, Arguments&);
constexpr Named<Function> kFunctions[] = {{"range", function_range},
                                          {"namespace", function_namespace},
                                          {"dict", function_dict},
                                          {"raise_exception", function_raise},
                                          {"strftime_now", function_strftime}};

}  // namespace

std::optional<Value> find_function(std::string_view name) {
  if (const Function function = find_named(kFunctions, name)) return Value::callable(std::string(name), function);
  if (name == "lipsum" || name == "cycler" || name == "joiner") {
    fail_unsupported("the function '" + std::string(name) + "' is not supported");
  }
  return std::nullopt;
}

}  // namespace moestro::jinja
