#include "orchestrator/page/status_page.h"

#include <openssl/evp.h>

#include <array>

namespace moestro {
std::string_view status_html();  // generated
}

namespace moestro::orchestrator {

std::string inline_hash(std::string_view html, std::string_view tag) {
  const std::string open = "<" + std::string(tag) + ">", close = "</" + std::string(tag) + ">";
  const size_t begin = html.find(open);
  const size_t end = html.find(close, begin);
  if (begin == std::string_view::npos || end == std::string_view::npos) return "";
  const std::string_view inside = html.substr(begin + open.size(), end - begin - open.size());
  std::array<unsigned char, 32> hash{};
  unsigned size = 0;
  EVP_Digest(inside.data(), inside.size(), hash.data(), &size, EVP_sha256(), nullptr);
  std::array<unsigned char, 48> base64{};
  const int length = EVP_EncodeBlock(base64.data(), hash.data(), static_cast<int>(hash.size()));
  return "'sha256-" + std::string(reinterpret_cast<const char*>(base64.data()), static_cast<size_t>(length)) + "'";
}

const StatusPage& status_page() {
  static const StatusPage page = [] {
    StatusPage p{std::string(status_html()), {}};
    const std::string policy =
        "default-src 'none'; script-src " + inline_hash(p.html, "script") + "; style-src " +
        inline_hash(p.html, "style") +
        "; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
    p.headers = {{"Content-Security-Policy", policy},
                 {"Cache-Control", "no-cache"},
                 {"X-Content-Type-Options", "nosniff"},
                 {"Referrer-Policy", "no-referrer"}};
    return p;
  }();
  return page;
}

}  // namespace moestro::orchestrator
