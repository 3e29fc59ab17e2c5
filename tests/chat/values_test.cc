// What a value lends out cannot outlive it: the mistakes do not compile.
#include <gmock/gmock.h>

#include <utility>

#include "orchestrator/chat/value.h"

namespace moestro::jinja {
namespace {

template <typename T>
concept LendsItsText = requires {
  std::declval<T>().as_string();
};
template <typename T>
concept LendsItsList = requires {
  std::declval<T>().as_list();
};
template <typename T>
concept LendsItsDict = requires {
  std::declval<T>().as_dict();
};
template <typename T>
concept LendsAnItem = requires {
  std::declval<T>()[0];
};
template <typename T>
concept CanBeWalked = requires {
  std::declval<T>().begin();
};

static_assert(LendsItsText<Value&> && !LendsItsText<Value> && !LendsItsText<const Value>);
static_assert(LendsItsList<Value&> && !LendsItsList<Value> && !LendsItsList<const Value>);
static_assert(LendsItsDict<Value&> && !LendsItsDict<Value> && !LendsItsDict<const Value>);
static_assert(LendsAnItem<Items&> && !LendsAnItem<Items>);
static_assert(CanBeWalked<Items&> && !CanBeWalked<Items>, "a range-for holds its range as an lvalue");

TEST(ChatValues, ARangeOverATemporaryKeepsItsItems) {
  std::string text;
  for (const Value& item : iterate(Value::string("a\u00e9b"))) text += item.as_string() + ".";
  for (const Value& item : iterate(Value::dict({{Value::string("k"), Value::none()}}))) text += item.as_string();
  for (const Value& item : iterate(Value::list({Value::string("l")}))) text += item.as_string();
  EXPECT_EQ(text, "a.\u00e9.b.kl");
}

TEST(ChatValues, AGeneratorGivesEachItemOnce) {
  const Value g = Value::generator({Value::integer(1), Value::integer(2)});
  EXPECT_EQ(next_of(g.as_generator())->as_int(), 1);
  EXPECT_EQ(iterate(g).size(), 1u);
  EXPECT_EQ(iterate(g).size(), 0u);
  EXPECT_TRUE(g.truthy());
}

}  // namespace
}  // namespace moestro::jinja
