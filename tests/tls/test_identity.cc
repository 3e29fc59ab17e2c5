#include "tests/tls/test_identity.h"

#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <memory>

#include "common/check.h"

namespace moestro::test {
namespace {

constexpr long kDay = 24 * 3600;

struct Free {
  void operator()(X509* p) const { X509_free(p); }
  void operator()(EVP_PKEY* p) const { EVP_PKEY_free(p); }
  void operator()(X509_EXTENSION* p) const { X509_EXTENSION_free(p); }
  void operator()(std::FILE* p) const { std::fclose(p); }
};
template <typename T>
using Owned = std::unique_ptr<T, Free>;

Owned<std::FILE> open(const std::filesystem::path& file) {
  Owned<std::FILE> f(std::fopen(file.c_str(), "w"));
  MOESTRO_CHECK(f != nullptr, file.string());
  return f;
}

}  // namespace

void make_identity(const std::filesystem::path& dir, const std::string& stem, const TestIdentity& wanted) {
  static std::atomic<long> serial{1};
  const Owned<EVP_PKEY> key(EVP_EC_gen("P-256"));
  const Owned<X509> certificate(X509_new());
  MOESTRO_CHECK(key && certificate, "OpenSSL makes no key");
  X509* c = certificate.get();
  X509_set_version(c, 2);
  ASN1_INTEGER_set(X509_get_serialNumber(c), serial++);
  X509_gmtime_adj(X509_getm_notBefore(c), -kDay + std::min(0, wanted.days - 1) * kDay);
  X509_gmtime_adj(X509_getm_notAfter(c), wanted.days * kDay);
  X509_set_pubkey(c, key.get());
  X509_NAME* name = X509_get_subject_name(c);
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8, reinterpret_cast<const unsigned char*>(wanted.name.c_str()), -1,
                             -1, 0);
  X509_set_issuer_name(c, name);
  const std::string names = "DNS:" + wanted.name + (wanted.loopback ? ",IP:127.0.0.1" : "");
  const Owned<X509_EXTENSION> extension(X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name, names.c_str()));
  X509_add_ext(c, extension.get(), -1);
  MOESTRO_CHECK(X509_sign(c, key.get(), EVP_sha256()) > 0, "OpenSSL signs no certificate");
  MOESTRO_CHECK(PEM_write_X509(open(dir / (stem + ".crt")).get(), c) == 1, "no certificate written");
  const bool locked = !wanted.passphrase.empty();
  MOESTRO_CHECK(
      PEM_write_PKCS8PrivateKey(open(dir / (stem + ".key")).get(), key.get(), locked ? EVP_aes_256_cbc() : nullptr,
                                locked ? wanted.passphrase.c_str() : nullptr,
                                static_cast<int>(wanted.passphrase.size()), nullptr, nullptr) == 1,
      "no key written");
}

}  // namespace moestro::test
