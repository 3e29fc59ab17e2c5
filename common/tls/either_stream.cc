#include "common/tls/either_stream.h"

namespace moestro::tls {

void EitherStream::start_read(const BufferList<boost::asio::mutable_buffer>& buffers, Completion done) {
  if (tls_)
    tls_->async_read_some(buffers, std::move(done));
  else
    tcp_.async_read_some(buffers, std::move(done));
}

void EitherStream::start_write(const BufferList<boost::asio::const_buffer>& buffers, Completion done) {
  if (tls_)
    tls_->async_write_some(buffers, std::move(done));
  else
    tcp_.async_write_some(buffers, std::move(done));
}

}  // namespace moestro::tls
