#pragma once
// Sending and receiving store messages; only for this folder's .cc files.

#include <functional>

#include "common/net/zmq_socket.h"
#include "common/wire/store_messages_generated.h"

namespace moestro::store {

inline constexpr uint32_t kClientProtocol = 2;

template <typename T>
net::Bytes encode(flatbuffers::FlatBufferBuilder& b, wire::StoreBody kind, flatbuffers::Offset<T> body) {
  b.Finish(wire::CreateStoreMessage(b, kind, body.Union()), wire::StoreMessageIdentifier());
  const auto* begin = reinterpret_cast<const std::byte*>(b.GetBufferPointer());
  return net::Bytes(begin, begin + b.GetSize());
}

/// The message in these bytes; null if they are not a message.
inline const wire::StoreMessage* decode(const net::Bytes& bytes) {
  const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
  flatbuffers::Verifier verifier(data, bytes.size());
  if (bytes.size() < 8 || !wire::VerifyStoreMessageBuffer(verifier)) return nullptr;
  const wire::StoreMessage* message = wire::GetStoreMessage(data);
  return message->body() == nullptr ? nullptr : message;  // the verifier lets a kind without a body pass
}

inline Status refusal(const wire::StoreRefused& refused) {
  const uint32_t code = refused.code();
  const bool known = code > 0 && code <= static_cast<uint32_t>(Code::kInternal);
  return Status(known ? static_cast<Code>(code) : Code::kInternal,
                refused.message() ? refused.message()->str() : "refused by the store");
}

/// Waits until `deadline` for a message of kind `kind` (the bytes of it) or a refusal.
inline Result<net::Bytes> receive_reply(net::DealerSocket& socket, wire::StoreBody kind,
                                        std::chrono::steady_clock::time_point deadline, const std::string& endpoint) {
  while (true) {
    MOESTRO_ASSIGN_OR_RETURN(auto bytes, socket.receive());
    if (bytes) {
      const wire::StoreMessage* message = decode(*bytes);
      if (message == nullptr) return corrupt(endpoint + " sent what is not a store message");
      if (message->body_type() == wire::StoreBody::StoreRefused) return refusal(*message->body_as_StoreRefused());
      if (message->body_type() == kind) return std::move(*bytes);
      continue;
    }
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0)
      return unavailable("no store answers at " + endpoint + ": is moestro-store running with this run directory?");
    MOESTRO_ASSIGN_OR_RETURN([[maybe_unused]] const bool ready, socket.wait(left));
  }
}

}  // namespace moestro::store
