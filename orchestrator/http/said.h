#pragma once
// A value that a coroutine waits for and that other code on its thread provides.

#include <boost/asio/awaitable.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <functional>
#include <memory>
#include <optional>

namespace moestro::orchestrator {

/// Awaits with an error code instead of an exception.
inline auto into(boost::system::error_code& error) {
  return boost::asio::redirect_error(boost::asio::use_awaitable, error);
}

/// The provider holds only a weak pointer, because the coroutine may be gone.
template <typename T>
struct Said {
  explicit Said(const boost::asio::any_io_executor& executor)
      : timer(executor, boost::asio::steady_timer::time_point::max()) {}
  static std::function<void(T)> teller(const std::shared_ptr<Said>& said) {
    return [weak = std::weak_ptr<Said>(said)](T told) {
      const auto self = weak.lock();
      if (!self) return;
      self->value = std::move(told);
      self->timer.cancel();
    };
  }
  boost::asio::awaitable<T> wait() {
    boost::system::error_code ignored;
    while (!value) co_await timer.async_wait(into(ignored));
    co_return std::move(*value);
  }
  boost::asio::steady_timer timer;
  std::optional<T> value;
};

}  // namespace moestro::orchestrator
